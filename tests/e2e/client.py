"""Is a stock client: the openai SDK over a real socket, with every event held against the validator."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from openai import AsyncOpenAI
from openai.resources.realtime.realtime import AsyncRealtimeConnection

from loadtest.loudspeaker import Loudspeaker
from tests.conformance.realtime_validator import Validator

RATE_HZ = 24_000
FRAME = RATE_HZ // 50
PATIENCE_S = 60.0
Pcm = NDArray[np.int16]
Json = dict[str, Any]  # events as they came over the wire


@dataclass(slots=True)
class Client:
    """One session. `events` holds all that came, as plain JSON; `unpack` makes int16 at 24 kHz of what is heard."""

    connection: AsyncRealtimeConnection
    unpack: Callable[[bytes], bytes] = bytes
    events: list[Json] = field(default_factory=list)
    sound: dict[str, bytearray] = field(default_factory=dict)
    loudspeaker: Loudspeaker = field(default_factory=Loudspeaker)
    validator: Validator = field(default_factory=lambda: Validator(portable=True, sequence=True))
    problems: list[str] = field(default_factory=list)
    _news: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def listen(self) -> None:
        async for raw in self.connection:
            event = raw.to_dict(mode="json")
            self.problems += map(str, self.validator.feed(event))
            if event["type"] == "response.output_audio.delta":
                pcm = self.unpack(base64.b64decode(str(event["delta"])))
                self.sound.setdefault(str(event["response_id"]), bytearray()).extend(pcm)
                self.loudspeaker.play(np.frombuffer(pcm, np.int16), time.monotonic())
            elif event["type"] == "input_audio_buffer.speech_started":
                self.loudspeaker.cut(time.monotonic())
            async with self._news:
                self.events.append(event)
                self._news.notify_all()

    async def wait(self, kind: str, since: int = 0) -> Json:
        """The first event of a type from index `since` on."""
        try:
            async with asyncio.timeout(PATIENCE_S), self._news:
                while True:
                    for event in self.events[since:]:
                        if event["type"] == kind:
                            return event
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"no {kind}; instead {self.kinds(since)}") from None

    def of(self, kind: str, since: int = 0) -> list[Json]:
        return [event for event in self.events[since:] if event["type"] == kind]

    def kinds(self, since: int = 0) -> list[str]:
        return [str(event["type"]) for event in self.events[since:]]

    async def configure(self, **session: object) -> Json:
        since = len(self.events)
        audio = {"input": {"transcription": {"model": "whisper-1"}}}
        await self.connection.session.update(session=cast(Any, {"type": "realtime", "audio": audio, **session}))
        return await self.wait("session.updated", since)

    async def append(self, pcm: Pcm) -> None:
        await self.connection.input_audio_buffer.append(audio=base64.b64encode(pcm.tobytes()).decode())

    async def speak(self, pcm: Pcm, frame: int = 5 * FRAME) -> None:
        """Send sound as fast as it is taken."""
        for start in range(0, len(pcm), frame):
            await self.append(pcm[start : start + frame])

    async def speak_live(self, pcm: Pcm) -> None:
        """Send sound in real time, in frames of 20 ms."""
        began = time.monotonic()
        for count, start in enumerate(range(0, len(pcm), FRAME)):
            await asyncio.sleep(max(0.0, began + count * FRAME / RATE_HZ - time.monotonic()))
            await self.append(pcm[start : start + FRAME])

    async def type(self, text: str) -> None:
        """Add a typed message of the user."""
        await self.connection.conversation.item.create(
            item={"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
        )

    async def ask(self, text: str, **response: object) -> Json:
        """A typed turn; gives its `response.done`."""
        since = len(self.events)
        await self.type(text)
        await self.connection.response.create(response=cast(Any, response))  # the SDK's types leave no room for any
        return await self.wait("response.done", since)

    def heard(self, response_id: str) -> Pcm:
        """All the sound of a response."""
        return np.frombuffer(bytes(self.sound.get(response_id, b"")), np.int16)


@contextlib.asynccontextmanager
async def session(url: str, key: str = "none", model: str = "gpt-realtime", **query: str) -> AsyncIterator[Client]:
    """An open session; at its end every event must have been valid. `query` is more of what its address says."""
    sdk = AsyncOpenAI(api_key=key, base_url=f"{url}/v1", websocket_base_url=f"{url.replace('http', 'ws', 1)}/v1")
    async with sdk, sdk.realtime.connect(model=model, extra_query=cast(Any, query)) as connection:
        client = Client(connection)
        listener = asyncio.create_task(client.listen())
        try:
            await client.wait("session.created")
            yield client
        finally:
            listener.cancel()
            await asyncio.gather(listener, return_exceptions=True)
    assert client.events[0]["type"] == "session.created"
    assert not client.problems, client.problems


def transcript(response: Json) -> str:
    """What an assistant said or wrote, by its `response.done`."""
    parts = [part for item in response["response"]["output"] for part in item.get("content", [])]
    return " ".join(part.get("transcript") or part.get("text") or "" for part in parts)
