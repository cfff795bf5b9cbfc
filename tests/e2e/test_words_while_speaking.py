"""Speaks to the server and reads along."""

from __future__ import annotations

import asyncio

import numpy as np

from loadtest.speech import silence, speech, word_error_rate
from tests.e2e.client import Client, session
from tests.e2e.server import Server

DETECTION = {"type": "server_vad", "create_response": False}


async def read_along(url: str, name: str, silence_ms: int = 500) -> Client:
    async with session(url) as client:
        client.validator.asked_for.add("delay")
        audio = {
            "input": {
                "transcription": {"model": "whisper-1", "delay": "minimal"},
                "turn_detection": {**DETECTION, "silence_duration_ms": silence_ms},
            }
        }
        await client.configure(audio=audio)
        await client.speak_live(np.concatenate([speech(name)[0], silence(2.0)]))
        await client.wait("conversation.item.input_audio_transcription.completed")
        return client


def test_words_come_while_they_are_spoken_and_only_grow(scripted: Server) -> None:
    client = asyncio.run(read_along(scripted.url, "ages"))
    kinds = client.kinds()
    delta = "conversation.item.input_audio_transcription.delta"
    early = kinds[: kinds.index("input_audio_buffer.speech_stopped")].count(delta)
    assert early >= 2, "words are there before the speaker is done"
    told = "".join(event["delta"] for event in client.of(delta))
    completed = client.of("conversation.item.input_audio_transcription.completed")[-1]["transcript"]
    assert told == completed
    assert word_error_rate(speech("ages")[1], completed) <= 0.1


def test_a_long_turn_with_pauses_is_heard_whole(scripted: Server) -> None:
    client = asyncio.run(read_along(scripted.url, "opening", silence_ms=1500))
    assert len(client.of("input_audio_buffer.committed")) == 1
    completed = client.of("conversation.item.input_audio_transcription.completed")[-1]["transcript"]
    assert word_error_rate(speech("opening")[1], completed) <= 0.1
