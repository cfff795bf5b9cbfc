"""Holds the running server, with its real models, against the protocol by the conformance command."""

from __future__ import annotations

import json

import pytest

from duplex_server.cli import main
from duplex_server.conformance.elsewhere import ELSEWHERE
from tests.e2e.server import running

KEY = "sk-for-the-checks"
MCP_REFUSED = 69


@pytest.mark.timeout(600)  # it speaks and listens in real time for minutes
def test_the_command_passes_every_check_that_applies(capsys: pytest.CaptureFixture[str]) -> None:
    with running("session.max_reply_tokens=48", f'server.api_keys=["{KEY}"]') as server:
        code = main(["conformance", f"{server.ws_url}/v1/realtime", "--key", KEY, "--json"])
    report = json.loads(capsys.readouterr().out)
    assert {one["number"]: one["detail"] for one in report["checks"] if one["status"] == "failed"} == {}
    left = {one["number"] for one in report["checks"] if one["status"] == "not_applicable"}
    assert left == {*ELSEWHERE, MCP_REFUSED}
    assert sorted(ELSEWHERE) == [
        *(10, 12, 21, 22, 23, 30, 31, 32, 33, 34, 37, 94, 125, 136),
        *range(155, 165),
        *range(171, 180),
        *range(181, 197),
    ]
    assert report["passed"] == 197 - len(left)
    assert code == 0
