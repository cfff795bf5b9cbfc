"""Asks a running server what all HTTP clients ask: ids of requests, errors in one form, and what pages may read."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket

import httpx
import pytest
from openai import AsyncOpenAI, NotFoundError
from starlette.applications import Starlette
from starlette.routing import Route

from duplex_server.app import on_signals, serving
from duplex_server.http.realtime import PATHS
from tests.duplex_server.serving import PATIENCE_S, Json, Served, play

KEY = "sk-a-key-of-the-server"
KEYED = f"server.api_keys=[{KEY}]"
SECRETS = "/v1/realtime/client_secrets"
PAGE = "https://app.example"


def error(answer: httpx.Response, status: int) -> Json:
    """The error of an answer in the envelope of all errors; every answer has an id."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"].startswith("req_")
    body: Json = answer.json()
    assert body["error"].keys() == {"message", "type", "param", "code"}
    assert body["error"]["message"]
    found: Json = body["error"]
    return found


def test_check_197_every_error_has_the_envelope_and_an_id() -> None:
    async def scene(server: Served) -> None:
        for path, method, status, code in (
            ("/nowhere", "GET", 404, "not_found"),
            ("/v1/realtime/nowhere", "GET", 404, "not_found"),
            ("/demo/nowhere.js", "GET", 404, "not_found"),
            (SECRETS, "GET", 405, "method_not_allowed"),
            ("/healthz", "DELETE", 405, "method_not_allowed"),
            (SECRETS, "POST", 401, "invalid_api_key"),
            ("/metrics", "GET", 401, "invalid_api_key"),
            ("/v1/realtime", "GET", 426, "unsupported_operation"),
            ("/v1/realtime?model=m", "POST", 426, "unsupported_operation"),
        ):
            answer = await server.ask(path, method=method)
            found = error(answer, status)
            assert (found["code"], found["type"]) == (code, "invalid_request_error")
        assert "POST" in (await server.ask(SECRETS, method="GET")).headers["allow"]
        assert error(await server.ask(SECRETS, b"{", key=KEY), 400)["code"] == "invalid_json"
        assert error(await server.ask("/readyz", method="GET"), 503)["code"] == "not_ready"

    play(scene, KEYED, loaded=False)


def test_every_answer_has_an_id_of_its_own() -> None:
    async def scene(server: Served) -> None:
        answers = [
            await server.ask(path, method=method)
            for path, method in (("/healthz", "GET"), ("/demo/", "GET"), (SECRETS, "OPTIONS"), (SECRETS, "POST"))
        ]
        assert [answer.status_code for answer in answers] == [200, 200, 204, 200]
        assert len({answer.headers["x-request-id"] for answer in answers}) == 4

    play(scene)


def test_a_bug_in_a_route_is_told_as_an_error_and_logged_with_its_id(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(_: object) -> None:
        raise ValueError("a detail of ours")

    async def scene(server: Served) -> None:
        server.app.router.routes.append(Route("/broken", broken))
        answer = await server.ask("/broken?secret=hush", method="GET")
        found = error(answer, 500)
        assert (found["type"], found["code"]) == ("server_error", "server_error")
        assert "detail" not in answer.text
        assert answer.headers["x-request-id"] in answer.text
        assert answer.headers["x-request-id"] in caplog.text
        assert "ValueError: a detail of ours" in caplog.text
        assert "hush" not in caplog.text
        assert (await server.ask("/healthz", method="GET")).status_code == 200

    play(scene)


def test_a_client_that_leaves_in_the_middle_of_its_request_is_no_trouble(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "duplex_server")

    async def scene(server: Served) -> None:
        host, port = server.url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"POST {SECRETS} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 100\r\n\r\n{{".encode())
        writer.close()
        await writer.wait_closed()
        async with asyncio.timeout(PATIENCE_S):
            while "left before" not in caplog.text:  # noqa: ASYNC110  # nobody tells a client who has gone
                await asyncio.sleep(0.005)
        assert not [record for record in caplog.records if record.levelno >= logging.WARNING]

    play(scene)


def test_a_bug_while_the_sessions_end_does_not_keep_the_server_from_ending(caplog: pytest.LogCaptureFixture) -> None:
    async def leave() -> None:
        raise ValueError("a detail of ours")

    async def ends() -> bool:
        server = serving(Starlette(), leave)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            running = asyncio.create_task(server.serve([listener]))
            server.stop()
            await asyncio.wait_for(running, PATIENCE_S)
        return server.should_exit

    assert asyncio.run(ends())
    assert "ValueError: a detail of ours" in caplog.text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_heard_while_threads_keep_the_loop_busy(number: signal.Signals) -> None:
    async def hears() -> None:
        loop, told = asyncio.get_running_loop(), asyncio.Event()
        with on_signals(told.set):
            for _ in range(10_000):  # more than the loop's pipe holds, and it is not read meanwhile
                loop.call_soon_threadsafe(int)
            os.kill(os.getpid(), number)
            await asyncio.wait_for(told.wait(), PATIENCE_S)

    before = signal.getsignal(number)
    asyncio.run(hears())
    assert signal.getsignal(number) is before


