"""Tests the pipe: framing, versions, ends."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transport import pipe
from transport.errors import PipeError
from transport.pipe import AsyncPipe, BlockingPipe, Frames, Hello, frame

DEADLINE_S = 10.0


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    number: int


class Blob(msgspec.Struct, frozen=True, tag="blob"):
    data: bytes


Message = Ping | Blob
decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@given(
    st.lists(st.one_of(st.builds(Ping, st.integers(0, 9)), st.builds(Blob, st.binary(max_size=50)))),
    st.lists(st.integers(1, 40), min_size=1),
)
def test_any_cut_of_the_bytes_gives_the_same_messages(messages: list[Message], cuts: list[int]) -> None:
    wire = b"".join(map(frame, [Hello(pipe.VERSION), *messages]))
    frames, got, at, turn = Frames(decoder), [], 0, 0
    while at < len(wire):
        size = cuts[turn % len(cuts)]
        got += frames.push(wire[at : at + size])
        at, turn = at + size, turn + 1
    frames.end()
    assert got == messages


def test_another_version_is_refused() -> None:
    with pytest.raises(PipeError, match=r"version 99.*1"):
        Frames(decoder).push(frame(Hello(99)))


def test_the_first_message_must_be_a_hello() -> None:
    with pytest.raises(PipeError, match="no message of this pipe"):
        Frames(decoder).push(frame(Ping(1)))


def test_a_frame_over_the_bound_is_refused_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipe, "MAX_FRAME_BYTES", 100)
    with pytest.raises(PipeError, match="over the bound of 100"):
        frame(Blob(bytes(101)))
    with pytest.raises(PipeError, match=r"101 bytes was announced"):
        Frames(decoder).push(struct.pack(">I", 101))


def test_an_end_inside_a_frame_is_no_clean_end() -> None:
    frames = Frames(decoder)
    frames.push(frame(Hello(pipe.VERSION)) + b"\0")
    with pytest.raises(PipeError, match="inside a frame"):
        frames.end()


def test_what_is_no_message_is_refused() -> None:
    frames = Frames(decoder)
    frames.push(frame(Hello(pipe.VERSION)))
    with pytest.raises(PipeError, match="no message of this pipe"):
        frames.push(struct.pack(">I", 1) + b"\xc1")


def test_both_sides_talk_and_the_end_is_a_signal(pair: tuple[socket.socket, socket.socket]) -> None:
    answered: list[Message] = []

    def worker() -> None:
        side = BlockingPipe(pair[1], decoder)
        while (message := side.receive()) is not None:
            assert isinstance(message, Ping)
            side.send(Ping(message.number + 1))
        side.close()

    async def server() -> list[PipeError | None]:
        ends: list[PipeError | None] = []
        arrived, ended = asyncio.Event(), asyncio.Event()

        def take(message: Message) -> None:
            answered.append(message)
            if len(answered) == 3:
                arrived.set()

        def end(error: PipeError | None) -> None:
            ends.append(error)
            ended.set()

        side = await AsyncPipe.attach(pair[0], decoder, take, end)
        for number in range(3):
            assert side.send(Ping(number))
        async with asyncio.timeout(DEADLINE_S):
            await arrived.wait()
            pair[0].shutdown(socket.SHUT_WR)
            await ended.wait()
        assert not side.send(Ping(9))
        return ends

    thread = threading.Thread(target=worker)
    thread.start()
    assert asyncio.run(server()) == [None]
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
    assert answered == [Ping(1), Ping(2), Ping(3)]


def test_a_peer_that_does_not_read_is_refused_more(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipe, "MAX_UNSENT_BYTES", 100_000)

    async def server() -> int:
        side: AsyncPipe[Message] = await AsyncPipe.attach(pair[0], decoder, lambda message: None, lambda error: None)
        sent = 0
        while side.send(Blob(bytes(50_000))):
            sent += 1
            assert sent < 1000, "nothing bounds what is kept for the peer"
        side.close()
        return sent

    assert asyncio.run(server()) > 2


def test_a_broken_message_ends_the_connection_with_the_error(pair: tuple[socket.socket, socket.socket]) -> None:
    async def server() -> PipeError | None:
        end: asyncio.Future[PipeError | None] = asyncio.get_running_loop().create_future()
        await AsyncPipe.attach(pair[0], decoder, lambda message: None, end.set_result)
        pair[1].sendall(frame(Hello(99)))
        async with asyncio.timeout(DEADLINE_S):
            return await end

    assert "version 99" in str(asyncio.run(server()))


def test_close_is_silent(pair: tuple[socket.socket, socket.socket]) -> None:
    async def server() -> list[object]:
        said: list[object] = []
        side = await AsyncPipe.attach(pair[0], decoder, said.append, said.append)
        side.close()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return said

    assert asyncio.run(server()) == []
    assert pair[1].recv(100) == frame(Hello(pipe.VERSION))
    assert pair[1].recv(100) == b""
