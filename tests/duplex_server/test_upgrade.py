"""Opens WebSockets as clients of all kinds do: with keys in headers and subprotocols, from pages, at any address."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import threading
from collections.abc import Iterator

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from duplex_server.observe import configure
from tests.duplex_server.serving import PATIENCE_S, Json, Served, first, play, served
from tests.duplex_server.test_metrics import scrape, value

KEY = "sk-a-key-of-the-server"
OTHER = "sk-another-key"
KEYED = f"server.api_keys=[{OTHER},{KEY}]"


def told(refused: pytest.ExceptionInfo[InvalidStatus], status: int) -> Json:
    """The error in the answer to a handshake that was refused."""
    response = refused.value.response
    assert response.status_code == status
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"].startswith("req_")
    body: Json = json.loads(response.body or b"")
    assert body["error"].keys() == {"message", "type", "param", "code"}
    error: Json = body["error"]
    return error


async def refusals(server: Served, reason: str) -> float:
    found = await asyncio.to_thread(scrape, server.metrics)
    return value(found, "duplex_sessions_refused_total", reason=reason)


def test_check_001_with_a_key_in_a_header_the_session_is_the_first_thing_told() -> None:
    async def scene(server: Served) -> None:
        for key in (KEY, OTHER):
            async with server.socket("/v1/realtime?model=m", key=key) as peer:
                assert peer.response is not None
                assert peer.response.status_code == 101
                assert (await first(peer))["model"] == "m"

    play(scene, KEYED)


def test_check_002_a_wrong_key_in_a_header_is_refused_before_the_upgrade() -> None:
    async def scene(server: Served) -> None:
        for key in (None, "wrong", KEY[:-1], f"{KEY}x", "ek_unknown"):
            with pytest.raises(InvalidStatus) as refused:
                await server.socket(key=key)
            error = told(refused, 401)
            assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_api_key")
            assert refused.value.response.headers["www-authenticate"] == "Bearer"
            assert key is None or key not in error["message"]
        assert await refusals(server, "invalid_api_key") == 5

    play(scene, KEYED)


def test_check_003_a_key_in_a_subprotocol_opens_a_session_and_is_not_echoed() -> None:
    offered = ("realtime", f"openai-insecure-api-key.{KEY}", "openai-organization.o", "openai-agents-sdk.0.20.0")

    async def scene(server: Served) -> None:
        async with server.socket(protocols=offered, origin="https://app.example") as peer:
            assert peer.subprotocol == "realtime"
            assert peer.response is not None
            assert KEY not in str(peer.response.headers)
            assert KEY not in str(await first(peer))
            assert peer.response.headers["x-request-id"].startswith("req_")

    play(scene, KEYED)


def test_check_004_a_wrong_key_in_a_subprotocol_is_told_by_an_event() -> None:
    async def scene(server: Served) -> None:
        for key in ("wrong", "", "ek_unknown"):
            async with server.socket(protocols=("realtime", f"openai-insecure-api-key.{key}")) as peer:
                assert peer.subprotocol == "realtime"
                event = json.loads(await peer.recv())
                assert event["type"] == "error"
                assert event["event_id"]
                assert event["error"]["type"] == "invalid_request_error"
                assert event["error"]["code"] == "invalid_api_key"
                assert not key or key not in str(event)
                await peer.wait_closed()
                assert peer.close_code == 3000
        assert await refusals(server, "invalid_api_key") == 3

    play(scene, KEYED)


def test_check_005_without_offered_protocols_none_is_selected_nor_is_one_other_than_realtime() -> None:
    async def scene(server: Served) -> None:
        for protocols in ((), ("chat", f"openai-insecure-api-key.{KEY}")):
            async with server.socket(key=KEY, protocols=protocols) as peer:
                assert peer.response is not None
                assert "sec-websocket-protocol" not in peer.response.headers
                await first(peer)

    play(scene, KEYED)


def test_check_011_a_call_that_is_not_there_is_404() -> None:
    async def scene(server: Served) -> None:
        with pytest.raises(InvalidStatus) as refused:
            await server.socket("/v1/realtime?call_id=rtc_unknown", key=KEY)
        assert told(refused, 404)["code"] == "call_not_found"

    play(scene, KEYED)


def test_check_013_014_all_three_addresses_open_sessions_of_any_model() -> None:
    async def scene(server: Served) -> None:
        for path in ("/realtime", "/v1/realtime", "/openai/v1/realtime"):
            for query, model in (("", "gpt-realtime"), ("?model=my%20model%2F1", "my model/1"), ("?deployment=d", "d")):
                async with server.socket(f"{path}{query}") as peer:
                    assert (await first(peer))["model"] == model
        with pytest.raises(InvalidStatus) as refused:
            await server.socket("/v2/realtime")
        assert told(refused, 404)["code"] == "not_found"

    play(scene)


def test_check_017_pings_are_answered_and_a_client_that_only_answers_them_stays() -> None:
    """The server pings each 20 s; here a hundred times as often, and so 60 s of silence are 0.6 s of it."""

    pings: list[str] = []
    enough = threading.Event()

    class Seen(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage().startswith("< PING"):
                pings.append(record.getMessage())
                if len(pings) == 4:
                    enough.set()

    frames = logging.Logger("frames", logging.DEBUG)
    frames.addHandler(Seen())

    async def talk() -> None:
        async with served(ping_s=0.2) as server, connect(server.ws_url, logger=frames, ping_interval=None) as peer:
            await first(peer)
            await asyncio.wait_for(await peer.ping(), PATIENCE_S)
            assert await asyncio.to_thread(enough.wait, PATIENCE_S), pings
            await peer.send('{"type": "input_audio_buffer.clear"}')
            assert json.loads(await peer.recv())["type"] == "input_audio_buffer.cleared"

    asyncio.run(talk())


def test_a_peer_that_answers_no_pings_is_let_go() -> None:
    async def talk() -> None:
        async with served(ping_s=0.2) as server:
            host, port = server.url.removeprefix("http://").split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13"
            key = "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="
            writer.write(f"GET /v1/realtime HTTP/1.1\r\nHost: {host}\r\n{upgrade}\r\n{key}\r\n\r\n".encode())
            all_that_came = await asyncio.wait_for(reader.read(), PATIENCE_S)
            assert all_that_came.startswith(b"HTTP/1.1 101")
            assert b"session.created" in all_that_came
            writer.close()

    asyncio.run(talk())


def test_pages_are_let_in_by_their_origin() -> None:
    async def opens(server: Served, origin: str | None) -> bool:
        try:
            async with server.socket(origin=origin, key=KEY) as peer:
                await first(peer)
        except InvalidStatus as refused:
            return (refused.response.status_code, b'"foreign_origin"' in (refused.response.body or b"")) != (403, True)
        return True

    async def keyless(server: Served) -> None:
        for origin in (None, server.url, "http://localhost:3000", "http://127.0.0.1"):
            assert await opens(server, origin), origin
        for origin in ("https://app.example", "null", "file://", "http://[::1", "chrome-extension://abc"):
            assert not await opens(server, origin), origin
        assert await refusals(server, "foreign_origin") == 5

    async def listed(server: Served) -> None:
        assert await opens(server, "https://App.example")
        assert await opens(server, None)
        assert await opens(server, server.url), "its own page"
        for origin in ("https://other.example", "http://app.example", "null", "http://localhost:3000"):
            assert not await opens(server, origin), origin

    async def keyed(server: Served) -> None:
        assert await opens(server, "https://app.example"), "the key is enough"

    play(keyless)
    play(listed, KEYED, "server.allowed_origins=['https://app.example']")
    play(keyed, KEYED)


# ---- keys in logs -------------------------------------------------------------------------------------------------


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """All that is logged, as a server at `debug` writes it; and, unredacted, all that it had to write."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    configure("debug", (), stream=stream)  # not told the keys: no record may hold one to begin with
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)


