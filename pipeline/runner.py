"""Runs one stepped stage on one thread, as its scheduler says."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext

import msgspec

from pipeline.chunk import Job, Transcribe
from pipeline.errors import FailureKind, StageError
from pipeline.message import Acknowledged, Began, Emitted, Ended, Report
from pipeline.scheduler import (
    Acknowledge,
    Emit,
    Event,
    Interrupt,
    Refused,
    Request,
    StageScheduler,
    StepDone,
    StepFailed,
    Turn,
    Wait,
)
from pipeline.stage import Step, Stepped
from transport.base import DataPlane, Ref, inline
from transport.errors import PlaneError

log = logging.getLogger(__name__)

WAKE_S = 60.0  # the longest single wait; a playout may be said to end at any far time

CoresFor = Callable[[int, float], AbstractContextManager[None]]  # threads, due -> held while a turn runs


def all_cores(threads: int, due: float) -> AbstractContextManager[None]:
    """The arbiter of a stage that has its process to itself: the operating system decides."""
    return nullcontext()


class StageRunner:
    """The thin shell around a `StageScheduler`: `run` on the stage's thread, `feed` from any other.

    A report may be made from either, always in the order in which it came about. A turn that raises ends the jobs in
    it; the stage lives.
    """

    def __init__(
        self,
        stage: Stepped,
        scheduler: StageScheduler,
        report: Callable[[Report], None],
        *,
        cores: CoresFor = all_cores,
        planes: Mapping[str, DataPlane] | None = None,
    ) -> None:
        self._stage = stage
        self._scheduler = scheduler
        self._report = report
        self._cores = cores
        self._planes = planes or {}
        self._changed = threading.Condition()  # the scheduler is fed by two threads: requests and ends of turns
        self._stopped = False

    def feed(self, request: Request) -> None:
        """Take a request in; a cancel reaches the running step at once."""
        with self._changed:
            self._apply(request)
            self._changed.notify()

    def stop(self) -> None:
        """Let `run` return after the running turn."""
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def run(self) -> None:
        """Run turns until stopped."""
        number = 0
        while (turn := self._next()) is not None:
            number += 1
            end: Event
            try:
                with self._cores(self._stage.threads, turn.due):
                    self._report(Began(number, tuple((w.fence, len(w.inputs)) for w in turn.work if w.inputs)))
                    end = self._perform(turn)
            except Exception as error:  # the root of the stage's thread: whatever a model raises ends here
                end = StepFailed(*_blame(error))
                log.exception("a step failed")
            with self._changed:
                self._apply(end)
            self._report(Ended(number))

    def _next(self) -> Turn | None:
        with self._changed:
            while not self._stopped:
                now = time.monotonic()
                match self._scheduler.next(now):
                    case Turn() as turn:
                        return turn
                    case Wait(until):
                        self._changed.wait(min(max(until - now, 0.0), WAKE_S))
                    case None:
                        self._changed.wait()  # as long as nothing is asked of the stage
            return None

    def _apply(self, event: Event) -> None:
        """Feed the scheduler and do at once what it says. The lock is held: effects keep their order."""
        for effect in self._scheduler.feed(event, time.monotonic()):
            match effect:
                case Emit(chunk):
                    self._report(Emitted(chunk))
                case Acknowledge(fence):
                    self._report(Acknowledged(fence))
                case Interrupt():
                    # Under the lock, so that it can't hit the step after the one it is meant for.
                    self._stage.interrupt()

    def _perform(self, turn: Turn) -> StepDone:
        for fence in turn.drops:
            self._stage.drop(fence)
        for stream in turn.forgets:
            self._stage.forget(stream)
        for ahead in turn.prepares:
            self._stage.prepare(ahead)
        for job in turn.admits:
            self._admit(job)
        with self._changed:  # some may have been refused just now, or cancelled while the turn waited for its cores
            work = tuple(w for w in turn.work if self._scheduler.live(w.fence))
        return StepDone(self._stage.step(work) if work or turn.ahead else Step())

    def _admit(self, job: Job) -> None:
        with self._changed:
            if not self._scheduler.live(job.fence):
                return
        try:
            self._stage.admit(self._resolve(job))
        except Exception as error:  # whatever a model raises ends this job only
            if not isinstance(error, StageError):
                log.exception("the stage could not take a job")
            with self._changed:
                self._apply(Refused(job.fence, *_blame(error)))

    def _resolve(self, job: Job) -> Job:
        """The job with its payload at hand: stages see blocks, never a plane. The credit returns here."""
        if not isinstance(job, Transcribe) or not isinstance(job.audio, Ref):
            return job
        plane = self._planes.get(job.audio.plane)
        if plane is None:
            raise PlaneError(f"the data plane {job.audio.plane!r} does not reach this worker: send the payload inline")
        with plane.open(job.audio) as lease:
            return msgspec.structs.replace(job, audio=inline(lease.arrays))


def _blame(error: Exception) -> tuple[FailureKind, str]:
    if isinstance(error, StageError):
        return error.kind, error.message
    return "stage_failed", f"{type(error).__name__}: {error}"
