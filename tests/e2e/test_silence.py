"""Says nothing to the server after its answer, and is asked."""

from __future__ import annotations

import asyncio

from loadtest.speech import silence
from tests.e2e.client import Client, session, transcript
from tests.e2e.server import Server

IDLE_MS = 5000


def test_check_088_a_user_who_says_nothing_is_asked_once_the_answer_was_heard(eager: Server) -> None:
    async def call() -> Client:
        async with session(eager.url) as client:
            await client.configure(
                audio={"input": {"turn_detection": {"type": "server_vad", "idle_timeout_ms": IDLE_MS}}}
            )
            await client.ask("Say hello.", max_output_tokens=8)
            since = len(client.events)
            microphone = asyncio.create_task(client.speak_live(silence(60)))
            await client.wait("input_audio_buffer.timeout_triggered", since)
            await client.wait("response.done", since)
            microphone.cancel()
            return client

    client = asyncio.run(call())
    kinds = client.kinds()
    at = kinds.index("input_audio_buffer.timeout_triggered")
    assert kinds[at + 1 : at + 4] == [
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.done",
    ]
    assert kinds.count("response.created") == kinds.count("response.done") == 2
    fired = client.events[at]
    assert 0.8 * IDLE_MS < fired["audio_end_ms"] - fired["audio_start_ms"] < 1.2 * IDLE_MS
    assert transcript(client.of("response.done")[-1]).strip(), "something is said"
