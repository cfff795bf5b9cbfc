"""Is one caller: a microphone that never stops, a loudspeaker, and the server's messages with their times."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from websockets.asyncio.client import ClientConnection, connect

from loadtest.loudspeaker import Loudspeaker, Pcm
from loadtest.microphone import Microphone, Said
from loadtest.wire import Message, RealtimeWire, Wire

Found = TypeVar("Found")

ANSWER_S = 30.0
"""An answer that takes longer counts as none."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """A server's message; sound is taken out of it."""

    at: float
    type: str
    event: dict[str, Any]  # as it came: a benchmark must not depend on our own types


class Caller:
    """One open session. Use `async with await Caller.dial(url, ...)`."""

    def __init__(self, socket: ClientConnection, wire: Wire, seed: int) -> None:
        self.loudspeaker = Loudspeaker()
        self.microphone = Microphone(wire.rate_hz, self._send, seed)
        self.events: list[Arrived] = []
        self._socket, self._wire = socket, wire
        self._tasks: list[asyncio.Task[None]] = []
        self._news = asyncio.Condition()
        self._lost: Exception | None = None

    @classmethod
    async def dial(cls, url: str, key: str | None, instructions: str, seed: int = 0, *, answered: bool = True) -> Self:
        """Connect and set a Realtime session up: server VAD as it comes, transcripts on, answers if they are wanted."""
        wire = RealtimeWire()
        caller = await cls.open(url, wire, seed, {"Authorization": f"Bearer {key}"} if key else {})
        turns = {"type": "server_vad", "create_response": answered}
        audio = {"input": {"transcription": {"model": "whisper-1"}, "turn_detection": turns}}
        session = {"type": "realtime", "instructions": instructions, "audio": audio}
        try:
            await caller._socket.send(wire.event({"type": "session.update", "session": session}))
            await caller.wait_for("session.updated", 0.0)
        except BaseException:
            await caller.hang_up()
            raise
        return caller

    @classmethod
    async def open(cls, url: str, wire: Wire, seed: int, headers: Mapping[str, str]) -> Self:
        """Connect, and let microphone and loudspeaker run."""
        caller = cls(await connect(url, additional_headers=headers, compression=None, max_size=None), wire, seed)
        caller._tasks = [asyncio.create_task(caller._listen()), asyncio.create_task(caller.microphone.run())]
        return caller

    async def hang_up(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._socket.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.hang_up()

    @property
    def rate_hz(self) -> int:
        """The rate of what it says."""
        return self._wire.rate_hz

    async def say(self, pcm: Pcm) -> Said:
        """Speak `pcm` (int16, shape (n,), at the wire's rate) in real time. Raises TimeoutError on a dead line."""
        async with asyncio.timeout(len(pcm) / self._wire.rate_hz + ANSWER_S):
            return await self.microphone.say(pcm)

    async def wait_for(self, kind: str, after: float) -> Arrived:
        """The first message of a type that arrived at or after a time. Raises TimeoutError, with what came instead."""

        def found() -> Arrived | None:
            return next((arrived for arrived in self.since(after) if arrived.type == kind), None)

        return await self._first(found, kind, after)

    async def first_voice(self, after: float) -> float:
        """When the first audible sample at or after a time is heard. Raises TimeoutError, with what came instead."""
        return await self._first(lambda: self.loudspeaker.first_voiced(after), "audible sound", after)

    async def _first(self, find: Callable[[], Found | None], what: str, after: float) -> Found:
        try:
            async with asyncio.timeout(ANSWER_S), self._news:
                while (found := find()) is None:
                    if self._lost is not None:
                        raise self._lost
                    await self._news.wait()
                return found
        except TimeoutError:
            seen = dict.fromkeys(arrived.type for arrived in self.since(after))
            raise TimeoutError(f"no {what} within {ANSWER_S:.0f} s; instead: {', '.join(seen) or 'nothing'}") from None

    def since(self, after: float) -> Sequence[Arrived]:
        """What arrived at or after a time."""
        return [arrived for arrived in self.events if arrived.at >= after]

    async def quiet(self, quiet_s: float) -> None:
        """Return once nothing has been played for a while."""
        while time.monotonic() < (free := self.loudspeaker.free_at + quiet_s):
            await self.until(free)

    async def stay(self, seconds: float) -> None:
        """Wait with the line open. Raises what ended the connection, if it ended."""
        await asyncio.sleep(seconds)
        if self._lost is not None:
            raise self._lost

    async def until(self, moment: float) -> None:
        await asyncio.sleep(max(0.0, moment - time.monotonic()))

    async def _send(self, pcm: Pcm) -> None:
        await self._socket.send(self._wire.write(pcm))

    async def _listen(self) -> None:
        lost: Exception = ConnectionError("the server hung up")
        try:
            async for frame in self._socket:
                await self._take(self._wire.read(frame), time.monotonic())
        except Exception as error:  # whatever it is, it is told to whoever waits
            lost = error
        async with self._news:
            self._lost = lost
            self._news.notify_all()

    async def _take(self, message: Message, now: float) -> None:
        if message.pcm is not None:
            self.loudspeaker.play(message.pcm, now)
        if message.cuts:
            self.loudspeaker.cut(now)
        async with self._news:
            self.events.append(Arrived(now, message.type, message.content))
            self._news.notify_all()
