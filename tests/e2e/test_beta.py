"""Talks with the server in the older dialect, as the openai SDK's own beta client does, over a real socket."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any, cast

import numpy as np
import pytest
from openai import AsyncOpenAI
from openai.resources.beta.realtime.realtime import AsyncRealtimeConnection
from websockets.asyncio.client import ClientConnection, connect

from loadtest.speech import silence, speech, word_error_rate
from models.whisper.recognizer import Recognizer
from tests.e2e.client import FRAME, PATIENCE_S, Json, transcript
from tests.e2e.conftest import SCRIPTED
from tests.e2e.server import Server, running
from tests.e2e.test_conversation import hear
from tests.realtime.connection import problems

FLAT: Json = {
    "modalities": ["audio", "text"],
    "input_audio_format": "pcm16",
    "input_audio_transcription": {"model": "whisper-1"},
    "turn_detection": {"type": "server_vad"},
    "temperature": 0.8,
}
ENDS = {"response.done", "conversation.item.input_audio_transcription.completed"}


async def hear_until(connection: AsyncRealtimeConnection, ends: set[str]) -> list[Json]:
    """The events up to the last of `ends`, each of which comes once; every one is known to the SDK's beta client."""
    events: list[Json] = []
    async with asyncio.timeout(PATIENCE_S):
        while not ends <= {event["type"] for event in events}:
            frame = await connection.recv_bytes()
            assert type(connection.parse_event(frame)).__module__.startswith("openai.types.beta.realtime.")
            events.append(json.loads(frame))
    return events


async def hold(url: str, name: str) -> list[Json]:
    """A spoken turn, then a typed one that is answered in writing."""
    sdk = AsyncOpenAI(api_key="none", base_url=f"{url}/v1", websocket_base_url=f"{url.replace('http', 'ws', 1)}/v1")
    async with sdk, sdk.beta.realtime.connect(model="gpt-realtime") as connection:
        await connection.session.update(session=cast(Any, FLAT))
        pcm = np.concatenate([speech(name)[0], silence(1.0)])
        for start in range(0, len(pcm), 5 * FRAME):
            sound = pcm[start : start + 5 * FRAME].tobytes()
            await connection.input_audio_buffer.append(audio=base64.b64encode(sound).decode())
        events = await hear_until(connection, ENDS)
        content = [{"type": "input_text", "text": "Thank you."}]
        await connection.conversation.item.create(
            item=cast(Any, {"type": "message", "role": "user", "content": content})
        )
        await connection.response.create(response={"modalities": ["text"], "temperature": 0.7})
        return events + await hear_until(connection, {"response.text.done", "response.done"})


def test_check_006_check_169_a_turn_by_the_sdks_beta_client_is_beta_from_end_to_end(
    eager: Server, listener: Recognizer
) -> None:
    events = asyncio.run(hold(eager.url, "best_of_times"))
    assert problems(events) == []
    kinds = [event["type"] for event in events]
    assert kinds[:3] == ["session.created", "conversation.created", "session.updated"]
    assert {"modalities", "temperature"} <= set(events[2]["session"])
    heard = next(event for event in events if event["type"] in ENDS and "transcript" in event)
    assert word_error_rate(speech("best_of_times")[1], heard["transcript"]) == 0
    spoken, written = [event for event in events if event["type"] == "response.done"]
    deltas = [base64.b64decode(event["delta"]) for event in events if event["type"] == "response.audio.delta"]
    claimed = transcript(spoken)
    assert len(claimed.split()) >= 3
    assert word_error_rate(claimed, hear(listener, np.frombuffer(b"".join(deltas), np.int16))) <= 0.2
    assert transcript(written)
    assert written["response"]["temperature"] == 0.7
    assert [item["role"] for event in events if (item := event.get("item")) and event["type"].endswith("created")] == [
        "user",
        "assistant",
        "user",
        "assistant",
    ]


async def ask(socket: ClientConnection, kind: str, **fields: object) -> Json:
    await socket.send(json.dumps({"type": kind, **fields}))
    async with asyncio.timeout(PATIENCE_S):
        return cast(Json, json.loads(await socket.recv()))


async def begin(socket: ClientConnection, events: int) -> list[Json]:
    async with asyncio.timeout(PATIENCE_S):
        return [json.loads(await socket.recv()) for _ in range(events)]


def test_check_007_check_067_a_subprotocol_or_the_first_update_asks_for_the_older_dialect(scripted: Server) -> None:
    async def talk() -> None:
        url = f"{scripted.ws_url}/v1/realtime"
        offered = ["realtime", "openai-insecure-api-key.none", "openai-beta.realtime-v1"]
        async with connect(url, subprotocols=cast(Any, offered)) as browser:
            assert browser.subprotocol == "realtime"
            created, conversation = await begin(browser, 2)
            assert (created["session"]["modalities"], conversation["type"]) == (
                ["audio", "text"],
                "conversation.created",
            )
        async with connect(url) as plain:
            (created,) = await begin(plain, 1)
            assert "audio" in created["session"]
            assert (await ask(plain, "session.update", session=FLAT))["session"]["input_audio_format"] == "pcm16"
            item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello."}]}
            assert (await ask(plain, "conversation.item.create", item=item))["type"] == "conversation.item.created"

    asyncio.run(talk())


@pytest.mark.parametrize(("dialect", "beta"), [("ga", False), ("beta", True)])
def test_the_operator_may_set_the_dialect_of_all_clients(dialect: str, beta: bool) -> None:
    async def talk(one: Server) -> Json:
        async with connect(f"{one.ws_url}/v1/realtime", additional_headers={"OpenAI-Beta": "realtime=v1"}) as socket:
            (created,) = await begin(socket, 1)
            return created

    quick = ("recognizer.family=tests.families.scripted.recognizer", "detector.family=tests.families.scripted.detector")
    with running(*SCRIPTED, *quick, f"server.dialect={dialect}") as one:
        assert ("modalities" in asyncio.run(talk(one))["session"]) is beta
