"""Keeps one stage process alive: spawns it, notices its end, brings it back."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass

from pipeline.chunk import StageRole
from pipeline.errors import FailureKind, StageError
from pipeline.links import LOAD_S, STOP_S, Listener
from pipeline.message import FromWorker, Load, Loaded, LoadFailed, Stop, from_worker
from pipeline.scheduler import Request
from transport.errors import PipeError
from transport.pipe import AsyncPipe

log = logging.getLogger(__name__)

BACKOFF_FIRST_S = 0.1  # before the first respawn; each further failure doubles it
BACKOFF_MOST_S = 10.0
BACKOFF_DOUBLINGS = 16  # beyond the most by far; an unbounded power would overflow after hours of failures
STEADY_S = 60.0  # a worker that lived this long starts again with a short back-off
REAP_S = 1.0  # how long a worker whose pipe is closed may take to exit by itself


@dataclass(slots=True)
class _Worker:
    """One spawned process and its pipe."""

    process: subprocess.Popen[bytes]
    pipe: AsyncPipe[FromWorker]
    loaded: asyncio.Future[Loaded]
    up_since: float | None = None


class ProcessLink:
    """A stepped stage in a process of its own. `load` says which; the process imports it by its dotted name."""

    def __init__(self, load: Load) -> None:
        self._order = load
        self._role: StageRole = load.role
        self._worker: _Worker | None = None
        self._verdict: tuple[FailureKind, str] | None = None  # why we killed it
        self._failures = 0
        self._stopping = False
        self._revival: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The process id of the worker that is up."""
        return self._worker.process.pid if self._worker is not None else None

    async def start(self, listener: Listener) -> Loaded:
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        return await self._bring_up()

    def send(self, request: Request) -> bool:
        if self._worker is None or self._worker.up_since is None:
            return False
        return self._worker.pipe.send(request)

    def kill(self, kind: FailureKind, reason: str) -> bool:
        if self._worker is not None and self._verdict is None:
            self._verdict = (kind, reason)
            self._worker.process.kill()  # the closing of its pipe tells the rest
        return True

    async def stop(self) -> None:
        self._stopping = True
        if self._revival is not None:
            self._revival.cancel()
            await asyncio.gather(self._revival, return_exceptions=True)
        if self._worker is not None:
            worker, self._worker = self._worker, None
            worker.pipe.send(Stop())
            await self._reap(worker, STOP_S)
            worker.pipe.close()

    async def _bring_up(self) -> Loaded:
        """Spawn and load. Raises `StageError`; nothing is left behind then."""
        spawning = self._loop.create_task(self._spawn())
        try:
            worker = await asyncio.shield(spawning)
        except asyncio.CancelledError:
            await self._discard(await spawning)  # it can't be called back half-way
            raise
        self._worker, self._verdict = worker, None
        worker.pipe.send(self._order)
        try:
            loaded = await asyncio.wait_for(worker.loaded, LOAD_S)
        except TimeoutError as error:
            raise StageError(f"it was not loaded within {LOAD_S:g} s", "stage_timeout") from error
        finally:
            if worker.loaded.cancelled() or worker.loaded.exception() is not None:
                self._worker = None
                await self._discard(worker)
        worker.up_since = self._loop.time()
        return loaded

    async def _spawn(self) -> _Worker:
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                process = await asyncio.to_thread(_spawn, theirs)
        except OSError as error:
            ours.close()
            raise StageError(f"its process could not be started: {error}", "stage_lost") from error
        loaded: asyncio.Future[Loaded] = self._loop.create_future()
        pipe = await AsyncPipe.attach(ours, from_worker, self._received, self._ended)
        return _Worker(process, pipe, loaded)

    def _received(self, message: FromWorker) -> None:
        worker = self._worker
        if worker is None:
            return
        match message:
            case Loaded():
                if not worker.loaded.done():
                    worker.loaded.set_result(message)
            case LoadFailed(reason):
                if not worker.loaded.done():
                    worker.loaded.set_exception(StageError(reason))
            case report:
                self._listener.reported(report)

    def _ended(self, error: PipeError | None) -> None:
        worker = self._worker
        if worker is None:
            return
        if error is not None and self._verdict is None:
            self._verdict = ("stage_lost", f"its pipe broke: {error}")
        if worker.up_since is None:
            if not worker.loaded.done():
                worker.loaded.set_exception(StageError("its process ended while loading: see its log above"))
        elif not self._stopping:
            self._listener.down()
            self._revival = self._loop.create_task(self._revive(worker), name=f"revive-{self._role}")

    async def _revive(self, worker: _Worker) -> None:
        self._worker = None
        status = await self._reap(worker, REAP_S)
        kind, reason = self._verdict or ("stage_lost", f"its process {_describe(status)}")
        log.error("the %s is lost: %s", self._role, reason)
        self._listener.lost(kind, f"the {self._role} is lost: {reason}; it is being restarted")
        if worker.up_since is not None and self._loop.time() - worker.up_since > STEADY_S:
            self._failures = 0
        while True:
            await asyncio.sleep(min(BACKOFF_FIRST_S * 2 ** min(self._failures, BACKOFF_DOUBLINGS), BACKOFF_MOST_S))
            self._failures += 1
            try:
                loaded = await self._bring_up()
            except StageError as error:
                log.error("the %s could not be restarted: %s", self._role, error)
                continue
            log.info("the %s is back", self._role)
            self._listener.back(loaded)
            return

    async def _discard(self, worker: _Worker) -> None:
        worker.pipe.close()
        worker.process.kill()
        await self._reap(worker, REAP_S)

    async def _reap(self, worker: _Worker, patience_s: float) -> int:
        """Wait for the exit, at most `patience_s`, then kill. Returns the exit status."""
        try:
            return await asyncio.to_thread(worker.process.wait, patience_s)
        except subprocess.TimeoutExpired:
            worker.process.kill()
            return await asyncio.to_thread(worker.process.wait)  # a killed process ends; only the kernel can hold it


def _spawn(control: socket.socket) -> subprocess.Popen[bytes]:
    """A fresh interpreter (never a fork of this one), which finds modules exactly where this one does."""
    command = [sys.executable, "-P", "-m", "pipeline.worker", str(control.fileno())]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, pass_fds=(control.fileno(),), env=environment, close_fds=True
    )


def _describe(status: int) -> str:
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"
