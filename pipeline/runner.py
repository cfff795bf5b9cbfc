"""Runs one stepped stage on one thread, as its scheduler says."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import assert_never

import msgspec

from pipeline.carry import NO_PLANES, Leases, Planes, give_back
from pipeline.chunk import Fence, Job
from pipeline.errors import FailureKind, StageError
from pipeline.message import Acknowledged, Began, Emitted, Ended, Report
from pipeline.outgoing import RETRY_S, Outgoing
from pipeline.scheduler import (
    Acknowledge,
    Discard,
    Emit,
    Event,
    Interrupt,
    Put,
    Refused,
    Request,
    StageScheduler,
    StepDone,
    StepFailed,
    Turn,
    Wait,
)
from pipeline.stage import Step, Stepped, Work
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
    it; the stage lives. Where its reports leave the process, `most_bytes` of what one step gives may ride inside them,
    and `room` waits until as much may follow.
    """

    def __init__(
        self,
        stage: Stepped,
        scheduler: StageScheduler,
        report: Callable[[Report], None],
        *,
        cores: CoresFor = all_cores,
        planes: Planes = NO_PLANES,
        clock: Callable[[], float] = time.monotonic,
        most_bytes: int | None = None,
        room: Callable[[], None] = lambda: None,
    ) -> None:
        self._stage = stage
        self._scheduler = scheduler
        self._report = report
        self._cores = cores
        self._planes = planes
        self._clock = clock
        self._room = room
        self._outgoing = Outgoing(planes.senders, self._route, most_bytes=most_bytes)
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
            began = self._clock()
            leases = Leases(self._planes.receivers)
            end: Event
            try:
                with self._cores(self._stage.threads, turn.due):
                    waited_s = self._clock() - began
                    took = tuple((w.fence, len(w.inputs)) for w in turn.work if w.inputs)
                    self._report(Began(number, took, tuple(wait + waited_s for wait in turn.waits)))
                    end = self._perform(turn, leases)
            except Exception as error:  # the root of the stage's thread: whatever a model raises ends here
                log.exception("a step failed")
                end = self._failed(turn, error)
            finally:
                leases.release()
            self._over(end)
            self._report(Ended(number))

    def _failed(self, turn: Turn, error: Exception) -> StepFailed:
        """A turn that raised sees nothing of what it has not opened; its leases give back the rest."""
        for unseen in (*turn.admits, *(chunk for w in turn.work for chunk in w.inputs)):
            give_back(self._planes, unseen)
        return StepFailed(*_blame(error))

    def _over(self, end: Event) -> None:
        """Tell the scheduler how the turn ended; what it gave that is large goes to its plane first."""
        refused: dict[Fence, str] = {}
        if isinstance(end, StepDone):
            gave = self._outgoing.give(end.step.chunks, self._clock())
            refused = gave.refused
            step = msgspec.structs.replace(end.step, chunks=tuple(gave.chunks))
            end = StepDone(step, self._outgoing.kept)
        with self._changed:
            for fence, message in refused.items():
                self._apply(Refused(fence, "capacity", message))
            self._apply(end)

    def _put_kept(self) -> None:
        """Let what found no room in its plane go out, if there is room now."""
        if not self._outgoing.kept:
            return
        self._room()
        gave = self._outgoing.retry(self._live, self._clock())
        with self._changed:
            if gave.chunks or gave.free:
                self._apply(Put(tuple(gave.chunks), frozenset(gave.free)))
            for fence, message in gave.refused.items():
                self._apply(Refused(fence, "capacity", message))

    def _live(self, fence: Fence) -> bool:
        with self._changed:
            return self._scheduler.live(fence)

    def _route(self, fence: Fence, port: str) -> str | None:
        with self._changed:
            return self._scheduler.route(fence, port)

    def _next(self) -> Turn | None:
        while True:
            self._put_kept()
            with self._changed:
                if self._stopped:
                    return None
                now = self._clock()
                wait_s: float | None = None  # as long as nothing is asked of the stage
                match self._scheduler.next(now):
                    case Turn() as turn:
                        return turn
                    case Wait(until):
                        wait_s = min(max(until - now, 0.0), WAKE_S)
                if self._outgoing.kept:
                    wait_s = RETRY_S if wait_s is None else min(wait_s, RETRY_S)
                self._changed.wait(wait_s)

    def _apply(self, event: Event) -> None:
        """Feed the scheduler and do at once what it says. The lock is held: effects keep their order."""
        for effect in self._scheduler.feed(event, self._clock()):
            match effect:
                case Emit(chunk):
                    self._report(Emitted(chunk, self._clock()))
                case Acknowledge(fence):
                    self._report(Acknowledged(fence))
                case Discard(unseen):
                    give_back(self._planes, unseen)
                case Interrupt():
                    # Under the lock, so that it can't hit the step after the one it is meant for.
                    self._stage.interrupt()
                case _:
                    assert_never(effect)

    def _perform(self, turn: Turn, leases: Leases) -> StepDone:
        for fence in turn.drops:
            self._stage.drop(fence)
        for stream in turn.forgets:
            self._stage.forget(stream)
        for ahead in turn.prepares:
            self._stage.prepare(ahead)
        for job in turn.admits:
            self._admit(job, leases)
        work = [opened for w in turn.work if (opened := self._open(w, leases)) is not None]
        return StepDone(self._stage.step(work) if work or turn.ahead else Step())

    def _open(self, work: Work, leases: Leases) -> Work | None:
        """The inputs of a job with their arrays at hand, if anybody still waits for it and they are there."""
        if self._live(work.fence):  # else it was refused just now, or cancelled while the turn waited for its cores
            try:
                return Work(work.fence, tuple(map(leases.open, work.inputs)))
            except PlaneError as error:  # who put them has died, and took them along
                with self._changed:
                    self._apply(Refused(work.fence, "stage_lost", f"what it was given is gone: {error}"))
        for chunk in work.inputs:
            give_back(self._planes, chunk)
        return None

    def _admit(self, job: Job, leases: Leases) -> None:
        if not self._live(job.fence):
            give_back(self._planes, job)
            return
        try:
            self._stage.admit(leases.open_job(job))
        except Exception as error:  # whatever a model raises ends this job only
            if not isinstance(error, StageError):
                log.exception("the stage could not take a job")
            with self._changed:
                self._apply(Refused(job.fence, *_blame(error)))


def _blame(error: Exception) -> tuple[FailureKind, str]:
    if isinstance(error, StageError):
        return error.kind, error.message
    if isinstance(error, MemoryError):
        return "capacity", f"memory ran out in a step: {str(error) or 'no more is known'}"
    return "stage_failed", f"{type(error).__name__}: {error}"
