"""Keeps the items of a conversation, in order, and says what of them the model is told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import assert_never

import msgspec

from duplex_server.realtime.input_buffer import Span
from duplex_server.realtime.playout import Track
from duplex_server.realtime.schema import (
    INPUT_RATE_HZ,
    Content,
    FunctionCall,
    FunctionCallOutput,
    GivenSound,
    InputAudio,
    InputImage,
    InputText,
    Item,
    Message,
    OutputAudio,
    OutputText,
)
from pipeline.chunk import CallPart, Part, ResultPart, TextPart


@dataclass(slots=True)
class Entry:
    """An item with what only the server knows about it."""

    item: Item
    revision: int = 0
    input_span: Span | None = None  # where a user's speech lies in the input
    track: Track | None = None  # how an assistant's speech lies along its transcript
    heard_samples: int | None = None  # the model is told what these first samples of it speak, and no more
    ours: bool = False  # a user's item that was our own voice, come back: the model is not told
    note: str = ""  # what the model is told of an item that has no words
    truncated: bool = False  # the client fixed `heard_samples`: the transcript ends there too
    given: GivenSound | None = None  # the sound that came with a client's item
    size: int = 0  # of a client's item, in bytes of JSON

    @property
    def spoken_samples(self) -> int:
        """The length of a user's speech."""
        return len(self.input_span) if self.input_span else self.given.samples if self.given else 0

    @property
    def samples(self) -> int:
        """The length of its sound, whoever speaks."""
        return self.track.samples if self.track else self.spoken_samples

    @property
    def kept_samples(self) -> int:
        """As much of its sound as a client may hear again."""
        cut = self.heard_samples if self.truncated else None
        return self.samples if cut is None else min(cut, self.samples)

    @property
    def audio_ms(self) -> int:
        return self.samples * 1000 // INPUT_RATE_HZ


def spoken_entry(item_id: str, span: Span, transcript: str | None = None) -> Entry:
    """A user's turn of speech; with its transcript, as it stands once that is known."""
    item = Message(id=item_id, role="user", content=(InputAudio(transcript=transcript),), status="completed")
    return Entry(item, revision=0 if transcript is None else 1, input_span=span)


class Conversation:
    """An ordered set of items with unique ids."""

    __slots__ = ("_entries", "id", "size")

    def __init__(self, conversation_id: str) -> None:
        self.id = conversation_id
        self.size = 0  # of what clients gave, in bytes
        self._entries: dict[str, Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, item_id: str) -> bool:
        return item_id in self._entries

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def get(self, item_id: str) -> Entry | None:
        return self._entries.get(item_id)

    @property
    def last_id(self) -> str | None:
        return next(reversed(self._entries), None)

    def previous_id(self, item_id: str) -> str | None:
        ids = list(self._entries)
        at = ids.index(item_id)
        return ids[at - 1] if at else None

    def add(self, entry: Entry, after: str | None) -> str | None:
        """Put an entry in: at the end (None), at the front ("root") or after an item. Gives the id before it."""
        self.size += entry.size
        if after is None or after == self.last_id:
            previous = self.last_id
            self._entries[entry.item.id] = entry
            return previous
        entries = list(self._entries.values())
        at = 0 if after == "root" else 1 + next(i for i, e in enumerate(entries) if e.item.id == after)
        entries.insert(at, entry)
        self._entries = {e.item.id: e for e in entries}
        return entries[at - 1].item.id if at else None

    def replace(self, item: Item) -> None:
        """An item grew or ended; one that was deleted meanwhile stays deleted."""
        entry = self._entries.get(item.id)
        if entry is None:
            return
        entry.item = item
        entry.revision += 1
        if entry.truncated and isinstance(item, Message):
            entry.item = _with_transcript(item, heard_text(entry))

    def hear(self, entry: Entry, samples: int) -> None:
        """Only the first `samples` of an assistant's speech were heard, as far as we know."""
        if entry.track is not None and not entry.truncated:
            entry.heard_samples = samples
            entry.revision += 1

    def truncate(self, entry: Entry, audio_end_ms: int) -> int:
        """Cut an assistant's speech where the client says it was last heard.

        Gives the cut in ms, never past the end. While the speech is still being made, the cut holds for what follows.
        """
        assert entry.track is not None
        audio_ms = entry.audio_ms
        if entry.item.status == "completed" and 0 < audio_ms <= audio_end_ms:
            entry.heard_samples, entry.truncated = None, True  # heard to its end, whatever we come to believe
            entry.revision += 1
            return audio_ms
        whole = audio_end_ms >= audio_ms
        samples = entry.track.samples if whole else audio_end_ms * INPUT_RATE_HZ // 1000
        entry.heard_samples, entry.truncated = samples, True
        self.replace(entry.item)
        if entry.item.status != "in_progress":
            entry.track.cut(samples)
        return min(audio_end_ms, audio_ms)

    def delete(self, item_id: str) -> bool:
        entry = self._entries.pop(item_id, None)
        self.size -= entry.size if entry is not None else 0
        return entry is not None

    def parts(self) -> tuple[Part, ...]:
        """What the model is told of all items."""
        return parts_of(self._entries.values())


def parts_of(entries: Iterable[Entry]) -> tuple[Part, ...]:
    """What the model is told of some items."""
    return tuple(part for entry in entries if (part := to_part(entry)) is not None)


def heard_text(entry: Entry) -> str:
    """What was heard of an assistant's speech, as far as we know."""
    content = entry.item.content if isinstance(entry.item, Message) else ()
    caption = "".join(part.transcript for part in content if isinstance(part, OutputAudio))
    if entry.track is None or entry.heard_samples is None:
        return caption
    return entry.track.heard_text(caption, entry.heard_samples)


def to_part(entry: Entry) -> Part | None:
    """One item as a prompt part; None when there is nothing to tell."""
    item, revision = entry.item, entry.revision
    if entry.ours:
        return None
    match item:
        case Message():
            text = heard_text(entry) if entry.track else "\n".join(filter(None, map(_text, item.content)))
            text = text or entry.note
            return TextPart(item.id, item.role, text, revision) if text.strip() else None
        case FunctionCall():
            if item.status != "completed":
                return None
            return CallPart(item.id, item.call_id, item.name, item.arguments, revision)
        case FunctionCallOutput():
            return ResultPart(item.id, item.call_id, item.output, revision)
    assert_never(item)


def _text(content: Content) -> str:
    match content:
        case InputText() | OutputText():
            return content.text
        case InputAudio():
            return content.transcript or ""
        case OutputAudio():
            return content.transcript
        case InputImage():
            return ""
    assert_never(content)


def _with_transcript(item: Message, transcript: str) -> Message:
    content = tuple(
        OutputAudio(transcript=transcript) if isinstance(part, OutputAudio) else part for part in item.content
    )
    return msgspec.structs.replace(item, content=content)
