"""Tests what is made of the measured times."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from loadtest.peers import pipecat_client
from loadtest.report import Load, Spread, print_figures, spread
from loadtest.voice_to_voice import Figures, Peer, Taken, Turn, figures, first_sentence_words

QUIET = Load(2, 0.1, False)


def test_a_spread_is_the_median_and_the_95th_percentile() -> None:
    assert spread([1.0]) == Spread(1.0, 1.0)
    assert spread([float(n) for n in range(101)][::-1]) == Spread(50.0, 95.0)


@pytest.mark.parametrize(
    ("answer", "count"),
    [
        ("Sure! I can help.", 1),
        ("It costs 3.5 euros. Really.", 4),
        ("No end in sight", 4),
        ("Is it?\nYes.", 2),
        ("", 0),
        ("Well... perhaps.", 1),
    ],
)
def test_the_first_sentence_is_counted_in_words(answer: str, count: int) -> None:
    assert first_sentence_words(answer) == count


def test_turns_and_the_servers_log_become_figures() -> None:
    turns = [Turn("One two. Three.", total, {"wait": 500.0, "answer": total - 500.0}) for total in (700.0, 800.0)]
    log = ["12:00 INFO s1 answers: recognizer 90 ms, thinker 70 ms, talker 60 ms", "12:01 INFO something else"]
    made = figures(Taken(turns, 1), log, QUIET)
    assert (made.n, made.unanswered) == (2, 1)
    assert made.voice_to_voice_ms == Spread(750.0, 795.0)
    assert set(made.stages_ms) == {"wait", "answer", "recognizer", "thinker", "talker"}
    assert made.stages_ms["thinker"] == Spread(70.0, 70.0)
    assert made.first_sentence_words == Spread(2.0, 2.0)
    assert set(figures(Taken(turns), [], QUIET).stages_ms) == {"wait", "answer"}


def test_without_an_answer_there_are_no_figures() -> None:
    with pytest.raises(SystemExit, match=r"no turn was answered, 3 were not: \['the last line'\]"):
        figures(Taken([], 3), ["the first", "the last line"], QUIET)


def test_a_peer_stands_in_the_figures_only_when_there_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    alone = figures(Taken([Turn("Yes.", 700.0)]), [], QUIET)
    print_figures(alone, as_json=True)
    assert "peer" not in json.loads(capsys.readouterr().out)
    beside = msgspec.structs.replace(alone, peer=Peer("other", 1, 0, Spread(1.0, 2.0), Spread(3.0, 3.0)))
    print_figures(beside, as_json=True)
    told = capsys.readouterr().out
    assert json.loads(told)["peer"]["voice_to_voice_ms"] == {"p50": 1.0, "p95": 2.0}
    assert msgspec.json.decode(told, type=Figures) == beside
    print_figures(alone, as_json=False)
    assert "voice_to_voice_ms  {'p50': 700.0, 'p95': 700.0}" in capsys.readouterr().out


def test_without_its_environment_the_peer_says_what_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipecat_client, "PYTHON", tmp_path / "bin" / "python")
    with pytest.raises(SystemExit, match="make peer-env"):
        pipecat_client.check_environment()
