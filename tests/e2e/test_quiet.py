"""Plays the server what is not speech: it must not take a turn."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from loadtest.speech import Pcm, breath, clicks, hum, noise, silence, speech
from tests.e2e.client import session
from tests.e2e.server import Server

SOUNDS: dict[str, Pcm] = {
    "silence": silence(30.0),
    "noise": noise(30.0),
    "hum": hum(20.0),
    "clicks": clicks(20.0),
    "breath": breath(12.0),
}


@pytest.mark.parametrize("name", SOUNDS)
def test_what_is_not_speech_gives_no_turn(scripted: Server, name: str) -> None:
    async def listen() -> list[str]:
        async with session(scripted.url) as client:
            await client.configure()
            await client.speak(SOUNDS[name])
            # Whatever the sound would have set off comes before what this speech does.
            since = len(client.events)
            await client.speak(np.concatenate([silence(0.5), speech("hello_world")[0], silence(1.0)]))
            started = await client.wait("input_audio_buffer.speech_started")
            await client.wait("response.done", since)
            assert started["audio_start_ms"] > len(SOUNDS[name]) / 24 - 400
            return client.kinds()

    kinds = asyncio.run(listen())
    assert kinds.count("input_audio_buffer.speech_started") == 1
    assert kinds.count("response.created") == 1
