"""Interrupts a spoken answer, and holds what the server takes for heard against the sound that was really played."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from loadtest.speech import silence, speech
from models.whisper.recognizer import Recognizer
from tests.e2e.client import RATE_HZ, Client, Pcm, session, transcript
from tests.e2e.server import Server, running
from tests.e2e.test_conversation import hear
from tests.heard import counts, words

QUESTION = "Explain in many sentences how a bicycle works and why it does not fall over."
STORY = (
    "The oldest bridge in the whole city was built by hand, and it still stands today. Its seven arches carry trams, "
    "buses, and walkers over the wide river every single day. In the middle of the night, a cold wind blows down from "
    "the mountains, and nobody is there to hear it."
)
STEP_MS = 600
"""Between the places at which one answer is cut, each before the one before it."""
CUTS = 6
LISTEN_S = random.Random(5).uniform(4.5, 6.0)
"""How much of an answer is heard before it is interrupted."""


@dataclass(frozen=True, slots=True)
class Cut:
    """What was played of an answer, and what the server holds for heard of it."""

    played: Pcm
    told: str


@pytest.fixture(scope="module")
def reciter() -> Iterator[Server]:
    """A thinker that does as it is told, so that it tells what it was told; ears and voice are the real ones."""
    with running("thinker.family=tests.families.scripted.thinker") as one:
        yield one


async def interrupt(client: Client) -> tuple[str, Pcm]:
    """Listen to the answer in real time, then speak over it; gives the id of its item, and what was played of it."""
    first = await client.wait("response.output_audio.delta")
    await asyncio.wait_for(client.speak_live(silence(LISTEN_S)), 60)
    since = len(client.events)
    speaking = asyncio.create_task(client.speak_live(np.concatenate([speech("hello_world")[0], silence(1.0)])))
    await client.wait("input_audio_buffer.speech_started", since)
    played = client.loudspeaker.played
    await speaking
    assert len(played) < len(client.heard(first["response_id"])), "there was nothing left to interrupt"
    await client.wait("response.done", client.events.index(await client.wait("response.created", since)))
    return str(first["item_id"]), played


async def cut(client: Client, item_id: str, played: Pcm) -> Cut:
    """Tell the server that only this much was heard; gives what it then holds for heard."""
    since = len(client.events)
    end_ms = len(played) * 1000 // RATE_HZ
    await client.connection.conversation.item.truncate(item_id=item_id, content_index=0, audio_end_ms=end_ms)
    await client.wait("conversation.item.truncated", since)
    await client.connection.conversation.item.retrieve(item_id=item_id)
    item = (await client.wait("conversation.item.retrieved", since))["item"]
    return Cut(played, "".join(part["transcript"] for part in item["content"]))


def off_by(said: str, told: str, played: Pcm, listener: Recognizer) -> int:
    """By how many words what is told differs from what a recognizer hears in the sound."""
    padded = np.concatenate([played, silence(0.5)])
    heard = counts(words(said), words(hear(listener, padded)))
    return min(abs(len(words(told)) - count) for count in heard)


def test_a_truncated_answer_ends_at_the_word_that_was_played(server: Server, listener: Recognizer) -> None:
    async def talk() -> tuple[str, list[Cut]]:
        async with session(server.url) as client:
            await client.configure()
            await client.type(QUESTION)
            await client.connection.response.create()
            item_id, played = await interrupt(client)
            claimed = [
                event["delta"]
                for event in client.of("response.output_audio_transcript.delta")
                if event["item_id"] == item_id
            ]
            places = range(len(played), RATE_HZ, -STEP_MS * RATE_HZ // 1000)
            return "".join(claimed), [await cut(client, item_id, played[:upto]) for upto in places[:CUTS]]

    claimed, cuts = asyncio.run(talk())
    assert len(cuts) == CUTS
    assert all(claimed.startswith(one.told) for one in cuts)
    assert [len(one.told) for one in cuts] == sorted((len(one.told) for one in cuts), reverse=True)
    off = [off_by(claimed, one.told, one.played, listener) for one in cuts]
    # A recognizer guesses at a word that is cut in two, and may miss a short one.
    assert sum(by <= 1 for by in off) >= CUTS - 1, (off, [one.told for one in cuts])


def test_without_a_word_of_the_client_the_next_answer_knows_what_was_heard(
    reciter: Server, listener: Recognizer
) -> None:
    async def talk() -> tuple[Pcm, str]:
        async with session(reciter.url) as client:
            await client.configure()
            await client.type(f"say {STORY}")
            await client.connection.response.create()
            _, played = await interrupt(client)
            return played, transcript(await client.ask("recite", output_modalities=["text"]))

    played, told = asyncio.run(talk())
    after = told.partition(f"say {STORY} ")[2].split()
    story = STORY.split()
    known = next(at for at, (word, other) in enumerate(zip(story, after, strict=False)) if word != other)
    assert 0 < known < len(story)
    # One word for the recognizer, one for the 100 ms that a client is taken to buffer and this one does not.
    assert off_by(STORY, " ".join(story[:known]), played, listener) <= 2
