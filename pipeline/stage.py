"""Defines what a stage is: the contract every model family fills and every worker relies on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from pipeline.chunk import Chunk, Fence, Job, Prepare


class Work(msgspec.Struct, frozen=True):
    """One job's share of a step: the chunks that arrived for it since its last step, in order."""

    fence: Fence
    inputs: tuple[Chunk, ...] = ()


class Step(msgspec.Struct, frozen=True):
    """What a step produced. Fences in `idle` can't go on before another input arrives for them.

    `more` matters after a step without work: preparation is left, so another such step is worth its time.
    """

    chunks: tuple[Chunk, ...] = ()
    idle: frozenset[Fence] = frozenset()
    more: bool = False


class Stepped(Protocol):
    """A stage that we schedule, one bounded step at a time. All methods but `interrupt` run on one thread."""

    @property
    def bound_ms(self) -> int:
        """The longest a step may take before the stage counts as hung."""

    @property
    def batch(self) -> int:
        """How many jobs one step takes at most."""

    @property
    def threads(self) -> int:
        """How many cores a step keeps busy."""

    def load(self) -> None:
        """Load and warm the model. Raises `StageError` with what is missing and what to do."""

    def admit(self, job: Job) -> None:
        """Take a job in; its first step follows. Raises `StageError` when the job can't be done."""

    def prepare(self, ahead: Prepare) -> None:
        """Note a prompt that is likely to come; work it off in steps while no job is admitted. May do nothing.

        Such a step gets no work: `step(())`. One follows every note, others for as long as `Step.more` says so.
        """

    def step(self, work: Sequence[Work]) -> Step:
        """Advance the given jobs by one unit. A job whose chunk has `last` set is over and needs no `drop`."""

    def interrupt(self) -> None:
        """End the running step early if the engine can. Called from another thread; the step returns normally."""

    def drop(self, fence: Fence) -> None:
        """Forget a job; an unknown fence is not an error."""

    def forget(self, stream: str) -> None:
        """Release everything held for a stream, caches included."""


class Served(Protocol):
    """A stage that schedules itself, such as a remote service. All methods run on the event loop's thread."""

    @property
    def slots(self) -> int:
        """How many jobs it takes at once."""

    async def load(self) -> None:
        """Make it ready. Raises `StageError` with what is missing and what to do."""

    def submit(self, job: Job, emit: Callable[[Chunk], None]) -> None:
        """Start a job; its chunks go to `emit`, the last of them with `last` set."""

    def cancel(self, fence: Fence) -> None:
        """Stop a job; no chunk of it is emitted afterwards."""

    def forget(self, stream: str) -> None:
        """Release everything held for a stream."""

    async def close(self) -> None:
        """Stop all jobs and release everything."""


class DetectorStream(Protocol):
    """Voice activity of one stream."""

    def probability(self, frame: NDArray[np.int16]) -> float:
        """The probability that a frame of exactly `frame_samples` samples holds speech."""


class Detector(Protocol):
    """A voice activity detector; light enough to run in the session's driver, before the session is fed."""

    @property
    def rate_hz(self) -> int:
        """The sample rate it works at."""

    @property
    def frame_samples(self) -> int:
        """The length of a frame at that rate."""

    def load(self) -> None:
        """Load and warm the model."""

    def open(self) -> DetectorStream:
        """A fresh state for one stream."""


Stage = Stepped | Served
