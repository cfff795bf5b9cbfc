"""Tests the arbiter of the cores."""

from __future__ import annotations

import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import StageError
from pipeline.lanes import CoreTokens, Lanes, machine_cores

DEADLINE_S = 10.0


def test_the_earlier_deadline_goes_first() -> None:
    tokens = CoreTokens(1)
    tokens.ask("late", 1, 9.0, 0.0)
    tokens.ask("soon", 1, 5.0, 0.0)
    assert tokens.grant(0.0) == ("soon",)
    assert tokens.grant(0.0) == ()
    tokens.release("soon")
    assert tokens.grant(0.0) == ("late",)


def test_as_many_compute_at_once_as_there_are_cores() -> None:
    tokens = CoreTokens(3)
    for who, threads in (("a", 2), ("b", 1), ("c", 1)):
        tokens.ask(who, threads, 0.0, 0.0)
    assert tokens.grant(0.0) == ("a", "b")
    assert tokens.free == 0


def test_a_step_that_wants_more_than_there_are_gets_all() -> None:
    tokens = CoreTokens(2)
    tokens.ask("wide", 8, 0.0, 0.0)
    assert tokens.grant(0.0) == ("wide",)
    assert tokens.free == 0


def test_a_wide_step_is_not_starved_by_narrow_ones() -> None:
    tokens = CoreTokens(2)
    tokens.ask("narrow", 1, 0.0, 0.0)
    tokens.grant(0.0)
    tokens.ask("wide", 2, 1.0, 0.0)
    tokens.ask("later", 1, 2.0, 0.0)
    assert tokens.grant(0.0) == ()  # "later" would fit, but would keep "wide" waiting
    tokens.release("narrow")
    assert tokens.grant(0.0) == ("wide",)


def test_nobody_is_overtaken_for_longer_than_the_bound() -> None:
    tokens = CoreTokens(1, starve_s=2.0)
    tokens.ask("batch", 1, 1000.0, 0.0)
    tokens.ask("live", 1, 1.9, 1.9)
    assert tokens.grant(1.9) == ("live",)
    tokens.release("live")
    tokens.ask("live", 1, 2.0, 2.0)
    assert tokens.grant(2.0) == ("batch",)


@given(
    st.integers(1, 4),
    st.lists(
        st.one_of(
            st.tuples(st.just("ask"), st.integers(0, 5), st.integers(1, 6), st.floats(0, 9)),
            st.tuples(st.just("release"), st.integers(0, 5), st.just(0), st.just(0.0)),
        )
    ),
)
def test_no_core_is_granted_twice_and_all_come_back(cores: int, script: list[tuple[str, int, int, float]]) -> None:
    tokens = CoreTokens(cores)
    asked: set[str] = set()
    held: set[str] = set()
    for now, (what, number, threads, due) in enumerate(script):
        who = str(number)
        if what == "release":
            tokens.release(who)
            asked.discard(who)
            held.discard(who)
        elif who not in asked | held:
            tokens.ask(who, threads, due, now)
            asked.add(who)
        granted = set(tokens.grant(now))
        assert granted <= asked
        asked -= granted
        held |= granted
        assert 0 <= tokens.free <= cores
        assert held or not asked, "somebody waits while nobody computes"
    for who in asked | held:
        tokens.release(who)
    assert tokens.free == cores


def test_a_thread_waits_for_its_turn() -> None:
    lanes = Lanes(1)
    order: list[str] = []
    entered = threading.Event()

    def second() -> None:
        entered.set()
        with lanes.held("second", 1, 0.0, DEADLINE_S):
            order.append("second")

    thread = threading.Thread(target=second)
    with lanes.held("first", 1, 0.0):
        thread.start()
        assert entered.wait(DEADLINE_S)
        order.append("first")
    thread.join(DEADLINE_S)
    assert order == ["first", "second"]
    assert lanes.free == 1


def test_a_wait_has_a_deadline_and_leaves_nothing() -> None:
    lanes = Lanes(1)
    with lanes.held("hung", 1, 0.0):
        with pytest.raises(StageError, match="got no core") as caught, lanes.held("other", 1, 0.0, 0.01):
            pytest.fail("it was let in")
        assert caught.value.kind == "stage_timeout"
        lanes.release("hung")  # a hung step is written off
        with lanes.held("other", 1, 0.0, DEADLINE_S):
            assert lanes.free == 0
    assert lanes.free == 1


def test_a_step_that_raises_gives_its_cores_back() -> None:
    lanes = Lanes(2)
    with pytest.raises(RuntimeError, match="model"), lanes.held("x", 2, 0.0):
        raise RuntimeError("model")
    assert lanes.free == 2


def test_the_machine_has_the_cores_it_may_use() -> None:
    assert 1 <= machine_cores() <= (os.cpu_count() or 1)


def test_no_cores_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one core"):
        CoreTokens(0)
