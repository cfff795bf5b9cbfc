"""Tests what is made of the records of a load test."""

from __future__ import annotations

import msgspec
import pytest

from loadtest.load.figures import CLIENT_LATE_MS, Figures, Tail, figures, open_calls, spoilt, table, tail
from loadtest.load.records import Answered, Closed, Failed, Heard, Opened, Record, Refused, Spoke, Stopped
from loadtest.report import Load

QUIET = Load(2, 0.1, False)
RECORDS: list[Record] = [
    Opened(0, 10.0, 20.0),
    Opened(1, 11.0, 30.0),
    Refused(2, 11.0),
    Closed(2, 11.0, 10.0),  # it never opened
    Answered(0, 12.0, 700.0),
    Answered(1, 13.0, 800.0),
    Stopped(1, 14.0, 150.0),
    Heard(0, 15.0, [-100.0, 40.0]),
    Heard(1, 16.0, [-300.0]),
    Spoke(0, 16.0, 3.0),
    Closed(0, 17.0, 2.0),
    Failed(1, 18.0, "lost", "first"),
    Failed(1, 18.0, "lost", "second"),
    Failed(1, 18.0, "cut", "other"),
    Closed(1, 18.0, 2.0),
]


def test_records_become_figures() -> None:
    found = figures(RECORDS, 60.04, QUIET)
    assert (found.seconds, found.callers, found.calls, found.refused, found.turns) == (60.0, 2, 2, 1, 2)
    assert found.voice_to_voice_ms == Tail(2, 750.0, 795.0, 799.0, 800.0)
    assert found.stop_ms == Tail(1, 150.0, 150.0, 150.0, 150.0)
    assert found.frame_late_ms is not None
    assert (found.frame_late_ms.n, found.frame_late_ms.p50, found.underruns) == (3, -100.0, 1)
    assert found.errors == {"lost": 2, "cut": 1}
    assert found.examples == {"lost": "first", "cut": "other"}
    assert msgspec.json.decode(msgspec.json.encode(found), type=Figures) == found


def test_records_come_in_any_order_as_workers_hand_them_over() -> None:
    assert open_calls(reversed(RECORDS)) == [(10.0, 1), (11.0, 2), (17.0, 1), (18.0, 0)]


def test_a_run_without_a_turn_has_figures_too() -> None:
    found = figures([], 1.0, QUIET)
    assert (found.turns, found.callers, found.voice_to_voice_ms, found.errors) == (0, 0, None, {})
    assert not found.client.late
    assert "voice to voice, ms           -" in table(found)


def test_the_99th_percentile_is_where_one_in_a_hundred_is_worse() -> None:
    assert tail([float(n) for n in range(101)][::-1]) == Tail(101, 50.0, 95.0, 99.0, 100.0)


@pytest.mark.parametrize(("late_ms", "is_late"), [(CLIENT_LATE_MS, False), (CLIENT_LATE_MS + 1, True)])
def test_a_client_that_was_late_marks_the_run(late_ms: float, is_late: bool) -> None:
    found = figures([*RECORDS, *(Spoke(0, 16.0, late_ms) for _ in range(100))], 60.0, QUIET)
    assert found.client.late is is_late
    assert bool(spoilt(found)) is is_late
    assert ("NOT TO BE QUOTED: the client was late" in table(found)) is is_late


def test_a_busy_machine_marks_the_run() -> None:
    assert "0.9 of 2 cores" in table(figures(RECORDS, 60.0, Load(2, 0.9, True)))


def test_the_table_tells_errors_with_an_example() -> None:
    told = table(figures(RECORDS, 60.0, QUIET))
    assert "2 x lost: first" in told
    assert "2 turns in 2 calls, at most 2 at once, in 60 s" in told
    assert "1 calls refused (503), 1 underruns, 3 errors" in told
    assert "NOT TO BE QUOTED" not in told
