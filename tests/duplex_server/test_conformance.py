"""Tests that the conformance command reports whatever a server does, and never breaks over it."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import soundfile
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from duplex_server.cli import main
from duplex_server.conformance import peer, run, transport
from duplex_server.conformance.checks import Check, Deviation, registered
from duplex_server.conformance.command import Unusable, conformance, hold, numbers, outcome
from duplex_server.conformance.elsewhere import ELSEWHERE
from duplex_server.conformance.report import Report, Result, line, summary
from duplex_server.conformance.run import Run
from duplex_server.conformance.sound import SPEECH_FILE, UnusableSpeech, duration_ms, load_speech, silence
from duplex_server.conformance.target import UnusableUrl, find
from tests.duplex_server.serving import served

PATIENCE_S = 0.3
ALL = frozenset(range(1, 198))
SOME = numbers("1-4,9,18,24,42-50,70-78,91,97-100,113-117,131,139,142,146,150,165,197")
Script = Callable[[ServerConnection], Awaitable[None]]


# ---- servers that are none ------------------------------------------------------------------------------------------


async def hang(connection: ServerConnection) -> None:
    """Say nothing at all."""
    await connection.wait_closed()


async def leave(connection: ServerConnection) -> None:
    await connection.close(1011, "a bug")


async def babble(connection: ServerConnection) -> None:
    """Send what is no event."""
    for frame in ("hello", b"\xff\xfe", "[]", "{}", '{"type":7}'):
        await connection.send(frame)
    await connection.wait_closed()


async def greet_and_hang(connection: ServerConnection) -> None:
    """Open a session of a sort, and do nothing in it."""
    await connection.send(json.dumps({"type": "session.created", "event_id": "event_1", "session": {}}))
    await connection.wait_closed()


async def greet_and_err(connection: ServerConnection) -> None:
    """Answer all with half an error."""
    await connection.send(json.dumps({"type": "session.created", "event_id": "event_1", "session": None}))
    async for _ in connection:
        await connection.send(json.dumps({"type": "error", "error": "no"}))


async def greet_and_leave(connection: ServerConnection) -> None:
    """Close at the first event."""
    await connection.send(json.dumps({"type": "session.created", "event_id": "event_1", "session": {"type": "x"}}))
    async for _ in connection:
        await connection.close(1000)


@asynccontextmanager
async def scripted(script: Script, status: int | None = None) -> AsyncIterator[str]:
    def gate(connection: ServerConnection, request: Request) -> Response | None:
        return None if status is None else connection.respond(status, "no\n")

    async with serve(script, "127.0.0.1", 0, process_request=gate, max_size=None) as server:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/realtime"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that never answer need not be waited for."""
    monkeypatch.setattr(peer, "SOON_S", PATIENCE_S)
    monkeypatch.setattr(peer, "QUIET_S", 0.01)
    monkeypatch.setattr(run, "CONNECT_S", 5.0)


def held(script: Script, wanted: frozenset[int], status: int | None = None) -> Report:
    async def go() -> Report:
        async with scripted(script, status) as url:
            return await hold(Run(find(url, "sk-key"), load_speech(SPEECH_FILE), PATIENCE_S), wanted)

    return asyncio.run(go())


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("script", [hang, leave, babble, greet_and_hang, greet_and_err, greet_and_leave])
def test_a_server_that_is_none_passes_next_to_nothing_and_breaks_nothing(script: Script) -> None:
    report = held(script, SOME)
    passed = {one.number for one in report.checks if one.status == "passed"}
    assert passed <= {1, 3, 180}, "what an open WebSocket and a greeting show"
    assert {one.number for one in report.checks if one.status == "not_applicable"} <= {180}
    assert report.failed >= len(SOME) - 2
    assert all(one.detail for one in report.checks if one.status == "failed")


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("script", "status", "told"),
    [
        (hang, None, r"expected session.created within 0.3 s; came only nothing"),
        (leave, None, r"the end of the connection: .*1011.*a bug"),
        (hang, 503, r"expected a WebSocket; came HTTP 503 no"),
        (hang, 404, r"expected a WebSocket; came HTTP 404 no"),
    ],
)
def test_a_server_that_opens_no_session_is_told(script: Script, status: int | None, told: str) -> None:
    (result, *_) = held(script, frozenset({1}), status).checks
    assert result.status == "failed"
    assert re.search(told, result.detail or ""), result


