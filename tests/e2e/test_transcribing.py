"""Opens sessions that only transcribe, with a stock client, and speaks to them."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import numpy as np

from loadtest.speech import silence, speech, word_error_rate
from tests.e2e.client import Client, session
from tests.e2e.server import Server

WORDS = "conversation.item.input_audio_transcription"


async def transcribed(url: str, name: str) -> Client:
    async with session(url, intent="transcription") as client:
        await client.speak_live(np.concatenate([speech(name)[0], silence(1.5)]))
        await client.wait(f"{WORDS}.completed")
        since = len(client.events)
        await client.connection.response.create(event_id="mine")
        error = await client.wait("error", since)
        assert (error["error"]["code"], error["error"]["event_id"]) == ("invalid_value", "mine")
        await client.speak(np.concatenate([speech("quick_fox")[0], silence(1.5)]))
        await client.wait(f"{WORDS}.completed", since)
        return client


def test_check_009_f13_a_transcription_session_is_opened_by_its_address_and_only_transcribes(server: Server) -> None:
    client = asyncio.run(transcribed(server.url, "ages"))
    opened = client.events[0]["session"]
    assert (opened["type"], opened["object"]) == ("transcription", "realtime.transcription_session")
    assert opened["audio"]["input"]["transcription"] == {"model": "whisper-tiny.en"}
    kinds = client.kinds()
    assert not [kind for kind in kinds if kind.startswith(("response.", "rate_limits."))]
    early = kinds[: kinds.index("input_audio_buffer.speech_stopped")].count(f"{WORDS}.delta")
    assert early >= 1, "words are there before the speaker is done"
    first, second = client.of(f"{WORDS}.completed")
    assert word_error_rate(speech("ages")[1], first["transcript"]) <= 0.1
    assert word_error_rate(speech("quick_fox")[1], second["transcript"]) <= 0.1
    assert first["usage"]["type"] == "duration"
    assert first["usage"]["seconds"] > 1
    for item_id in (first["item_id"], second["item_id"]):
        told = "".join(event["delta"] for event in client.of(f"{WORDS}.delta") if event["item_id"] == item_id)
        assert told == next(event["transcript"] for event in (first, second) if event["item_id"] == item_id)


def test_its_settings_are_changed_by_a_stock_update(scripted: Server) -> None:
    async def call() -> Client:
        async with session(scripted.url, intent="transcription") as client:
            heard = {"turn_detection": None, "transcription": {"model": "gpt-realtime-whisper", "language": "en"}}
            update = cast(Any, {"type": "transcription", "audio": {"input": heard}})
            await client.connection.session.update(session=update)
            shown = (await client.wait("session.updated"))["session"]
            assert (shown["type"], shown["audio"]["input"]["turn_detection"]) == ("transcription", None)
            await client.speak(speech("quick_fox")[0])
            await client.connection.input_audio_buffer.commit()
            await client.wait(f"{WORDS}.completed")
            return client

    client = asyncio.run(call())
    assert word_error_rate(speech("quick_fox")[1], client.of(f"{WORDS}.completed")[0]["transcript"]) <= 0.1
    assert "input_audio_buffer.speech_started" not in client.kinds()
