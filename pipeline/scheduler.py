"""Decides what a stage does next; a pure core that is told the time and never reads it.

Urgency: a job nothing of which is heard yet goes before a job that works ahead of its playout; among the first the
earlier deadline wins, among the latter the playout that would run dry soonest. A job that was ready for `starve_s`
goes before both. Batch jobs, which are due `NEVER`, come last, and not at all while the gate is closed for them.

A step takes all that is ready, up to the batch limit, and waits for no company: a job that becomes ready meanwhile
joins the next step, so that one step is the longest wait for company there is. One turn runs at a time; a cancel lets
it finish and swallows what it says.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import assert_never

from pipeline.chunk import Chunk, Failed, Fence, Job, Prepare, StageRole, Struct
from pipeline.errors import FailureKind
from pipeline.stage import Step, Work

AHEAD_S = 4.0  # how far a stage may run ahead of what is heard
STARVE_S = 2.0  # how long a ready job may be overtaken
BATCH_STARVE_S = 30.0  # how long a ready batch job may be, while the gate is open
NEVER = float("inf")  # the deadline of a batch job
JOBS = 64  # jobs per stage, in each lane
INPUTS = 512  # chunks that wait for one job
PREPARES = 64  # streams whose next prompt is noted; the oldest note is dropped, which costs time only


# ---- what a scheduler is fed ----------------------------------------------------------------------------------------


class Submitted(Struct, frozen=True, tag="submitted"):
    """A new job. `due` is when its first output is wanted, in monotonic seconds, or `NEVER`.

    `routes` names, for ports of the stage, the data plane that carries what is given there for this job.
    """

    job: Job
    due: float
    routes: tuple[tuple[str, str], ...] = ()


class Fed(Struct, frozen=True, tag="fed"):
    """An input for the job of the chunk's fence."""

    chunk: Chunk


class Cancelled(Struct, frozen=True, tag="cancelled"):
    """Nobody wants this job any more."""

    fence: Fence


class Paced(Struct, frozen=True, tag="paced"):
    """What the job made so far will have been heard at `plays_until` (monotonic seconds)."""

    fence: Fence
    plays_until: float


class Stalled(Struct, frozen=True, tag="stalled"):
    """The job gave more than those behind it can take; with `stalled` false it may go on."""

    fence: Fence
    stalled: bool


class Gated(Struct, frozen=True, tag="gated"):
    """Batch jobs begin no step while the gate is closed: somebody waits for the first sound of an answer."""

    closed: bool


class Prepared(Struct, frozen=True, tag="prepared"):
    """A prompt that is likely to come."""

    ahead: Prepare


class Forgotten(Struct, frozen=True, tag="forgotten"):
    """A stream is over; its jobs end without a chunk and without an acknowledgement."""

    stream: str


class Refused(Struct, frozen=True, tag="refused"):
    """The stage would not admit a job of the running turn."""

    fence: Fence
    kind: FailureKind
    message: str


class StepDone(Struct, frozen=True, tag="step_done"):
    """The running turn is over. Of what the jobs in `kept` gave more follows; they wait until it has gone out."""

    step: Step
    kept: frozenset[Fence] = frozenset()


class Put(Struct, frozen=True, tag="put"):
    """Chunks that were kept, and jobs in `free` of which nothing is kept any more."""

    chunks: tuple[Chunk, ...]
    free: frozenset[Fence]


class StepFailed(Struct, frozen=True, tag="step_failed"):
    """The running turn raised: every job in it is over."""

    kind: FailureKind
    message: str


Request = Submitted | Fed | Cancelled | Paced | Stalled | Gated | Prepared | Forgotten
Event = Request | Refused | StepDone | StepFailed | Put


# ---- what it asks for -----------------------------------------------------------------------------------------------


class Emit(Struct, frozen=True, tag="emit"):
    """Send a chunk on."""

    chunk: Chunk


