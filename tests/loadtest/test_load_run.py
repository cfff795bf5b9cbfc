"""Runs the load test as its user does: locust, callers and a server as processes of their own."""

from __future__ import annotations

import asyncio
import csv
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from websockets.asyncio.client import connect

from loadtest.load.conversation import call
from loadtest.load.figures import Figures
from loadtest.load.records import Call, Closed, Failed, Record, Refused
from tests.e2e.server import ROOT, running

SCRIPTED = tuple(
    f"{role}.family=tests.families.scripted.{role}" for role in ("detector", "recognizer", "thinker", "talker")
)
KEY = "sk-a-key-of-the-server"
LONG = "an answer of ten words that can be spoken over"

pytestmark = pytest.mark.skipif(importlib.util.find_spec("locust") is None, reason="locust is not installed")


def load(*arguments: str) -> tuple[int, Figures]:
    """Run `python -m loadtest.load`; its exit status and figures."""
    # The scripted families are found like a third party's: by import.
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "loadtest.load", "--json", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    assert result.stdout, result.stderr
    return result.returncode, msgspec.json.decode(result.stdout, type=Figures)


def rows(prefix: Path) -> dict[str, tuple[int, int]]:
    """Requests and failures by name, from the table that locust wrote."""
    with Path(f"{prefix}_stats.csv").open() as file:
        return {row["Name"]: (int(row["Request Count"]), int(row["Failure Count"])) for row in csv.DictReader(file)}


def test_two_callers_talk_to_a_server_of_the_runs_own(tmp_path: Path) -> None:
    settings = [part for one in (*SCRIPTED, f"thinker.text={LONG}") for part in ("--set", one)]
    picture, tables = tmp_path / "run.png", tmp_path / "run"
    times = ("--users", "2", "--spawn-rate", "2", "--minutes", "0.25")
    code, found = load(*times, "--plot", str(picture), *settings, "--csv", str(tables))
    assert (code, found.errors, found.refused) == (0, {}, 0)
    assert found.callers == 2
    assert found.turns >= 2
    assert found.voice_to_voice_ms is not None
    assert found.voice_to_voice_ms.n == found.turns
    assert found.stop_ms is not None  # the first user speaks over its first answer
    assert found.frame_late_ms is not None
    assert found.client.late_ms is not None
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert rows(tables)["voice to voice"] == (found.turns, 0)
    assert rows(tables)["Aggregated"][1] == 0


@pytest.mark.slow  # two servers, in real time: on a busy machine a caller may be turned away for another reason
def test_a_wrong_key_and_a_full_server_are_counted_as_what_they_are(tmp_path: Path) -> None:
    async def told(url: str, key: str) -> list[Record]:
        records: list[Record] = []

        async def tell(record: Record) -> None:
            records.append(record)

        await call(Call(0, url, key), tell)
        return records

    async def full(url: str) -> list[Record]:
        async with connect(url, additional_headers={"Authorization": f"Bearer {KEY}"}):
            return await told(url, KEY)

    with running(*SCRIPTED, "server.max_sessions=1", f"server.api_keys=[{KEY}]") as server:
        url = f"{server.ws_url}/v1/realtime"
        assert [type(one) for one in asyncio.run(full(url))] == [Refused, Closed]
        (wrong, _) = asyncio.run(told(url, "wrong"))
        assert isinstance(wrong, Failed)
        assert wrong.kind == "refused_401"
        assert "invalid_api_key" in wrong.message
        tables = tmp_path / "run"
        call_it = ("--url", url, "--key", "wrong", "--users", "1", "--minutes", "0.05", "--csv", str(tables))
        code, found = load(*call_it)
        assert (code, found.turns, found.calls, found.voice_to_voice_ms) == (1, 0, 0, None)
        count = found.errors["refused_401"]
        assert found.errors == {"refused_401": count}
        assert rows(tables)["refused_401"] == (count, count)


def test_locusts_own_refusal_of_an_option_is_shown_and_there_are_no_figures() -> None:
    command = [sys.executable, "-m", "loadtest.load", "--url", "ws://127.0.0.1:1", "--no-such-option"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert result.returncode == 1
    assert "no-such-option" in result.stderr
    assert "without figures of a whole run" in result.stderr