@pytest.mark.usefixtures("impatient")
def test_a_server_that_opens_no_session_is_given_up_after_some_attempts() -> None:
    report = held(hang, frozenset(range(42, 50)))
    tried = ["not tried" not in (one.detail or "") for one in report.checks if one.status == "failed"]
    assert tried == [True] * run.HOPELESS + [False] * (8 - run.HOPELESS)


def test_where_no_server_is_that_is_told_for_each_check() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    report = conformance(f"ws://127.0.0.1:{port}/v1/realtime", None, only="1,24,42")
    assert [(one.number, one.status) for one in report.checks] == [
        (1, "failed"),
        (24, "failed"),
        (42, "failed"),
        (180, "not_applicable"),
    ]
    assert "ConnectionRefusedError" in (report.checks[0].detail or "")


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (KeyError("session"), "expected events in the form of the protocol; came KeyError: 'session'"),
        (Deviation("this", "that"), "expected this; came that"),
        (OSError("gone"), "expected an open connection; came OSError: gone"),
    ],
)
def test_whatever_a_check_meets_it_ends_in_a_result(raised: Exception, told: str) -> None:
    async def body(run: Run) -> None:
        raise raised

    result = asyncio.run(outcome(Check(1, "one", body), Run(find("ws://x", None), None, 1)))
    assert (result.status, result.detail) == ("failed", told)


def test_a_mistake_of_our_own_is_not_taken_for_the_servers() -> None:
    async def body(run: Run) -> None:
        raise AssertionError("a bug of the check")

    with pytest.raises(AssertionError, match="a bug of the check"):
        asyncio.run(outcome(Check(1, "one", body), Run(find("ws://x", None), None, 1)))


# ---- which checks ---------------------------------------------------------------------------------------------------


def test_every_line_of_the_checklist_is_checked_or_named_with_a_reason() -> None:
    checked = {one.number for one in registered()}
    assert checked & ELSEWHERE.keys() == set()
    assert checked | ELSEWHERE.keys() == ALL
    names = [one.name for one in registered()]
    assert len(names) == len(set(names))


def test_checks_are_chosen_by_numbers_and_ranges() -> None:
    assert numbers("42-44,73") == {42, 43, 44, 73}
    assert numbers(" 7 ") == {7}
    for text in ("", "x", "1-", "-3", "1;2", "500"):
        with pytest.raises(Unusable, match="--only"):
            numbers(text)


def test_without_speech_the_checks_that_need_it_do_not_apply() -> None:
    async def go() -> Report:
        async with served() as server:
            return await hold(Run(find(server.ws_url, None), None, 5.0), frozenset({1, 2, 4, 77, 138}))

    report = asyncio.run(go())
    statuses = {one.number: one.status for one in report.checks}
    assert statuses == {
        1: "passed",
        2: "not_applicable",
        4: "not_applicable",
        77: "not_applicable",
        138: "not_applicable",
        180: "passed",
    }
    details = {one.number: one.detail for one in report.checks}
    assert details[2] == "the server asks for no key"
    assert details[77] == "it needs speech: --speech FILE"


def test_a_server_with_room_for_one_session_is_checked_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "SILENT_S", 0.5)

    async def go() -> Report:
        async with served("server.max_sessions=1") as server:
            return await hold(Run(find(server.ws_url, None), None, 5.0), frozenset({1, 17, 42, 43, 44}))

    report = asyncio.run(go())
    assert {one.number: one.status for one in report.checks} == dict.fromkeys((1, 17, 42, 43, 44, 180), "passed")


