"""Tests the doctor on scripted models: a healthy pipeline, and what it says when something is missing or poor."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import Sequence

import msgspec
import pytest

from duplex_server.cli import main
from duplex_server.config import load_config
from duplex_server.doctor import ENGINES, Advice, Report, Stage, examine, lines, remarks
from duplex_server.machine import Machine
from duplex_server.round_trip import RoundTrip, agreement

COUNTED = "One, two, three, four!"
ROLES = ("detector", "recognizer", "thinker", "talker")
# The talker speaks a word in half a second, the recognizer counts half seconds.
SCRIPTED = (*(f"{role}.family=tests.families.scripted.{role}" for role in ROLES), "talker.word_ms=500", "server.port=0")
HEALTHY = Machine("Linux 6 x86_64", "3.11.7", "python", 2, 0.0, (), "glibc 2.36", 8000, 9000)
GOOD = RoundTrip("Hello.", "hello", 1.0, 900.0, 80.0, 90.0, 100.0, 110.0)


def look(*settings: str, said: str = COUNTED) -> Report:
    config = load_config(None, (*SCRIPTED, *settings))
    return asyncio.run(examine(config, said))


def fatal(report: Report) -> list[str]:
    return [one.text for one in report.advice if one.fatal]


def test_a_scripted_pipeline_makes_the_round_trip() -> None:
    report = look("session.instructions=Be brief.")
    assert report.works
    assert fatal(report) == []
    assert report.trip_problem is None
    assert report.trip is not None
    assert (report.trip.said, report.trip.heard) == (COUNTED, "one two three four")
    assert (report.trip.agreement, report.trip.speech_ms) == (1.0, 2000.0)
    assert 0 < report.trip.talker_first_ms <= report.trip.talker_ms
    assert report.trip.recognizer_ms > 0
    assert report.trip.thinker_first_ms > 0
    assert [stage.role for stage in report.stages] == list(ROLES)
    assert all(stage.capabilities for stage in report.stages)
    assert report.session is not None
    assert report.session.transcription_model == report.stages[1].capabilities.model  # type: ignore[union-attr]  # seen above
    assert report.session.max_output_tokens == 400
    assert (report.session.noise_reduction, report.session.include) == ((), ())
    told = "\n".join(lines(report))
    assert "heard      one two three four (100 % of the words)" in told
    assert told.endswith("a conversation works here")


def test_words_that_do_not_come_through_are_told() -> None:
    report = look(said="How do you do?")
    assert report.works
    assert any("the recognizer heard 'one two three four'" in one.text for one in report.advice)


def test_a_recognizer_that_hears_nothing_is_fatal() -> None:
    report = look("recognizer.level=30000")
    assert not report.works
    assert "it heard nothing" in fatal(report)[0]


@pytest.mark.parametrize(
    ("settings", "telling"),
    [
        (("recognizer.fails_to_load=true",), "recognizer .*the model file is missing"),
        (
            ("thinker.text=word", "thinker.placement=process", "talker.dies_at=two", "talker.placement=process"),
            "talker",
        ),
    ],
    ids=["not loaded", "dies"],
)
def test_a_stage_that_fails_is_named(settings: Sequence[str], telling: str) -> None:
    report = look(*settings, said="one two three")
    assert not report.works
    assert report.trip is None
    assert re.search(telling, fatal(report)[0])


def test_a_missing_model_does_not_hide_the_rest() -> None:
    """As without an extra: the model's package is not installed."""
    report = look("recognizer.family=whisper", "recognizer.source=package:no-such-model/x")
    assert not report.works
    assert report.trip is None
    (told,) = fatal(report)
    assert told.startswith("recognizer: ")
    assert "pip install no-such-model" in told
    recognizer = report.stages[1]
    assert recognizer.capabilities is None
    assert recognizer.parts[0].name == "faster-whisper"
    assert report.stages[2].capabilities is not None
    assert report.session is None, "nobody can say what such a pipeline honours"
    text = "\n".join(lines(report))
    assert "models.whisper (inline): not usable" in text
    assert "round trip: not tried" in text
    assert text.endswith("a conversation would not work here")


