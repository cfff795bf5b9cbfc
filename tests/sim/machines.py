"""Runs a stage as its process or its thread does, in virtual time: slow, hanging, breaking or dying now and then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from pipeline.breaker import Breaker
from pipeline.carry import NO_PLANES, Leases, Planes
from pipeline.chunk import Fence, Job, Prepare
from pipeline.errors import FailureKind, StageError
from pipeline.links import Listener
from pipeline.message import (
    Acknowledged,
    Began,
    Ended,
    FromWorker,
    Load,
    Loaded,
    LoadFailed,
    Loading,
    Report,
    Stop,
    ToWorker,
)
from pipeline.runner import StageRunner
from pipeline.scheduler import INPUTS, JOBS, Event, Gated, Request, StageScheduler, StepDone, StepFailed, Turn, Wait
from pipeline.stage import Step, Work
from tests.sim.bodies import Body
from tests.sim.clock import Clock, Timer
from tests.sim.scenario import Health
from tests.sim.wire import Connection, Direct, Wire
from tests.sim.works import PLAIN, Works

BOUND_MS = 5000
"""What a step may take; a machine that hangs takes far longer."""
HANG_S = 30.0
INTERRUPT_S = 0.004
"""How long a running step goes on when nobody waits for it."""
NEWS_S = 0.02
"""From a death to the news of what it was: the process has been waited for."""
REAP_S = 0.3
"""Where that takes long."""
KILL_S = 0.005
"""A process that is killed may go on for so long."""
LOOK_S = 0.02
"""How often a stage that waits for a slot looks again."""
TURN_S = 0.0001
"""What a turn takes in which no step is made."""
RAISED = "a step raised"
_NO_REQUESTS, _NO_REPORTS = (Load, Stop), (Loading, Loaded, LoadFailed)
"""What is said while a process comes up, which is not played here."""


class Acted:
    """A body as its runner sees it: a stage."""

    bound_ms, threads = BOUND_MS, 1

    def __init__(self, body: Body, refuses: Callable[[], bool], interrupt: Callable[[], None]) -> None:
        self._body, self._refuses, self._interrupt = body, refuses, interrupt
        self.batch = body.batch
        self.seconds = 0.0
        """How long the step took that was made last."""

    def load(self) -> None:
        """There is nothing to load."""

    def admit(self, job: Job) -> None:
        if self._refuses():
            raise StageError("there is no room", "capacity")
        self._body.admit(job)

    def prepare(self, ahead: Prepare) -> None:
        self._body.prepare(ahead)

    def step(self, work: Sequence[Work]) -> Step:
        step, self.seconds = self._body.step(work)
        return step

    def interrupt(self) -> None:
        self._interrupt()

    def drop(self, fence: Fence) -> None:
        self._body.drop(fence)

    def forget(self, stream: str) -> None:
        self._body.forget(stream)


@dataclass(frozen=True, slots=True)
class Site:
    """Where a machine stands, and what is around it."""

    ahead_s: float
    process: bool
    planes: Planes = NO_PLANES
    works: Works = PLAIN
    lost: Callable[[], Callable[[], None]] = lambda: lambda: None
    """Notes what a process had been sent that went down; the result gives back what it held, once it is gone."""
    leave: Callable[[], None] = lambda: None
    """Leaves behind what a process was doing when it died."""
    begins: Callable[[Machine, Turn], None] = lambda machine, turn: None
    """Hears of each turn that is chosen."""
    met: Counter[str] = field(default_factory=Counter)
    """What a run has met with, for those who ask whether it was worth it."""


class Machine:
    """One replica of a stage with its machine: a `pipeline.links.Link` in virtual time.

    One in a process can be killed and comes back with cold caches; one that is not goes on when it stops hanging.
    """

    def __init__(self, clock: Clock, rng: Random, make: Callable[[], Body], health: Health, site: Site) -> None:
        self._clock, self._rng, self._make, self.health, self._site = clock, rng, make, health, site
        self.planes = site.planes
        self._breaker = Breaker()
        self.up = False
        self.given_up: str | None = None
        """Why nobody should wait for it."""
        self.up_since = 0.0
        self.gates = 0
        """Words of the gate that are on their way to it."""
        self._lives = 0
        self._turns = 0
        self._verdict: tuple[FailureKind, str] | None = None
        self._turn: Turn | None = None  # chosen, and not over
        self._leases: Leases | None = None  # of a turn that was begun
        self._timer: Timer | None = None  # of the step
        self._ends_at: float | None = None  # of the step
        self._end: Event = StepDone(Step())
        self._wakes: Timer | None = None

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
        if isinstance(request, Gated):
            self.gates += 1
        return self._wire.ask(request)  # one that has died without anybody knowing takes all that is sent

    def kill(self, kind: FailureKind, reason: str) -> bool:
        if self._site.process and self.up and self._verdict is None:
            self._verdict = kind, reason
            if self._site.works.manners is None:
                self._die(self._lives)
            else:
                self._clock.call_later(self._rng.uniform(0.0, KILL_S), self._die, self._lives)
        return self._site.process

    # ---- its life -------------------------------------------------------------------------------------------------

    def _load(self) -> None:
        self.body = self._make()
        self.stage = Acted(self.body, self._refuses, self._interrupt)
        self.scheduler = StageScheduler(self.body.role, self.body.batch, ahead_s=self._site.ahead_s)
        clock, rng = self._clock, self._rng
        manners = self._site.works.manners if self._site.process else None
        self.runner = StageRunner(
            self.stage,
            self.scheduler,
            self._report,
            planes=self.planes,
            clock=clock.time,
            most_bytes=manners.step_bytes if manners is not None else None,
        )
        self._wire: Wire
        if manners is None:
            self._wire = Direct(clock, rng, self._take, self._told)
        else:
            self._wire = Connection(clock, rng, manners, self._take, self._told, self._roomy, self._site.met)
        self.up, self.given_up, self._verdict, self.gates = True, None, None, 0
        self.up_since = clock.now
        self._breaker.came_up(clock.now)
        self._lives += 1

    def _rest(self) -> None:
        self.up = False
        for timer in (self._timer, self._wakes):
            if timer is not None:
                timer.cancel()
        self._timer = self._wakes = self._ends_at = self._turn = self._leases = None

    def die(self) -> None:
        """The process ends, whatever it does."""
        self._die(self._lives)

    def _die(self, life: int) -> None:
        if self.up and self._lives == life and self._site.process:
            self._site.met["died"] += 1
            self._rest()
            self._site.leave()
            self._wire.end(self._gone)

    def _gone(self) -> None:
        reclaim = self._site.lost()
        self._listener.down()
        reap_s = NEWS_S if self._site.works is PLAIN else self._rng.uniform(0.0, REAP_S)
        self._clock.call_later(reap_s, self._reaped, reclaim)

    def _reaped(self, reclaim: Callable[[], None]) -> None:
        reclaim()
        kind, reason = self._verdict or ("stage_lost", "it was ended by signal 9")
        self._listener.lost(kind, reason)
        self._fell(reason)

    def _fell(self, reason: str) -> None:
        """It is down; it will be tried again, the later the more often it fell."""
        now = self._clock.now
        self._breaker.failed(now)
        if self._breaker.broken(now):
            self._site.met["broken"] += 1
            self.given_up = reason
            self._listener.broken(reason)
        self._clock.call_later(self._breaker.wait_s + self.health.respawn_s, self._revive)

    def _revive(self) -> None:
        if self.health.fails_to_load and self._rng.random() < self.health.fails_to_load:
            self._fell("it could not be restarted")
            return
        self._load()
        self._listener.back(Loaded(BOUND_MS))

    # ---- what it is told, and tells -------------------------------------------------------------------------------

    def _take(self, request: ToWorker) -> None:
        assert not isinstance(request, _NO_REQUESTS)
        if isinstance(request, Gated):
            self.gates -= 1
        self.runner.feed(request)
        self._next()

    def _report(self, report: Report) -> None:
        if isinstance(report, Acknowledged) and self._site.works is not PLAIN:
            if self._rng.random() < self.health.mute:
                self._site.met["not acknowledged"] += 1
                return
            if self._rng.random() < self._site.works.stutters:
                self._site.met["acknowledged twice"] += 1
                self._tell(report)
        self._tell(report)

    def _tell(self, report: Report) -> None:
        if not self._wire.tell(report):  # as a worker does that the server can't be told of
            self._clock.call_soon(self._die, self._lives)

    def _told(self, report: FromWorker) -> None:
        assert not isinstance(report, _NO_REPORTS)
        self._listener.reported(report)

    def _refuses(self) -> bool:
        return self._rng.random() < self.health.refuses

    def _interrupt(self) -> None:
        """A pass of a recognizer can't be ended early; neither can a step that hangs."""
        if self._ends_at is None or self._timer is None or self.body.role == "recognizer":
            return
        if self._ends_at - self._clock.now < BOUND_MS / 1000:
            self._timer.cancel()
            self._timer = self._clock.call_later(INTERRUPT_S, self._ended)

    # ---- its work -------------------------------------------------------------------------------------------------

    def _next(self) -> None:
        """As `StageRunner` has it; it looks less often whether a plane has room."""
        if self._turn is not None:
            return
        if self._wakes is not None:
            self._wakes.cancel()
            self._wakes = None
        if self.runner._outgoing._kept:
            self.runner._put_kept()
        match self.scheduler.next(self._clock.now):
            case Turn() as turn:
                self._turn = turn
                self._site.begins(self, turn)
                self._roomy()
            case Wait(until):
                self._wakes = self._clock.call_at(until, self._next)
        if self.runner._outgoing._kept and self._turn is None:
            self._site.met["waits for a slot"] += 1
            if self._wakes is None or self._wakes.at > self._clock.now + LOOK_S:
                self._wakes = self._clock.call_later(LOOK_S, self._next)

    def _roomy(self) -> None:
        """Begin the turn that was chosen, unless the host leaves too much unread."""
        if self._turn is None or self._leases is not None:
            return
        if self._wire.room:
            self._begin(self._turn)
        else:
            self._site.met["waits for room"] += 1

    def _begin(self, turn: Turn) -> None:
        self._leases = Leases(self.planes.receivers)
        self._turns += 1
        self._report(Began(self._turns, tuple((w.fence, len(w.inputs)) for w in turn.work if w.inputs)))
        self._wire.reads(False)
        self.stage.seconds = TURN_S
        self._end = self.runner._perform(turn, self._leases)
        seconds = self.stage.seconds * self.health.slowness * self._rng.uniform(0.8, 1.3)
        chance = self._rng.random()
        if chance < self.health.dies:
            self._clock.call_later(seconds * self._rng.random(), self._die, self._lives)
        elif chance < self.health.dies + self.health.stalls:
            seconds += HANG_S
        elif chance < self.health.dies + self.health.stalls + self.health.raises:
            self._end = StepFailed("stage_failed", RAISED)
        self._ends_at = self._clock.now + seconds
        self._timer = self._clock.call_later(seconds, self._ended)

    def _ended(self) -> None:
        assert self._leases is not None
        self._ends_at = None
        self._leases.release()
        self._timer = self._turn = self._leases = None
        self.runner._over(self._end)
        self._report(Ended(self._turns))
        self._wire.reads(True)
        self._next()

    # ---- what can be seen of it -----------------------------------------------------------------------------------

    def holds(self, stream: str) -> bool:
        """Whether anything of a stream is left in it."""
        return self.up and self.body.holds(stream)

    def check(self) -> None:
        """Its queues are within their bounds."""
        jobs = self.scheduler._jobs
        assert len(jobs) <= JOBS, "more jobs than a stage takes"
        assert all(len(live.inputs) <= INPUTS for live in jobs.values()), "more inputs than a job keeps"
        self._wire.check()