class Raw(logging.Handler):
    """Keeps what was logged as it was, with its traceback."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(logging.Formatter().format(record))


def test_f18_no_key_is_ever_logged_wherever_it_was(log: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = Raw()
    logging.getLogger().addHandler(raw)
    wrong = "sk-somebody-elses-key"
    shown: list[str] = []

    async def scene(server: Served) -> None:
        made = (await server.ask("/v1/realtime/client_secrets", key=KEY)).json()["value"]
        for key in (KEY, made, wrong, "ek_notOurs"):
            shown.append(key)
            for path in (
                "/v1/realtime/client_secrets",
                "/v1/realtime/calls",
                "/metrics",
                f"/v1/realtime/calls/{key}/x",
            ):
                await server.ask(f"{path}?api_key={key}", {}, key=key)
                await server.ask(path, {"session": {"type": key}}, api_key=key, Cookie=key)
            for protocols in ((), ("realtime", f"openai-insecure-api-key.{key}")):
                try:
                    async with server.socket(f"/v1/realtime?key={key}", key=key, protocols=protocols) as peer:
                        await peer.send(json.dumps({"type": key}))
                        await peer.recv()
                except (InvalidStatus, ConnectionClosed):
                    continue
        monkeypatch.setattr(server.sessions.door, "may_issue", lambda key: 1 // 0)
        failed = await server.ask(f"/v1/realtime/client_secrets?api_key={KEY}", key=KEY)
        assert failed.status_code == 500
        assert KEY not in failed.text

    play(scene, KEYED)
    assert "ZeroDivisionError" in log.getvalue(), "it does log"
    for key in shown:
        assert key not in log.getvalue(), key
        assert not [line for line in raw.lines if key in line], key