def test_check_008_another_beta_header_is_ignored() -> None:
    async def scene(server: Served) -> None:
        for beta in ("assistants=v2", "realtime=v1", "x"):
            answer = await server.ask(SECRETS, {}, key=KEY, OpenAI_Beta=beta, OpenAI_Project="p", User_Agent="u")
            assert answer.json()["session"]["audio"]["input"], "the newer dialect's form"

    play(scene, KEYED)


# ---- calls --------------------------------------------------------------------------------------------------------


def test_check_038_actions_on_a_call_that_is_not_there_are_404() -> None:
    async def scene(server: Served) -> None:
        for action in ("accept", "refer", "reject", "hangup"):
            path = f"/v1/realtime/calls/rtc_unknown/{action}"
            assert error(await server.ask(path, b"", key=KEY), 404)["code"] == "call_not_found"
            assert error(await server.ask(path, b""), 401)["code"] == "invalid_api_key"
        assert error(await server.ask("/v1/realtime/calls/rtc_1/sing", key=KEY), 404)["code"] == "not_found"
        async with AsyncOpenAI(api_key=KEY, base_url=f"{server.url}/v1") as sdk:
            with pytest.raises(NotFoundError, match="rtc_unknown"):
                await sdk.realtime.calls.hangup("rtc_unknown")
            with pytest.raises(NotFoundError, match="takes no WebRTC calls"):
                await sdk.realtime.calls.create(sdp="v=0")

    play(scene, KEYED)


# ---- pages --------------------------------------------------------------------------------------------------------


def test_check_035_a_browser_is_told_what_it_may_send() -> None:
    wanted = {"Origin": PAGE, "Access-Control-Request-Method": "POST"}

    async def scene(server: Served) -> None:
        for root in PATHS:
            for path in ("", "/client_secrets", "/sessions", "/calls", "/calls/rtc_1/hangup"):
                answer = await server.ask(f"{root}{path}", method="OPTIONS", **wanted)
                assert answer.status_code == 204
                assert answer.headers["access-control-allow-origin"] == "*"
                assert answer.headers["access-control-allow-methods"] == "GET, POST, OPTIONS, DELETE"
                allowed = set(answer.headers["access-control-allow-headers"].split(", "))
                assert {"authorization", "content-type", "openai-beta", "x-openai-agents-sdk"} <= allowed
                assert {"openai-organization", "openai-project", "openai-safety-identifier"} <= allowed

    play(scene, KEYED)


def test_check_036_a_page_may_read_answers_with_their_location_and_errors_too() -> None:
    async def scene(server: Served) -> None:
        for path, key, status in ((SECRETS, KEY, 200), (SECRETS, "wrong", 401), ("/v1/realtime/calls", KEY, 404)):
            answer = await server.ask(path, key=key, Origin=PAGE)
            assert answer.status_code == status
            assert answer.headers["access-control-allow-origin"] == "*"
            assert answer.headers["access-control-expose-headers"] == "location, x-request-id"
        answer = await server.ask("/metrics", method="GET", key=KEY, Origin=PAGE)
        assert "access-control-allow-origin" not in answer.headers, "no page's business"

    play(scene, KEYED)


def test_a_server_without_keys_makes_none_for_pages_of_other_hosts() -> None:
    async def scene(server: Served) -> None:
        for origin in (PAGE, "null"):
            for method in ("POST", "OPTIONS"):
                answer = await server.ask(SECRETS, method=method, Origin=origin)
                assert error(answer, 403)["code"] == "foreign_origin"
                assert "access-control-allow-origin" not in answer.headers
        assert len(server.sessions.door.ephemeral) == 0
        for origin in ("http://localhost:3000", server.url):
            answer = await server.ask(SECRETS, Origin=origin)
            assert answer.status_code == 200
            assert answer.headers["access-control-allow-origin"] == origin
            assert "Origin" in answer.headers["vary"]
        rebound = await server.ask(SECRETS, Origin="http://evil.example", Host="evil.example")
        assert error(rebound, 403)["code"] == "foreign_origin"

    play(scene)


def test_an_operator_says_which_pages_may_use_the_server_and_which_may_read() -> None:
    async def listed(server: Served) -> None:
        answer = await server.ask(SECRETS, Origin=PAGE)
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert error(await server.ask(SECRETS, Origin="https://other.example"), 403)["code"] == "foreign_origin"

    async def readers(server: Served) -> None:
        for origin, told in ((PAGE, PAGE), ("https://other.example", None)):
            answer = await server.ask(SECRETS, key=KEY, Origin=origin)
            assert answer.status_code == 200
            assert answer.headers.get("access-control-allow-origin") == told
            assert "Origin" in answer.headers["vary"]

    play(listed, f"server.allowed_origins=['{PAGE}']")
    play(readers, KEYED, f"server.cors_origins=['{PAGE}']")
