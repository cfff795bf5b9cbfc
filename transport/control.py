"""Carries small ordered messages between two processes over ZeroMQ; one end on an event loop, the other in threads.

Each end has two signs of the other: messages, over a ZeroMQ socket, and its life, over a socket pair on which nobody
writes (the lifeline). The kernel closes that one, whatever way a process ends.
"""

from __future__ import annotations

import asyncio
import math
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

import msgspec
import zmq

from transport.door import Door
from transport.errors import ControlError
from transport.line import MAX_MESSAGE_BYTES, Line
from transport.outbox import MOST_BYTES, WINDOW

BEAT_S = 1.0  # how often the end in threads says that it lives
HIGH_WATER = 256  # messages that ZeroMQ takes over and has not written; the rest waits where control can overtake it
BURST = 64  # messages that the loop's end hands on before other work of the loop has its turn
ROOM_BYTES = MOST_BYTES // 2  # a sender that can wait does so while the other end leaves more than this unread

In = TypeVar("In")


class _Wire(Generic[In]):
    """A line and the socket it goes over. Its owner sees to it that one thread at a time is inside."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[In], *, window: int, most_bytes: int) -> None:
        self.line = Line(decoder, window=window, most_bytes=most_bytes)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket = self._context.socket(zmq.PAIR)  # one peer at a time; another one is turned away
        for option, value in (
            (zmq.LINGER, 0),
            (zmq.MAXMSGSIZE, 1 + MAX_MESSAGE_BYTES),
            (zmq.SNDHWM, HIGH_WATER),
            (zmq.RCVHWM, HIGH_WATER),
            (zmq.RECONNECT_IVL, -1),  # a connection that broke is over, and what it carried is lost
        ):
            self.socket.setsockopt(option, value)
        self.fd = self.socket.fileno()

    def flush(self) -> None:
        """Put onto the wire what may go there now."""
        while (frame := self.line.head()) is not None:
            try:
                self.socket.send(frame, zmq.DONTWAIT)
            except zmq.Again:
                if not self._events() & zmq.POLLOUT:
                    return  # full, or nobody is there yet; `fd` tells when that changes
                continue
            self.line.sent()

    def receive(self) -> bytes | None:
        try:
            return self.socket.recv(zmq.DONTWAIT)
        except zmq.Again:
            return None

    def readable(self) -> bool:
        """Whether a frame has come. To be asked after each `flush`: that uses up what `fd` would have told."""
        return bool(self._events() & zmq.POLLIN)

    def _events(self) -> int:
        return int(self.socket.getsockopt(zmq.EVENTS))

    def close(self) -> None:
        self.socket.close()
        self._context.term()


class LoopEnd(Generic[In]):
    """The server's end, on the running event loop. Its peer may come in at `address`, and is alive as `lifeline` says.

    `on_message` gets each message in order; `on_end` is called once, with None when the peer is gone, and with the
    error when it sent what can't be understood. Neither is called after `close`. Raises `ControlError`.
    """

    def __init__(
        self,
        lifeline: socket.socket,
        decoder: msgspec.msgpack.Decoder[In],
        on_message: Callable[[In], None],
        on_end: Callable[[ControlError | None], None],
        *,
        window: int = WINDOW,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._lifeline = lifeline
        self._on_message = on_message
        self._on_end = on_end
        self._closed = False
        self._later: asyncio.Handle | None = None
        self.heard_at = self._loop.time()  # when the peer last said anything
        self._door = Door()
        self.address = self._door.address
        self._wire = _Wire(decoder, window=window, most_bytes=most_bytes)
        lifeline.setblocking(False)
        try:
            self._wire.socket.bind(self.address)
        except zmq.ZMQError as error:
            self.close()
            raise ControlError(f"nothing can listen at {self.address}: {error}") from error
        self._loop.add_reader(self._wire.fd, self._ready)
        self._loop.add_reader(lifeline, self._gone)

    def send(self, message: msgspec.Struct, *, data: bool = False) -> bool:
        """Send in order, without waiting; false when the peer is gone or leaves more than the bound unread.

        A message of the data lane may be overtaken by those that are not. Raises `ControlError` for one too long.
        """
        if self._closed or not self._wire.line.push(message, data=data):
            return False
        self._wire.flush()
        if self._wire.readable():
            self._soon()
        return True

    def close(self) -> None:
        """Drop the connection at once; what is unsent is lost and no callback follows."""
        if self._closed:
            return
        self._closed = True
        if self._later is not None:
            self._later.cancel()
        self._loop.remove_reader(self._wire.fd)
        self._loop.remove_reader(self._lifeline)
        self._lifeline.close()
        self._wire.close()
        self._door.close()

    def _soon(self) -> None:
        if self._later is None and not self._closed:
            self._later = self._loop.call_soon(self._ready)

    def _ready(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None
        for _ in range(BURST):
            if self._closed or not self._next():
                return
        self._wire.flush()
        self._soon()

    def _next(self) -> bool:
        """Hand the next message on; false when there is none left."""
        arrived = self._wire.receive()
        if arrived is None:
            self._wire.flush()
            return self._wire.readable()
        try:
            message = self._wire.line.received(arrived)
        except ControlError as error:
            self._end(error)
            return False
        self.heard_at = self._loop.time()
        if self._wire.line.greeted:
            self._door.close()
        if message is not None:
            try:
                self._on_message(message)
            except BaseException:
                self._soon()  # a fault in one message must not silence those behind it
                raise
        return True

    def _gone(self) -> None:
        """The lifeline ended: take what the peer had said before, then tell."""
        try:
            if self._lifeline.recv(1):
                self._end(ControlError("the peer wrote on its lifeline, which is there to be closed"))
                return
        except BlockingIOError:
            return
        except OSError:  # closed with a reset
            pass
        while not self._closed and self._next():
            pass
        self._end(None)

    def _end(self, error: ControlError | None) -> None:
        if not self._closed:
            self.close()
            self._on_end(error)


class ThreadEnd(Generic[In]):
    """The worker's end. One thread receives, and says for all of them that the process lives; any may send.

    A message is handed to ZeroMQ in the thread that sends it, and goes out from there without the interpreter. So it
    is on its way before a step that holds the interpreter's lock begins.
    """

    def __init__(
        self,
        address: str,
        lifeline: socket.socket,
        decoder: msgspec.msgpack.Decoder[In],
        *,
        window: int = WINDOW,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._wire = _Wire(decoder, window=window, most_bytes=most_bytes)
        self._lifeline = lifeline
        self._lock = threading.Lock()  # held by the thread that is inside the wire; nothing waits while it holds it
        self._room = threading.Condition(self._lock)
        self._wakes, self._wake = socket.socketpair()
        self._wakes.setblocking(False)
        self._wake.setblocking(False)
        self._poll = select.poll()
        for one in (self._wire.fd, lifeline, self._wakes):
            self._poll.register(one, select.POLLIN)
        self._beat_at = time.monotonic()
        self._wire.socket.connect(address)
        self._wire.flush()

    def send(self, message: msgspec.Struct, *, data: bool = False) -> None:
        """Send in order, without waiting; one of the data lane may be overtaken by those that are not.

        Raises `ControlError` for a message that is too long, and when the peer leaves more than the bound unread.
        """
        with self._lock:
            if not self._wire.line.push(message, data=data):
                raise ControlError(
                    f"the peer leaves {self._wire.line.unread_bytes} bytes unread, as much as is kept for it"
                )
            self._wire.flush()
            if self._wire.readable():
                self._rouse()

    def wait_for_room(self) -> None:
        """Wait while the peer leaves much unread; the end of the peer ends the process that waits."""
        with self._lock:
            self._room.wait_for(lambda: self._wire.line.unread_bytes <= ROOM_BYTES)

    def receive(self) -> In | None:
        """The next message, or None when the peer is gone. Only one thread may be here. Raises `ControlError`.

        It waits for as long as the peer lives, and says every `BEAT_S` seconds that this end does.
        """
        while True:
            with self._lock:
                message = self._take()
                if message is not None:
                    return message
                if self._wire.readable():
                    continue
            if not self._wait():
                return None

    def close(self) -> None:
        """Drop the connection at once. No thread may be in `receive`, or send any more."""
        self._wire.close()
        for one in (self._wakes, self._wake, self._lifeline):
            one.close()

    def _take(self) -> In | None:
        now = time.monotonic()
        if now >= self._beat_at:
            self._wire.line.beat()
            self._beat_at = now + BEAT_S
        message = None
        while message is None and (arrived := self._wire.receive()) is not None:
            message = self._wire.line.received(arrived)
        self._wire.flush()
        self._room.notify_all()
        return message

    def _wait(self) -> bool:
        """Until something comes or a beat is due; false when the peer is gone."""
        left_ms = math.ceil(max(0.0, self._beat_at - time.monotonic()) * 1000)
        ready = {fd for fd, _ in self._poll.poll(left_ms)}
        if self._wakes.fileno() in ready:
            self._wakes.recv(4096)
        return self._lifeline.fileno() not in ready

    def _rouse(self) -> None:
        """Wake the thread that receives; a full pair means that it is being woken already."""
        with suppress(BlockingIOError):
            self._wake.send(b"\0")
