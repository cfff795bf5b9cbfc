"""Tests the control plane over real sockets: ends, bounds, strangers, and what is left."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import psutil
import pytest
import zmq

from transport import control, line
from transport.control import LoopEnd, ThreadEnd
from transport.errors import ControlError
from transport.line import CONTROL, OWN, Hello, frame
from transport.outbox import WINDOW

DEADLINE_S = 20.0


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    number: int


class Blob(msgspec.Struct, frozen=True, tag="blob"):
    data: bytes


Message = Ping | Blob
decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)
GREETING = bytes(frame(OWN, Hello(line.VERSION)))


@dataclass
class Server:
    """A server's end, with what it was told."""

    theirs: socket.socket
    end: LoopEnd[Message] = field(init=False)
    heard: list[Message] = field(default_factory=list)
    ends: list[ControlError | None] = field(default_factory=list)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():  # noqa: ASYNC110  # what is waited for is told by a plain callback
                await asyncio.sleep(0.001)


@asynccontextmanager
async def serving(*, most_bytes: int = 16 << 20) -> AsyncIterator[Server]:
    ours, theirs = socket.socketpair()
    server = Server(theirs)
    server.end = LoopEnd(ours, decoder, server.heard.append, server.ends.append, most_bytes=most_bytes)
    try:
        yield server
    finally:
        server.end.close()
        theirs.close()


@asynccontextmanager
async def raw_peer(server: Server) -> AsyncIterator[zmq.Socket[bytes]]:
    """A peer that speaks ZeroMQ, and what the test makes it say."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    peer = context.socket(zmq.PAIR)
    peer.setsockopt(zmq.LINGER, 0)
    peer.connect(server.end.address)
    try:
        yield peer
    finally:
        peer.close()
        context.term()


def play(scene: Callable[[], Awaitable[None]]) -> None:
    """Run a scene, and see that it leaves no thread, no descriptor and nothing in the file system."""
    descriptors, threads = psutil.Process().num_fds(), set(threading.enumerate())

    async def body() -> None:
        await scene()

    asyncio.run(body())
    assert psutil.Process().num_fds() <= descriptors
    assert set(threading.enumerate()) - threads == set()
    assert doors() == []


def doors() -> list[Path]:
    return list(Path(tempfile.gettempdir()).glob(f"duplex-{os.getpid()}-*"))


def echo(end: ThreadEnd[Message]) -> threading.Thread:
    """A worker's end that answers each number with the next, until its peer is gone."""

    def serve() -> None:
        while (message := end.receive()) is not None:
            if isinstance(message, Ping):
                end.send(Ping(message.number + 1), data=True)
        end.close()

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


def test_both_sides_talk_and_the_end_is_a_signal() -> None:
    async def scene() -> None:
        async with serving() as server:
            worker = ThreadEnd(server.end.address, server.theirs, decoder)
            for number in range(300):
                assert server.end.send(Ping(number), data=True)
            thread = echo(worker)
            await server.until(lambda: len(server.heard) == 300)
            assert server.heard == [Ping(number + 1) for number in range(300)]
            server.end.close()
            await asyncio.to_thread(thread.join, DEADLINE_S)
            assert not thread.is_alive(), "a worker did not see that its server is gone"
            assert not server.end.send(Ping(9))
            assert server.ends == [], "a callback after close"

    play(scene)


def test_the_end_of_the_worker_is_seen_and_nobody_can_come_after_it() -> None:
    async def scene() -> None:
        async with serving() as server:
            worker = ThreadEnd(server.end.address, server.theirs, decoder)
            worker.send(Ping(1))
            await server.until(lambda: server.heard == [Ping(1)])
            assert doors() == [], "the door stands open behind the peer"
            worker.close()
            await server.until(lambda: server.ends == [None])
            assert not server.end.send(Ping(9))

    play(scene)


def test_a_worker_that_never_comes_leaves_nothing() -> None:
    async def scene() -> None:
        async with serving() as server:
            assert len(doors()) == 1
            assert server.end.send(Ping(1)), "what is sent before the peer comes waits for it"
            server.theirs.close()
            await server.until(lambda: server.ends == [None])
            assert doors() == []

    play(scene)


