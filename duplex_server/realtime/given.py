"""Takes the sound out of the items that a client gives: a session counts samples, the driver holds them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, repeat

import msgspec
from msgspec import UNSET, UnsetType

from duplex_server.realtime.schema import ContentIn, GivenSound, InputAudioIn, ItemIn, ItemReference, MessageIn
from duplex_server.realtime.wire import CreateItem, CreateResponse

HoldsItems = CreateItem | CreateResponse
"""The events that items come with."""


def sounds(event: HoldsItems) -> Iterator[tuple[str, str]]:
    """Each sound of an event, as base64, after the path at which it stands."""
    for path, item in _items(event):
        for index, part in enumerate(item.content if isinstance(item, MessageIn) else ()):
            if isinstance(part, InputAudioIn) and part.audio:
                yield f"{path}.content[{index}].audio", part.audio if isinstance(part.audio, str) else ""


def without_sounds(event: HoldsItems, lengths: Sequence[int]) -> HoldsItems:
    """The event with the length of each sound, in samples at 24 kHz, in the place of its base64."""
    numbered: Iterator[GivenSound | UnsetType] = chain(
        (GivenSound(number=number, samples=samples) for number, samples in enumerate(lengths)), repeat(UNSET)
    )
    if isinstance(event, CreateItem):
        return msgspec.structs.replace(event, item=_item(event.item, numbered))
    given = event.response
    if given is None or not isinstance(given.input, tuple):
        return event
    taken = tuple(item if isinstance(item, ItemReference) else _item(item, numbered) for item in given.input)
    return msgspec.structs.replace(event, response=msgspec.structs.replace(given, input=taken))


def _items(event: HoldsItems) -> Iterator[tuple[str, ItemIn | ItemReference]]:
    if isinstance(event, CreateItem):
        yield "item", event.item
    elif event.response is not None and isinstance(event.response.input, tuple):
        for index, item in enumerate(event.response.input):
            yield f"response.input[{index}]", item


def _item(item: ItemIn, numbered: Iterator[GivenSound | UnsetType]) -> ItemIn:
    if not isinstance(item, MessageIn):
        return item
    return msgspec.structs.replace(item, content=tuple(_part(part, numbered) for part in item.content))


def _part(part: ContentIn, numbered: Iterator[GivenSound | UnsetType]) -> ContentIn:
    if not isinstance(part, InputAudioIn):
        return part
    return msgspec.structs.replace(part, audio=UNSET, sound=next(numbered) if part.audio else UNSET)
