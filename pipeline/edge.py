"""Bounds what is under way from a thinker to a talker, for one reply."""

from __future__ import annotations

from pipeline.chunk import Chunk, End, Failed, Fence, Text

WINDOW = 64  # chunks the talker has not taken yet; well below what its scheduler keeps for a job
CHARACTERS = 65_536  # text that waits beyond the window, about 15 000 words


class EdgeFull(Exception):
    """The thinker is further ahead than the edge's bound allows."""


class Edge:
    """Passes text and its end on, in order, as long as the talker has room; beyond that, text is joined and waits."""

    def __init__(self, fence: Fence, *, window: int = WINDOW, characters: int = CHARACTERS) -> None:
        self._fence = fence
        self._credits = window
        self._most_characters = characters
        self._waiting: list[str] = []
        self._characters = 0
        self._end: End | Failed | None = None
        self._next_seq = 0

    def push(self, chunk: Chunk) -> tuple[Chunk, ...]:
        """What to feed to the talker now. Raises `EdgeFull`. Chunks that are not for speaking are passed over."""
        match chunk.payload:
            case Text(text):
                self._waiting.append(text)
                self._characters += len(text)
                if self._credits == 0 and self._characters > self._most_characters:
                    raise EdgeFull(
                        f"{self._characters} characters wait for the talker, the bound is {self._most_characters}"
                    )
            case End() | Failed() as end:
                self._end = end
        return self._flush()

    def taken(self, count: int) -> tuple[Chunk, ...]:
        """What to feed now that the talker took `count` chunks."""
        self._credits += count
        return self._flush()

    def _flush(self) -> tuple[Chunk, ...]:
        out = []
        if self._waiting and self._credits > 0:
            self._credits -= 1
            out.append(self._chunk(Text("".join(self._waiting)), last=False))
            self._waiting.clear()
            self._characters = 0
        if self._end is not None and not self._waiting:  # the end needs no credit: there is only one
            out.append(self._chunk(self._end, last=True))
            self._end = None
        return tuple(out)

    def _chunk(self, payload: Text | End | Failed, *, last: bool) -> Chunk:
        self._next_seq += 1
        return Chunk(self._fence, "thinker", self._next_seq - 1, payload, last=last)
