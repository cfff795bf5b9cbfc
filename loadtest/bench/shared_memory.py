"""Receives over shared memory what a process of its own sends, and takes the times."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import zmq

from loadtest.bench.payload import NAME, arrived
from loadtest.bench.sender import Copied, Copy, Order, Outcome, Sent, Single, Stream, outcomes
from loadtest.bench.window import IN_FLIGHT, Window
from transport.shm import ShmArena, ShmReceiver

ANSWER_S = 60.0  # for one outcome; each takes a fraction of a second
ARENA_BYTES = 64 << 20  # more than caches hold; in a server the weights of its models go through them meanwhile
MOST_SLOTS = 64


class Bench:
    """The receiving side of all arenas, and the pipes from and to the process that sends."""

    def __init__(
        self, arenas: Sequence[ShmArena], window: Window, asks: zmq.Socket[bytes], hears: zmq.Socket[bytes]
    ) -> None:
        self._receivers: Mapping[str, ShmReceiver] = {arena.name: ShmReceiver(arena) for arena in arenas}
        self._window = window
        self._asks = asks
        self._hears = hears

    def stream(self, nbytes: int, count: int, threads: int) -> float:
        """Bytes a second from the first slot that was asked for to the last payload that was read."""
        self._window.begin()
        self._ask(Stream(nbytes, count, threads))
        began_ns = 0
        for _ in range(count):
            sent, _ = self._take()
            began_ns = began_ns or sent.began_ns
        return nbytes * count / (time.monotonic_ns() - began_ns) * 1e9

    def singly(self, nbytes: int, count: int) -> list[float]:
        """How many microseconds each payload took, from asking for a slot to having opened it."""
        took_us = []
        self._window.begin()
        for number in range(count):
            self._ask(Single(nbytes, number))
            sent, opened_ns = self._take()
            took_us.append((opened_ns - sent.began_ns) / 1000)
        return took_us

    def copy(self, nbytes: int, count: int) -> float:
        """Bytes a second of a copy into the same slots, in the process that sends."""
        self._ask(Copy(nbytes, count))
        copied = self._hear()
        assert isinstance(copied, Copied)
        return nbytes * count / copied.took_ns * 1e9

    def _take(self) -> tuple[Sent, int]:
        """Open and read the next payload: what was sent, and when it was open."""
        sent = self._hear()
        assert isinstance(sent, Sent)
        with self._receivers[sent.ref.plane].open(sent.ref) as lease:
            opened_ns = time.monotonic_ns()
            assert arrived(sent.number, lease.arrays[NAME]), f"payload {sent.number} is not what was sent"
        self._window.read_one()
        return sent, opened_ns

    def _ask(self, order: Order) -> None:
        self._asks.send(msgspec.msgpack.encode(order))

    def _hear(self) -> Outcome:
        try:
            return outcomes.decode(self._hears.recv())
        except zmq.Again:
            raise SystemExit(f"the sender said nothing for {ANSWER_S:g} s; what it wrote is above") from None


@contextlib.contextmanager
def bench(sizes: Sequence[int]) -> Iterator[Bench]:
    """A sender that is up, with an arena for each size. Raises `PlaneError` where there is no memory for them."""
    with contextlib.ExitStack() as stack:
        arenas = [stack.enter_context(contextlib.closing(arena(nbytes))) for nbytes in sizes]
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-"))
        context = stack.enter_context(zmq.Context())
        asks, hears = stack.enter_context(context.socket(zmq.PUSH)), stack.enter_context(context.socket(zmq.PULL))
        addresses = [f"ipc://{folder}/{name}" for name in ("orders", "results")]
        for socket, address in zip((asks, hears), addresses, strict=True):
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.RCVTIMEO, int(ANSWER_S * 1000))
            socket.setsockopt(zmq.SNDTIMEO, int(ANSWER_S * 1000))
            socket.setsockopt(zmq.RCVHWM, IN_FLIGHT)
            socket.bind(address)
        window = Window.create()
        stack.callback(os.close, window.fd)
        descriptors = [window.fd, *(made.fd for made in arenas)]
        command = [sys.executable, "-P", "-m", "loadtest.bench.sender", *addresses, *map(str, descriptors)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        process = subprocess.Popen(command, pass_fds=descriptors, env=environment, stdin=subprocess.PIPE)
        stack.callback(_end, process)
        made = Bench(arenas, window, asks, hears)
        made.copy(sizes[0], 1)  # it is up
        yield made


def arena(nbytes: int) -> ShmArena:
    return ShmArena.create(f"bench-{nbytes}", max(IN_FLIGHT, min(MOST_SLOTS, ARENA_BYTES // nbytes)), nbytes)


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    process.kill()
    process.wait()
