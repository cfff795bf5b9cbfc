"""Lets the server hear itself: a loudspeaker and a microphone in one room, without echo cancellation."""

from __future__ import annotations

import asyncio
import base64
import time

import numpy as np

from loadtest.loudspeaker import Loudspeaker
from loadtest.speech import noise
from tests.e2e.client import FRAME, RATE_HZ, Client, session
from tests.e2e.server import Server

ECHO = 0.1  # -20 dB
DELAY_S = 0.15
CALL_S = 30.0
MOST_CUTS = 6
QUESTION = "Tell me a long story about a dog."


async def talk_to_itself(url: str) -> Client:
    async with session(url) as client:
        await client.configure()
        await client.type(QUESTION)
        await client.connection.response.create()
        loudspeaker, seen, began = Loudspeaker(), 0, time.monotonic()
        room_tone = noise(CALL_S + 1, level=20.0)
        for frame in range(int(CALL_S * RATE_HZ / FRAME)):
            at_s = frame * FRAME / RATE_HZ
            await asyncio.sleep(max(0.0, began + at_s - time.monotonic()))
            for event in client.events[seen:]:
                if event["type"] == "input_audio_buffer.speech_started":
                    loudspeaker.cut(time.monotonic())
                elif event["type"] == "response.output_audio.delta":
                    loudspeaker.play(np.frombuffer(base64.b64decode(event["delta"]), np.int16), time.monotonic())
            seen = len(client.events)
            echo = (ECHO * loudspeaker.sound(began + at_s - DELAY_S, FRAME)).astype(np.int16)
            await client.append(echo + room_tone[frame * FRAME : (frame + 1) * FRAME])
        return client


def test_a_loudspeaker_does_not_make_it_interrupt_itself_for_ever(server: Server) -> None:
    client = asyncio.run(talk_to_itself(server.url))
    ends = [done["response"]["status"] for done in client.of("response.done")]
    heard = [event["transcript"] for event in client.of("conversation.item.input_audio_transcription.completed")]
    # An echo that the recognizer mishears badly may still pass for a user's words now and then.
    assert ends.count("cancelled") <= MOST_CUTS, (ends, heard)
    assert {"completed", "incomplete"} & set(ends), "a reply comes to its end"
