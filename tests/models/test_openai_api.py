"""Tests the OpenAI-compatible thinker against a real server: replies, requests, cancelling, loading."""

from __future__ import annotations

import asyncio
import json
from typing import Any  # JSON of a request is looked into as it is

import msgspec
import pytest

from models.openai_api.family import FAMILY, Options, describe
from models.runtime.call_ids import MOST_CHARS
from pipeline.chunk import (
    CallDelta,
    CallPart,
    Chunk,
    End,
    Failed,
    Reply,
    ResultPart,
    Text,
    TextPart,
    Think,
    Tool,
    ToolChoice,
    ToolNamed,
    Usage,
)
from pipeline.errors import StageError
from tests.models.chat_desk import (
    HELLO,
    KEY,
    LO,
    STOP,
    Desk,
    closed_port,
    desk,
    reply_of,
    run,
    say_hello,
    think,
)
from tests.models.chat_server import Answer, ChatServer, Exchange, chat_server

# ---- a service that works -----------------------------------------------------------------------------------------


def test_a_reply_streams_and_ends_with_its_usage() -> None:
    async def work() -> None:
        fence = Reply("s", 0)
        assert await reply_of(say_hello) == [
            Chunk(fence, "thinker", 0, Text("Hel")),
            Chunk(fence, "thinker", 1, Text("lo")),
            Chunk(fence, "thinker", 2, End("stop", Usage(12, 8, 2)), last=True),
        ]

    run(work())


def test_text_is_passed_on_before_the_reply_is_over() -> None:
    async def work() -> None:
        heard = asyncio.Event()

        async def answer(exchange: Exchange) -> None:
            await exchange.open_stream()
            await exchange.events(HELLO)
            await heard.wait()
            await exchange.events(STOP, "[DONE]")
            await exchange.close_stream()

        async with chat_server(answer) as server:
            at = await desk(server.base_url)
            at.thinker.submit(think(), at.chunks.put_nowait)
            assert (await at.chunks.get()).payload == Text("Hel")
            heard.set()
            assert (await at.chunks.get()).payload == End("stop")
            await at.thinker.close()

    run(work())


async def request_of(job: Think, **changes: str | int | float | bool | None) -> dict[str, Any]:  # see the import
    async with chat_server(say_hello) as server:
        at = await desk(server.base_url, **changes)
        await at.ask(job)
        await at.thinker.close()
        (exchange,) = server.exchanges
        assert exchange.path == "/v1/chat/completions"
        assert exchange.headers["authorization"] == f"Bearer {KEY}"
        body: dict[str, Any] = json.loads(exchange.body)
        return body


def test_the_prompt_is_written_as_messages() -> None:
    async def work() -> None:
        job = think(
            TextPart("i0", "system", "Be brief."),
            TextPart("i1", "user", "Weather in Rome and Oslo?"),
            CallPart("i2", "c1", "weather", '{"city":"Rome"}'),
            CallPart("i3", "c2", "weather", '{"city":"Oslo"}'),
            ResultPart("i4", "c1", "sunny"),
            TextPart("i5", "user", "And?"),
            tools=(Tool("weather", "The weather", '{"type":"object","properties":{"city":{"type":"string"}}}'),),
            temperature=0.0,
        )
        call = {"type": "function", "id": "c1", "function": {"name": "weather", "arguments": '{"city":"Rome"}'}}
        other = {"type": "function", "id": "c2", "function": {"name": "weather", "arguments": '{"city":"Oslo"}'}}
        assert await request_of(job) == {
            "model": "m1",
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0.0,
            "max_tokens": 64,
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Weather in Rome and Oslo?"},
                {"role": "assistant", "content": None, "tool_calls": [call, other]},
                {"role": "tool", "content": "sunny", "tool_call_id": "c1"},
                {"role": "tool", "content": "(no result yet)", "tool_call_id": "c2"},
                {"role": "user", "content": "And?"},
            ],
            "tools": [
                {
                    "type": "function",
                    "function": {
                        "name": "weather",
                        "description": "The weather",
                        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
                    },
                }
            ],
        }

    run(work())


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("auto", None),
        ("none", "none"),
        ("required", "required"),
        (ToolNamed("weather"), {"type": "function", "function": {"name": "weather"}}),
    ],
)
def test_check_126_the_choice_of_tools_is_passed_on(choice: ToolChoice, sent: object) -> None:
    async def work() -> None:
        job = msgspec.structs.replace(think(tools=(Tool("weather", "", "{}"),)), tool_choice=choice)
        body = await request_of(job)
        assert body.get("tool_choice") == sent
        assert "parallel_tool_calls" not in body
        body = await request_of(msgspec.structs.replace(job, parallel_calls=False))
        assert body["parallel_tool_calls"] is False
        if choice in ("auto", "none"):
            bare = await request_of(msgspec.structs.replace(think(), tool_choice=choice, parallel_calls=False))
            assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(bare)  # refused without tools

    run(work())


