"""Reaches stages that live in the server process: stepped ones on a thread of their own, served ones on the loop."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol, assert_never

from pipeline.carry import NO_PLANES, Leases, Planes
from pipeline.chunk import Chunk, Failed, Fence, Job, StageRole
from pipeline.errors import FailureKind, StageError
from pipeline.lanes import Lanes
from pipeline.message import Acknowledged, Emitted, Loaded, Report
from pipeline.runner import StageRunner
from pipeline.scheduler import (
    Cancelled,
    Fed,
    Forgotten,
    Gated,
    Paced,
    Prepared,
    Request,
    StageScheduler,
    Stalled,
    Submitted,
)
from pipeline.stage import Served, Stepped
from transport.errors import PlaneError

log = logging.getLogger(__name__)

LOAD_S = 120.0  # a model that is not loaded by then never will be
STOP_S = 5.0  # a stage that has not stopped by then is killed, or left behind on its daemon thread


class Listener(Protocol):
    """What a link tells the one who uses it, on the event loop's thread."""

    def reported(self, report: Report) -> None:
        """The stage says something about a job or a turn."""

    def loading(self, progress: str) -> None:
        """How far it is on its way up."""

    def broken(self, cause: str) -> None:
        """It fails again and again, or for good: nobody should wait for it, until `back`."""

    def down(self) -> None:
        """The stage is gone; `lost` follows once it is known why, `back` when it was respawned."""

    def lost(self, kind: FailureKind, message: str) -> None:
        """Why it went down; every job it had is over."""

    def back(self, loaded: Loaded) -> None:
        """It is up again, with cold caches."""


class Link(Protocol):
    """One way of reaching a stage. All methods run on the event loop's thread."""

    async def start(self, listener: Listener) -> Loaded:
        """Bring the stage up. Raises `StageError`."""

    def send(self, request: Request) -> bool:
        """Pass a request on, without waiting; false when the stage leaves more than a bound unread."""

    def kill(self, kind: FailureKind, reason: str) -> bool:
        """End a stage that hangs; `lost` follows. False when it can't be ended without ending the server."""

    async def stop(self) -> None:
        """Bring the stage down, within `STOP_S` seconds or so."""