class Acknowledge(Struct, frozen=True, tag="acknowledge"):
    """A cancelled job is out of the stage; nothing of it runs."""

    fence: Fence


class Interrupt(Struct, frozen=True, tag="interrupt"):
    """Nobody waits for the running step any more: end it early."""


class Discard(Struct, frozen=True, tag="discard"):
    """A job or a chunk that nobody will see: what it refers to can be given back."""

    unseen: Chunk | Job


Effect = Emit | Acknowledge | Interrupt | Discard


class Turn(Struct, frozen=True):
    """What the stage does next, in the order of the fields. `ahead` asks for a step without jobs, for preparation.

    `waits` are the seconds for which each job of `work` was ready.
    """

    drops: tuple[Fence, ...] = ()
    forgets: tuple[str, ...] = ()
    prepares: tuple[Prepare, ...] = ()
    admits: tuple[Job, ...] = ()
    work: tuple[Work, ...] = ()
    ahead: bool = False
    due: float = 0.0
    waits: tuple[float, ...] = ()


class Wait(Struct, frozen=True):
    """Nothing can be done before `until`, unless something is fed."""

    until: float


@dataclass(slots=True)
class _Live:
    """A job in the stage. `since` is when it became able to go on, `plays_until` None while nothing is heard."""

    job: Job
    due: float
    since: float
    routes: tuple[tuple[str, str], ...] = ()
    admitted: bool = False
    idle: bool = False
    stalled: bool = False
    kept: bool = False
    plays_until: float | None = None
    next_seq: int = 0
    inputs: deque[Chunk] = field(default_factory=deque)


