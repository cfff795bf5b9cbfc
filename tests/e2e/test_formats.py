"""Talks with the server as a telephone does: G.711 at 8 kHz, both ways, with a stock client and real models."""

from __future__ import annotations

import asyncio
import base64
from functools import partial
from typing import Any, cast

import numpy as np
import pytest
import soxr

from duplex_server.realtime.g711 import Law, decode, encode
from loadtest.speech import silence, speech, word_error_rate
from models.whisper.recognizer import Recognizer
from tests.e2e.client import RATE_HZ, Client, Json, session, transcript
from tests.e2e.server import Server
from tests.e2e.test_conversation import hear

TELEPHONE_HZ = 8000
FRAME_BYTES = TELEPHONE_HZ // 50
WORDS = "conversation.item.input_audio_transcription.completed"


def unpacked(law: Law, sound: bytes) -> bytes:
    """Each sample three times: crude, but as long as it is, and every third is what was sent."""
    return np.repeat(decode(sound, law), RATE_HZ // TELEPHONE_HZ).tobytes()


async def call(url: str, kind: str, law: Law) -> Client:
    async with session(url) as client:
        client.unpack = partial(unpacked, law)
        told = {"format": {"type": kind}, "transcription": {"model": "whisper-1"}}
        audio = {"input": told, "output": {"format": {"type": kind}}}
        await client.connection.session.update(session=cast(Any, {"type": "realtime", "audio": audio}))
        shown: Json = (await client.wait("session.updated"))["session"]["audio"]
        assert shown["input"]["format"] == shown["output"]["format"] == {"type": kind}
        pcm = np.concatenate([speech("best_of_times", TELEPHONE_HZ)[0], silence(1.0, TELEPHONE_HZ)])
        sound = encode(pcm, law)
        for start in range(0, len(sound), FRAME_BYTES):
            piece = base64.b64encode(sound[start : start + FRAME_BYTES]).decode()
            await client.connection.input_audio_buffer.append(audio=piece)
        await client.wait("response.done")
        await client.wait(WORDS)
        item_id = client.of("response.done")[0]["response"]["output"][0]["id"]
        await client.connection.conversation.item.truncate(item_id=item_id, content_index=0, audio_end_ms=10**6)
        await client.wait("conversation.item.truncated")
        return client


@pytest.mark.parametrize(("kind", "law"), [("audio/pcmu", "mu"), ("audio/pcma", "a")])
def test_check_063_119_121_a_telephones_turn_is_understood_and_answered_in_its_own_code(
    eager: Server, listener: Recognizer, kind: str, law: Law
) -> None:
    client = asyncio.run(call(eager.url, kind, law))
    assert word_error_rate(speech("best_of_times")[1], client.of(WORDS)[0]["transcript"]) == 0
    response = client.of("response.done")[0]["response"]
    assert response["audio"]["output"]["format"] == {"type": kind}
    sizes = [len(base64.b64decode(event["delta"])) for event in client.of("response.output_audio.delta")]
    assert all(20 <= size / 8 <= 250 for size in sizes), sizes
    length_ms = client.of("conversation.item.truncated")[0]["audio_end_ms"]
    assert sum(sizes) / 8 == pytest.approx(length_ms, abs=1)
    claimed = transcript(client.of("response.done")[0])
    sound = client.heard(response["id"])[:: RATE_HZ // TELEPHONE_HZ]
    wide = np.rint(soxr.resample(sound.astype(np.float32), TELEPHONE_HZ, RATE_HZ)).astype(np.int16)
    assert len(claimed.split()) >= 3
    assert word_error_rate(claimed, hear(listener, wide)) <= 0.25
    stopped = client.of("input_audio_buffer.speech_stopped")[0]
    spoken_ms = len(speech("best_of_times", TELEPHONE_HZ)[0]) / 8
    assert stopped["audio_end_ms"] == pytest.approx(spoken_ms + 500, abs=200)
