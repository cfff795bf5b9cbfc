"""A thinker that writes the same answer to everything, one piece a step."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from loadtest.bench.null import DELTAS
from pipeline.chunk import Chunk, End, Fence, Job, Prepare, Text, Usage
from pipeline.spec import Capabilities, Family
from pipeline.stage import Step, Work


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """It can't be told anything."""


class NullThinker:
    """It keeps how many pieces of each answer are written."""

    bound_ms = 1000
    batch = 64
    threads = 1

    def __init__(self) -> None:
        self._written: dict[Fence, int] = {}

    def load(self) -> None:
        """Nothing to load."""

    def admit(self, job: Job) -> None:
        """Begin an answer."""
        self._written[job.fence] = 0

    def prepare(self, ahead: Prepare) -> None:
        """It reads no prompt."""

    def step(self, work: Sequence[Work]) -> Step:
        """The next piece of each answer, and the end with the last of them."""
        return Step(tuple(chunk for w in work for chunk in self._write(w.fence)))

    def _write(self, fence: Fence) -> tuple[Chunk, ...]:
        at = self._written[fence]
        self._written[fence] = at + 1
        piece = Chunk(fence, "thinker", at, Text(DELTAS[at]))
        if at + 1 < len(DELTAS):
            return (piece,)
        del self._written[fence]
        return piece, Chunk(fence, "thinker", at + 1, End(usage=Usage(output_tokens=at + 1)), last=True)

    def interrupt(self) -> None:
        """A step is over at once."""

    def drop(self, fence: Fence) -> None:
        """Forget an answer."""
        self._written.pop(fence, None)

    def forget(self, stream: str) -> None:
        """Nothing is kept for a stream."""


def make(options: msgspec.Struct) -> NullThinker:
    """The thinker."""
    return NullThinker()


def describe(options: msgspec.Struct) -> Capabilities:
    """Its context is never full."""
    return Capabilities(model="null", context_tokens=4096)


FAMILY = Family("null.thinker", "thinker", (), Options, make, describe)