# ---- addresses and speech -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "socket_url", "route"),
    [
        ("ws://h:1/v1/realtime", "ws://h:1/v1/realtime?model=gpt-realtime", "http://h:1/v1/x"),
        ("http://h:1/v1", "ws://h:1/v1/realtime?model=gpt-realtime", "http://h:1/v1/x"),
        ("http://h:1", "ws://h:1/v1/realtime?model=gpt-realtime", "http://h:1/v1/x"),
        ("http://h:1/", "ws://h:1/v1/realtime?model=gpt-realtime", "http://h:1/v1/x"),
        ("wss://h/realtime", "wss://h/realtime?model=gpt-realtime", "https://h/x"),
        ("https://h/openai/v1/", "wss://h/openai/v1/realtime?model=gpt-realtime", "https://h/openai/v1/x"),
    ],
)
def test_an_address_leads_to_both_kinds_of_routes(url: str, socket_url: str, route: str) -> None:
    target = find(url, None)
    assert (target.socket(), target.route("/x")) == (socket_url, route)


@pytest.mark.parametrize("url", ["", "h:1", "ftp://h/v1", "ws://", "ws://h:0/v1", "ws://h:x/v1"])
def test_what_is_no_address_is_told(url: str) -> None:
    with pytest.raises(UnusableUrl, match="expected ws://host:port/v1/realtime or http://host:port/v1"):
        find(url, None)


def test_the_packaged_speech_is_small_and_its_licence_lies_beside_it() -> None:
    assert SPEECH_FILE.stat().st_size < 100_000
    assert "MIT License" in SPEECH_FILE.with_suffix(".LICENSE").read_text()
    assert 2000 < duration_ms(load_speech(SPEECH_FILE)) < 3000


def test_speech_that_is_none_is_told(tmp_path: Path) -> None:
    file = tmp_path / "silence.wav"
    soundfile.write(str(file), silence(2000), 24_000)
    with pytest.raises(UnusableSpeech, match=r"holds 0\.0 s of speech; expected 1 to 15 s"):
        load_speech(file)
    with pytest.raises(UnusableSpeech, match="can't be read"):
        load_speech(tmp_path / "none.wav")


# ---- the command line -----------------------------------------------------------------------------------------------


def test_a_line_for_each_result() -> None:
    assert line(Result(7, "so it is", "passed")) == "  7 ok   so it is"
    assert line(Result(7, "so it is", "passed", "twice")) == "  7 ok   so it is (twice)"
    assert line(Result(7, "so it is", "not_applicable", "a reason")) == "  7 n/a  so it is (a reason)"
    told = line(Result(77, "so it is", "failed", "expected this; came that"))
    assert told == " 77 FAIL so it is\n         expected this; came that"
    assert summary(Report(2, 1, 3, ())) == "2 passed, 1 failed, 3 not applicable"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nowhere"], "no address of a server"),
        (["ws://127.0.0.1:1/v1/realtime", "--only", "x"], "--only"),
        (["ws://127.0.0.1:1/v1/realtime", "--timeout-s", "0"], "--timeout-s 0: expected more than 0"),
        (["ws://127.0.0.1:1/v1/realtime", "--speech", "none.wav"], "none.wav can't be read"),
    ],
)
def test_a_users_mistake_is_one_line(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert told in captured.err
    assert captured.err.count("\n") == 1


def test_the_exit_code_and_the_json_tell_of_what_failed(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    url = f"ws://127.0.0.1:{port}/v1/realtime"
    assert main(["conformance", url, "--only", "1,10", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report.keys() == {"passed", "failed", "not_applicable", "checks"}
    assert (report["passed"], report["failed"], report["not_applicable"]) == (0, 1, 2)
    assert [one["number"] for one in report["checks"]] == [1, 10, 180]
    assert all(one.keys() == {"number", "name", "status", "detail"} for one in report["checks"])
    assert main(["conformance", url, "--only", "10"]) == 0, "what does not apply has not failed"
    assert capsys.readouterr().out.splitlines()[-1] == "0 passed, 0 failed, 2 not applicable"