class InlineLink:
    """A stepped stage on a thread of the server. `make` builds the stage, on that thread."""

    def __init__(
        self,
        role: StageRole,
        make: Callable[[], Stepped],
        *,
        who: str,
        lanes: Lanes,
        planes: Planes = NO_PLANES,
        ahead_s: float,
        batch: int | None = None,
    ) -> None:
        self._role = role
        self._make = make
        self._who = who
        self._lanes = lanes
        self._planes = planes
        self._ahead_s = ahead_s
        self._batch = batch
        self._runner: StageRunner | None = None
        self._stopping = False
        self._thread: threading.Thread | None = None

    async def start(self, listener: Listener) -> Loaded:
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._loaded: asyncio.Future[Loaded] = self._loop.create_future()
        self._gone = asyncio.Event()
        # A daemon, so that a step that never returns can't keep the server from exiting.
        self._thread = threading.Thread(target=self._main, name=f"stage-{self._who}", daemon=True)
        self._thread.start()
        try:
            return await asyncio.wait_for(self._loaded, LOAD_S)
        except TimeoutError as error:
            raise StageError(f"it was not loaded within {LOAD_S:g} s", "stage_timeout") from error

    def send(self, request: Request) -> bool:
        assert self._runner is not None, "a request came before the stage was loaded"
        self._runner.feed(request)
        return True

    def kill(self, kind: FailureKind, reason: str) -> bool:
        self._lanes.release(self._who)  # at least the other stages get its cores back
        return False

    async def stop(self) -> None:
        if self._thread is None:
            return
        self._stopping = True  # before the look at the runner, as `_serve` looks in the other order: one sees the other
        if self._runner is not None:
            self._runner.stop()
        try:
            await asyncio.wait_for(self._gone.wait(), STOP_S)
        except TimeoutError:
            log.error("the %s did not stop within %g s: its thread is left behind", self._role, STOP_S)
            return
        self._thread.join()  # it has nothing left to do but to return
        self._thread = None

    def _main(self) -> None:
        try:
            self._serve()
        finally:
            self._call(self._gone.set)

    def _serve(self) -> None:
        try:
            stage = self._make()
            stage.load()
            batch = min(stage.batch, self._batch or stage.batch)
            scheduler = StageScheduler(self._role, batch, ahead_s=self._ahead_s)
            runner = StageRunner(
                stage,
                scheduler,
                lambda report: self._call(lambda: self._listener.reported(report)),
                cores=self._cores,
                planes=self._planes,
            )
            loaded = Loaded(stage.bound_ms)
        except Exception as error:  # the root of the stage's thread
            failure = error if isinstance(error, StageError) else StageError(f"{type(error).__name__}: {error}")
            failure.__cause__ = None if failure is error else error
            self._call(lambda: self._settle(failure))
            return
        self._runner = runner
        if self._stopping:
            return
        self._call(lambda: self._settle(loaded))
        try:
            runner.run()
        except Exception as error:  # a bug of the runtime: a model's errors end inside the runner
            log.exception("the thread of the %s broke", self._role)
            message = f"the thread of the {self._role} broke: {type(error).__name__}: {error}; restart the server"
            self._call(lambda: self._broke(message))

    def _broke(self, message: str) -> None:
        self._listener.down()
        self._listener.lost("stage_lost", message)
        self._listener.broken(message)

    def _cores(self, threads: int, due: float) -> AbstractContextManager[None]:
        return self._lanes.held(self._who, threads, due)

    def _settle(self, outcome: Loaded | StageError) -> None:
        if self._loaded.done():  # it took too long, or the start was given up
            return
        if isinstance(outcome, Loaded):
            self._loaded.set_result(outcome)
        else:
            self._loaded.set_exception(outcome)

    def _call(self, callback: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:  # the loop was closed while a hung step was left behind
            log.warning("the %s said something after the server had stopped", self._role)


class ServedLink:
    """A stage that schedules itself, on the event loop. It takes no fed inputs and paces itself."""

    def __init__(self, role: StageRole, make: Callable[[], Served], planes: Planes = NO_PLANES) -> None:
        self._role = role
        self._make = make
        self._planes = planes
        self._active: set[Fence] = set()
        self._stage: Served | None = None

    async def start(self, listener: Listener) -> Loaded:
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        stage = self._make()
        try:
            await asyncio.wait_for(stage.load(), LOAD_S)
        except TimeoutError as error:
            raise StageError(f"it was not ready within {LOAD_S:g} s", "stage_timeout") from error
        self._stage = stage
        return Loaded(bound_ms=0)

    def send(self, request: Request) -> bool:
        assert self._stage is not None, "a request came before the stage was ready"
        match request:
            case Submitted(job):
                self._submit(self._stage, job)
            case Cancelled(fence):
                if fence in self._active:
                    self._active.discard(fence)
                    self._stage.cancel(fence)
                    self._loop.call_soon(self._listener.reported, Acknowledged(fence))
            case Forgotten(stream):
                self._active = {fence for fence in self._active if fence.stream != stream}
                self._stage.forget(stream)
            case Fed() | Paced() | Prepared() | Stalled() | Gated():
                pass  # the service behind it has no use for them
            case _:
                assert_never(request)
        return True

    def kill(self, kind: FailureKind, reason: str) -> bool:
        return False

    async def stop(self) -> None:
        if self._stage is not None:
            stage, self._stage = self._stage, None
            self._active.clear()
            await asyncio.wait_for(stage.close(), STOP_S)

    def _submit(self, stage: Served, job: Job) -> None:
        if len(self._active) >= stage.slots:
            message = f"the {self._role} has {len(self._active)} jobs, as many as it takes: try again later"
            self._fail(job.fence, "capacity", message)
            return
        self._active.add(job.fence)
        try:
            stage.submit(Leases(self._planes.receivers).open_job(job), self._emit)
        except (StageError, PlaneError) as error:
            self._active.discard(job.fence)
            self._fail(job.fence, error.kind if isinstance(error, StageError) else "stage_failed", str(error))

    def _emit(self, chunk: Chunk) -> None:
        if chunk.fence in self._active:
            if chunk.last:
                self._active.discard(chunk.fence)
            # Later, so that a stage that answers inside `submit` does not call back into its caller.
            self._loop.call_soon(self._listener.reported, Emitted(chunk))

    def _fail(self, fence: Fence, kind: FailureKind, message: str) -> None:
        chunk = Chunk(fence, self._role, 0, Failed(kind, message), last=True)
        self._loop.call_soon(self._listener.reported, Emitted(chunk))
