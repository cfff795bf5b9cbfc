"""Connects a peer by WebSocket: events as text frames, sound as base64 inside them."""

from __future__ import annotations

import asyncio
import binascii
import logging
from collections import deque

from starlette.websockets import WebSocket, WebSocketDisconnect

from duplex_server.channels.base import SlowPeer
from duplex_server.realtime.dialect import Codec
from duplex_server.realtime.effects import PlayAudio
from duplex_server.realtime.formats import encode
from duplex_server.realtime.wire import AnyServerEvent, AudioDelta
from pipeline.chunk import Reply

log = logging.getLogger(__name__)

OUTBOX_BYTES = 8 * 1024 * 1024
"""What may wait for a peer that reads slowly: over a minute of speech."""
WRITE_S = 30.0
"""How long one frame may take to leave."""
CLOSE_S = 2.0
"""How long the last frames may take to leave before the connection is cut."""
CLOSE_SLOW = 1008


class WebSocketChannel:
    """A peer's WebSocket, already accepted. `run` writes what is queued, for as long as the connection lasts."""

    def __init__(self, socket: WebSocket, codec: Codec) -> None:
        self._socket, self._codec = socket, codec
        self._outbox: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._more = asyncio.Event()
        self._written = asyncio.Event()
        self._closed = False

    async def run(self) -> None:
        """Write queued frames in order until the connection ends."""
        while not self._closed:
            while self._outbox:
                frame = self._outbox.popleft()
                self._waiting_bytes -= len(frame)
                if not await self._write(frame):
                    return
            self._written.set()
            self._more.clear()
            await self._more.wait()

    async def _write(self, frame: bytes) -> bool:
        try:
            async with asyncio.timeout(WRITE_S):
                await self._socket.send_text(frame.decode())
        except TimeoutError:
            log.warning("the peer read nothing for %.0f s: its connection is cut", WRITE_S)
            await self._end(CLOSE_SLOW, "too slow to read")
        except (WebSocketDisconnect, RuntimeError):
            self._closed = True  # the peer left while we wrote; `receive` tells the session
        return not self._closed

    async def receive(self) -> str | bytes | None:
        if self._closed:
            return None
        try:
            message = await self._socket.receive()
        except RuntimeError:
            return None  # closed by our side meanwhile
        if message["type"] != "websocket.receive":
            self._closed = True
            self._more.set()
            return None
        text, data = message.get("text"), message.get("bytes")
        if isinstance(text, str):
            return text
        return data if isinstance(data, bytes) else b""

    def send(self, event: AnyServerEvent) -> None:
        for frame in self._codec.encode(event):
            self._queue(frame)

    def play(self, place: PlayAudio, pcm: bytes) -> None:
        delta = AudioDelta(
            event_id=place.event_id,
            response_id=place.response_id,
            item_id=place.item_id,
            output_index=place.output_index,
            content_index=place.content_index,
            delta=binascii.b2a_base64(encode(pcm, place.format, place.from_sample), newline=False).decode(),
        )
        self.send(delta)

    def clear(self, reply: Reply) -> None:
        """Nothing to do: the sound is at the peer, which cuts it at `speech_started`; run-ahead keeps it small."""

    async def close(self, code: int, reason: str) -> None:
        self._written.clear()
        self._more.set()
        try:
            async with asyncio.timeout(CLOSE_S):
                while self._outbox and not self._closed:
                    await self._written.wait()
        except TimeoutError:
            log.warning("the peer did not read its last %d bytes", self._waiting_bytes)
        await self._end(code, reason)

    async def _end(self, code: int, reason: str) -> None:
        if self._closed:
            return
        self._closed = True
        self._more.set()
        try:
            await self._socket.close(code, reason.encode()[:120].decode(errors="ignore"))
        except RuntimeError:
            log.debug("the peer had closed already")

    def _queue(self, frame: bytes) -> None:
        if self._closed:
            return
        self._outbox.append(frame)
        self._waiting_bytes += len(frame)
        self._written.clear()
        self._more.set()
        if self._waiting_bytes > OUTBOX_BYTES:
            raise SlowPeer(f"{self._waiting_bytes} bytes wait for a peer that does not read them")