class StageScheduler:
    """The schedule of one stage: `feed` it what happened, ask `next` for the turn to run, feed back its end.

    `batch` is how many jobs a step takes, `ahead_s` how many seconds a job may be ahead of what is heard of it.
    """

    def __init__(
        self,
        role: StageRole,
        batch: int,
        *,
        ahead_s: float = AHEAD_S,
        starve_s: float = STARVE_S,
        jobs: int = JOBS,
        inputs: int = INPUTS,
    ) -> None:
        self._role = role
        self._batch = batch
        self._ahead_s = ahead_s
        self._starve_s = starve_s
        self._most_jobs = jobs
        self._most_inputs = inputs
        self._jobs: dict[Fence, _Live] = {}
        self._running: tuple[Fence, ...] | None = None  # the fences of the turn under way
        self._leaving: dict[Fence, bool] = {}  # ended while in the running turn; true: a cancel to acknowledge
        self._interrupted = False
        self._drops: list[Fence] = []
        self._forgets: list[str] = []
        self._prepares: dict[str, Prepare] = {}
        self._gated = False
        self._ahead = False  # the stage has preparation left
        self._preparing = False  # the running turn is a step of preparation

    def live(self, fence: Fence) -> bool:
        """Whether somebody still waits for this job."""
        return fence in self._jobs

    def route(self, fence: Fence, port: str) -> str | None:
        """The data plane that carries what a live job gives on a port, if one does."""
        live = self._jobs.get(fence)
        return dict(live.routes).get(port) if live is not None else None

    def feed(self, event: Event, now: float) -> tuple[Effect, ...]:
        """Take in what happened; a fence that is not live is ignored. Returns what to do at once."""
        match event:
            case Submitted():
                return self._submit(event, now)
            case Fed(chunk):
                return self._input(chunk, now)
            case Cancelled(fence):
                return self._leave(fence, acknowledge=True)
            case Paced(fence, plays_until):
                if (live := self._jobs.get(fence)) is not None:
                    live.plays_until = plays_until
                return ()
            case Stalled(fence, stalled):
                if (live := self._jobs.get(fence)) is not None:
                    live.stalled = stalled
                    live.since = max(live.since, now)
                return ()
            case Gated(closed):
                self._gated = closed
                return ()
            case Prepared(ahead):
                self._prepares.pop(ahead.stream, None)
                self._prepares[ahead.stream] = ahead
                if len(self._prepares) > PREPARES:
                    del self._prepares[next(iter(self._prepares))]
                return ()
            case Forgotten(stream):
                return self._forget(stream)
            case Refused(fence, kind, message):
                return self._fail(fence, kind, message)
            case StepDone(step, kept):
                return self._done(step, kept, now)
            case Put(chunks, free):
                return self._put(chunks, free, now)
            case StepFailed(kind, message):
                return self._broke(kind, message, now)
        assert_never(event)

    def next(self, now: float) -> Turn | Wait | None:
        """The turn to run, when to ask again, or None: nothing to do before something is fed.

        A turn that is returned counts as running until `StepDone` or `StepFailed`; until then the answer is None.
        """
        if self._running is not None:
            return None
        ready = [live for live in self._jobs.values() if now >= self._ready_at(live)]
        chosen = sorted(ready, key=lambda live: self._urgency(live, now))[: self._batch]
        ahead = not self._jobs and (self._ahead or bool(self._prepares))
        if not (chosen or ahead or self._drops or self._forgets or self._prepares):
            later = [at for live in self._jobs.values() if (at := self._ready_at(live)) != NEVER]
            return Wait(min(later)) if later else None
        return self._begin(chosen, ahead, now)

    def _begin(self, chosen: list[_Live], ahead: bool, now: float) -> Turn:
        turn = Turn(
            drops=tuple(self._drops),
            forgets=tuple(self._forgets),
            prepares=tuple(self._prepares.values()),
            admits=tuple(live.job for live in chosen if not live.admitted),
            work=tuple(Work(live.job.fence, tuple(live.inputs)) for live in chosen),
            ahead=ahead,
            due=min((self._wanted(live) for live in chosen), default=now + self._ahead_s),
            waits=tuple(now - self._ready_at(live) for live in chosen),
        )
        for live in chosen:
            live.admitted = True
            live.inputs.clear()
        self._ahead = self._ahead or bool(self._prepares)
        self._drops.clear()
        self._forgets.clear()
        self._prepares.clear()
        self._running = tuple(live.job.fence for live in chosen)
        self._preparing = ahead
        return turn

    def _ready_at(self, live: _Live) -> float:
        """When a job can go on: at once, when its playout has come close enough, or not before an input."""
        if live.stalled or live.kept or (live.idle and not live.inputs) or (self._gated and live.due == NEVER):
            return NEVER
        if live.plays_until is None:
            return live.since
        return max(live.since, live.plays_until - self._ahead_s)

    def _wanted(self, live: _Live) -> float:
        return live.due if live.plays_until is None else live.plays_until

    def _urgency(self, live: _Live, now: float) -> tuple[int, float]:
        ready_at = self._ready_at(live)
        if now - ready_at >= (self._starve_s if live.due != NEVER else BATCH_STARVE_S):
            return 0, ready_at
        if live.due == NEVER:
            return 3, ready_at
        return (1 if live.plays_until is None else 2), self._wanted(live)

    def _submit(self, new: Submitted, now: float) -> tuple[Effect, ...]:
        job = new.job
        fence = job.fence
        assert fence not in self._jobs, f"{fence} was submitted twice"
        assert fence not in self._leaving, f"{fence} was submitted again while it was cancelled"
        # Each lane has its own places: however many batch jobs there are, a live one is let in.
        if sum((live.due == NEVER) == (new.due == NEVER) for live in self._jobs.values()) >= self._most_jobs:
            message = f"the {self._role} has {self._most_jobs} jobs, as many as it takes: try again later"
            return self._failed(fence, 0, "capacity", message), Discard(job)
        self._jobs[fence] = _Live(job, new.due, since=now, routes=new.routes)
        return ()

    def _input(self, chunk: Chunk, now: float) -> tuple[Effect, ...]:
        live = self._jobs.get(chunk.fence)
        if live is None:
            return (Discard(chunk),)
        if len(live.inputs) >= self._most_inputs:
            message = f"{len(live.inputs)} inputs wait at the {self._role}, as many as it keeps for one job"
            return *self._fail(chunk.fence, "capacity", message), Discard(chunk)
        if live.idle and not live.inputs:
            live.since = now
        live.inputs.append(chunk)
        return ()

    def _leave(self, fence: Fence, *, acknowledge: bool) -> tuple[Effect, ...]:
        """Take a job out. While a turn holds it, the acknowledgement waits for the end of that turn."""
        live = self._jobs.pop(fence, None)
        if live is None:
            return ()
        unseen = tuple(Discard(chunk) for chunk in live.inputs)
        if self._running is not None and fence in self._running:
            self._leaving[fence] = acknowledge
            if not self._interrupted and not any(other in self._jobs for other in self._running):
                self._interrupted = True
                return Interrupt(), *unseen
            return unseen
        if live.admitted:
            self._drops.append(fence)
        else:
            unseen = Discard(live.job), *unseen
        return (Acknowledge(fence), *unseen) if acknowledge else unseen

    def _fail(self, fence: Fence, kind: FailureKind, message: str) -> tuple[Effect, ...]:
        live = self._jobs.get(fence)
        if live is None:
            return ()
        return self._failed(fence, live.next_seq, kind, message), *self._leave(fence, acknowledge=False)

    def _failed(self, fence: Fence, seq: int, kind: FailureKind, message: str) -> Emit:
        return Emit(Chunk(fence, self._role, seq, Failed(kind, message), last=True))

    def _forget(self, stream: str) -> tuple[Effect, ...]:
        effects: list[Effect] = []
        for fence in [fence for fence in self._jobs if fence.stream == stream]:
            effects += self._leave(fence, acknowledge=False)
        self._prepares.pop(stream, None)
        self._forgets.append(stream)
        return tuple(effects)

    def _done(self, step: Step, kept: frozenset[Fence], now: float) -> tuple[Effect, ...]:
        running = self._over()
        effects = [effect for chunk in step.chunks for effect in self._give(chunk)]
        for fence in running:
            if (live := self._jobs.get(fence)) is not None:
                live.idle = fence in step.idle
                live.kept = fence in kept
                live.since = now
        if self._preparing:
            self._ahead = step.more
        return *effects, *self._settle()

    def _put(self, chunks: tuple[Chunk, ...], free: frozenset[Fence], now: float) -> tuple[Effect, ...]:
        effects = [effect for chunk in chunks for effect in self._give(chunk)]
        for fence in free:
            if (live := self._jobs.get(fence)) is not None:
                live.kept = False
                live.since = now
        return tuple(effects)

    def _give(self, chunk: Chunk) -> Iterator[Effect]:
        live = self._jobs.get(chunk.fence)
        if live is None:  # late: nobody waits for it any more
            yield Discard(chunk)
            return
        live.next_seq = chunk.seq + 1
        yield Emit(chunk)
        if chunk.last:
            del self._jobs[chunk.fence]
            for unseen in live.inputs:
                yield Discard(unseen)

    def _broke(self, kind: FailureKind, message: str, now: float) -> tuple[Effect, ...]:
        running = self._over()
        effects: list[Effect] = []
        for fence in running:
            effects += self._fail(fence, kind, message)
        if self._preparing:  # what raised is not tried again
            self._ahead = False
        return *effects, *self._settle()

    def _over(self) -> tuple[Fence, ...]:
        assert self._running is not None, "a step ended that was never begun"
        running, self._running = self._running, None
        self._interrupted = False
        return running

    def _settle(self) -> tuple[Effect, ...]:
        """Drop what left during the turn, and acknowledge its cancels."""
        self._drops += self._leaving
        acknowledged = tuple(Acknowledge(fence) for fence, wanted in self._leaving.items() if wanted)
        self._leaving.clear()
        return acknowledged
