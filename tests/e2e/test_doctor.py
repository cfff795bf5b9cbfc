"""Runs the doctor as a user does, on the real models."""

from __future__ import annotations

import json
import subprocess

from tests.e2e.server import ROOT, command


def test_the_default_models_understand_each_other() -> None:
    ended = subprocess.run(
        command("doctor", "--json", "--set", "server.port=0"),
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    report = json.loads(ended.stdout)
    assert report["works"] is True
    assert report["trip"]["agreement"] == 1.0
    assert report["trip"]["speech_ms"] > 1000
    assert all(report["trip"][name] > 0 for name in ("talker_first_ms", "recognizer_ms", "thinker_first_ms"))
    licences = {part["name"]: part["licence"] for stage in report["stages"] for part in stage["parts"]}
    assert licences["piper-tts"] == "GPL-3.0-or-later"
    assert not [one for one in report["advice"] if one["fatal"]]
