"""The main program of a stage process: `python -P -m pipeline.worker LIFELINE ADDRESS`.

LIFELINE is the descriptor of its end of a socket pair, ADDRESS where the server listens for it.
"""

from __future__ import annotations

import faulthandler
import fcntl
import importlib
import logging
import os
import signal
import socket
import sys
import threading
from contextlib import AbstractContextManager, nullcontext
from queue import SimpleQueue

from pipeline.build import make_stage
from pipeline.carry import Planes
from pipeline.errors import StageError
from pipeline.lanes import yield_to_server
from pipeline.message import (
    Emitted,
    FromWorker,
    Load,
    Loaded,
    LoadFailed,
    Loading,
    PlaneEnd,
    Stop,
    ToWorker,
    to_worker,
)
from pipeline.runner import StageRunner
from pipeline.scheduler import StageScheduler
from pipeline.spec import Family
from pipeline.stage import Stepped
from transport.control import ROOM_BYTES, ThreadEnd
from transport.errors import ControlError
from transport.line import MAX_MESSAGE_BYTES
from transport.outbox import MOST_BYTES
from transport.shm import ShmArena, ShmReceiver, ShmSender

log = logging.getLogger(__name__)

# What a step may give inside messages: its turn begins with `ROOM_BYTES` unread at the most. The rest is for words.
STEP_BYTES = min(MOST_BYTES - ROOM_BYTES, MAX_MESSAGE_BYTES) - (1 << 20)
NICE = 1  # the event loop of the server goes first
NICE_IDLE = 19  # where the system has no better way to say that others go first
LEAVE_S = 5.0  # how long a worker that could not load waits for the server to have read why


def main() -> int:
    """Serve one stage until the server says stop (0), or the stage can't be loaded (1). It ends with the server."""
    os.dup2(2, 1)  # what a library prints is a log line, not an answer
    for asked_of_all in (signal.SIGINT, signal.SIGTERM):  # Ctrl-C and service managers signal the whole group, but
        signal.signal(asked_of_all, signal.SIG_IGN)  # the server may be draining; it stops its workers, or its end does
    faulthandler.enable()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    yield_to_server(NICE)
    lifeline = socket.socket(fileno=int(sys.argv[1]))
    end_with(lifeline)
    return Worker(ThreadEnd(sys.argv[2], lifeline, to_worker)).serve()


def end_with(lifeline: socket.socket) -> None:
    """End this process when the other end of `lifeline` closes, even while a step holds the interpreter's lock.

    On Linux the kernel does: it sends SIGIO, which ends a process that does not catch it. Elsewhere the thread that
    receives sees it, as soon as the step lets it run.
    """
    lifeline.set_inheritable(False)  # else a program that the stage starts would keep it open when we are gone
    if sys.platform == "linux":
        signal.signal(signal.SIGIO, signal.SIG_DFL)
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)


class Worker:
    """One stage and its connection. The stage runs on the main thread, where libraries expect to be."""

    def __init__(self, control: ThreadEnd[ToWorker]) -> None:
        self._control = control
        self._orders: SimpleQueue[Load] = SimpleQueue()  # one is ever put there
        self._runner: StageRunner | None = None
        self._reader = threading.Thread(target=self._read, name="control", daemon=True)

    def serve(self) -> int:
        self._reader.start()  # before anything else, so that the end of the server is seen and we are heard
        order = self._orders.get()
        if order.idle:
            _yield_to_all()
        try:
            stage = self._load(order)
            planes = _attach(order.planes)
        except Exception as error:  # the root of the process: the server is told, in words
            if not isinstance(error, StageError):
                log.exception("%s could not be loaded", order.family)
            self._send(LoadFailed(_reason(error)))
            threading.Event().wait(LEAVE_S)  # it hangs up when it has read that, which ends us
            return 1
        scheduler = StageScheduler(order.role, min(stage.batch, order.batch or stage.batch), ahead_s=order.ahead_s)
        self._runner = StageRunner(
            stage,
            scheduler,
            self._send,
            cores=self._room,
            planes=planes,
            most_bytes=STEP_BYTES,
            room=self._control.wait_for_room,
        )
        self._send(Loaded(stage.bound_ms))
        self._runner.run()
        return 0

    def _load(self, order: Load) -> Stepped:
        self._send(Loading(f"{order.family} is imported"))
        family = importlib.import_module(f"{order.family}.family").FAMILY
        assert isinstance(family, Family), f"{order.family}.family exports no Family as FAMILY"
        stage: Stepped = make_stage(family, order.options)  # type: ignore[assignment]  # the server looked at role and served
        self._send(Loading("its model is loaded"))
        stage.load()
        return stage

    def _send(self, message: FromWorker) -> None:
        """Chunks go in the data lane: they may be many. All else overtakes them, and nothing relies on the contrary.

        An `Acknowledged` may come before chunks of the same job: nobody waits for those any more. `Began` and `Ended`
        tell that a turn runs, and what it took, whatever it gave.
        """
        try:
            self._control.send(message, data=isinstance(message, Emitted))
        except ControlError:
            log.exception("the server can't be told")
            os._exit(1)

    def _room(self, threads: int, due: float) -> AbstractContextManager[None]:
        """No turn begins while the server leaves much unread. It must not be waited for in a turn: locks are held."""
        self._control.wait_for_room()
        return nullcontext()

    def _read(self) -> None:
        try:
            while (message := self._control.receive()) is not None:
                self._take(message)
        except Exception:
            log.exception("what the server says can't be taken")
            os._exit(1)
        os._exit(0)  # the server is gone: end now, even in the middle of a step

    def _take(self, message: ToWorker) -> None:
        if isinstance(message, Load):
            self._orders.put(message)
            return
        assert self._runner is not None, f"{message} came before Loaded was sent"
        if isinstance(message, Stop):
            self._runner.stop()
        else:
            self._runner.feed(message)


def _attach(ends: tuple[PlaneEnd, ...]) -> Planes:
    """The inherited ends of data planes, by the names of their planes."""
    receivers, senders = {}, {}
    for end in ends:
        arena = ShmArena.attach(end.fd)
        if end.sends:
            senders[arena.name] = ShmSender(arena)
        else:
            receivers[arena.name] = ShmReceiver(arena)
    return Planes(receivers, senders)


def _reason(error: Exception) -> str:
    if isinstance(error, StageError):
        return error.message
    if isinstance(error, MemoryError):
        known = str(error) or "no more is known"
        return f"memory ran out while it was loaded ({known}): free some, or take a smaller model"
    return f"{type(error).__name__}: {error}"


def _yield_to_all() -> None:
    """Let the calling thread, and those it starts from now on, compute only what nobody else wants to.

    The thread that receives keeps its priority, so that a cancel is seen and a beat sent at any time.
    """
    if hasattr(os, "sched_setscheduler"):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    os.nice(NICE_IDLE)


if __name__ == "__main__":
    sys.exit(main())
