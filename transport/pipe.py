"""Carries small ordered messages between two processes over a socket pair."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from transport.errors import PipeError

VERSION = 1
MAX_FRAME_BYTES = 8 << 20  # a minute and a half of 48 kHz speech; a longer frame is a bug or an attack
MAX_UNSENT_BYTES = 16 << 20  # what the loop keeps for a peer that does not read; beyond it `send` refuses
SEND_TIMEOUT_S = 30  # how long the blocking side waits for a peer that does not read
READ_BYTES = 64 << 10

_HEADER = struct.Struct(">I")
In = TypeVar("In")


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """The first message in each direction."""

    version: int


_HELLO = msgspec.msgpack.Decoder(Hello)
_ENCODER = msgspec.msgpack.Encoder()


def frame(message: msgspec.Struct) -> bytes:
    """A message as it lies on the wire: four bytes of length, then msgpack. Raises `PipeError` when too long."""
    body = _ENCODER.encode(message)
    if len(body) > MAX_FRAME_BYTES:
        raise PipeError(f"a {type(message).__name__} of {len(body)} bytes is over the bound of {MAX_FRAME_BYTES}")
    return _HEADER.pack(len(body)) + body


class Frames(Generic[In]):
    """Cuts a stream of bytes into messages; the first must be a `Hello` of our version and is not handed on."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[In]) -> None:
        self._decoder = decoder
        self._buffer = bytearray()
        self._greeted = False

    def push(self, data: bytes) -> list[In]:
        """The messages that `data` completes. Raises `PipeError` for what is no message of ours."""
        self._buffer += data
        messages: list[In] = []
        at = 0
        while len(self._buffer) - at >= _HEADER.size:
            (length,) = _HEADER.unpack_from(self._buffer, at)
            if length > MAX_FRAME_BYTES:
                raise PipeError(f"a frame of {length} bytes was announced, the bound is {MAX_FRAME_BYTES}")
            if len(self._buffer) - at - _HEADER.size < length:
                break
            at += _HEADER.size
            self._take(bytes(self._buffer[at : at + length]), messages)
            at += length
        del self._buffer[:at]
        return messages

    def end(self) -> None:
        """Say that no more bytes come. Raises `PipeError` when they stopped inside a frame."""
        if self._buffer:
            raise PipeError(f"the peer went away inside a frame, {len(self._buffer)} bytes into it")

    def _take(self, body: bytes, messages: list[In]) -> None:
        try:
            if self._greeted:
                messages.append(self._decoder.decode(body))
                return
            hello = _HELLO.decode(body)
        except msgspec.DecodeError as error:
            raise PipeError(f"a frame of {len(body)} bytes is no message of this pipe: {error}") from error
        if hello.version != VERSION:
            raise PipeError(f"the peer speaks version {hello.version}, this side {VERSION}: install the same release")
        self._greeted = True


class BlockingPipe(Generic[In]):
    """The worker's end. One thread may receive while others send. `decoder` decodes the union that is received."""

    def __init__(self, sock: socket.socket, decoder: msgspec.msgpack.Decoder[In]) -> None:
        sock.setblocking(True)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_TIMEOUT_S, 0))
        self._sock = sock
        self._frames = Frames(decoder)
        self._received: deque[In] = deque()  # bounded by what READ_BYTES can hold
        self._sending = threading.Lock()
        self.send(Hello(VERSION))

    def send(self, message: msgspec.Struct) -> None:
        """Send in order. Raises `PipeError` for an oversized message, `OSError` when the peer is gone or stuck."""
        data = frame(message)
        with self._sending:
            self._sock.sendall(data)

    def receive(self) -> In | None:
        """The next message, or None when the peer has closed.

        It waits for as long as the peer lives: the end of the peer ends the wait. Raises `PipeError`.
        """
        while not self._received:
            try:
                data = self._sock.recv(READ_BYTES)
            except ConnectionResetError:  # the peer died with our messages unread
                return None
            if not data:
                self._frames.end()
                return None
            self._received.extend(self._frames.push(data))
        return self._received.popleft()

    def close(self) -> None:
        self._sock.close()


class AsyncPipe(asyncio.Protocol, Generic[In]):
    """The server's end, on the event loop.

    `on_message` gets each message in order; `on_end` is called once, with None when the peer closed cleanly or was
    killed, and with the error when it sent what can't be understood. Neither is called after `close`.
    """

    def __init__(
        self,
        decoder: msgspec.msgpack.Decoder[In],
        on_message: Callable[[In], None],
        on_end: Callable[[PipeError | None], None],
    ) -> None:
        self._frames = Frames(decoder)
        self._on_message = on_message
        self._on_end = on_end
        self._transport: asyncio.Transport | None = None
        self._ended = False

    @classmethod
    async def attach(
        cls,
        sock: socket.socket,
        decoder: msgspec.msgpack.Decoder[In],
        on_message: Callable[[In], None],
        on_end: Callable[[PipeError | None], None],
    ) -> AsyncPipe[In]:
        """Take over one socket of a pair, for the running loop."""
        sock.setblocking(False)
        pipe = cls(decoder, on_message, on_end)
        await asyncio.get_running_loop().create_unix_connection(lambda: pipe, sock=sock)
        pipe.send(Hello(VERSION))
        return pipe

    def send(self, message: msgspec.Struct) -> bool:
        """Send in order, without waiting; false when the peer is gone or leaves more than the bound unread.

        Raises `PipeError` for an oversized message.
        """
        transport = self._transport
        if transport is None or transport.is_closing() or transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            return False
        transport.write(frame(message))
        return True

    def close(self) -> None:
        """Drop the connection at once; what is unsent is lost and no callback follows."""
        self._ended = True
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            messages = self._frames.push(data)
        except PipeError as error:
            self._end(error)
            return
        for message in messages:
            if not self._ended:
                self._on_message(message)

    def connection_lost(self, error: Exception | None) -> None:
        self._end(None)

    def _end(self, error: PipeError | None) -> None:
        if not self._ended:
            self.close()
            self._on_end(error)
