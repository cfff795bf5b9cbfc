"""Answers for one stage: which jobs are live in it, whether it is up, and whether it keeps its word."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from pipeline.chunk import Chunk, Failed, Fence, Job, Prepare, StageRole
from pipeline.errors import FailureKind
from pipeline.links import Link
from pipeline.message import Acknowledged, Began, Emitted, Ended, Loaded, Report
from pipeline.observer import Observer, Unobserved
from pipeline.scheduler import Cancelled, Fed, Forgotten, Gated, Paced, Prepared, Request, Stalled, Submitted
from transport.errors import ControlError

log = logging.getLogger(__name__)

HANG_FACTOR = 2.0  # a turn that takes this many times the stage's own bound hangs
HANG_GRACE_S = 1.0  # on top of it; and once more, so that a busy event loop does not blame the stage
ACK_S = 2.0  # how much longer than a hung turn a cancel may stay unacknowledged
HOLD_S = 10.0  # how long a new job waits for a stage that is being restarted
HELD_REQUESTS = 512  # for one such job

Phase = Literal["loading", "ready", "restarting", "broken"]


class StageState(msgspec.Struct, frozen=True):
    """How a stage is, for those who ask whether it is ready.

    `loading`: it comes up for the first time; `ready`: a job submitted now would run; `restarting`: it went down and a
    job submitted now waits for it; `broken`: it fails again and again, or hangs, and a job submitted now fails at once.
    """

    phase: Phase
    since: float  # when the phase began, in monotonic seconds
    cause: str = ""  # why it is not ready: what was last found wrong
    progress: str = ""  # how far it is on its way up


@dataclass(slots=True)
class _Live:
    """A job somebody waits for. `held` are its requests while the stage is down; None once they were sent."""

    next_seq: int = 0
    held: list[Request] | None = None
    expiry: asyncio.TimerHandle | None = None
    doomed: bool = False  # the stage does not have it: it went down with it, or never got it

    def let_go(self) -> None:
        if self.expiry is not None:
            self.expiry.cancel()


@dataclass(slots=True)
class _Pending:
    """Cancels without an acknowledgement, each with the timer that misses it."""

    timers: dict[Fence, asyncio.TimerHandle] = field(default_factory=dict)
    since: dict[Fence, float] = field(default_factory=dict)

    def settle(self, fence: Fence) -> bool:
        self.since.pop(fence, None)
        timer = self.timers.pop(fence, None)
        if timer is None:
            return False
        timer.cancel()
        return True

    def clear(self) -> list[Fence]:
        fences = list(self.timers)
        for fence in fences:
            self.settle(fence)
        return fences


class Host:
    """The server's side of one stage, on the event loop's thread.

    `deliver` gets each chunk of a live job in order, the last of them being a result or a `Failed`; nothing of a
    cancelled job. `taken` hears how many inputs of a job the stage has consumed, `over` that the stage holds nothing
    of a job any more, `stale` of each chunk, from the stage or to it, that came too late for its job.
    """

    def __init__(
        self,
        role: StageRole,
        link: Link,
        *,
        deliver: Callable[[Chunk], None],
        taken: Callable[[Fence, int], None],
        over: Callable[[Fence], None],
        stale: Callable[[Chunk], None] = lambda chunk: None,
        observer: Observer | None = None,
    ) -> None:
        self.role = role
        self._link = link
        self._deliver = deliver
        self._taken = taken
        self._over = over
        self._stale = stale
        self._observer = observer or Unobserved()
        self._live: dict[Fence, _Live] = {}
        self._pending = _Pending()
        self._limit_s = 0.0
        self._began = 0.0
        self._up = False
        self._gated = False
        self._stuck = False
        self._state = StageState("loading", since=time.monotonic())
        self._watch: asyncio.TimerHandle | None = None

    @property
    def state(self) -> StageState:
        """How the stage is now."""
        return self._state

    @property
    def ready(self) -> bool:
        """Whether a job submitted now would run."""
        return self._up and not self._stuck

    @property
    def idle(self) -> bool:
        """Whether the stage owes nothing: no live job, no unacknowledged cancel."""
        return not self._live and not self._pending.timers

    @property
    def busy(self) -> bool:
        """Whether a turn of the stage runs, as far as it has told."""
        return self._watch is not None

    async def start(self) -> None:
        """Bring the stage up. Raises `StageError`."""
        self._loop = asyncio.get_running_loop()
        self._state = StageState("loading", self._loop.time())
        self.back(await self._link.start(self))

    async def stop(self) -> None:
        """Bring the stage down; its jobs end without a chunk."""
        self._up = False
        for live in self._live.values():
            live.let_go()
        self._live.clear()
        self._pending.clear()
        self._unwatch()
        await self._link.stop()
        self._unwatch()

    # ---- what is asked of the stage ----

    def submit(self, job: Job, due: float, routes: tuple[tuple[str, str], ...] = ()) -> None:
        """Start a job; `due` is when its first output is wanted, in monotonic seconds, or `NEVER`.

        `routes` are the data planes for what it gives, by port.
        """
        fence = job.fence
        assert fence not in self._live, f"{fence} was submitted to the {self.role} twice"
        if self._state.phase == "broken":
            self.refuse(fence, "stage_lost", f"the {self.role} is broken: {self._state.cause}")
            return
        live = self._live[fence] = _Live()
        if self._up:
            self._send(fence, Submitted(job, due, routes))
        else:
            live.held = [Submitted(job, due, routes)]
            message = f"the {self.role} was not back within {HOLD_S:g} s"
            live.expiry = self._loop.call_later(HOLD_S, self.fail, fence, "stage_lost", message)

    def refuse(self, fence: Fence, kind: FailureKind, message: str) -> None:
        """Fail a job that can't even be submitted; the chunk follows later."""
        assert fence not in self._live, f"{fence} was submitted to the {self.role} twice"
        self._live[fence] = _Live(doomed=True)
        self._loop.call_soon(self.fail, fence, kind, message)

    def feed(self, chunk: Chunk) -> bool:
        """Hand an input to the job of the chunk's fence; false when it goes nowhere."""
        return self._pass(chunk.fence, Fed(chunk))

    def stall(self, fence: Fence, stalled: bool) -> None:
        """Let a job wait for those behind it, or go on; ignored when nobody waits for that job."""
        self._pass(fence, Stalled(fence, stalled))

    def gate(self, closed: bool) -> None:
        """Hold batch jobs back, or let them go on."""
        self._gated = closed
        if self._up:
            self._control(Gated(closed))

    def pace(self, fence: Fence, plays_until: float) -> None:
        """Say when what the job made so far will have been heard; ignored when nobody waits for that job."""
        self._pass(fence, Paced(fence, plays_until))

    def prepare(self, ahead: Prepare) -> None:
        """Note a prompt that is likely to come; skipped while the stage is down."""
        if self.ready and (trouble := self._trouble(Prepared(ahead))):
            log.warning("a preparation was skipped: %s", trouble)

    def cancel(self, fence: Fence) -> None:
        """End a job. No chunk of it is delivered from now on; the stage has a deadline to let go of it."""
        live = self._live.pop(fence, None)
        if live is None:
            return
        live.let_go()
        for request in live.held or ():
            if isinstance(request, Fed):
                self._stale(request.chunk)
        if live.held is not None or live.doomed:
            self._over(fence)
            return
        self._pending.since[fence] = self._loop.time()
        self._pending.timers[fence] = self._loop.call_later(self._limit_s + ACK_S, self._overdue, fence)
        self._control(Cancelled(fence))

    def forget(self, stream: str) -> None:
        """End all jobs of a stream and release what the stage keeps for it."""
        for fence in [fence for fence in self._live if fence.stream == stream]:
            self.cancel(fence)
        if self._up:
            self._control(Forgotten(stream))

    def fail(self, fence: Fence, kind: FailureKind, message: str) -> None:
        """End a job with a `Failed` chunk, if somebody still waits for it."""
        live = self._live.get(fence)
        if live is None:
            return
        self.cancel(fence)
        self._deliver(Chunk(fence, self.role, live.next_seq, Failed(kind, message), last=True))

    def _pass(self, fence: Fence, request: Request) -> bool:
        live = self._live.get(fence)
        if live is None or live.doomed:
            return False
        if live.held is None:
            return self._send(fence, request)
        if len(live.held) < HELD_REQUESTS:
            live.held.append(request)
            return True
        message = f"{HELD_REQUESTS} requests wait for the {self.role} to come back"
        self._loop.call_soon(self.fail, fence, "capacity", message)
        return False

    def _send(self, fence: Fence, request: Request) -> bool:
        if trouble := self._trouble(request):
            if isinstance(request, Submitted):
                self._live[fence].doomed = True
            self._loop.call_soon(self.fail, fence, "capacity", trouble)
        return not trouble

    def _trouble(self, request: Request) -> str:
        """Send; what stood in the way, or nothing."""
        try:
            sent = self._link.send(request)
        except ControlError as error:
            return f"it is too large for the {self.role}: {error}"
        return "" if sent else f"the {self.role} leaves too much unread: it is overloaded"

    def _control(self, request: Request) -> None:
        if not self._link.send(request):
            self._link.kill("stage_lost", f"it did not read {type(request).__name__}")

    # ---- what the link tells ----

    def reported(self, report: Report) -> None:
        match report:
            case Began(turn, took, waits):
                self._began = self._loop.time()
                for seconds in waits:
                    self._observer.waited(self.role, seconds)
                self._watch = self._loop.call_later(self._limit_s + HANG_GRACE_S, self._late, turn)
                for fence, count in took:
                    self._taken(fence, count)
            case Ended():
                self._unwatch()
                self._observer.stepped(self.role, self._loop.time() - self._began)
                if self._stuck:
                    self._stuck = False
                    self._enter("ready")
            case Emitted(chunk, at):
                if at:
                    self._observer.carried(self.role, self._loop.time() - at)
                self._emitted(chunk)
            case Acknowledged(fence):
                since = self._pending.since.get(fence)
                if self._pending.settle(fence):
                    if since is not None:
                        self._observer.acknowledged(self.role, self._loop.time() - since)
                    self._over(fence)

    def loading(self, progress: str) -> None:
        self._state = msgspec.structs.replace(self._state, progress=progress)

    def down(self) -> None:
        self._up = self._stuck = False
        self._enter("restarting")
        self._unwatch()
        for live in self._live.values():
            live.doomed = live.held is None
        for fence in self._pending.clear():
            self._over(fence)

    def lost(self, kind: FailureKind, message: str) -> None:
        self._observer.lost(self.role, kind)
        self._enter("restarting", message)
        for fence in [fence for fence, live in self._live.items() if live.doomed]:
            self.fail(fence, kind, message)

    def broken(self, cause: str) -> None:
        self._enter("broken", cause)
        for fence in list(self._live):
            self.fail(fence, "stage_lost", f"the {self.role} is broken: {cause}")

    def back(self, loaded: Loaded) -> None:
        self._limit_s = loaded.bound_ms / 1000 * HANG_FACTOR
        self._up = True
        if self._state.phase != "loading":
            self._observer.restarted(self.role)
        self._enter("ready")
        if self._gated:
            self._control(Gated(True))
        for fence, live in list(self._live.items()):
            held, live.held = live.held or [], None
            live.let_go()
            for request in held:
                if not self._send(fence, request) and isinstance(request, Fed):
                    self._stale(request.chunk)

    def _emitted(self, chunk: Chunk) -> None:
        fence = chunk.fence
        live = self._live.get(fence)
        if live is None:  # late: it crossed our cancel on the way
            self._stale(chunk)
            if chunk.last and self._pending.settle(fence):
                self._over(fence)
            return
        live.next_seq = chunk.seq + 1
        if chunk.last:
            del self._live[fence]
            self._over(fence)
        self._deliver(chunk)

    def _enter(self, phase: Phase, cause: str = "") -> None:
        since = self._state.since if phase == self._state.phase else self._loop.time()
        progress = "" if phase == "ready" else self._state.progress
        self._state = StageState(phase, since, cause, progress)

    # ---- what the clock tells ----

    def _unwatch(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _late(self, turn: int) -> None:
        """Once more: if the loop itself was late, the end of the turn may lie unread before us."""
        self._watch = self._loop.call_later(HANG_GRACE_S, self._hung, turn)

    def _hung(self, turn: int) -> None:
        self._watch = None
        reason = f"turn {turn} ran for over {self._limit_s + 2 * HANG_GRACE_S:.1f} s, twice its bound and more"
        log.error("the %s hangs: %s", self.role, reason)
        if not self._link.kill("stage_timeout", reason):
            self._stuck = True
            self._enter("broken", f"it hangs in a step, {reason}; restart the server")
            for fence in list(self._live):
                self.fail(fence, "stage_timeout", f"the {self.role} hangs: {reason}")

    def _overdue(self, fence: Fence) -> None:
        self._pending.timers.pop(fence, None)
        self._over(fence)
        log.error("the %s did not let go of %s within %.1f s", self.role, fence, self._limit_s + ACK_S)
        self._link.kill("stage_timeout", f"it did not let go of a cancelled job within {self._limit_s + ACK_S:.1f} s")
