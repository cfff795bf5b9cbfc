"""The main program of a stage process: `python -P -m pipeline.worker FD`, FD being its end of a socket pair."""

from __future__ import annotations

import faulthandler
import importlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from pipeline.build import make_stage
from pipeline.errors import StageError
from pipeline.lanes import yield_to_server
from pipeline.message import FromWorker, Load, Loaded, LoadFailed, Stop, ToWorker, to_worker
from pipeline.runner import StageRunner
from pipeline.scheduler import StageScheduler
from pipeline.spec import Family
from pipeline.stage import Stepped
from transport.errors import PipeError
from transport.pipe import BlockingPipe

log = logging.getLogger(__name__)

NICE = 1  # the event loop of the server goes first
# The server kills a hung worker long before. This one is for a worker whose server is gone while a step holds the
# interpreter's lock, so that no thread of ours sees it: a C thread of the standard library then ends the process.
ORPHAN_FACTOR = 10


def main() -> int:
    """Serve one stage until the server says stop (0), goes away (0) or the stage can't be loaded (1)."""
    os.dup2(2, 1)  # what a library prints is a log line, not an answer
    for asked_of_all in (signal.SIGINT, signal.SIGTERM):  # Ctrl-C and service managers signal the whole group, but
        signal.signal(asked_of_all, signal.SIG_IGN)  # the server may be draining; it stops its workers, or its end does
    faulthandler.enable()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    yield_to_server(NICE)
    try:
        pipe = BlockingPipe(socket.socket(fileno=int(sys.argv[1])), to_worker)
    except OSError:  # the server was gone before we came up
        return 0
    load = pipe.receive()
    if load is None:
        return 0
    assert isinstance(load, Load), f"the first message must be Load, not {load}"
    return Worker(pipe, load).serve()


class Worker:
    """One stage and its pipe. The stage runs on the main thread, where libraries expect to be."""

    def __init__(self, pipe: BlockingPipe[ToWorker], load: Load) -> None:
        self._pipe = pipe
        self._order = load
        self._runner: StageRunner | None = None
        self._reader = threading.Thread(target=self._read, name="control", daemon=True)

    def serve(self) -> int:
        self._reader.start()  # before loading, so that the end of the server is seen from the start
        try:
            stage = self._load()
        except Exception as error:  # the root of the process: the server is told, in words
            if not isinstance(error, StageError):
                log.exception("%s could not be loaded", self._order.family)
            message = error.message if isinstance(error, StageError) else f"{type(error).__name__}: {error}"
            self._send(LoadFailed(message))
            return 1
        scheduler = StageScheduler(self._order.role, stage.batch, ahead_s=self._order.ahead_s)
        self._runner = StageRunner(stage, scheduler, self._send, cores=_orphan_guard(stage.bound_ms))
        self._send(Loaded(stage.bound_ms))
        self._runner.run()
        return 0

    def _load(self) -> Stepped:
        family = importlib.import_module(f"{self._order.family}.family").FAMILY
        assert isinstance(family, Family), f"{self._order.family}.family exports no Family as FAMILY"
        stage: Stepped = make_stage(family, self._order.options)  # type: ignore[assignment]  # the server looked at role and served
        stage.load()
        return stage

    def _send(self, message: FromWorker) -> None:
        try:
            self._pipe.send(message)
        except OSError:
            os._exit(0)  # the server is gone

    def _read(self) -> None:
        try:
            while (message := self._pipe.receive()) is not None:
                self._take(message)
        except PipeError:
            log.exception("the control pipe broke")
        except Exception:
            log.exception("a request could not be taken")
            os._exit(1)
        os._exit(0)  # the server is gone: end now, even in the middle of a step

    def _take(self, message: ToWorker) -> None:
        assert self._runner is not None, f"{message} came before Loaded was sent"
        match message:
            case Load():
                raise AssertionError("a worker loads once")
            case Stop():
                self._runner.stop()
            case request:
                self._runner.feed(request)


def _orphan_guard(bound_ms: int) -> Callable[[int, float], AbstractContextManager[None]]:
    @contextmanager
    def guard(threads: int, due: float) -> Iterator[None]:
        faulthandler.dump_traceback_later(ORPHAN_FACTOR * bound_ms / 1000, exit=True)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()

    return guard


if __name__ == "__main__":
    sys.exit(main())
