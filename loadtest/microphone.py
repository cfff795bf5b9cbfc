"""Is a microphone: it sends 20 ms of sound every 20 ms, what it is told to say over the noise of a room."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Pcm = NDArray[np.int16]
FRAME_S = 0.02
ROOM = 20.0
"""The noise, as the root mean square of 16-bit samples: about -64 dBFS."""


@dataclass(frozen=True, slots=True)
class Said:
    """When the first and the last sample of an utterance left the microphone, in monotonic seconds."""

    began: float
    ended: float


class Microphone:
    """Hands int16 frames of shape (`rate_hz` / 50,) to `send`, in real time, for as long as `run` runs."""

    def __init__(self, rate_hz: int, send: Callable[[Pcm], Awaitable[None]], seed: int = 0) -> None:
        self._frame = round(rate_hz * FRAME_S)
        self._rate_hz = rate_hz
        self._send = send
        self._noise = np.random.default_rng(seed)
        self._queue: deque[tuple[Pcm, asyncio.Future[Said]]] = deque()
        self._frames = 0
        self.late_s = 0.0
        """How late the latest frame left; whoever reads it may set it back."""

    @property
    def sent_s(self) -> float:
        """How much sound has left it."""
        return self._frames * FRAME_S

    async def say(self, pcm: Pcm) -> Said:
        """Speak `pcm` (int16, shape (n,), at the microphone's rate); returns when its last sample has left."""
        done: asyncio.Future[Said] = asyncio.get_running_loop().create_future()
        self._queue.append((pcm, done))
        return await done

    async def run(self) -> None:
        """Record and send. A frame leaves when its last sample has been captured, 20 ms after its first."""
        start = time.monotonic()
        pcm, done, began = np.zeros(0, np.int16), None, 0.0
        while True:
            due = start + (self._frames + 1) * FRAME_S
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            self.late_s = max(self.late_s, time.monotonic() - due)
            if not len(pcm) and self._queue:
                pcm, done = self._queue.popleft()
                began = time.monotonic() - FRAME_S
            spoken, pcm = pcm[: self._frame], pcm[self._frame :]
            await self._send(self._in_the_room(spoken))
            self._frames += 1
            if done is not None and not len(pcm):
                done.set_result(Said(began, time.monotonic() - FRAME_S + len(spoken) / self._rate_hz))
                done = None

    def _in_the_room(self, spoken: Pcm) -> Pcm:
        noise = self._noise.normal(0, ROOM, self._frame)
        noise[: len(spoken)] += spoken
        return np.clip(noise, -32768, 32767).astype("<i2")
