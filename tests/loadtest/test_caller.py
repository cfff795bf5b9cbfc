"""Tests the caller against small WebSocket servers: what it hears, and that a lost line is told."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable

import numpy as np
import pytest
from websockets.asyncio.server import ServerConnection, serve

from loadtest.caller import Caller
from loadtest.wire import RealtimeWire

Answer = Callable[[ServerConnection], Awaitable[None]]


def call(answer: Answer, use: Callable[[Caller], Awaitable[None]]) -> None:
    """Let `use` call a server that does `answer`."""

    async def scene() -> None:
        async with serve(answer, "127.0.0.1", 0) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            async with await Caller.open(f"ws://127.0.0.1:{port}", RealtimeWire(), 0, {}) as caller:
                await use(caller)

    asyncio.run(scene())


async def _speak(connection: ServerConnection) -> None:
    """Answer the first sound with a tone, and the second with an interruption."""
    tone = base64.b64encode(np.full(24_000, 9000, np.int16).tobytes()).decode()
    assert json.loads(await connection.recv())["type"] == "input_audio_buffer.append"
    await connection.send(json.dumps({"type": "response.output_audio.delta", "delta": tone}))
    await connection.recv()
    await connection.send('{"type": "input_audio_buffer.speech_started"}')
    await connection.wait_closed()


def test_an_answer_is_heard_until_it_is_interrupted() -> None:
    async def use(caller: Caller) -> None:
        heard = await caller.first_voice(0.0)
        cut = await caller.wait_for("input_audio_buffer.speech_started", 0.0)
        assert caller.loudspeaker.first_voiced(cut.at) is None
        assert caller.loudspeaker.free_at <= cut.at
        delta, _ = caller.since(0.0)
        assert delta.at == heard
        assert "delta" not in delta.event
        assert caller.since(cut.at) == [cut]

    call(_speak, use)


async def _hang_up(connection: ServerConnection) -> None:
    await connection.recv()


async def _babble(connection: ServerConnection) -> None:
    await connection.send("{")
    await connection.wait_closed()


def test_a_lost_line_is_told_to_whoever_waits() -> None:
    async def use(caller: Caller) -> None:
        with pytest.raises(ConnectionError, match="hung up"):
            await caller.wait_for("anything", 0.0)
        with pytest.raises(ConnectionError, match="hung up"):
            await caller.stay(0.0)

    async def puzzled(caller: Caller) -> None:
        with pytest.raises(ValueError, match="truncated"):
            await caller.first_voice(0.0)

    call(_hang_up, use)
    call(_babble, puzzled)
