"""Tests when a stage that fails is tried again, and when it counts as broken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.breaker import Breaker


def breaker() -> Breaker:
    return Breaker(failures=3, window_s=100.0, steady_s=60.0, first_s=0.1, most_s=10.0)


def test_the_wait_doubles_up_to_the_most() -> None:
    record = Breaker(failures=1000, first_s=0.1, most_s=1.0)
    waits = []
    for now in range(6):
        record.failed(float(now))
        waits.append(record.wait_s)
    assert waits == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])


def test_failures_in_a_short_while_break_it_and_it_is_tried_seldom() -> None:
    record = breaker()
    for now in (0.0, 1.0):
        record.failed(now)
        assert not record.broken(now)
    record.failed(2.0)
    assert record.broken(2.0)
    assert record.wait_s == 10.0


def test_failures_far_apart_do_not_break_it() -> None:
    record = breaker()
    for now in (0.0, 70.0, 140.0, 210.0):
        record.failed(now)
        assert not record.broken(now)


def test_coming_up_does_not_mend_it_and_staying_up_does() -> None:
    record = breaker()
    for now in (0.0, 1.0, 2.0):
        record.failed(now)
    record.came_up(10.0)
    assert record.broken(69.9)
    assert not record.broken(70.0)
    record.failed(71.0)
    assert not record.broken(71.0)
    assert record.wait_s == pytest.approx(0.1)


def test_one_that_fails_on_probation_is_broken_still() -> None:
    record = breaker()
    for now in (0.0, 1.0, 2.0):
        record.failed(now)
    record.came_up(300.0)
    record.failed(320.0)
    assert record.broken(320.0)
    assert record.wait_s == 10.0


@given(st.lists(st.tuples(st.booleans(), st.floats(0.0, 50.0))))
def test_it_is_broken_only_after_so_many_failures_within_the_window(story: list[tuple[bool, float]]) -> None:
    """Against the rule, said plainly: the failures since the last steady time."""
    record, now, failures, up_since, broken = breaker(), 0.0, list[float](), None, False
    for fails, wait_s in story:
        now += wait_s
        if up_since is not None and now - up_since >= 60.0:
            failures, broken = [], False
        if fails:
            record.failed(now)
            up_since = None
            failures.append(now)
            broken = broken or sum(1 for one in failures[-3:] if now - one <= 100.0) == 3
        else:
            record.came_up(now)
            up_since = now
        assert record.broken(now) == broken
        assert 0.0 < record.wait_s <= 10.0
