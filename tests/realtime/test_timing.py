"""Measures turns in virtual time, as the log tells them."""

from __future__ import annotations

from duplex_server.realtime.effects import Effect
from duplex_server.realtime.inputs import Input
from duplex_server.realtime.timing import Split, TurnClock
from tests.realtime.talk import Talk


def timed(talk: Talk) -> list[Split]:
    """The splits of the answers that are given from now on."""
    clock, splits = TurnClock(), list[Split]()
    feed = talk.session.feed

    def noting(given: Input, now: float) -> tuple[Effect, ...]:
        effects = feed(given, now)
        if (split := clock.note(now, given, effects)) is not None:
            splits.append(split)
        return effects

    talk.session.feed = noting  # type: ignore[method-assign]  # to look over its shoulder
    return splits


def test_an_answer_is_timed_from_the_end_of_its_turn(talk: Talk) -> None:
    splits = timed(talk)
    talk.speech()
    talk.silence()
    talk.wait(0.2)
    talk.recognize("what time is it?")
    talk.wait(0.1)
    talk.write("It")
    talk.wait(0.3)
    talk.speak(("It is noon.", 1000))
    assert len(splits) == 1
    assert splits[0].recognizer_ms >= 200
    assert str(splits[0]).endswith("thinker 100 ms, talker 300 ms")
    talk.wait(3.0)


def test_what_was_done_while_we_waited_counts_as_nothing(talk: Talk) -> None:
    splits = timed(talk)
    talk.speech()
    talk.silence(250)
    talk.recognize("what time is it?")
    talk.write("It")
    talk.speak(("It is noon.", 1000))
    talk.silence(500)
    assert splits == [Split(0, 0, 0)]
    talk.wait(3.0)
