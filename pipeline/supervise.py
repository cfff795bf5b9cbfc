"""Keeps one stage process alive: spawns it, notices its end or its silence, brings it back."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from pipeline.breaker import BACKOFF_FIRST_S, BACKOFF_MOST_S, FAILURES, Breaker
from pipeline.errors import FailureKind, StageError
from pipeline.links import LOAD_S, STOP_S, Listener
from pipeline.message import Began, Ended, FromWorker, Load, Loaded, LoadFailed, Loading, Stop, from_worker
from pipeline.scheduler import Fed, Request
from transport.control import LoopEnd
from transport.door import remove_leftovers
from transport.errors import ControlError

log = logging.getLogger(__name__)

REAP_S = 1.0  # how long a worker whose connection is closed may take to exit by itself
# How long a worker may be silent between turns: ten times as long as it should. A turn may hold the interpreter's lock,
# and so may a load; those have limits of their own, which the host and `LOAD_S` see to.
SILENCE_S = 10.0
SILENCE_GRACE_S = 1.0  # and so much longer, so that a busy event loop does not blame the worker


@dataclass(slots=True)
class _Worker:
    """One spawned process and the connection to it."""

    process: subprocess.Popen[bytes]
    control: LoopEnd[FromWorker]
    loaded: asyncio.Future[Loaded]
    up_since: float | None = None
    in_turn: bool = False
    ended: bool = False  # before it was up
    watch: asyncio.TimerHandle | None = None

    def let_go(self) -> None:
        """Drop the connection, which ends the process if it lives."""
        if self.watch is not None:
            self.watch.cancel()
        self.control.close()
        if not self.loaded.cancel() and not self.loaded.cancelled():
            self.loaded.exception()  # seen: nobody waits for it any more


class ProcessLink:
    """A stepped stage in a process of its own. `load` says which; the process imports it by its dotted name.

    It inherits the descriptors of its planes. `lost` is called when a process goes down, and what it returns once the
    process is gone, to give back what that one held there.
    """

    def __init__(self, load: Load, lost: Callable[[], Callable[[], object]] = lambda: lambda: None) -> None:
        self._order = load
        self._fds = tuple({plane.fd for plane in load.planes})
        self._lost = lost
        self._name = f"{load.role} {load.replica}" if load.replica else load.role
        self._breaker = Breaker(failures=FAILURES, first_s=BACKOFF_FIRST_S, most_s=BACKOFF_MOST_S)
        self._worker: _Worker | None = None
        self._verdict: tuple[FailureKind, str] | None = None  # why we killed it
        self._stopping = False
        self._revival: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The process id of the worker that is up, or that loads."""
        return self._worker.process.pid if self._worker is not None else None

    async def start(self, listener: Listener) -> Loaded:
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        await asyncio.to_thread(remove_leftovers)
        return await self._bring_up()

    def send(self, request: Request) -> bool:
        if self._worker is None or self._worker.up_since is None:
            return False
        # Of what a worker is asked only its inputs can wait: a cancel, a pace, a new job overtakes them.
        return self._worker.control.send(request, data=isinstance(request, Fed))

    def kill(self, kind: FailureKind, reason: str) -> bool:
        if self._worker is not None and self._verdict is None:
            self._verdict = (kind, reason)
            self._worker.process.kill()  # the end of its lifeline tells the rest
        return True

    async def stop(self) -> None:
        self._stopping = True
        if self._revival is not None:
            self._revival.cancel()
            await asyncio.gather(self._revival, return_exceptions=True)
        if self._worker is not None:
            worker, self._worker = self._worker, None
            with suppress(ControlError):
                worker.control.send(Stop())
            await self._reap(worker, STOP_S)
            worker.let_go()

    # ---- bringing it up ----

    async def _bring_up(self) -> Loaded:
        """Spawn and load. Raises `StageError`; nothing is left behind then."""
        self._verdict = None
        self._listener.loading("its process starts")
        spawning = self._loop.create_task(self._spawn())
        try:
            worker = await asyncio.shield(spawning)
        except asyncio.CancelledError:
            with suppress(StageError):
                await self._discard(await spawning)  # it can't be called back half-way
            raise
        self._worker = worker
        try:
            loaded = await self._load(worker)
        except BaseException:
            self._worker = None
            await self._discard(worker)
            raise
        worker.up_since = self._loop.time()
        self._breaker.came_up(worker.up_since)
        self._listen(worker, SILENCE_S)
        return loaded

    async def _load(self, worker: _Worker) -> Loaded:
        worker.control.send(self._order)
        try:
            loaded = await asyncio.wait_for(worker.loaded, LOAD_S)
            if worker.ended:
                raise EOFError
            return loaded
        except TimeoutError as error:
            raise StageError(f"it was not loaded within {LOAD_S:g} s", "stage_timeout") from error
        except EOFError as error:
            how = _describe(await self._reap(worker, REAP_S))
            raise _ended_loading(self._verdict[1] if self._verdict else f"it {how}; see its log above") from error

    async def _spawn(self) -> _Worker:
        ours, theirs = socket.socketpair()
        loaded: asyncio.Future[Loaded] = self._loop.create_future()
        with theirs:
            try:
                control = LoopEnd(ours, from_worker, self._received, partial(self._ended, loaded))
            except ControlError as error:
                ours.close()
                raise StageError(f"its process could not be reached: {error}", "stage_lost") from error
            try:
                process = await asyncio.to_thread(_spawn, theirs, control.address, self._fds)
            except OSError as error:
                control.close()
                raise StageError(f"its process could not be started: {error}", "stage_lost") from error
        return _Worker(process, control, loaded)

    async def _discard(self, worker: _Worker) -> None:
        worker.let_go()
        worker.process.kill()
        await self._reap(worker, REAP_S)

    async def _reap(self, worker: _Worker, patience_s: float) -> int:
        """Wait for the exit, at most `patience_s`, then kill. Returns the exit status."""
        try:
            status = await asyncio.to_thread(worker.process.wait, patience_s)
        except subprocess.TimeoutExpired:
            worker.process.kill()
            status = await asyncio.to_thread(worker.process.wait)  # a killed process ends; only the kernel can hold it
        return status

    # ---- what it says ----

    def _received(self, message: FromWorker) -> None:
        worker = self._worker
        if worker is None:  # it says its last words while it is stopped
            return
        match message:
            case Loaded():
                if not worker.loaded.done():
                    worker.loaded.set_result(message)
            case LoadFailed(reason):
                if not worker.loaded.done():
                    worker.loaded.set_exception(StageError(reason))
            case Loading(progress):
                self._listener.loading(progress)
            case report:
                if isinstance(report, Began | Ended):
                    worker.in_turn = isinstance(report, Began)
                self._listener.reported(report)

    # ---- its end ----

    def _listen(self, worker: _Worker, wait_s: float, *, doubtful: bool = False) -> None:
        """Look in `wait_s` seconds whether it is still heard."""
        worker.watch = self._loop.call_later(wait_s, self._look, worker, doubtful)

    def _look(self, worker: _Worker, doubtful: bool) -> None:
        silent_s = self._loop.time() - worker.control.heard_at
        if worker.in_turn:
            self._listen(worker, SILENCE_S)
        elif silent_s < SILENCE_S:
            self._listen(worker, SILENCE_S - silent_s)
        elif not doubtful:  # once more: if the loop itself was late, what it said may lie unread before us
            self._listen(worker, SILENCE_GRACE_S, doubtful=True)
        else:
            self.kill("stage_timeout", f"it was silent for {silent_s:.1f} s")

    def _ended(self, loaded: asyncio.Future[Loaded], error: ControlError | None) -> None:
        if error is not None and self._verdict is None:
            self._verdict = ("stage_lost", f"what it says can't be understood: {error}")
        worker = self._worker
        if worker is None or worker.up_since is None:
            if worker is not None:
                worker.ended = True  # it may have said just before that it is loaded
            if not loaded.done():
                loaded.set_exception(EOFError() if self._verdict is None else _ended_loading(self._verdict[1]))
        elif not self._stopping:
            reclaim = self._lost()  # before anybody is told, and puts what is for the next process
            self._listener.down()
            self._revival = self._loop.create_task(self._revive(worker, reclaim), name=f"revive-{self._name}")

    async def _revive(self, worker: _Worker, reclaim: Callable[[], object]) -> None:
        self._worker = None
        worker.let_go()
        status = await self._reap(worker, REAP_S)
        reclaim()
        kind, reason = self._verdict or ("stage_lost", f"its process {_describe(status)}")
        log.error("the %s is lost: %s", self._name, reason)
        self._listener.lost(kind, f"the {self._name} is lost: {reason}; it is being restarted")
        while True:
            await self._wait(reason)
            try:
                loaded = await self._bring_up()
            except StageError as error:
                reason = f"it could not be restarted: {error.message}"
                log.error("the %s: %s", self._name, reason)
                continue
            log.info("the %s is back", self._name)
            self._listener.back(loaded)
            return

    async def _wait(self, reason: str) -> None:
        """Wait before the next try, the longer the more often it failed."""
        now = self._loop.time()
        self._breaker.failed(now)
        if self._breaker.broken(now):
            log.error("the %s is broken; it is tried again every %g s", self._name, self._breaker.wait_s)
            self._listener.broken(reason)
        await asyncio.sleep(self._breaker.wait_s)


def _spawn(lifeline: socket.socket, address: str, fds: tuple[int, ...] = ()) -> subprocess.Popen[bytes]:
    """A fresh interpreter (never a fork of this one), which finds modules exactly where this one does."""
    command = [sys.executable, "-P", "-m", "pipeline.worker", str(lifeline.fileno()), address]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, pass_fds=(lifeline.fileno(), *fds), env=environment, close_fds=True
    )


def _ended_loading(why: str) -> StageError:
    return StageError(f"its process ended while loading: {why}", "stage_lost")


def _describe(status: int) -> str:
    if status >= 0:
        return f"exited with status {status}"
    if status == -signal.SIGKILL:  # not by us: we would have said why
        return "was ended by SIGKILL, as the system does when memory runs out"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"
