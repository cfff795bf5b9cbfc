"""Tests the call command's socket and files against a small scripted peer."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path

import numpy as np
import pytest
import soundfile
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from duplex_server.call import CallError, Question, ask, call, load_question
from duplex_server.client import RATE_HZ, Exchange

SPEECH = np.round(9000 * np.sin(np.arange(4800) / 8)).astype(np.int16)
BODIES = {HTTPStatus.SERVICE_UNAVAILABLE: '{"error":{"message":"All taken.","code":"sessions_full"}}'}
Script = Callable[[ServerConnection], Awaitable[None]]


async def _say(peer: ServerConnection, kind: str, **fields: object) -> None:
    await peer.send(json.dumps({"type": kind, "event_id": "event_1", **fields}))


async def _greet(peer: ServerConnection) -> None:
    await _say(peer, "session.created", session={})
    assert json.loads(await peer.recv())["type"] == "session.update"
    await _say(peer, "session.updated", session={})


async def _hear(peer: ServerConnection, duration_s: float) -> bytes:
    heard = b""
    while len(heard) < duration_s * RATE_HZ * 2:
        event = json.loads(await peer.recv())
        assert event["type"] == "input_audio_buffer.append"
        heard += base64.b64decode(event["audio"])
    return heard


async def _answer(peer: ServerConnection) -> None:
    """Echo what was heard, padded with silence, as the answer."""
    await _greet(peer)
    heard = await _hear(peer, 0.6)
    response = {"id": "resp_1", "status": "in_progress"}
    await _say(peer, "input_audio_buffer.speech_stopped", item_id="item_1", audio_end_ms=500)
    await _say(peer, "conversation.item.input_audio_transcription.completed", item_id="item_1", transcript="A tone?")
    await _say(peer, "response.created", response=response)
    await _say(peer, "response.output_audio_transcript.delta", response_id="resp_1", delta="A tone.")
    for part in (heard[:4000], heard[4000:]):
        await _say(peer, "response.output_audio.delta", response_id="resp_1", delta=base64.b64encode(part).decode())
    await _say(peer, "response.done", response={**response, "status": "completed"})
    await peer.wait_closed()


async def _refuse(peer: ServerConnection) -> None:
    await _greet(peer)
    await _say(peer, "error", error={"type": "server_error", "code": "broken", "message": "no model"})
    await peer.wait_closed()


async def _leave(peer: ServerConnection) -> None:
    await _greet(peer)
    await peer.close(1011, "a bug")


async def _babble(peer: ServerConnection) -> None:
    await peer.send("hello")
    await peer.wait_closed()


@asynccontextmanager
async def _peer(script: Script, status: HTTPStatus | None = None) -> AsyncIterator[str]:
    def gate(connection: ServerConnection, request: Request) -> Response | None:
        if status is not None:
            return connection.respond(status, BODIES.get(status, "no\n"))
        if request.headers.get("Authorization") != "Bearer secret":
            return connection.respond(HTTPStatus.UNAUTHORIZED, "no\n")
        return None

    async with serve(script, "127.0.0.1", 0, process_request=gate) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        yield f"ws://127.0.0.1:{port}/v1/realtime"


def _asked(script: Script, key: str | None = "secret", status: HTTPStatus | None = None) -> Exchange:
    async def run() -> Exchange:
        async with _peer(script, status) as url:
            return await ask(Question(SPEECH, len(SPEECH)), url, key)

    return asyncio.run(run())


def test_the_question_is_heard_as_it_is_and_the_answer_comes_back() -> None:
    exchange = _asked(_answer)
    assert exchange.failure is None
    assert exchange.question == "A tone?"
    assert exchange.answer is not None
    assert exchange.answer.text() == "A tone."
    heard = exchange.answer.pcm()
    assert np.array_equal(heard[: len(SPEECH)], SPEECH)
    assert not heard[len(SPEECH) :].any()
    # The peer heard 0.4 s of silence in real time before it answered.
    assert exchange.marks["first audio"] - exchange.spoken_s >= 0.39


def test_an_error_event_ends_the_call() -> None:
    assert _asked(_refuse).failure == "the server says: no model (broken)"


@pytest.mark.parametrize(
    ("script", "key", "status", "message"),
    [
        (_leave, "secret", None, r"the server closed the connection: .*1011.*a bug"),
        (_babble, "secret", None, "no Realtime event"),
        (_answer, "wrong", None, "wants a valid key: pass --key"),
        (_answer, None, None, "wants a valid key: pass --key"),
        (_answer, "secret", HTTPStatus.SERVICE_UNAVAILABLE, r"refused the call with HTTP 503: All taken\."),
        (_answer, "secret", HTTPStatus.NOT_FOUND, "the path is /v1/realtime"),
        (_answer, "secret", HTTPStatus.BAD_GATEWAY, r"refused the call with HTTP 502$"),
    ],
)
def test_trouble_is_told(script: Script, key: str | None, status: HTTPStatus | None, message: str) -> None:
    with pytest.raises(CallError, match=message):
        _asked(script, key, status)


def test_a_server_that_never_answers_is_left_with_what_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    async def mute(peer: ServerConnection) -> None:
        await _greet(peer)
        await _hear(peer, 0.1)
        await _say(peer, "input_audio_buffer.speech_started", item_id="item_1", audio_start_ms=0)
        await peer.wait_closed()

    monkeypatch.setattr("duplex_server.call.QUIET_TIMEOUT_S", 0.1)
    with pytest.raises(CallError, match=r"no complete answer in time; events so far: input_audio_buffer\.sp"):
        _asked(mute)


def test_no_server_is_told() -> None:
    with socket.socket() as bound:  # bound and never listening: nobody else gets this port
        bound.bind(("127.0.0.1", 0))
        url = f"ws://127.0.0.1:{bound.getsockname()[1]}/v1/realtime"
        with pytest.raises(CallError, match=r"no server at .*make serve"):
            asyncio.run(ask(Question(SPEECH, len(SPEECH)), url, None))


@pytest.mark.parametrize("url", ["http://127.0.0.1/v1/realtime", "nonsense", "ws://host:port/x", "ws://"])
def test_a_bad_address_is_told(url: str) -> None:
    with pytest.raises(CallError, match="is no WebSocket address; expected ws://"):
        asyncio.run(ask(Question(SPEECH, len(SPEECH)), url, None))


def test_call_writes_the_answer_and_prints_both_sides(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    question, out = tmp_path / "question.flac", tmp_path / "answer.wav"
    soundfile.write(str(question), SPEECH, RATE_HZ)

    async def run() -> None:
        async with _peer(_answer) as url:
            # `call` has a loop of its own, as on the command line.
            await asyncio.to_thread(call, question, out, url, "secret")

    asyncio.run(run())
    pcm, rate_hz = soundfile.read(str(out), dtype="int16")
    assert rate_hz == RATE_HZ
    assert len(pcm) >= 0.6 * RATE_HZ
    shown = capsys.readouterr().out
    assert "you:       A tone?\nassistant: A tone.\n" in shown
    assert "ms from the end of speech to the first audible sound" in shown
    assert "ms end of turn detected" in shown


def test_any_rate_and_number_of_channels_is_read(tmp_path: Path) -> None:
    at_s = np.arange(44_100) / 44_100
    voice = 0.5 * np.sin(2 * np.pi * 300 * at_s) * (at_s < 0.5)
    file = tmp_path / "stereo.wav"
    soundfile.write(str(file), np.stack([voice, voice], axis=1), 44_100)
    question = load_question(file)
    assert len(question.pcm) == RATE_HZ
    assert abs(question.voiced_end - RATE_HZ // 2) <= RATE_HZ // 100
    assert np.abs(question.pcm).max() == pytest.approx(16_384, rel=0.01)


def test_files_that_hold_no_question_are_told(tmp_path: Path) -> None:
    with pytest.raises(CallError, match="there is no such file"):
        load_question(tmp_path / "none.wav")
    (tmp_path / "text.wav").write_text("hello")
    with pytest.raises(CallError, match="no sound file that can be read"):
        load_question(tmp_path / "text.wav")
    soundfile.write(str(tmp_path / "silent.wav"), np.zeros(1000, np.int16), RATE_HZ)
    with pytest.raises(CallError, match="no speech in it"):
        load_question(tmp_path / "silent.wav")


@pytest.mark.parametrize(("out", "message"), [("nowhere/a.wav", "there is no folder"), ("a.xyz", "no known sound")])
def test_where_the_answer_cannot_go_is_told_before_the_call(tmp_path: Path, out: str, message: str) -> None:
    question = tmp_path / "question.wav"
    soundfile.write(str(question), SPEECH, RATE_HZ)
    with pytest.raises(CallError, match=message):
        call(question, tmp_path / out, "ws://127.0.0.1:1/", None)
