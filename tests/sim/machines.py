"""Runs a stage's scheduler in virtual time, on a machine that may be slow, hang, break or die."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import assert_never

from pipeline.chunk import Job
from pipeline.errors import FailureKind
from pipeline.host import Host
from pipeline.links import Listener
from pipeline.message import Acknowledged, Began, Emitted, Ended, Loaded, Report
from pipeline.scheduler import (
    INPUTS,
    JOBS,
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
from pipeline.stage import Step
from tests.sim.bodies import Body
from tests.sim.clock import Clock, Timer
from tests.sim.network import Line
from tests.sim.scenario import Health, Network

BOUND_MS = 5000
"""What a step may take; a machine that hangs takes far longer."""
HANG_S = 30.0
PIPE = Network(0.0002, 0.0002, 0.0, 0.0)
INTERRUPT_S = 0.004
"""How long a running step goes on when nobody waits for it."""
NEWS_S = 0.02
"""From a death to the news of what it was."""

_Told = Report | Callable[[], None]


class Machine:
    """One stage with its machine: a `pipeline.links.Link` in virtual time.

    One in a `process` can be killed and comes back with cold caches; one that is not goes on when it stops hanging.
    """

    def __init__(
        self,
        clock: Clock,
        rng: Random,
        make: Callable[[], Body],
        health: Health,
        *,
        ahead_s: float,
        process: bool,
    ) -> None:
        self._clock, self._rng, self._make, self.health = clock, rng, make, health
        self._ahead_s, self._process = ahead_s, process
        self._up = False
        self._lives = 0
        self._turns = 0
        self._ends: Timer | None = None  # of the running turn
        self._end: Event = StepDone(Step())
        self._wakes: Timer | None = None
        self._in: Line[Request] = Line(clock, rng, PIPE, self._take)
        self._out: Line[_Told] = Line(clock, rng, PIPE, self._told)
        self.body = make()

    # ---- a link ---------------------------------------------------------------------------------------------------

    async def start(self, listener: Listener) -> Loaded:
        return self.begin(listener)

    async def stop(self) -> None:
        self._rest()

    def begin(self, listener: Listener) -> Loaded:
        self._listener = listener
        self._load()
        return Loaded(BOUND_MS)

    def send(self, request: Request) -> bool:
        self._in.send(request)
        return True  # one that has died without anybody knowing takes all that is sent

    def kill(self, kind: FailureKind, reason: str) -> bool:
        if self._process and self._up:
            self._die(kind, reason)
        return self._process

    # ---- its life -------------------------------------------------------------------------------------------------

    def _load(self) -> None:
        self.body = self._make()
        self.scheduler = StageScheduler(self.body.role, self.body.batch, ahead_s=self._ahead_s)
        self._in = Line(self._clock, self._rng, PIPE, self._take)
        self._up = True
        self._lives += 1

    def _rest(self) -> None:
        self._up = False
        for timer in (self._ends, self._wakes):
            if timer is not None:
                timer.cancel()
        self._ends = self._wakes = None

    def _die(self, kind: FailureKind, reason: str) -> None:
        self._rest()
        self._in.cut()
        self._out.send(self._listener.down)
        self._clock.call_later(NEWS_S, self._out.send, lambda: self._listener.lost(kind, reason))
        self._clock.call_later(NEWS_S + self.health.respawn_s, self._revive)

    def _revive(self) -> None:
        self._load()
        self._out.send(lambda: self._listener.back(Loaded(BOUND_MS)))

    def _told(self, told: _Told) -> None:
        if callable(told):
            told()
        else:
            self._listener.reported(told)

    # ---- its work -------------------------------------------------------------------------------------------------

    def _take(self, request: Request) -> None:
        self._apply(request)
        self._next()

    def _apply(self, event: Event) -> None:
        for effect in self.scheduler.feed(event, self._clock.now):
            match effect:
                case Emit(chunk):
                    self._out.send(Emitted(chunk))
                case Acknowledge(fence):
                    self._out.send(Acknowledged(fence))
                case Interrupt():
                    self._interrupt()
                case _:
                    assert_never(effect)

    def _interrupt(self) -> None:
        """A pass of a recognizer can't be ended early; neither can a step that hangs."""
        if self._ends is None or self.body.role == "recognizer":
            return
        if self._ends.at - self._clock.now < BOUND_MS / 1000:
            self._ends.cancel()
            self._ends = self._clock.call_later(INTERRUPT_S, self._ended)

    def _next(self) -> None:
        if self._wakes is not None:
            self._wakes.cancel()
            self._wakes = None
        match self.scheduler.next(self._clock.now):
            case Turn() as turn:
                self._run(turn)
            case Wait(until):
                self._wakes = self._clock.call_at(until, self._next)

    def _run(self, turn: Turn) -> None:
        assert self._ends is None, "two turns at a time"
        self._turns += 1
        self._out.send(Began(self._turns, tuple((w.fence, len(w.inputs)) for w in turn.work if w.inputs)))
        step, seconds = self._perform(turn)
        self._end = StepDone(step)
        seconds *= self.health.slowness * self._rng.uniform(0.8, 1.3)
        chance = self._rng.random()
        if chance < self.health.dies:
            self._clock.call_later(seconds * self._rng.random(), self._may_die, self._lives)
        elif chance < self.health.dies + self.health.stalls:
            seconds += HANG_S
        elif chance < self.health.dies + self.health.stalls + self.health.raises:
            self._end = StepFailed("stage_failed", "a step raised")
        self._ends = self._clock.call_later(seconds, self._ended)

    def _may_die(self, life: int) -> None:
        if self._up and self._lives == life and self._process:
            self._die("stage_lost", "it was ended by signal 9")

    def _perform(self, turn: Turn) -> tuple[Step, float]:
        body = self.body
        for fence in turn.drops:
            body.drop(fence)
        for stream in turn.forgets:
            body.forget(stream)
        for ahead in turn.prepares:
            if body.role == "thinker":
                body.prepare(ahead)
        for job in turn.admits:
            self._admit(job)
        work = tuple(item for item in turn.work if self.scheduler.live(item.fence))
        if work or (turn.ahead and body.role == "thinker"):
            return body.step(work)
        return Step(), 0.0001

    def _admit(self, job: Job) -> None:
        if not self.scheduler.live(job.fence):
            return
        if self._rng.random() < self.health.refuses:
            self._apply(Refused(job.fence, "capacity", "there is no room"))
        else:
            self.body.admit(job)

    def _ended(self) -> None:
        self._ends = None
        self._apply(self._end)
        self._out.send(Ended(self._turns))
        self._next()

    # ---- what can be seen of it -----------------------------------------------------------------------------------

    def holds(self, stream: str) -> bool:
        """Whether anything of a stream is left in it."""
        return self._up and self.body.holds(stream)

    def check(self) -> None:
        """Its queues are within their bounds."""
        jobs = self.scheduler._jobs
        assert len(jobs) <= JOBS, "more jobs than a stage takes"
        assert all(len(live.inputs) <= INPUTS for live in jobs.values()), "more inputs than a job keeps"


class Stand(Host):
    """A `Host` whose timers run in virtual time."""

    def begin(self, clock: Clock, machine: Machine) -> None:
        self._loop = clock  # type: ignore[assignment]  # of the loop a host uses nothing but `call_later` and `call_soon`
        self.back(machine.begin(self))

    def live(self, stream: str) -> bool:
        """Whether anybody waits for a job of a stream."""
        return any(fence.stream == stream for fence in self._live)
