"""Runs the server as its operator does: limits, health, keys, and its end."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import soundfile
from openai import AsyncOpenAI
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from duplex_server.realtime.hearing import PASSES
from loadtest.speech import silence, speech, word_error_rate
from tests.e2e.client import Json, session, transcript
from tests.e2e.conftest import SCRIPTED
from tests.e2e.server import ROOT, Server, command, running, stop

KEY = "sk-a-key-of-the-server"


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_health_and_readiness(server: Server) -> None:
    assert get(f"{server.url}/healthz") == (200, "ok\n")
    status, body = get(f"{server.url}/readyz")
    assert status == 200
    assert set(json.loads(body)["models"]) == {"detector", "recognizer", "thinker", "talker"}


def test_one_session_too_many_is_refused_before_the_upgrade_and_keys_are_asked_for() -> None:
    async def calls(one: Server) -> None:
        url = f"{one.ws_url}/v1/realtime"
        bearer = {"Authorization": f"Bearer {KEY}"}
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            with pytest.raises(InvalidStatus) as refused:
                await connect(url, additional_headers=headers)
            assert refused.value.response.status_code == 401
            assert json.loads(refused.value.response.body or b"")["error"]["code"] == "invalid_api_key"
        async with connect(url, additional_headers={"api-key": KEY}) as first:
            assert json.loads(await first.recv())["type"] == "session.created"
            with pytest.raises(InvalidStatus) as full:
                await connect(url, additional_headers=bearer)
            assert full.value.response.status_code == 503
            assert int(full.value.response.headers["Retry-After"]) > 0
        protocols = ["realtime", f"openai-insecure-api-key.{KEY}"]
        async with connect(url, subprotocols=protocols) as browser:  # type: ignore[arg-type]  # plain strings do
            assert browser.subprotocol == "realtime"
            assert json.loads(await browser.recv())["type"] == "session.created"
        async with connect(url, subprotocols=["realtime", "openai-insecure-api-key.no"]) as turned_away:  # type: ignore[list-item]
            assert json.loads(await turned_away.recv())["error"]["code"] == "invalid_api_key"
            await turned_away.wait_closed()
            assert turned_away.close_code == 3000

    with running(*SCRIPTED, "server.max_sessions=1", f"server.api_keys=[{KEY}]") as one:
        asyncio.run(calls(one))
        assert KEY not in one.read_log()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_check_023_a_signal_in_mid_reply_ends_the_server_with_nothing_left(number: signal.Signals) -> None:
    async def talk(one: Server) -> int | None:
        sdk = AsyncOpenAI(api_key="none", base_url=f"{one.url}/v1")
        async with sdk, sdk.realtime.connect(model="gpt-realtime") as connection:
            await connection.conversation.item.create(
                item={
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "input_text", "text": "please go on"}],
                }
            )
            await connection.response.create()
            while (await connection.recv()).type != "response.output_audio.delta":
                pass
            one.process.send_signal(number)
            try:
                while True:
                    await asyncio.wait_for(connection.recv_bytes(), 30)
            except ConnectionClosed as closed:
                return closed.rcvd.code if closed.rcvd else None

    with running(*SCRIPTED, "server.shutdown_s=1") as one:
        assert asyncio.run(talk(one)) in (1001, 1012)
        assert one.process.wait(30) == 0, one.read_log()


def test_a_reply_under_way_may_end_before_the_server_does() -> None:
    async def talk(one: Server) -> tuple[str, int | None]:
        sdk = AsyncOpenAI(api_key="none", base_url=f"{one.url}/v1")
        async with sdk, sdk.realtime.connect(model="gpt-realtime") as connection:
            content = [{"type": "input_text", "text": "say a b c d e f"}]
            await connection.conversation.item.create(
                item=cast(Any, {"type": "message", "role": "user", "content": content})
            )
            await connection.response.create()
            status = "none"
            try:
                while True:
                    event = json.loads(await asyncio.wait_for(connection.recv_bytes(), 30))
                    if event["type"] == "response.created":
                        one.process.send_signal(signal.SIGTERM)
                    elif event["type"] == "response.done":
                        status = event["response"]["status"]
            except ConnectionClosed as closed:
                return status, closed.rcvd.code if closed.rcvd else None

    with running(*SCRIPTED) as one:
        assert asyncio.run(talk(one)) == ("completed", 1012)
        assert one.process.wait(30) == 0, one.read_log()


def test_a_page_of_another_host_may_not_use_a_server_without_keys(scripted: Server) -> None:
    async def calls() -> None:
        url = f"{scripted.ws_url}/v1/realtime"
        with pytest.raises(InvalidStatus) as refused:
            await connect(url, origin=cast(Any, "http://elsewhere.example"))
        assert refused.value.response.status_code == 403
        for origin in ("http://localhost:3000", scripted.url):
            async with connect(url, origin=cast(Any, origin)) as page:
                assert json.loads(await page.recv())["type"] == "session.created"

    asyncio.run(calls())


def test_a_client_that_sends_many_turns_at_once_does_not_fill_the_recognizer_s_queue(scripted: Server) -> None:
    turns = 12
    crowd = np.concatenate([np.concatenate([speech("hello_world")[0], silence(0.8)])] * turns)
    ended = "conversation.item.input_audio_transcription.completed"

    async def talk() -> list[str]:
        async with session(scripted.url) as greedy:
            await greedy.configure()
            await greedy.speak(crowd, frame=len(crowd))
            while len(greedy.of(ended)) < turns:
                await greedy.wait(ended, len(greedy.events))
            return greedy.kinds()

    waiting, most = 0, 0
    for kind in asyncio.run(talk()):
        waiting += (kind == "input_audio_buffer.committed") - (kind == ended)
        most = max(most, waiting)
    assert most <= PASSES, f"{most} turns waited for their words at once"


def test_a_peer_that_does_not_read_does_not_keep_the_server_from_ending() -> None:
    async def talk(one: Server) -> None:
        # A queue of one frame: the library stops reading the socket, as a frozen client does.
        async with connect(f"{one.ws_url}/v1/realtime", max_queue=1) as frozen:
            await frozen.send('{"type": "response.create"}')
            await asyncio.to_thread(stop, one)

    with running(*SCRIPTED, "thinker.text=word", "server.shutdown_s=2") as one:
        asyncio.run(talk(one))
        assert one.process.returncode == 0


def test_a_taken_port_and_an_unknown_setting_are_told_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for arguments, telling in (
            (("--port", str(port)), "taken"),
            (("--set", "thinker.familly=x"), "family"),
        ):
            result = subprocess.run(
                command("serve", *arguments), capture_output=True, text=True, timeout=120, cwd=ROOT, check=False
            )
            assert result.returncode == 2
            assert telling in result.stderr
            assert len(result.stderr.strip().splitlines()) == 1, result.stderr


def test_the_call_command_holds_a_turn(server: Server, tmp_path: Path) -> None:
    question, answer = tmp_path / "question.wav", tmp_path / "answer.wav"
    soundfile.write(question, speech("quick_fox", 16_000)[0], 16_000)
    result = subprocess.run(
        command("call", str(question), "--out", str(answer), "--url", f"{server.ws_url}/v1/realtime"),
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    lines = dict(line.split(":", 1) for line in result.stdout.splitlines() if ":" in line)
    assert word_error_rate(speech("quick_fox")[1], lines["you"]) == 0
    assert lines["assistant"].strip()
    assert " ms" in result.stdout
    assert soundfile.info(answer).duration > 0.5


def test_sessions_that_are_not_served_are_refused_by_name(scripted: Server) -> None:
    async def calls() -> None:
        for query, status, code in (("call_id=rtc_1", 404, "call_not_found"), ("intent=translation", 400, "intent")):
            with pytest.raises(InvalidStatus) as refused:
                await connect(f"{scripted.ws_url}/v1/realtime?{query}")
            assert refused.value.response.status_code == status
            assert code in str(refused.value.response.body)
        for path in ("/realtime", "/openai/v1/realtime?deployment=mine"):
            async with connect(f"{scripted.ws_url}{path}") as other:
                assert json.loads(await other.recv())["session"]["model"] in ("mine", "gpt-realtime")

    asyncio.run(calls())


def test_sessions_do_not_see_each_other(scripted: Server) -> None:
    async def two() -> tuple[str, str]:
        async with session(scripted.url) as one, session(scripted.url) as other:
            await one.configure(instructions="You are Ada.", output_modalities=["text"])
            await one.ask("say a secret")
            view = await other.configure()
            return str(view["session"]["instructions"]), str(view["session"]["output_modalities"])

    instructions, modalities = asyncio.run(two())
    assert "Ada" not in instructions
    assert modalities == "['audio']"


@pytest.mark.parametrize(("trouble", "cause"), [("please raise", "asked to raise"), ("please exit", "exit")])
def test_a_stage_that_fails_or_dies_fails_its_reply_and_the_call_goes_on(trouble: str, cause: str) -> None:
    async def talk(one: Server) -> tuple[Json, Json]:
        async with session(one.url) as client:
            failed = await client.ask(trouble, output_modalities=["text"])
            after = await client.ask("say all is well", output_modalities=["text"])
            return failed["response"], after["response"]

    with running(*SCRIPTED, "thinker.placement=process", clean=False) as one:
        failed, after = asyncio.run(talk(one))
    assert failed["status"] == "failed"
    assert cause in failed["status_details"]["error"]["message"]
    assert after["status"] == "completed"


def test_f32_callers_who_leave_at_any_moment_leave_no_exception_behind_in_the_log() -> None:
    async def leave(one: Server, after: str) -> None:
        # The connection is cut below the protocol: no close frame, as when a phone loses its network.
        socket_ = await connect(f"{one.ws_url}/v1/realtime")
        await socket_.send('{"type": "response.create", "response": {"instructions": "please go on"}}')
        await socket_.send('{"type": "input_audio_buffer.append", "audio": "AAAA"}')
        while json.loads(await asyncio.wait_for(socket_.recv(), 30))["type"] != after:
            pass
        socket_.transport.abort()

    async def calls(one: Server) -> None:
        for after in ("session.created", "response.created", "response.output_audio.delta", "response.done"):
            await leave(one, after)
        async with session(one.url) as client:
            assert transcript(await client.ask("hello", output_modalities=["text"])) == "one two three"

    # `running` looks for exceptions nobody took, tracebacks and warnings, which are errors there.
    with running(*SCRIPTED, "thinker.text=one two three") as one:
        asyncio.run(calls(one))
