"""Tests that trouble in a stage reaches the one it is about, and that the engine goes on."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

from pipeline import host, supervise
from pipeline.chunk import (
    Chunk,
    End,
    Failed,
    Segment,
)
from pipeline.engine import Engine
from pipeline.errors import StageError
from pipeline.spec import OptionValue, Placement
from tests.pipeline.scenes import (
    SCRIPTED,
    ask,
    cascade,
    load_family,
    play,
    quiet,
    running,
    settled,
    until,
)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short patience, for tests of what happens when it runs out."""
    monkeypatch.setattr(host, "HANG_GRACE_S", 0.05)
    monkeypatch.setattr(host, "ACK_S", 0.2)


def test_a_pass_that_is_too_long_fails_for_capacity_later(placement: Placement) -> None:
    async def scene() -> None:
        async with running(cascade(placement)) as (engine, heard):
            fence = Segment("s", 99, 1)
            long = np.zeros(10_000_000, np.int16)
            engine.transcribe(fence, long, 24_000, final=True, language=None, prompt=None)
            assert not heard.chunks
            failure = await heard.last(fence, "recognizer")
            assert isinstance(failure, Failed)
            assert failure.kind == "capacity"
            assert "10000000 samples for one pass" in failure.message
            await settled(engine)

    play(scene)


@pytest.mark.parametrize(("words", "kind"), [("please raise", "stage_failed"), ("please refuse", "stage_failed")])
def test_a_stage_that_raises_lives(placement: Placement, words: str, kind: str) -> None:
    async def scene() -> None:
        async with running(cascade(placement)) as (engine, heard):
            reply = ask(engine, 1, words)
            failure = await heard.last(reply, "thinker")
            assert isinstance(failure, Failed)
            assert failure.kind == kind
            assert failure.message in ("ValueError: it was asked to raise", "it was asked to refuse")
            assert await heard.last(reply, "talker") == End()  # it speaks what was written, and ends
            assert engine.ready
            assert await heard.last(ask(engine, 2, "say hello"), "talker") == End()

    play(scene)


@pytest.mark.parametrize(("words", "how"), [("please exit", "exited with status 3"), ("please abort", "SIGABRT")])
def test_a_stage_that_dies_is_brought_back(words: str, how: str) -> None:
    async def scene() -> None:
        async with running(cascade("process")) as (engine, heard):
            reply = ask(engine, 1, words)
            other = ask(engine, 2, "please stall")
            for fence in (reply, other):
                failure = await heard.last(fence, "thinker")
                assert isinstance(failure, Failed)
                assert failure.kind == "stage_lost"
                assert how in failure.message
            following = ask(engine, 3, "say hello")  # it waits for the respawn
            assert await heard.last(following, "talker") == End()
            await quiet(engine)

    play(scene)


def test_a_talker_that_dies_is_brought_back() -> None:
    async def scene() -> None:
        async with running(cascade("process", talker={"dies_at": "ouch"})) as (engine, heard):
            reply = ask(engine, 1, "say well ouch")
            failure = await heard.last(reply, "talker")
            assert isinstance(failure, Failed)
            assert failure.kind == "stage_lost"
            following = ask(engine, 2, "say hello there")
            assert await heard.last(following, "talker") == End()
            assert heard.captions(following) == "hello there"

    play(scene)


def test_a_job_does_not_wait_for_ever_for_a_stage_that_stays_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "HOLD_S", 0.1)
    monkeypatch.setattr(supervise, "BACKOFF_FIRST_S", 1000.0)
    monkeypatch.setattr(supervise, "BACKOFF_MOST_S", 1000.0)

    async def scene() -> None:
        async with running(cascade("process")) as (engine, heard):
            await heard.last(ask(engine, 1, "please exit"), "thinker")
            failure = await heard.last(ask(engine, 2, "say hello"), "thinker")
            assert isinstance(failure, Failed)
            assert failure.kind == "stage_lost"

    play(scene)