def test_an_engine_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both of a stage's engines are told at once, with what installs them."""
    monkeypatch.setattr("duplex_server.doctor._version", lambda name: None if name in ENGINES else "1.0")
    report = look("recognizer.family=whisper")
    assert not report.works
    (told,) = fatal(report)
    assert told.startswith("recognizer: it needs faster-whisper and ctranslate2, not installed here: make serve")


def test_a_distribution_that_is_not_installed_is_shown_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duplex_server.doctor.DISTRIBUTIONS", ("msgspec", "no-such-distribution"))
    report = look()
    assert report.works  # nothing of the configured pipeline needs it
    assert report.distributions == {"msgspec": msgspec.__version__, "no-such-distribution": None}
    assert any("no-such-distribution" in line and "not installed" in line for line in lines(report))


def test_a_taken_port_is_fatal() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        report = look(f"server.port={port}")
    assert not report.works
    assert f"port {port} on 127.0.0.1 is taken" in fatal(report)[0]


@pytest.mark.parametrize(
    ("machine", "telling"),
    [
        ({"cores": 1}, "1 core: the default models need 2"),
        ({"load_1m": 1.5}, "in the last minute 1.5 programs at a time wanted the 2 cores"),
        ({"libc": "glibc 2.17"}, "glibc 2.17 is older than 2.28"),
        ({"memory_free_mb": 300}, "300 MB of memory are free"),
        ({"disk_free_mb": 10}, "10 MB are free on the disk"),
    ],
)
def test_a_poor_machine_is_told(machine: dict[str, object], telling: str) -> None:
    poor = msgspec.structs.replace(HEALTHY, **machine)
    (one,) = remarks(poor, (), None, GOOD, None)
    assert one == Advice(False, one.text)
    assert one.text.startswith(telling)


@pytest.mark.parametrize("libc", ["", "musl", "glibc 2.28", "glibc 2.41"])
def test_a_good_machine_needs_no_advice(libc: str) -> None:
    good = msgspec.structs.replace(HEALTHY, libc=libc, memory_free_mb=None, missing_instructions=None)
    assert remarks(good, (), None, GOOD, None) == ()


@pytest.mark.parametrize(
    ("trip", "telling"),
    [
        ({"talker_ms": 1000.0}, "talker: it takes 1000 ms for 900 ms of speech"),
        ({"thinker_first_ms": 4000.0}, "an answer would begin about 4180 ms .*, most of it the thinker's"),
        ({"recognizer_ms": 4000.0}, "most of it the recognizer's"),
    ],
)
def test_a_slow_stage_is_named(trip: dict[str, object], telling: str) -> None:
    (one,) = remarks(HEALTHY, (), None, msgspec.structs.replace(GOOD, **trip), None)
    assert not one.fatal
    assert re.search(telling, one.text)


def test_a_trip_that_was_not_tried_is_no_second_complaint() -> None:
    broken = (Stage("talker", "models.piper", "process", problem="no voice"),)
    assert remarks(HEALTHY, broken, None, None, "not tried") == (Advice(True, "talker: no voice"),)
    assert remarks(HEALTHY, (), None, None, "it died") == (Advice(True, "it died"),)


def test_words_agree_whatever_their_dress() -> None:
    assert agreement("What is the capital?", "what IS the capital") == 1.0
    assert agreement("What is the capital?", "What was the capital") == 0.75
    assert agreement("What is?", "") == 0.0
    assert agreement("", "noise") == 0.0


def test_the_command_prints_one_object_and_its_code_tells(capsys: pytest.CaptureFixture[str]) -> None:
    flags = [part for setting in SCRIPTED for part in ("--set", setting)]
    assert main(["doctor", "--json", *flags]) == 0
    report = json.loads(capsys.readouterr().out)  # the scripted thinker prints while it loads
    assert report["works"] is True
    assert report["port"] == {"host": "127.0.0.1", "port": 0, "problem": None}
    assert main(["doctor", *flags, "--set", "recognizer.fails_to_load=true"]) == 1
    assert "MISSING: recognizer" in capsys.readouterr().out
    assert main(["doctor", "--set", "thinker.familly=x"]) == 2
    assert "did you mean 'family'?" in capsys.readouterr().err
