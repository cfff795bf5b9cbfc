"""Is the process of callers, as locust's greenlets see it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import gevent
from gevent import socket, subprocess
from gevent.event import AsyncResult, Event

from loadtest.load.records import Call, Closed, HangUp, Order, Record, line, told

ROOT = Path(__file__).resolve().parent.parent.parent
SETTLE_S = 15.0
"""How long the last calls may take to end: longer than a WebSocket's closing handshake."""
END_S = 5.0


class Switchboard:
    """`take` is given every record; it is called in a greenlet of its own.

    A process of its own, since locust makes the standard library cooperative (gevent's monkey patches), which asyncio
    does not survive unharmed, and since statistics or a web page must not delay a microphone.
    """

    def __init__(self, take: Callable[[Record], None]) -> None:
        self._take = take
        self._calls: dict[int, AsyncResult[float]] = {}
        self._idle = Event()
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def open(self) -> None:
        """Start the process, unless it runs."""
        if self._process is not None and self._process.poll() is None:
            return
        self._socket, theirs = socket.socketpair()
        command = [sys.executable, "-m", "loadtest.load.callers", str(theirs.fileno())]
        # In a session of its own: an interrupt from the keyboard is for locust, which ends the run.
        self._process = subprocess.Popen(command, cwd=ROOT, pass_fds=[theirs.fileno()], start_new_session=True)
        theirs.close()
        gevent.spawn(self._listen, self._socket)

    def call(self, order: Call) -> float:
        """Hold one call; how many seconds to wait before the next. A greenlet that is killed meanwhile hangs up.

        Raises ChildProcessError when the process has ended.
        """
        self._send(order)
        over = self._calls[order.user] = AsyncResult()
        self._idle.clear()
        try:
            again_s: float = over.get()
        except gevent.GreenletExit:
            self._send(HangUp(order.user))
            raise
        return again_s

    def settle(self) -> bool:
        """Wait until every call has told its last; whether they did, in time."""
        return not self._calls or self._idle.wait(SETTLE_S)

    def close(self) -> None:
        """End the process."""
        if self._socket is None or self._process is None:
            return
        self._socket.shutdown(socket.SHUT_WR)
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._socket.close()

    def _send(self, order: Order) -> None:
        if self._socket is None:
            raise ChildProcessError("the process of callers was not started")
        try:
            self._socket.sendall(line(order))
        except OSError as error:
            raise ChildProcessError("the process of callers has ended") from error

    def _listen(self, ours: socket.socket) -> None:
        with ours.makefile("rb") as lines:
            for one in lines:
                record = told.decode(one)
                self._take(record)
                if isinstance(record, Closed):
                    self._calls.pop(record.user).set(record.again_s)
                    self._rest()
        for over in self._calls.values():
            over.set_exception(ChildProcessError("the process of callers has ended"))
        self._calls.clear()
        self._rest()

    def _rest(self) -> None:
        if not self._calls:
            self._idle.set()
