"""Holds conversations with the server as it comes: real speech, real models, the openai SDK."""

from __future__ import annotations

import asyncio
import base64

import numpy as np
import pytest

from loadtest.speech import silence, speech, word_error_rate
from models.whisper.recognizer import Recognizer
from pipeline.chunk import Segment, Transcribe, Transcript
from pipeline.stage import Work
from tests.e2e.client import RATE_HZ, Client, Pcm, session, transcript
from tests.e2e.server import Server
from transport.base import inline


def hear(listener: Recognizer, pcm: Pcm) -> str:
    """The words of some sound, by a recognizer that has nothing to do with the server."""
    fence = Segment("test", 0, len(pcm))
    listener.admit(Transcribe(fence, inline({"pcm": pcm}), RATE_HZ, final=True))
    while not (chunks := listener.step([Work(fence)]).chunks):
        pass
    assert isinstance(chunks[0].payload, Transcript)
    return chunks[0].payload.text


async def say(client: Client, name: str) -> tuple[str, str]:
    """Speak an utterance; gives its transcript and the id of the response that answered it."""
    since = len(client.events)
    await client.speak(np.concatenate([speech(name)[0], silence(1.0)]))
    done = await client.wait("response.done", since)
    assert done["response"]["status"] in ("completed", "incomplete"), done
    heard = await client.wait("conversation.item.input_audio_transcription.completed", since)
    return heard["transcript"], done["response"]["id"]


async def hear_out(client: Client, response_id: str) -> None:
    """Tell the server that an answer was heard to its end, rather than wait until it would have been."""
    since = len(client.events)
    item_id = client.of("response.done")[-1]["response"]["output"][0]["id"]
    length_ms = len(client.heard(response_id)) * 1000 // RATE_HZ
    await client.connection.conversation.item.truncate(item_id=item_id, content_index=0, audio_end_ms=length_ms)
    await client.wait("conversation.item.truncated", since)


def test_a_spoken_turn_is_understood_and_answered_in_speech_that_says_what_it_claims(
    eager: Server, listener: Recognizer
) -> None:
    async def turn() -> tuple[Client, str, str]:
        async with session(eager.url) as client:
            await client.configure()
            heard, response_id = await say(client, "best_of_times")
            return client, heard, response_id

    client, heard, response_id = asyncio.run(turn())
    assert word_error_rate(speech("best_of_times")[1], heard) == 0
    claimed = transcript(client.of("response.done")[0])
    sound = client.heard(response_id)
    assert len(claimed.split()) >= 3
    assert word_error_rate(claimed, hear(listener, sound)) <= 0.2
    started, stopped = (client.of(f"input_audio_buffer.speech_{what}")[0] for what in ("started", "stopped"))
    committed = client.of("input_audio_buffer.committed")[0]
    assert started["item_id"] == stopped["item_id"] == committed["item_id"]
    assert 0 <= started["audio_start_ms"] < 400
    length_ms = len(speech("best_of_times")[0]) * 1000 / RATE_HZ
    assert stopped["audio_end_ms"] == pytest.approx(length_ms + 500, abs=200)


def test_three_turns_build_on_each_other_and_nothing_is_read_twice(eager: Server) -> None:
    async def turns() -> Client:
        async with session(eager.url) as client:
            await client.configure()
            for name in ("quick_fox", "counting", "everything"):
                heard, response_id = await say(client, name)
                assert word_error_rate(speech(name)[1], heard) <= 0.2
                await hear_out(client, response_id)
            return client

    client = asyncio.run(turns())
    usages = [done["response"]["usage"] for done in client.of("response.done")]
    texts = [usage["input_token_details"]["text_tokens"] for usage in usages]
    cached = [usage["input_token_details"]["cached_tokens"] for usage in usages]
    assert texts[0] < texts[1] < texts[2], "each prompt holds the turns before it"
    for now, before in ((1, 0), (2, 1)):
        assert cached[now] >= texts[before], "what was read for one turn is not read again for the next"
    added = [event["item"]["id"] for event in client.of("conversation.item.added")]
    previous = [event["previous_item_id"] for event in client.of("conversation.item.added")]
    assert previous == [None, *added[:-1]]


def test_a_typed_turn_is_answered_in_text_and_in_speech(eager: Server, listener: Recognizer) -> None:
    async def turns() -> tuple[Client, str, str]:
        async with session(eager.url) as client:
            written = await client.ask("What is the capital of France?", output_modalities=["text"])
            assert not client.sound
            spoken = await client.ask("Hello, how are you?")
            return client, transcript(written), transcript(spoken)

    client, written, spoken = asyncio.run(turns())
    assert written.strip()
    assert "".join(event["delta"] for event in client.of("response.output_text.delta")) == written
    response_id = client.of("response.done")[1]["response"]["id"]
    assert word_error_rate(spoken, hear(listener, client.heard(response_id))) <= 0.2


def test_odd_pieces_of_the_same_sound_give_the_same_turns(scripted: Server) -> None:
    sound = np.concatenate([speech("quick_fox")[0], silence(1.0), speech("counting")[0], silence(1.0)])

    async def turns(cuts: list[int]) -> list[tuple[object, ...]]:
        async with session(scripted.url) as client:
            audio = {
                "input": {
                    "transcription": {"model": "whisper-1"},
                    "turn_detection": {"type": "server_vad", "create_response": False},
                }
            }
            await client.configure(audio=audio)
            start = 0
            for index in range(10**6):
                if start >= len(sound):
                    break
                size = cuts[index % len(cuts)]
                await client.append(sound[start : start + size])
                start += size
            for _ in range(2):
                done = len(client.of("conversation.item.input_audio_transcription.completed"))
                if done < 2:
                    await client.wait("conversation.item.input_audio_transcription.completed", len(client.events))
            kept = ("audio_start_ms", "audio_end_ms", "transcript")
            return [
                (event["type"], *(event.get(key) for key in kept))
                for event in client.events
                if event["type"].startswith(("input_audio_buffer.", "conversation.item.input"))
            ]

    async def all_ways() -> list[list[tuple[object, ...]]]:
        return [await turns(cuts) for cuts in ([480], [1, 7777, 333], [len(sound)])]

    even, odd, whole = asyncio.run(all_ways())

    def turns_only(events: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
        return [event for event in events if "speech" in str(event[0])]

    def words_only(events: list[tuple[object, ...]]) -> list[object]:
        return [event[-1] for event in events if "transcription" in str(event[0])]

    assert len(turns_only(even)) == 4
    assert turns_only(even) == turns_only(odd) == turns_only(whole)
    assert words_only(even) == words_only(odd) == words_only(whole)


def test_sound_cut_between_the_bytes_of_a_sample_loses_nothing(scripted: Server) -> None:
    pcm = speech("hello_world")[0].tobytes()

    async def turn() -> Client:
        async with session(scripted.url) as client:
            audio = {"input": {"transcription": {"model": "whisper-1"}, "turn_detection": None}}
            await client.configure(audio=audio)
            for start in range(0, len(pcm), 3333):
                piece = base64.b64encode(pcm[start : start + 3333]).decode()
                await client.connection.input_audio_buffer.append(audio=piece)
            await client.connection.input_audio_buffer.commit()
            await client.wait("conversation.item.input_audio_transcription.completed")
            return client

    client = asyncio.run(turn())
    heard = client.of("conversation.item.input_audio_transcription.completed")[0]
    assert word_error_rate(speech("hello_world")[1], heard["transcript"]) == 0
    assert heard["usage"] == {"type": "duration", "seconds": round(len(pcm) / 2 / RATE_HZ, 3)}