@pytest.mark.usefixtures("hasty")
def test_a_process_that_hangs_is_killed_and_brought_back() -> None:
    async def scene() -> None:
        async with running(cascade("process", thinker={"bound_ms": 100})) as (engine, heard):
            failure = await heard.last(ask(engine, 1, "please hang"), "thinker")
            assert isinstance(failure, Failed)
            assert failure.kind == "stage_timeout"
            assert await heard.last(ask(engine, 2, "say hello"), "talker") == End()

    play(scene)


@pytest.mark.usefixtures("hasty")
def test_a_process_that_ignores_a_cancel_is_killed(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "HANG_GRACE_S", 1000.0)  # so that the cancel's own deadline is what runs out

    async def scene() -> None:
        async with running(cascade("process", thinker={"bound_ms": 100})) as (engine, heard):
            reply = ask(engine, 1, "please hang at once")
            await until(lambda: engine._stages["thinker"].live[0].busy)
            engine.cancel(reply)
            await until(lambda: not engine.ready)
            following = ask(engine, 2, "say hello")
            assert await heard.last(following, "talker") == End()
            assert {c.fence for c in heard.chunks} == {following}

    play(scene)
    assert "did not let go of a cancelled job" in caplog.text


@pytest.mark.usefixtures("hasty")
def test_a_thread_that_hangs_is_reported_and_works_on_when_it_returns() -> None:
    async def scene() -> None:
        async with running(cascade("inline", thinker={"bound_ms": 100, "hang_s": 1.0})) as (engine, heard):
            failure = await heard.last(ask(engine, 1, "please hang"), "thinker")
            assert isinstance(failure, Failed)
            assert failure.kind == "stage_timeout"
            assert not engine.ready
            refused = await heard.last(ask(engine, 2, "say hello"), "thinker")
            assert isinstance(refused, Failed)
            assert engine._lanes.free == 2
            await until(lambda: engine.ready)
            assert await heard.last(ask(engine, 3, "say hello"), "talker") == End()

    play(scene)


def test_a_failing_start_names_the_stage_and_leaves_nothing(placement: Placement) -> None:
    async def scene() -> None:
        engine = Engine(cascade(placement, recognizer={"fails_to_load": True}), load_family, cores=2)
        with pytest.raises(StageError, match=r"recognizer \(tests.families.scripted.recognizer\).*file is missing"):
            await engine.start(lambda line: None)
        assert not engine.ready

    play(scene)


@pytest.mark.parametrize("role", ["recognizer", "thinker", "talker"])
def test_an_unknown_option_is_refused(role: Literal["recognizer", "thinker", "talker"]) -> None:
    options: dict[str, dict[str, OptionValue]] = {role: {"colour": "blue"}}

    async def scene() -> None:
        spec = cascade(
            "process",
            recognizer=options.get("recognizer"),
            thinker=options.get("thinker"),
            talker=options.get("talker"),
        )
        with pytest.raises(StageError, match=f"{role}.*colour"):
            await Engine(spec, load_family, cores=2).start(lambda line: None)

    play(scene)


def test_stop_in_the_middle_of_everything_leaves_nothing(placement: Placement) -> None:
    async def scene() -> None:
        async with running(cascade(placement, thinker={"bound_ms": 60_000})) as (engine, heard):
            ask(engine, 1, "please go on", max_tokens=1_000_000)
            reply = ask(engine, 2, "please wait")
            await heard.until(lambda c: c.fence == reply)
            assert not engine.quiet

    play(scene)


def test_a_stream_that_fails_to_take_a_chunk_harms_no_other() -> None:
    def refuse(chunk: Chunk) -> None:
        raise RuntimeError("a bug in a session")

    async def scene() -> None:
        async with running(cascade("inline")) as (engine, heard):
            engine.open("t", refuse)
            ask(engine, 1, "please go on", stream="t", max_tokens=1_000_000)
            assert await heard.last(ask(engine, 1, "say hello"), "talker") == End()
            await quiet(engine)

    play(scene)


def test_a_served_talker_is_refused() -> None:
    async def scene() -> None:
        engine = Engine(cascade("inline", talker_family=f"{SCRIPTED}.served"), load_family, cores=2)
        with pytest.raises(StageError, match=r"talker.*it is a thinker"):
            await engine.start(lambda line: None)

    play(scene)