def test_where_one_call_is_asked_for_a_second_one_is_left_out() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.open_stream()
        await exchange.events(
            '{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"a","arguments":"{"}}]}}]}',
            '{"choices":[{"delta":{"tool_calls":[{"index":1,"id":"c2","function":{"name":"b","arguments":"{}"}}]}}]}',
            '{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]}}]}',
            '{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}',
            "[DONE]",
        )
        await exchange.close_stream()

    async def work() -> None:
        job = msgspec.structs.replace(think(tools=(Tool("a", "", "{}"),)), parallel_calls=False)
        chunks = await reply_of(answer, job)
        assert [chunk.payload for chunk in chunks[:-1]] == [CallDelta("c1", "a", "{"), CallDelta("c1", "", "}")]

    run(work())


def test_the_options_shape_the_request() -> None:
    async def work() -> None:
        body = await request_of(think(), temperature=0.7, usage=False, token_limit_field="max_completion_tokens")
        assert body == {
            "model": "m1",
            "stream": True,
            "temperature": 0.7,
            "max_completion_tokens": 64,
            "messages": [{"role": "user", "content": "Hi"}],
        }

    run(work())


def test_an_id_of_a_call_that_clients_can_not_carry_is_replaced_by_one_that_they_can() -> None:
    long = "chatcmpl-tool-" + 32 * "0"

    async def answer(exchange: Exchange) -> None:
        await exchange.open_stream()
        await exchange.events(
            f'{{"choices":[{{"delta":{{"tool_calls":[{{"index":0,"id":"{long}","function":{{"name":"a"}}}}]}}}}]}}',
            '{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}}]}',
            '{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}',
            "[DONE]",
        )
        await exchange.close_stream()

    async def work() -> None:
        calls = [chunk.payload for chunk in await reply_of(answer, think()) if isinstance(chunk.payload, CallDelta)]
        assert [(call.name, call.arguments) for call in calls] == [("a", ""), ("", "{}")]
        (ours,) = {call.call_id for call in calls}
        assert ours != long
        assert len(ours) <= MOST_CHARS

    run(work())


def test_calls_come_as_deltas_the_first_with_the_name() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.open_stream()
        await exchange.events(
            '{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c9","type":"function",'
            '"function":{"name":"weather","arguments":""}}]}}]}',
            '{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\\"city\\":"}}]}}]}',
            '{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\\"Rome\\"}"}}]}}]}',
            '{"choices":[{"delta":{"tool_calls":[{"index":1,"function":{"name":"time","arguments":"{}"}}]}}]}',
            '{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}',
            "[DONE]",
        )
        await exchange.close_stream()

    async def work() -> None:
        assert [chunk.payload for chunk in await reply_of(answer, think(epoch=3))] == [
            CallDelta("c9", "weather", ""),
            CallDelta("c9", "", '{"city":'),
            CallDelta("c9", "", '"Rome"}'),
            CallDelta("call_3_1", "time", "{}"),
            End("stop"),
        ]

    run(work())


def test_odd_but_legal_streams_are_read() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.open_stream()
        await exchange.chunk(b": keep alive\r\n\r\nevent: message\r\nid: 7\r\ndata:" + HELLO.encode()[:20])
        await exchange.chunk(HELLO.encode()[20:] + b"\r\n\r\n")
        await exchange.events('{"choices":[{"delta":{"content":"\u2028é"}}],"usage":null,"x":1}')
        await exchange.events('{"choices":null}', '{"choices":[{"delta":null,"finish_reason":"length"}]}')
        await exchange.close_stream()  # no [DONE]

    async def work() -> None:
        payloads = [chunk.payload for chunk in await reply_of(answer)]
        assert payloads == [Text("Hel"), Text("\u2028é"), End("length")]

    run(work())


def test_the_connection_is_kept_for_the_next_reply() -> None:
    async def work() -> None:
        async with chat_server(say_hello) as server:
            at = await desk(server.base_url)
            for epoch in range(3):
                assert isinstance((await at.ask(think(epoch=epoch)))[-1].payload, End)
            await at.thinker.close()
            assert server.connections == 1

    run(work())


def test_a_kept_connection_that_died_meanwhile_is_dialled_again() -> None:
    async def answer(exchange: Exchange) -> None:
        if exchange.number > 0:
            raise ConnectionResetError
        await say_hello(exchange)

    async def work() -> None:
        async with chat_server(answer) as server:
            at = await desk(server.base_url)
            for epoch in range(3):
                assert isinstance((await at.ask(think(epoch=epoch)))[-1].payload, End)
            await at.thinker.close()
            assert server.connections == 3

    run(work())


# ---- cancelling ---------------------------------------------------------------------------------------------------


async def speak_then_silent(exchange: Exchange) -> None:
    await exchange.open_stream()
    await exchange.events(HELLO)
    await asyncio.Event().wait()


