"""Speaks over the server while it speaks."""

from __future__ import annotations

import asyncio
import re

import numpy as np
import pytest

from loadtest.speech import silence, speech, word_error_rate
from tests.e2e.client import RATE_HZ, Client, session, transcript
from tests.e2e.server import Server

LISTEN_S = 1.5
LONG_QUESTION = "Explain in many sentences how a bicycle works and why it does not fall over."
WORD_MS = 300
"""How long the talker of tones takes for a word."""


async def interrupt(client: Client, name: str) -> int:
    """Wait until a reply has been heard for a while, then speak; gives the index of the first event after that."""
    await client.wait("response.output_audio.delta")
    await asyncio.wait_for(client.speak_live(silence(LISTEN_S)), 60)
    since = len(client.events)
    await client.speak_live(np.concatenate([speech(name)[0], silence(1.0)]))
    return since


def test_speech_over_a_reply_cancels_it_and_is_answered(server: Server) -> None:
    async def talk() -> tuple[Client, int]:
        async with session(server.url) as client:
            await client.configure()
            await client.type(LONG_QUESTION)
            await client.connection.response.create()
            since = await interrupt(client, "best_of_times")
            await client.wait("conversation.item.input_audio_transcription.completed", since)
            await client.wait("response.output_audio.delta", client.kinds().index("response.done"))
            await client.wait("response.done", since + 1)
            return client, since

    client, since = asyncio.run(talk())
    done = client.of("response.done", since)[0]["response"]
    assert done["status"] == "cancelled"
    assert done["status_details"] == {"type": "cancelled", "reason": "turn_detected"}
    assert done["usage"]["total_tokens"] > 0
    kinds = client.kinds(since)
    assert kinds.index("input_audio_buffer.speech_started") < kinds.index("response.done")
    late = [
        event
        for event in client.events[client.events.index(client.of("response.done", since)[0]) + 1 :]
        if event.get("response_id") == done["id"]
    ]
    assert not late, "nothing of a cancelled response follows its end"
    heard = client.of("conversation.item.input_audio_transcription.completed", since)[0]["transcript"]
    assert word_error_rate(speech("best_of_times")[1], heard) == 0, "the interrupting words are whole, the first too"
    answers = client.of("response.created", since)
    assert len(answers) == 1, "and they are answered"


def test_the_next_answer_knows_only_what_was_heard(scripted: Server) -> None:
    async def talk() -> tuple[Client, int, str]:
        async with session(scripted.url) as client:
            await client.configure()
            await client.type("please go on")
            await client.connection.response.create()
            since = await interrupt(client, "hello_world")
            await client.wait("response.done", since)
            told = transcript(await client.ask("recite", output_modalities=["text"]))
            return client, since, told

    client, since, told = asyncio.run(talk())
    cancelled = client.of("response.done", since)[0]["response"]
    sent_ms = len(client.heard(cancelled["id"])) * 1000 / RATE_HZ
    remembered = re.findall(r"word\d+", told)
    heard_ms = len(remembered) * WORD_MS
    assert remembered == [f"word{number}" for number in range(len(remembered))]
    assert LISTEN_S * 1000 - 2 * WORD_MS <= heard_ms <= sent_ms - WORD_MS, (heard_ms, sent_ms)
    said = " ".join(part["transcript"] for item in cancelled["output"] for part in item["content"])
    assert len(remembered) < len(said.split()), "what was sent but not heard is not remembered"


def test_a_truncation_by_the_client_corrects_what_is_remembered(scripted: Server) -> None:
    async def talk() -> str:
        async with session(scripted.url) as client:
            done = await client.ask("say alpha beta gamma delta epsilon zeta")
            item_id = done["response"]["output"][0]["id"]
            for end_ms in (2 * WORD_MS + 150, 2 * WORD_MS + 150, 5 * WORD_MS):
                since = len(client.events)
                await client.connection.conversation.item.truncate(
                    item_id=item_id, content_index=0, audio_end_ms=end_ms
                )
                await client.wait("conversation.item.truncated", since)
            return transcript(await client.ask("recite", output_modalities=["text"]))

    told = asyncio.run(talk()).split()
    assert told[-1] == "beta", "what the assistant said is the last thing before the question"
    assert told.count("gamma") == 1, "only the user's own words hold the rest"


def test_sending_runs_ahead_of_hearing_by_a_bounded_time(scripted: Server) -> None:
    async def talk() -> tuple[float, float]:
        async with session(scripted.url) as client:
            await client.type("please go on")
            await client.connection.response.create()
            await client.wait("response.output_audio.delta")
            began = asyncio.get_running_loop().time()
            await asyncio.wait_for(client.speak_live(silence(2.0)), 60)
            played_s = asyncio.get_running_loop().time() - began
            sent_s = sum(map(len, client.sound.values())) / 2 / RATE_HZ
            await client.connection.response.cancel()
            await client.wait("response.done")
            return sent_s, played_s

    sent_s, played_s = asyncio.run(talk())
    assert sent_s == pytest.approx(played_s + 2.0, abs=1.0)
