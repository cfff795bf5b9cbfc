"""Asks the OpenAI-compatible thinker against the loopback server, for the tests of what it answers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Coroutine

import msgspec

from models.openai_api.family import Options
from models.openai_api.thinker import Thinker
from pipeline.chunk import (
    Chunk,
    Failed,
    Part,
    Prompt,
    Reply,
    TextPart,
    Think,
    Tool,
    Transcribe,
)
from tests.models.chat_server import Answer, Exchange, chat_server

KEY = "sk-very-secret-0123456789"
PATIENT = {"first_byte_timeout_ms": 600_000, "between_timeout_ms": 600_000}  # never what ends a test
LIMIT_S = 20  # a liveness bound; each of these takes milliseconds

HELLO = '{"choices":[{"index":0,"delta":{"role":"assistant","content":"Hel"}}]}'
LO = '{"choices":[{"index":0,"delta":{"content":"lo"}}]}'
STOP = '{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'
USAGE = (
    '{"choices":[],"usage":{"prompt_tokens":12,"completion_tokens":2,"total_tokens":14,'
    '"prompt_tokens_details":{"cached_tokens":8}}}'
)


def run(work: Coroutine[None, None, None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(work, LIMIT_S)

    asyncio.run(bounded())


def think(*parts: Part, epoch: int = 0, tools: tuple[Tool, ...] = (), temperature: float | None = None) -> Think:
    given = parts or (TextPart("i1", "user", "Hi"),)
    return Think(Reply("s", epoch), Prompt(given, tools), 64, temperature)


class Desk:
    """Submits jobs and collects their chunks."""

    def __init__(self, thinker: Thinker) -> None:
        self.thinker = thinker
        self.chunks: asyncio.Queue[Chunk] = asyncio.Queue()

    async def ask(self, job: Think | Transcribe) -> list[Chunk]:
        self.thinker.submit(job, self.chunks.put_nowait)
        taken = [await self.chunks.get()]
        while not taken[-1].last:
            taken.append(await self.chunks.get())
        return taken


async def desk(base_url: str, **changes: str | int | float | bool | None) -> Desk:
    given = {"base_url": base_url, "model": "m1", "api_key": KEY, "probe": False, **PATIENT, **changes}
    thinker = Thinker(msgspec.convert(given, Options))
    await thinker.load()
    return Desk(thinker)


async def reply_of(answer: Answer, job: Think | None = None, **changes: str | int | float | bool | None) -> list[Chunk]:
    async with chat_server(answer) as server:
        at = await desk(server.base_url, **changes)
        chunks = await at.ask(job or think())
        await at.thinker.close()
        return chunks


async def failure_of(answer: Answer, job: Think | None = None, **changes: str | int | float | bool | None) -> Failed:
    chunks = await reply_of(answer, job, **changes)
    payload = chunks[-1].payload
    assert isinstance(payload, Failed)
    assert [chunk.last for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert KEY not in payload.message
    return payload


async def say_hello(exchange: Exchange) -> None:
    await exchange.open_stream()
    await exchange.events(HELLO, LO, STOP, USAGE, "[DONE]")
    await exchange.close_stream()


def closed_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        return port
