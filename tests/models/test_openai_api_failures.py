"""Tests what the OpenAI-compatible thinker says about a server that answers badly, late or not at all."""

from __future__ import annotations

import asyncio
import json

import msgspec
import pytest

from pipeline.chunk import (
    AudioPart,
    End,
    Failed,
    ResultPart,
    Segment,
    TextPart,
    Transcribe,
)
from pipeline.errors import StageError
from tests.models.chat_desk import (
    HELLO,
    KEY,
    STOP,
    closed_port,
    desk,
    failure_of,
    run,
    say_hello,
    think,
)
from tests.models.chat_server import Answer, Exchange, chat_server
from transport.base import Inline

# ---- a service that does not --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        (
            "401 Unauthorized",
            f'{{"error":{{"message":"Incorrect API key provided: {KEY}","code":"invalid_api_key"}}}}',
            "stage_failed",
            r"refused the key \(401: Incorrect API key provided: \[key\]\); set OPENAI_API_KEY",
        ),
        (
            "404 Not Found",
            '{"error":{"message":"The model m1 does not exist","code":404}}',
            "stage_failed",
            r"has no model 'm1' or no such address \(404: The model m1 does not exist\); check `model`",
        ),
        ("429 Too Many Requests", '{"error":"slow down"}', "capacity", r"no capacity left \(429: slow down\)"),
        ("503 Service Unavailable", '{"message":"loading"}', "capacity", r"no capacity left \(503: loading\)"),
        ("504 Gateway Timeout", "upstream", "stage_timeout", r"took too long \(504: upstream\)"),
        ("500 Internal Server Error", '{"detail":"out of memory"}', "stage_failed", r"failed \(500: out of memory\)"),
        ("502 Bad Gateway", "<html>bad</html>", "stage_failed", r"failed \(502: <html>bad</html>\)"),
        (
            "400 Bad Request",
            '{"error":{"message":"too long"}}',
            "stage_failed",
            r"refused the request \(400",
        ),
    ],
)
def test_a_refusal_says_what_the_service_said(status: str, body: str, kind: str, words: str) -> None:
    async def work() -> None:
        failed = await failure_of(lambda exchange: exchange.plain(status, body.encode()))
        assert failed.kind == kind
        with pytest.raises(StageError, match=words):
            raise StageError(failed.message)

    run(work())


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.",
        "the request exceeds the available context size, try increasing it",
        "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
        "The prompt is too long.",
    ],
)
def test_f31_a_prompt_that_is_too_long_is_known_by_the_words_of_each_service(message: str) -> None:
    async def work() -> None:
        body = f'{{"error":{{"message":"{message}"}}}}'.encode()
        failed = await failure_of(lambda exchange: exchange.plain("400 Bad Request", body))
        assert failed.kind == "context_full"

    run(work())


def test_f31_a_prompt_that_was_too_long_is_asked_again_without_its_oldest_parts() -> None:
    asked: list[int] = []

    async def answer(exchange: Exchange) -> None:
        messages = json.loads(exchange.body)["messages"]
        asked.append(len(messages))
        if len(messages) > 20:
            await exchange.plain("400 Bad Request", b'{"error":{"code":"context_length_exceeded"}}')
            return
        await exchange.open_stream()
        await exchange.events(HELLO, STOP, "[DONE]")
        await exchange.close_stream()

    parts = tuple(TextPart(f"i{number}", "user", "word " * 20) for number in range(40))

    async def work() -> None:
        async with chat_server(answer) as server:
            at = await desk(server.base_url)
            assert isinstance((await at.ask(think(*parts)))[-1].payload, End)
            assert asked[0] == 40
            assert len(asked) <= 4
            assert asked == sorted(asked, reverse=True)
            before = len(asked)
            await at.ask(think(*parts, epoch=1))
            assert len(asked) == before + 1, "what the service can read is known by now"
            last = (await at.ask(msgspec.structs.replace(think(*parts, epoch=2), retention=None)))[-1].payload
            assert isinstance(last, Failed)
            assert last.kind == "context_full"
            assert asked[-1] == 40, "nothing may be left out"
            await at.thinker.close()

    run(work())


async def forever(_: Exchange) -> None:
    await asyncio.Event().wait()


async def open_then_silent(exchange: Exchange) -> None:
    await exchange.open_stream()
    await forever(exchange)


async def comments_only(exchange: Exchange) -> None:
    await exchange.open_stream()
    await exchange.chunk(b": waiting\n\n")
    await forever(exchange)


async def speak_then_silent(exchange: Exchange) -> None:
    await exchange.open_stream()
    await exchange.events(HELLO)
    await forever(exchange)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (forever, "sent nothing for 100 ms"),
        (open_then_silent, "sent nothing for 100 ms"),
        (comments_only, "sent nothing for 100 ms"),
        (speak_then_silent, "went silent in the middle of the reply for 70 ms"),
    ],
)
def test_a_stall_is_a_timeout_that_says_where(answer: Answer, words: str) -> None:
    async def work() -> None:
        failed = await failure_of(answer, connect_timeout_ms=50, first_byte_timeout_ms=50, between_timeout_ms=70)
        assert failed.kind == "stage_timeout"
        assert words in failed.message

    run(work())


