"""Tests when batch work must wait for a live answer, in virtual time."""

from __future__ import annotations

from pipeline.chunk import Reply, Segment
from pipeline.gate import DECIDE_S, WINDOW_S, Gate

PASS, NEXT_PASS = Segment("s", 1, 100), Segment("s", 2, 200)
REPLY = Reply("s", 1)


def test_it_is_closed_from_the_end_of_speech_to_the_first_sound() -> None:
    gate = Gate()
    assert not gate.closed(0.0)
    assert gate.deadline() is None
    gate.begin(PASS, 1.0)
    assert gate.closed(1.0)
    gate.understood(PASS, 1.2)
    assert gate.closed(1.5)  # the answer has not begun: the speaker may go on
    gate.begin(REPLY, 1.7)
    assert gate.closed(1.2 + DECIDE_S)
    gate.end(REPLY)
    assert not gate.closed(1.9)
    assert gate.deadline() is None


def test_words_that_nobody_answers_hold_nothing_up_for_long() -> None:
    gate = Gate()
    gate.begin(PASS, 0.0)
    gate.understood(PASS, 1.0)
    assert gate.deadline() == 1.0 + DECIDE_S
    assert gate.closed(0.99 + DECIDE_S)
    assert not gate.closed(1.0 + DECIDE_S)
    assert gate.deadline() is None


def test_a_pass_that_heard_nothing_opens_it_at_once() -> None:
    gate = Gate()
    gate.begin(PASS, 0.0)
    gate.end(PASS)
    assert not gate.closed(0.1)


def test_the_words_of_a_partial_pass_close_nothing() -> None:
    gate = Gate()
    gate.understood(PASS, 0.0)
    assert not gate.closed(0.0)


def test_an_answer_that_never_comes_is_not_waited_for() -> None:
    gate = Gate()
    gate.begin(REPLY, 5.0)
    gate.begin(REPLY, 14.0)  # asking again does not wait longer
    assert gate.deadline() == 5.0 + WINDOW_S
    assert gate.closed(4.99 + WINDOW_S)
    assert not gate.closed(5.0 + WINDOW_S)


def test_each_of_many_holds_it() -> None:
    gate = Gate()
    other = Reply("t", 1)
    gate.begin(REPLY, 0.0)
    gate.begin(other, 1.0)
    gate.end(REPLY)
    assert gate.closed(2.0)
    assert gate.deadline() == 1.0 + WINDOW_S
    gate.end(other)
    gate.end(other)
    assert not gate.closed(2.0)


def test_a_new_pass_takes_the_place_of_words_without_an_answer() -> None:
    gate = Gate()
    gate.begin(PASS, 0.0)
    gate.understood(PASS, 0.2)
    gate.begin(NEXT_PASS, 0.5)
    gate.end(NEXT_PASS)
    assert not gate.closed(0.6)


def test_a_stream_that_is_over_holds_nothing() -> None:
    gate = Gate()
    gate.begin(PASS, 0.0)
    gate.understood(PASS, 0.1)
    gate.begin(Segment("s", 3, 1), 0.1)
    gate.understood(Segment("s", 3, 1), 0.2)
    gate.begin(Reply("t", 1), 0.2)
    gate.forget("s")
    assert gate.closed(0.3)
    gate.end(Reply("t", 1))
    assert not gate.closed(0.3)
