"""Keeps the sound of a conversation's items, for a client that wants to hear one of them again."""

from __future__ import annotations

import binascii
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from duplex_server.realtime import wire
from duplex_server.realtime.schema import INPUT_RATE_HZ, InputAudio, Message, OutputAudio

FRAME_BYTES = 1_000_000
"""Some clients take no frame of 1 MiB: an item is shown without its sound rather than in a larger one."""
ITEM_S = 15
ITEM_BYTES = ITEM_S * INPUT_RATE_HZ * 2
"""No more than this of one item fits into such a frame, and so no more of it is kept."""
SHELF_BYTES = 16 * 1024 * 1024
"""All that is kept in one session: nearly six minutes. The oldest item's sound is let go first."""

Encode = Callable[[bytes], bytes]
"""Brings int16 at 24 kHz into the format in which a client hears it."""


@dataclass(slots=True)
class _Kept:
    """The beginning of an item's sound; `samples` is how long all of it is."""

    samples: int = 0
    pcm: bytearray = field(default_factory=bytearray)


class Shelf:
    """Sound by item, int16 at 24 kHz."""

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}
        self._bytes = 0

    def add(self, item_id: str, pcm: bytes, samples: int | None = None) -> None:
        """The item's sound goes on with this, or with so many `samples` of which this is the beginning."""
        kept = self._kept.setdefault(item_id, _Kept())
        whole = len(kept.pcm) == 2 * kept.samples
        kept.samples += len(pcm) // 2 if samples is None else samples
        if whole:
            taken = pcm[: ITEM_BYTES - len(kept.pcm)]
            kept.pcm += taken
            self._bytes += len(taken)
        for oldest in self._kept.values() if self._bytes > SHELF_BYTES else ():
            self._bytes -= len(oldest.pcm)
            oldest.pcm.clear()  # it stays known: what comes of it later is not its beginning
            if self._bytes <= SHELF_BYTES:
                break

    def let_go(self, item_id: str, from_sample: int = 0) -> None:
        """The item's sound from there on is not needed any more."""
        kept = self._kept.get(item_id)
        if kept is None:
            return
        kept.samples = min(kept.samples, from_sample)
        self._bytes -= len(kept.pcm[2 * from_sample :])
        del kept.pcm[2 * from_sample :]
        if not kept.pcm:
            del self._kept[item_id]

    def get(self, item_id: str, upto_sample: int) -> bytes | None:
        """The item's sound up to there, or as far as it goes; None unless all of that is kept."""
        kept = self._kept.get(item_id)
        if kept is None:
            return None
        end = 2 * min(upto_sample, kept.samples)
        return bytes(kept.pcm[:end]) if 0 < end <= len(kept.pcm) else None

    def show(self, event: wire.ItemRetrieved, upto_sample: int, encode: Encode) -> wire.ItemRetrieved:
        """The event with the item's sound up to there in it, where that is kept and fits into one frame."""
        pcm = self.get(event.item.id, upto_sample)
        if pcm is None or not isinstance(event.item, Message):
            return event
        audio = binascii.b2a_base64(encode(pcm), newline=False).decode()
        if len(audio) + len(wire.encode(event)) >= FRAME_BYTES:
            return event
        content = list(event.item.content)
        spoken = next((at for at, part in enumerate(content) if isinstance(part, InputAudio | OutputAudio)), None)
        if spoken is None:
            return event
        content[spoken] = msgspec.structs.replace(content[spoken], audio=audio)
        return msgspec.structs.replace(event, item=msgspec.structs.replace(event.item, content=tuple(content)))
