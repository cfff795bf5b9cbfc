"""Puts a service that speaks the OpenAI chat protocol in the thinker's place: it answers, is cancelled, and fails."""

from __future__ import annotations

import asyncio
import json

import numpy as np

from loadtest.speech import silence, speech
from tests.e2e.client import Json, session, transcript
from tests.e2e.server import running
from tests.models.chat_server import ChatServer, Exchange, chat_server

KEY = "sk-of-the-upstream-0123456789"


def asked(exchange: Exchange) -> list[Json]:
    messages: list[Json] = json.loads(exchange.body)["messages"]
    return messages


async def upstream(exchange: Exchange) -> None:
    """Answers by what the last message says."""
    if not exchange.path.endswith("/chat/completions"):
        await exchange.plain("200 OK", b'{"object":"list","data":[]}')
        return
    last = asked(exchange)[-1]["content"]
    if "refuse" in last:
        await exchange.plain("401 Unauthorized", b'{"error":{"message":"this key has expired"}}')
        return
    if "break" in last:
        await exchange.plain("500 Internal Server Error", b'{"error":{"message":"the engine is on fire"}}')
        return
    await exchange.open_stream()
    words = ["Well,", " here", " is", " an", " answer."]
    for word in words:
        await exchange.events(json.dumps({"choices": [{"index": 0, "delta": {"content": word}}]}))
    if "for ever" in last:
        while True:
            await exchange.events(json.dumps({"choices": [{"index": 0, "delta": {"content": " more"}}]}))
            await asyncio.sleep(0.02)
    await exchange.events('{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}', "[DONE]")
    await exchange.close_stream()


async def conversation(url: str, remote: ChatServer) -> dict[str, Json]:
    ends: dict[str, Json] = {}
    async with session(url) as client:
        await client.configure(output_modalities=["text"])
        ends["typed"] = await client.ask("Hello.")
        for trouble in ("refuse", "break"):
            ends[trouble] = await client.ask(f"Please {trouble}.")
        ends["after"] = await client.ask("Are you there?")
        since = len(client.events)
        await client.type("Talk for ever.")
        await client.connection.response.create()
        await client.wait("response.output_text.delta", since)
        remote.left.clear()
        await client.speak(np.concatenate([speech("hello_world")[0], silence(1.0)]))
        ends["interrupted"] = await client.wait("response.done", since)
        await asyncio.wait_for(remote.left.wait(), 30)
        await client.wait("response.done", client.events.index(ends["interrupted"]) + 1)
    return ends


def test_a_remote_thinker_streams_is_cancelled_and_its_failures_are_told() -> None:
    async def both() -> tuple[dict[str, Json], ChatServer, str]:
        async with chat_server(upstream) as remote:
            settings = (
                "thinker.family=openai_api",
                f"thinker.base_url={remote.base_url}",
                "thinker.model=tiny",
                f"thinker.api_key={KEY}",
                "talker.family=tests.families.scripted.talker",
            )

            def start() -> tuple[dict[str, Json], str]:
                with running(*settings) as one:
                    ends = asyncio.run_coroutine_threadsafe(conversation(one.url, remote), loop).result(120)
                    return ends, one.read_log()

            loop = asyncio.get_running_loop()
            ends, log = await asyncio.to_thread(start)
            return ends, remote, log

    ends, remote, log = asyncio.run(both())
    assert transcript(ends["typed"]) == "Well, here is an answer."
    for trouble, cause in (("refuse", "expired"), ("break", "on fire")):
        response = ends[trouble]["response"]
        assert response["status"] == "failed"
        assert cause in response["status_details"]["error"]["message"]
    assert ends["after"]["response"]["status"] == "completed"
    assert ends["interrupted"]["response"]["status"] == "cancelled"
    assert KEY not in log
    last = asked(remote.exchanges[-1])
    assert "hello world" in last[-1]["content"].lower()
    assert remote.exchanges[-1].headers["authorization"] == f"Bearer {KEY}"