def test_many_threads_send_while_one_receives() -> None:
    """The threads share one socket; no message and no wake-up is lost."""

    async def scene() -> None:
        async with serving() as server:
            worker = ThreadEnd(server.end.address, server.theirs, decoder)
            reader = echo(worker)

            def send(first: int) -> None:
                for number in range(first, first + 500):
                    worker.send(Ping(number), data=bool(number % 2))

            senders = [threading.Thread(target=send, args=(1000 * n,)) for n in range(1, 5)]
            for sender in senders:
                sender.start()
            for number in range(500):
                assert server.end.send(Ping(number), data=bool(number % 2))
                await asyncio.sleep(0)
            await server.until(lambda: len(server.heard) == 4 * 500 + 500)
            numbers = [one.number for one in server.heard if isinstance(one, Ping)]
            assert len(set(numbers)) == len(numbers)
            for n in range(1, 5):
                for odd in (0, 1):
                    lane = [one for one in numbers if one // 1000 == n and one % 2 == odd]
                    assert lane == list(range(1000 * n + odd, 1000 * n + 500, 2)), "a lane lost its order"
            server.end.close()
            await asyncio.to_thread(reader.join, DEADLINE_S)
            assert not reader.is_alive()

    play(scene)


@pytest.mark.parametrize("moment", ["before it waits", "when it looked last"])
def test_a_message_whose_sign_another_thread_used_up_is_received(moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The descriptor of a ZeroMQ socket tells of a message once, to whoever uses the socket next."""
    monkeypatch.setattr(control, "BEAT_S", 1000.0)  # else a beat would wake it

    async def scene() -> None:
        async with serving() as server:
            worker = ThreadEnd(server.end.address, server.theirs, decoder)
            worker.send(Ping(0))
            await server.until(lambda: bool(server.heard))
            loop, wire = asyncio.get_running_loop(), worker._wire

            def greeted() -> bool:
                with worker._lock:
                    assert worker._take() is None
                return wire.line.greeted

            await server.until(greeted)  # so that the next sign is that of the message

            def arrives() -> None:
                loop.call_soon_threadsafe(server.end.send, Ping(1))
                sign = select.poll()
                sign.register(wire.fd, select.POLLIN)
                assert sign.poll(DEADLINE_S * 1000)

            if moment == "before it waits":
                poll = worker._poll.poll

                class Late:
                    def poll(self, timeout_ms: int) -> list[tuple[int, int]]:
                        if server.heard == [Ping(0)]:
                            arrives()
                            worker.send(Ping(2))
                        return poll(timeout_ms)

                worker._poll = Late()  # type: ignore[assignment]  # a moment's delay in front of the real one
            else:
                flush = wire.flush

                def late() -> None:
                    wire.flush = flush  # type: ignore[method-assign]  # once
                    arrives()
                    assert wire.readable(), "it was told, and will not be told again"

                wire.flush = late  # type: ignore[method-assign]  # a moment's delay, as above
            got: list[Message | None] = []
            thread = threading.Thread(target=lambda: got.append(worker.receive()))
            thread.start()
            try:
                await server.until(lambda: bool(got))
            finally:
                server.end.close()
                await asyncio.to_thread(thread.join, DEADLINE_S)
            assert got == [Ping(1)]
            worker.close()

    play(scene)


def test_control_overtakes_data_that_the_peer_has_not_read() -> None:
    async def scene() -> None:
        async with serving() as server:
            worker = ThreadEnd(server.end.address, server.theirs, decoder)
            worker.send(Ping(0))
            await server.until(lambda: bool(server.heard))  # it is in: from now on messages leave
            for number in range(200):
                assert server.end.send(Ping(number), data=True)
            assert server.end.send(Ping(-1))
            got: list[Message | None] = []
            await asyncio.to_thread(lambda: got.extend(worker.receive() for _ in range(WINDOW + 1)))
            assert Ping(-1) in got
            assert [one for one in got if one != Ping(-1)] == [Ping(number) for number in range(WINDOW)]
            worker.close()

    play(scene)


def test_a_peer_that_does_not_read_is_refused_more() -> None:
    async def scene() -> None:
        async with serving(most_bytes=500_000) as server:
            worker = ThreadEnd(server.end.address, server.theirs, decoder, most_bytes=500_000)
            worker.send(Ping(0))
            await server.until(lambda: bool(server.heard))
            sent = 0
            while server.end.send(Blob(bytes(50_000)), data=sent % 2 == 0):
                sent += 1
                assert sent < 100, "nothing bounds what is kept for the peer"
            assert sent == 9
            while server.end.send(Ping(sent)):  # small ones count too
                sent += 1
                assert sent < 10_000, "nothing bounds the number of messages"
            read = await asyncio.to_thread(lambda: [worker.receive() for _ in range(sent)])
            assert len(read) == sent
            worker.send(Ping(1))  # what it took off is told along
            await server.until(lambda: len(server.heard) == 2)
            assert server.end.send(Blob(bytes(50_000)))
            worker.close()

    play(scene)


def test_a_worker_waits_for_a_server_that_does_not_read_and_is_refused_at_the_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(control, "ROOM_BYTES", 250_000)

    async def scene() -> None:
        async with serving(most_bytes=500_000) as server:
            worker = ThreadEnd(server.end.address, server.theirs, decoder, most_bytes=500_000)
            reader = echo(worker)
            sent = 0

            def overwhelm() -> None:
                nonlocal sent
                while sent < 100:
                    worker.send(Blob(bytes(50_000)), data=True)
                    sent += 1

            with pytest.raises(ControlError, match=r"leaves 4\d{5} bytes unread"):
                overwhelm()  # the loop does not run meanwhile
            waiting = threading.Thread(target=worker.wait_for_room)
            waiting.start()
            waiting.join(0.01)
            assert waiting.is_alive(), "it does not wait"
            await server.until(lambda: len(server.heard) == sent)
            await asyncio.to_thread(waiting.join, DEADLINE_S)
            assert not waiting.is_alive(), "it waits for a server that has read everything"
            server.end.close()
            await asyncio.to_thread(reader.join, DEADLINE_S)
            assert not reader.is_alive()

    play(scene)


def test_a_worker_says_that_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "BEAT_S", 0.01)

    async def scene() -> None:
        async with serving() as server:
            reader = echo(ThreadEnd(server.end.address, server.theirs, decoder))
            for _ in range(3):
                last = server.end.heard_at
                await server.until(lambda last=last: server.end.heard_at > last)  # type: ignore[misc]  # a default binds it
            assert server.heard == []
            server.end.close()
            await asyncio.to_thread(reader.join, DEADLINE_S)
            assert not reader.is_alive()

    play(scene)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ((bytes(frame(OWN, Hello(99))),), "the peer speaks version 99"),
        ((b"GET / HTTP/1.1\r\n",), "of kind 71 came; expected a greeting"),
        ((GREETING, bytes((CONTROL,)) + b"\xc1 garbage"), "is no message"),
        ((GREETING, b""), "of 0 bytes came"),
    ],
)
def test_a_peer_that_can_not_be_understood_ends_the_connection_with_the_reason(
    said: tuple[bytes, ...], why: str
) -> None:
    async def scene() -> None:
        async with serving() as server, raw_peer(server) as peer:
            for one in said:
                peer.send(one)
            await server.until(lambda: bool(server.ends))
            assert why in str(server.ends[0])
            assert server.heard == []
            assert not server.end.send(Ping(1))
            assert server.theirs.recv(1) == b"", "the peer is not told that it is over"

    play(scene)


def test_a_message_over_the_bound_never_arrives() -> None:
    """The peer breaks the rules, and loses its connection; it will be found silent."""

    async def scene() -> None:
        async with serving() as server, raw_peer(server) as peer:
            monitor = peer.get_monitor_socket(zmq.EVENT_DISCONNECTED)
            peer.send(GREETING)
            peer.send(bytes(line.MAX_MESSAGE_BYTES + 2))
            await server.until(lambda: bool(monitor.poll(0)))
            peer.disable_monitor()
            monitor.close()
            assert server.ends == []
            assert server.heard == []

    play(scene)


def test_a_word_on_the_lifeline_is_an_error() -> None:
    async def scene() -> None:
        async with serving() as server:
            server.theirs.send(b"x")
            await server.until(lambda: bool(server.ends))
            assert "wrote on its lifeline" in str(server.ends[0])

    play(scene)


def test_a_fault_in_one_message_does_not_silence_those_behind_it() -> None:
    async def scene() -> None:
        faults: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: faults.append(context["exception"]))
        ours, theirs = socket.socketpair()
        heard: list[Message] = []

        def take(message: Message) -> None:
            heard.append(message)
            if message == Ping(1):
                raise ValueError("a bug")

        end = LoopEnd(ours, decoder, take, lambda error: None)
        worker = ThreadEnd(end.address, theirs, decoder)
        for number in range(3):
            worker.send(Ping(number))
        async with asyncio.timeout(DEADLINE_S):
            while len(heard) < 3:  # noqa: ASYNC110  # as above
                await asyncio.sleep(0.001)
        assert [str(fault) for fault in faults] == ["a bug"]
        end.close()
        worker.close()

    play(scene)
