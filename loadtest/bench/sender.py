"""Sends payloads over shared memory, as it is asked to.

    python -P -m loadtest.bench.sender ORDERS RESULTS WINDOW ARENA...

The references go over a plain ZeroMQ pipe, which is what the server's control connection is made of. The process ends
when its standard input does.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import zmq
from numpy.typing import NDArray

from loadtest.bench.payload import NAME, blank
from loadtest.bench.window import Window
from transport.base import Ref, Slot
from transport.shm import ShmArena, ShmSender

WAIT_S = 10.0  # for a credit; far beyond what it takes


class Stream(msgspec.Struct, frozen=True, tag=True):
    """Send `count` payloads as fast as credits allow, from so many threads at once."""

    nbytes: int
    count: int
    threads: int


class Single(msgspec.Struct, frozen=True, tag=True):
    """Send one payload."""

    nbytes: int
    number: int


class Copy(msgspec.Struct, frozen=True, tag=True):
    """Only copy `count` payloads into the slots in turn, and say how long that took."""

    nbytes: int
    count: int


class Sent(msgspec.Struct, frozen=True, tag=True):
    """A payload lies in the arena; `began_ns` is when its slot was asked for, by the clock that processes share."""

    number: int
    ref: Ref
    began_ns: int


class Copied(msgspec.Struct, frozen=True, tag=True):
    took_ns: int


Order = Stream | Single | Copy
Outcome = Sent | Copied

orders: msgspec.msgpack.Decoder[Order] = msgspec.msgpack.Decoder(Order)
outcomes: msgspec.msgpack.Decoder[Outcome] = msgspec.msgpack.Decoder(Outcome)


class Results:
    """Where outcomes go; any thread may send."""

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self._socket = socket
        self._lock = threading.Lock()  # a socket of ZeroMQ takes one thread at a time
        self._encoder = msgspec.msgpack.Encoder()

    def send(self, outcome: Outcome) -> None:
        data = self._encoder.encode(outcome)
        with self._lock:
            self._socket.send(data)


class Source:
    """Sends payloads of one size; each thread has one of its own."""

    def __init__(self, arena: ShmArena, window: Window, results: Results) -> None:
        self._window = window
        self._results = results
        self._sender = ShmSender(arena)
        self._array: NDArray[np.int64] = blank(arena.slot_bytes)

    def send(self, number: int) -> None:
        self._window.wait(number)
        began_ns = time.monotonic_ns()
        slot = self._sender.reserve(self._array.nbytes, WAIT_S)
        assert isinstance(slot, Slot), "the receiver gave no credit back"
        self._array[0] = number
        ticket = self._sender.put(slot, {NAME: self._array})
        self._results.send(Sent(number, ticket.ref, began_ns))

    def send_all(self, numbers: Iterator[int]) -> None:
        for number in numbers:
            self.send(number)


def stream(order: Stream, sources: Sequence[Source]) -> None:
    numbers = iter(range(order.count))  # whose `next` is one step of the interpreter: each number is drawn once
    threads = [threading.Thread(target=source.send_all, args=(numbers,)) for source in sources]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def copy(arena: ShmArena, order: Copy) -> Copied:
    """What the processor can do at best: the same arrays into the same slots, and nothing else."""
    array = blank(order.nbytes)
    slots = itertools.cycle([arena.writable(index)[: order.nbytes].view(np.int64) for index in range(arena.slots)])
    began_ns = time.monotonic_ns()
    for number, slot in zip(range(order.count), slots, strict=False):
        array[0] = number
        np.copyto(slot, array)
    return Copied(time.monotonic_ns() - began_ns)


def main() -> None:
    orders_at, results_at, window_fd, *descriptors = sys.argv[1:]
    threading.Thread(target=_end_with_input, daemon=True).start()
    arenas = {arena.slot_bytes: arena for arena in (ShmArena.attach(int(fd)) for fd in descriptors)}
    context = zmq.Context()
    asked, told = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    asked.connect(orders_at)
    told.connect(results_at)
    results, window = Results(told), Window(int(window_fd))
    while True:
        match order := orders.decode(asked.recv()):
            case Stream(nbytes):
                stream(order, [Source(arenas[nbytes], window, results) for _ in range(order.threads)])
            case Single(nbytes, number):
                if number == 0:
                    single = Source(arenas[nbytes], window, results)
                single.send(number)
            case Copy(nbytes):
                results.send(copy(arenas[nbytes], order))


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