async def cut_at_once(_: Exchange) -> None:
    raise ConnectionResetError


async def cut_inside(exchange: Exchange) -> None:
    await exchange.open_stream()
    await exchange.events(HELLO)
    raise ConnectionResetError


async def end_inside(exchange: Exchange) -> None:
    await exchange.open_stream()
    await exchange.events(HELLO)
    await exchange.close_stream()


async def end_by_done_inside(exchange: Exchange) -> None:
    await exchange.open_stream()
    await exchange.events(HELLO, "[DONE]")
    await exchange.close_stream()


async def malformed(exchange: Exchange) -> None:
    await exchange.open_stream()
    await exchange.events(HELLO, '{"choices":[{"del')
    await exchange.close_stream()


async def not_utf8(exchange: Exchange) -> None:
    await exchange.open_stream()
    await exchange.chunk(b'data: {"choices":[{"delta":{"content":"\xff\xfe"}}]}\n\n')
    await exchange.close_stream()


async def endless_event(exchange: Exchange) -> None:
    await exchange.open_stream()
    while True:
        await exchange.chunk(b"data: " + b"x" * 2**20)


async def error_inside(exchange: Exchange) -> None:
    await exchange.open_stream()
    await exchange.events(HELLO, '{"error":{"message":"the GPU fell over","code":500}}')
    await exchange.close_stream()


async def filtered(exchange: Exchange) -> None:
    await exchange.open_stream()
    await exchange.events(HELLO, '{"choices":[{"delta":{},"finish_reason":"content_filter"}]}', "[DONE]")
    await exchange.close_stream()


async def nameless_call(exchange: Exchange) -> None:
    await exchange.open_stream()
    await exchange.events('{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}}]}')
    await exchange.close_stream()


async def unstreamed(exchange: Exchange) -> None:
    await exchange.plain("200 OK", b'{"choices":[{"message":{"content":"Hello"}}]}')


async def not_http(exchange: Exchange) -> None:
    await exchange.send(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")
    raise ConnectionResetError


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (cut_at_once, "cut the connection"),
        (cut_inside, "cut the connection"),
        (end_inside, "cut the connection in the middle of the reply"),
        (end_by_done_inside, "cut the connection in the middle of the reply"),
        (malformed, "sent an event that is no chat completion chunk"),
        (not_utf8, "sent an event that is no chat completion chunk"),
        (endless_event, "longer than 4194304 bytes"),
        (error_inside, "broke off with an error: the GPU fell over"),
        (filtered, "stopped the reply: content_filter"),
        (nameless_call, "sent a function call without its name"),
        (unstreamed, "answered with application/json, expected text/event-stream"),
        (not_http, "cut the connection"),
    ],
)
def test_a_broken_stream_says_how_it_broke(answer: Answer, words: str) -> None:
    async def work() -> None:
        failed = await failure_of(answer)
        assert failed.kind == "stage_failed"
        assert words in failed.message

    run(work())


def test_a_new_connection_that_is_cut_is_not_tried_twice() -> None:
    async def work() -> None:
        async with chat_server(cut_at_once) as server:
            at = await desk(server.base_url)
            assert isinstance((await at.ask(think()))[-1].payload, Failed)
            await at.thinker.close()
            assert server.connections == 1

    run(work())


@pytest.mark.parametrize(
    "base_url", ["http://127.0.0.1:{port}/v1", "http://no-such-host.invalid/v1", "http://me:pass@127.0.0.1:{port}/v1"]
)
def test_a_service_that_is_not_there_says_its_address(base_url: str) -> None:
    async def work() -> None:
        at = await desk(base_url.format(port=closed_port()))
        (chunk,) = await at.ask(think())
        await at.thinker.close()
        assert isinstance(chunk.payload, Failed)
        assert chunk.payload.kind == "stage_failed"
        assert "can't be reached" in chunk.payload.message
        assert "pass" not in chunk.payload.message

    run(work())


def test_what_it_cannot_do_fails_that_job_alone() -> None:
    async def work() -> None:
        async with chat_server(say_hello) as server:
            at = await desk(server.base_url)
            silent = AudioPart("i1", "user", Inline(()), 24_000)
            for job, words in (
                (think(silent), "got audio and reads text"),
                (think(ResultPart("i1", "c1", "x")), "a result for the call 'c1' but not the call"),
                (Transcribe(Segment("s", 0, 0), Inline(()), 24_000, True), "got a Transcribe job"),
            ):
                payload = (await at.ask(job))[-1].payload
                assert isinstance(payload, Failed)
                assert words in payload.message
            assert isinstance((await at.ask(think()))[-1].payload, End)
            await at.thinker.close()

    run(work())
