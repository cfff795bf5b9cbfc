"""Bounds what is under way on one edge, for one reply."""

from __future__ import annotations

import msgspec

from pipeline.chunk import Chunk, Text, port_of
from pipeline.spec import EdgeSpec

CHARACTERS = 65_536  # text that waits beyond the bound, about 15 000 words
OVERSHOOT = 256  # chunks that a source may still give after it was told to wait: those of its running step


class EdgeFull(Exception):
    """The source is further ahead than the edge's bound allows."""


class Edge:
    """Passes what leaves by the edge's port on in order, as long as the target has room.

    Text that must wait is joined; other chunks wait one by one.
    """

    def __init__(self, spec: EdgeSpec, *, characters: int = CHARACTERS, overshoot: int = OVERSHOOT) -> None:
        self.spec = spec
        self._credits = spec.bound
        self._most_characters = characters
        self._most_waiting = spec.bound + overshoot
        self._waiting: list[Chunk] = []
        self._dropped: list[Chunk] = []

    @property
    def waits(self) -> bool:
        """Whether something waits for room."""
        return bool(self._waiting)

    @property
    def stalled(self) -> bool:
        """Whether the source should give nothing more for now; text is small, its source never waits."""
        return self.spec.policy == "block" and any(not isinstance(c.payload, Text) for c in self._waiting)

    def carries(self, chunk: Chunk) -> bool:
        """Whether a chunk goes along this edge. The end of a job goes along none: it is not by a port."""
        return chunk.role == self.spec.source and port_of(chunk.payload) == self.spec.port

    def push(self, chunk: Chunk) -> tuple[Chunk, ...]:
        """What to feed to the target now. Raises `EdgeFull`; the chunk waits all the same."""
        if isinstance(chunk.payload, Text):
            self._join(chunk, chunk.payload.text)
        else:
            self._keep(chunk)
        return self._flush()

    def taken(self, count: int) -> tuple[Chunk, ...]:
        """What to feed now that the target took `count` chunks."""
        self._credits += count
        return self._flush()

    def dropped(self) -> tuple[Chunk, ...]:
        """The chunks that had to make room since the last call."""
        dropped, self._dropped = tuple(self._dropped), []
        return dropped

    def close(self) -> tuple[Chunk, ...]:
        """The chunks that wait and will not be passed on any more."""
        waiting, self._waiting = tuple(self._waiting), []
        return waiting

    def _keep(self, chunk: Chunk) -> None:
        self._waiting.append(chunk)
        if self.spec.policy == "drop_oldest" and self._credits == 0 and len(self._waiting) > self.spec.bound:
            self._dropped.append(self._waiting.pop(0))
        elif len(self._waiting) > self._most_waiting:
            raise EdgeFull(
                f"{len(self._waiting)} chunks wait for the {self.spec.target}, the bound is {self._most_waiting}"
            )

    def _join(self, chunk: Chunk, text: str) -> None:
        last = (
            self._waiting.pop().payload if self._waiting and isinstance(self._waiting[-1].payload, Text) else Text("")
        )
        assert isinstance(last, Text)
        text = last.text + text
        self._waiting.append(msgspec.structs.replace(chunk, payload=Text(text)))
        if self._credits == 0 and len(text) > self._most_characters:
            raise EdgeFull(
                f"{len(text)} characters wait for the {self.spec.target}, the bound is {self._most_characters}"
            )

    def _flush(self) -> tuple[Chunk, ...]:
        passed = tuple(self._waiting[: self._credits])
        self._credits -= len(passed)
        del self._waiting[: len(passed)]
        return passed
