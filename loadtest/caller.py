"""Is one caller: a microphone that never stops, a loudspeaker, and the server's events with their times of arrival."""

from __future__ import annotations

import asyncio
import base64
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Self

import msgspec
import numpy as np
from websockets.asyncio.client import ClientConnection, connect

from loadtest.loudspeaker import RATE_HZ, Loudspeaker, Pcm

FRAME = RATE_HZ // 50
"""20 ms, sent in real time."""
ROOM = 20.0
"""The microphone's noise, as the root mean square of 16-bit samples: about -64 dBFS."""
ANSWER_S = 30.0
"""An answer that takes longer counts as none."""


@dataclass(frozen=True, slots=True)
class Said:
    """When the first and the last sample of an utterance left the microphone."""

    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class Arrived:
    """A server event; sound is taken out of it."""

    at: float
    event: dict[str, Any]  # as it came: a benchmark must not depend on our own types

    @property
    def type(self) -> str:
        return str(self.event["type"])


@dataclass(slots=True)
class Caller:
    """One open session. Use `async with Caller.dial(url, ...)`."""

    socket: ClientConnection
    seed: int = 0
    loudspeaker: Loudspeaker = field(default_factory=Loudspeaker)
    events: list[Arrived] = field(default_factory=list)
    _queue: deque[tuple[Pcm, asyncio.Future[Said]]] = field(default_factory=deque)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _news: asyncio.Condition = field(default_factory=asyncio.Condition)

    @classmethod
    async def dial(cls, url: str, key: str | None, instructions: str, seed: int = 0) -> Self:
        """Connect and set the session up: server VAD as it comes, transcripts on."""
        headers = {"Authorization": f"Bearer {key}"} if key else None
        socket = await connect(url, additional_headers=headers, compression=None, max_size=None)
        caller = cls(socket, seed)
        caller._tasks = [asyncio.create_task(caller._listen()), asyncio.create_task(caller._speak())]
        audio = {"input": {"transcription": {"model": "whisper-1"}}}
        session = {"type": "realtime", "instructions": instructions, "audio": audio}
        await caller._send({"type": "session.update", "session": session})
        await caller.wait_for("session.updated", 0.0)
        return caller

    async def hang_up(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.socket.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.hang_up()

    async def say(self, pcm: Pcm) -> Said:
        """Speak `pcm` (int16, shape (n,), 24 kHz) in real time."""
        done: asyncio.Future[Said] = asyncio.get_running_loop().create_future()
        self._queue.append((pcm, done))
        return await done

    async def wait_for(self, kind: str, after: float) -> Arrived:
        """The first event of a type that arrived at or after a time. Raises TimeoutError, with what came instead."""
        try:
            async with asyncio.timeout(ANSWER_S), self._news:
                while True:
                    for arrived in self.events:
                        if arrived.at >= after and arrived.type == kind:
                            return arrived
                    await self._news.wait()
        except TimeoutError:
            seen = [arrived.type for arrived in self.events if arrived.at >= after]
            raise TimeoutError(f"no {kind} within {ANSWER_S:.0f} s; instead: {seen}") from None

    async def first_voice(self, after: float) -> float:
        """When the first audible sample at or after a time is heard. Raises TimeoutError."""
        async with asyncio.timeout(ANSWER_S), self._news:
            while (heard := self.loudspeaker.first_voiced(after)) is None:
                await self._news.wait()
        return heard

    async def until(self, moment: float) -> None:
        await asyncio.sleep(max(0.0, moment - time.monotonic()))

    async def _send(self, event: dict[str, Any]) -> None:
        await self.socket.send(msgspec.json.encode(event).decode())

    async def _listen(self) -> None:
        async for frame in self.socket:
            now = time.monotonic()
            event = msgspec.json.decode(frame)
            match event["type"]:
                case "response.output_audio.delta":
                    self.loudspeaker.play(np.frombuffer(base64.b64decode(event.pop("delta")), "<i2"), now)
                case "input_audio_buffer.speech_started":
                    self.loudspeaker.cut(now)
            async with self._news:
                self.events.append(Arrived(now, event))
                self._news.notify_all()

    async def _speak(self) -> None:
        """A frame leaves when its last sample has been captured, 20 ms after its first."""
        rng = np.random.default_rng(self.seed)
        start, frames = time.monotonic(), 0
        pcm, done, began = np.zeros(0, np.int16), None, 0.0
        while True:
            frames += 1
            await self.until(start + frames * FRAME / RATE_HZ)
            if not len(pcm) and self._queue:
                pcm, done = self._queue.popleft()
                began = time.monotonic() - FRAME / RATE_HZ
            frame, pcm = pcm[:FRAME], pcm[FRAME:]
            noisy = np.pad(frame, (0, FRAME - len(frame))) + rng.normal(0, ROOM, FRAME)
            sound = np.clip(noisy, -32768, 32767).astype("<i2").tobytes()
            await self._send({"type": "input_audio_buffer.append", "audio": base64.b64encode(sound).decode()})
            if done is not None and not len(pcm):
                spoken_in_frame = len(frame) / RATE_HZ
                done.set_result(Said(began, time.monotonic() - FRAME / RATE_HZ + spoken_in_frame))
                done = None