async def first_text(at: Desk, server: ChatServer, epoch: int) -> None:
    at.thinker.submit(think(epoch=epoch), at.chunks.put_nowait)
    assert (await at.chunks.get()).payload == Text("Hel")
    assert not server.left.is_set()


@pytest.mark.parametrize("how", ["cancel", "forget", "close"])
def test_a_stopped_job_closes_its_stream_and_stays_silent(how: str) -> None:
    async def work() -> None:
        async def answer(exchange: Exchange) -> None:
            await exchange.open_stream()
            await exchange.events(HELLO)
            if await exchange.reader.read(1) == b"":
                raise ConnectionResetError

        async with chat_server(answer) as server:
            at = await desk(server.base_url)
            await first_text(at, server, 0)
            match how:
                case "cancel":
                    at.thinker.cancel(Reply("s", 0))
                    at.thinker.cancel(Reply("s", 0))
                case "forget":
                    at.thinker.forget("other")
                    at.thinker.forget("s")
                case _:
                    await at.thinker.close()
            await server.left.wait()
            assert at.chunks.empty()
            await at.thinker.close()

    run(work())


def test_a_job_cancelled_by_its_own_chunk_is_silent_from_then_on() -> None:
    async def work() -> None:
        async def answer(exchange: Exchange) -> None:
            await exchange.open_stream()
            await exchange.chunk(f"data: {HELLO}\n\ndata: {LO}\n\ndata: {STOP}\n\n".encode())
            if await exchange.reader.read(1) == b"":
                raise ConnectionResetError

        async with chat_server(answer) as server:
            at = await desk(server.base_url)
            heard: list[Chunk] = []

            def emit(chunk: Chunk) -> None:
                heard.append(chunk)
                at.thinker.cancel(chunk.fence)

            at.thinker.submit(think(), emit)
            await server.left.wait()
            assert [chunk.payload for chunk in heard] == [Text("Hel")]
            await at.thinker.close()

    run(work())


def test_one_job_more_than_it_has_slots_is_refused_until_one_is_free() -> None:
    async def work() -> None:
        async with chat_server(speak_then_silent) as server:
            at = await desk(server.base_url, slots=1)
            await first_text(at, server, 0)
            (chunk,) = await at.ask(think(epoch=1))
            assert isinstance(chunk.payload, Failed)
            assert chunk.payload.kind == "capacity"
            assert "all its 1 slots in use" in chunk.payload.message
            at.thinker.cancel(Reply("s", 0))
            await first_text(at, server, 2)
            await at.thinker.close()

    run(work())


# ---- loading ------------------------------------------------------------------------------------------------------


def answering(status: str) -> Answer:
    return lambda exchange: exchange.plain(status, b"{}")


def test_loading_sees_that_the_service_takes_the_key() -> None:
    async def work() -> None:
        for status, words in (("401 Unauthorized", "refused the key"), ("500 Oops", "failed")):
            async with chat_server(answering(status)) as server:
                with pytest.raises(StageError, match=words):
                    await desk(server.base_url, probe=True)
        for status in ("200 OK", "404 Not Found", "429 Too Many Requests"):
            async with chat_server(answering(status)) as server:
                at = await desk(server.base_url, probe=True)
                await at.thinker.close()
                assert server.exchanges[0].path == "/v1/models"
        with pytest.raises(StageError, match="can't be reached"):
            await desk(f"http://127.0.0.1:{closed_port()}/v1", probe=True)

    run(work())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"base_url": "localhost:8000"}, "expected http://"),
        ({"model": ""}, "has no model"),
        ({"api_key": "sk-\u00e9"}, "can't carry"),
    ],
)
def test_wrong_options_are_refused_at_load(changes: dict[str, str], words: str) -> None:
    async def work() -> None:
        with pytest.raises(StageError, match=words):
            await desk(changes.pop("base_url", "http://127.0.0.1:1/v1"), **changes)

    run(work())


def test_the_key_comes_from_the_environment_and_is_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACME_KEY", f"{KEY}\n")
    assert KEY not in repr(Options(api_key=KEY))

    async def work() -> None:
        async with chat_server(say_hello) as server:
            at = await desk(server.base_url, api_key=None, api_key_env="ACME_KEY")
            await at.ask(think())
            await at.thinker.close()
            assert server.exchanges[0].headers["authorization"] == f"Bearer {KEY}"
            keyless = await desk(server.base_url, api_key=None, api_key_env="NO_SUCH_KEY")
            await keyless.ask(think())
            await keyless.thinker.close()
            assert "authorization" not in server.exchanges[1].headers

    run(work())


def test_it_is_described_without_being_asked() -> None:
    said = describe(Options(model="m1", base_url="http://host/v1", context_tokens=4096, api_key=KEY))
    assert (said.model, said.context_tokens, said.hears) == ("m1", 4096, False)
    assert "http://host/v1" in said.note
    assert FAMILY.served
