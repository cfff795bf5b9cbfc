"""Tests that a recorded session runs again exactly, and that a difference is found where it begins."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import msgspec
import pytest

from duplex_server.realtime import journal
from duplex_server.realtime.inputs import Tick
from duplex_server.realtime.journal import Journal, load, replay
from pipeline.errors import ConfigError
from tests.realtime.talk import DEFAULTS, Talk


def conversation() -> Talk:
    """Some of everything."""
    talk = Talk().open().transcribed()
    talk.update(
        tools=[{"type": "function", "name": "f", "parameters": {"a": [1, 2.5, "é\n"]}}], tracing={"workflow_name": "w"}
    )
    talk.frame('{"type":"session.update","session":{"tools":[{"type":"function","name":"f",\n"parameters":{\n}}]}}')
    talk.frame("not json")
    talk.say("hello")
    talk.speak(("Hi there. ", 3000), end=False)
    talk.wait(0.7)
    talk.speech()
    talk.silence()
    talk.recognize("stop")
    talk.call("call_1", "f", "{}")
    talk.end()
    return talk


def dumped(talk: Talk, path: Path) -> Path:
    talk.journal.dump(path)
    return path


def test_a_session_runs_again_exactly(tmp_path: Path) -> None:
    talk = conversation()
    ran = replay(dumped(talk, tmp_path / "s1.journal"))
    assert [effect for _, effect in ran.effects] == talk.done
    assert ran.differs_at is None
    assert ran.dropped == 0
    assert str(ran).endswith("all as recorded")
    assert len(str(ran).splitlines()) == len(talk.done) + 1


def test_another_seed_is_found_at_the_first_effect(tmp_path: Path) -> None:
    path = dumped(conversation(), tmp_path / "s1.journal")
    path.write_bytes(path.read_bytes().replace(b'"id_seed":"seed"', b'"id_seed":"seeds"', 1))
    ran = replay(path)
    assert ran.differs_at == 0
    assert "the effects of input 0 differ" in str(ran)


def test_a_session_that_acts_differently_is_found_where_it_begins_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = dumped(conversation(), tmp_path / "s1.journal")
    _, lines = load(path)
    before = [len(Talk().session.feed(given, now)) for now, given, _ in lines[:1]]
    assert before != [0]
    monkeypatch.setattr("duplex_server.realtime.playout._PIECE", 2400)
    differs_at = replay(path).differs_at
    assert differs_at is not None
    now, given, _ = lines[differs_at]
    assert type(given).__name__ == "Spoke", "the first sound"
    assert now > 0


def test_only_its_owner_reads_what_was_said(tmp_path: Path) -> None:
    path = dumped(conversation(), tmp_path / "new" / "s1.journal")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_long_journal_is_kept_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "BLOCK_BYTES", 1000)
    talk = conversation()
    assert len(list(talk.journal.lines())) > 10
    assert replay(dumped(talk, tmp_path / "s1.journal")).differs_at is None


def test_a_full_journal_ends_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "BLOCK_BYTES", 100)
    monkeypatch.setattr(journal, "MAX_BYTES", 2000)
    talk = conversation()
    assert talk.journal.dropped > 0
    ran = replay(dumped(talk, tmp_path / "s1.journal"))
    assert ran.differs_at is None, "what is there is whole"
    assert ran.dropped == talk.journal.dropped
    assert f"{ran.dropped} later inputs were not recorded" in str(ran)


def test_no_effects_check_as_nothing() -> None:
    kept = Journal(DEFAULTS)
    kept.note(1.5, Tick(), ())
    assert b"".join(kept.lines()).splitlines()[1] == b'[1.5,{"input":"tick"},0]'


@pytest.mark.parametrize(
    ("content", "where", "what"),
    [
        (b"", ":1", "first line"),
        (b"hello\n", ":1", "first line"),
        (msgspec.json.encode(journal.Header(2, DEFAULTS)) + b"\n", ":1", "version 2"),
        (
            msgspec.json.encode(journal.Header(1, DEFAULTS)) + b'\n[0,{"input":"tick"},0]\n[1,2]\n',
            ":3",
            "expected [now",
        ),
    ],
)
def test_what_is_no_journal_is_refused_by_its_line(tmp_path: Path, content: bytes, where: str, what: str) -> None:
    path = tmp_path / "bad"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert f"{path}{where}" in str(caught.value)
    assert what in str(caught.value)


def test_a_journal_that_is_not_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can't be read"):
        replay(tmp_path / "nowhere")


def test_the_first_line_is_readable_by_anybody(tmp_path: Path) -> None:
    first = dumped(conversation(), tmp_path / "s1.journal").read_bytes().splitlines()[0]
    assert json.loads(first)["config"]["stream"] == "s1"
