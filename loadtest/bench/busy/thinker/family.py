"""A thinker whose every step takes the same time and can't be ended early, as one decoding step of a model can't."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from pipeline.chunk import Chunk, Fence, Job, Prepare, Text
from pipeline.spec import Capabilities, Family
from pipeline.stage import Step, Work


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`step_ms` is spent computing, however many jobs are in the step."""

    step_ms: float = 20.0


class BusyThinker:
    """One word for each job in a step, until the job is cancelled."""

    bound_ms = 1000
    batch = 64
    threads = 1

    def __init__(self, options: Options) -> None:
        self._step_s = options.step_ms / 1000
        self._written: dict[Fence, int] = {}

    def load(self) -> None:
        """Nothing to load."""

    def admit(self, job: Job) -> None:
        """Begin an answer."""
        self._written[job.fence] = 0

    def prepare(self, ahead: Prepare) -> None:
        """It reads no prompt."""

    def step(self, work: Sequence[Work]) -> Step:
        """Compute, then one word for each."""
        until = time.perf_counter() + self._step_s
        while time.perf_counter() < until:
            pass
        return Step(tuple(self._write(w.fence) for w in work))

    def _write(self, fence: Fence) -> Chunk:
        self._written[fence] += 1
        return Chunk(fence, "thinker", self._written[fence] - 1, Text("word "))

    def interrupt(self) -> None:
        """A step goes on to its end."""

    def drop(self, fence: Fence) -> None:
        """Forget an answer."""
        self._written.pop(fence, None)

    def forget(self, stream: str) -> None:
        """Nothing is kept for a stream."""


def make(options: msgspec.Struct) -> BusyThinker:
    """The thinker."""
    assert isinstance(options, Options)
    return BusyThinker(options)


def describe(options: msgspec.Struct) -> Capabilities:
    """Its context is never full."""
    return Capabilities(model="busy", context_tokens=4096)


FAMILY = Family("busy.thinker", "thinker", (), Options, make, describe)
