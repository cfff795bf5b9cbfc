"""Tests which moments of a session are counted and timed, and that nothing else is."""

from __future__ import annotations

import json
from typing import TypeVar

import pytest

from duplex_server.realtime import wire
from duplex_server.realtime.effects import Effect
from duplex_server.realtime.inputs import Event, Input
from duplex_server.realtime.milestones import FirstAudio, Milestone, Milestones, Replied, Silenced, Truncated
from pipeline.chunk import Failed
from tests.realtime.conftest import OpenTalk
from tests.realtime.story import STORY
from tests.realtime.talk import FRAME_S, Talk
from tests.realtime.test_responses import OUT_OF_BAND, respond

M = TypeVar("M", FirstAudio, Replied, Silenced, Truncated)
ONSET_S = 3 * FRAME_S  # the detector's frames that make the 90 ms of an onset


def watched(talk: Talk) -> list[Milestone]:
    """The milestones that a session reaches from now on."""
    milestones, reached = Milestones(), list[Milestone]()
    feed = talk.session.feed

    def noting(given: Input, now: float) -> tuple[Effect, ...]:
        effects = feed(given, now)
        reached.extend(milestones.note(now, given, effects, talk.session.speech_began))
        return effects

    talk.session.feed = noting  # type: ignore[method-assign]  # to look over its shoulder
    return reached


def of(reached: list[Milestone], kind: type[M]) -> list[M]:
    return [one for one in reached if isinstance(one, kind)]


def answers(reached: list[Milestone]) -> list[tuple[str, str, float]]:
    return [(one.turn_id, one.cause, round(one.seconds, 6)) for one in of(reached, FirstAudio)]


def test_an_answer_counts_from_the_end_of_the_speech(talk: Talk) -> None:
    reached = watched(talk)
    item_id = talk.say("what time is it?")
    talk.wait(0.4)
    talk.speak(("It is noon.", 1000))
    talk.wait(3.0)
    (first,) = of(reached, FirstAudio)
    assert (first.turn_id, first.cause) == (item_id, "speech")
    # The silence that `say` adds ends the turn after 500 ms, and goes on to 700.
    assert first.seconds == pytest.approx(0.4 + 0.2, abs=2 * FRAME_S)
    assert of(reached, Replied) == [Replied("completed")]


def test_a_written_request_counts_from_the_request(talk: Talk) -> None:
    reached = watched(talk)
    talk.wait(5.0)
    response_id = respond(talk)
    talk.wait(0.25)
    talk.speak(("Good day.", 500))
    assert answers(reached) == [(response_id, "request", 0.25)]


def test_speech_that_was_not_answered_counts_for_no_later_request(talk: Talk) -> None:
    talk.listen(turn_detection={"type": "server_vad", "create_response": False})
    reached = watched(talk)
    talk.say("not for you")
    talk.wait(60.0)
    response_id = respond(talk)
    talk.speak(("Good day.", 500))
    assert answers(reached) == [(response_id, "request", 0.0)]


def test_a_turn_that_was_gone_on_with_counts_from_its_last_end(talk: Talk) -> None:
    reached = watched(talk)
    talk.speech()
    talk.silence()
    talk.wait(2.0)
    talk.speech()
    talk.silence()
    newest = talk.last(wire.Committed).item_id
    talk.recognize("and the other one", at=-1)
    talk.recognize("the one", at=0)
    talk.speak(("Both.", 500))
    (first,) = of(reached, FirstAudio)
    assert first.turn_id == newest
    assert first.seconds < 1.0, "not from the first of the two"


def test_an_answer_that_is_cut_before_its_first_sound_counts_for_none(talk: Talk) -> None:
    reached = watched(talk)
    talk.say("what time is it?")
    talk.speech()
    talk.silence()
    newest = talk.last(wire.Committed).item_id
    talk.recognize("no, what day is it?")
    talk.speak(("Monday.", 500))
    assert [one.turn_id for one in of(reached, FirstAudio)] == [newest]


def test_each_of_two_answers_at_once_counts_for_itself(talk: Talk) -> None:
    reached = watched(talk)
    first = respond(talk)
    one = talk.reply
    talk.wait(1.0)
    beside = respond(talk, **OUT_OF_BAND)
    talk.wait(0.5)
    talk.audio(200)
    talk.audio(200, reply=one)
    talk.audio(200, reply=one)
    assert answers(reached) == [(beside, "request", 0.5), (first, "request", 1.5)]


def test_an_answer_beside_the_conversation_does_not_take_the_turn_of_the_next_one(talk: Talk) -> None:
    reached = watched(talk)
    talk.speech()
    talk.silence()
    beside = respond(talk, **OUT_OF_BAND)
    talk.audio(200)
    talk.recognize("what time is it?")
    talk.speak(("It is noon.", 1000))
    assert [one[:2] for one in answers(reached)] == [
        (beside, "request"),
        (talk.last(wire.Committed).item_id, "speech"),
    ]


def test_nothing_is_kept_of_answers_that_are_over(talk: Talk) -> None:
    milestones = Milestones()

    def note(kind: str, **fields: object) -> None:
        at, given = len(talk.done), Event(_decoded(kind, fields))
        talk.feed(given)
        milestones.note(talk.now, given, tuple(talk.done[at:]), 0.0)

    note("response.create", response={"output_modalities": ["text"]})
    assert milestones.waiting == 1
    note("response.cancel")
    assert milestones.waiting == 0


def _decoded(kind: str, fields: dict[str, object]) -> wire.AnyClientEvent:
    event = wire.decode(json.dumps({"type": kind, **fields}))
    assert not isinstance(event, wire.Fault)
    return event


def test_a_barge_in_counts_from_the_first_voiced_sound(talk: Talk) -> None:
    reached = watched(talk)
    talk.say("a story please")
    talk.speak(*STORY, end=False)
    talk.wait(1.0)
    talk.speech()
    (one,) = of(reached, Silenced)
    assert one.turn_id == talk.last(wire.SpeechStarted).item_id
    assert one.seconds == pytest.approx(ONSET_S)
    assert of(reached, Replied) == [Replied("cancelled")]


def test_a_barge_in_in_doubt_counts_until_it_was_believed(talk: Talk) -> None:
    reached = watched(talk)
    talk.say("a story please")
    talk.speak(*STORY, end=False)
    talk.wait(1.0)
    talk.speech()
    talk.recognize("a king who had a cat")  # our own words: from now on speech over us is in doubt
    talk.silence()
    talk.recognize("Once upon a time")
    talk.speak(*STORY, end=False)
    talk.wait(1.0)
    before = len(of(reached, Silenced))
    began = talk.now
    talk.speech(2000)
    assert len(of(reached, Silenced)) == before, "it is in doubt"
    talk.recognize("stop that now please")
    (one,) = of(reached, Silenced)[before:]
    assert one.seconds == pytest.approx(talk.now - began)


def test_speech_into_silence_cuts_nothing(talk: Talk) -> None:
    reached = watched(talk)
    talk.say("hello")
    assert not of(reached, Silenced)


def test_a_cancel_by_the_client_is_no_barge_in(talk: Talk) -> None:
    reached = watched(talk)
    respond(talk)
    talk.speak(*STORY, end=False)
    talk.ask("response.cancel")
    assert of(reached, Replied) == [Replied("cancelled")]
    assert not of(reached, Silenced)


def test_failures_and_truncations_are_counted(talk: Talk) -> None:
    reached = watched(talk)
    respond(talk)
    talk.speak(*STORY)
    talk.wait(10.0)
    item_id = talk.last(wire.OutputItemDone).item.id
    talk.ask("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=100)
    talk.ask("conversation.item.truncate", item_id="unknown", content_index=0, audio_end_ms=100)
    respond(talk)
    talk.chunk("thinker", Failed("stage_failed", "it broke"))
    talk.end("talker")
    assert of(reached, Replied) == [Replied("completed"), Replied("failed")]
    assert of(reached, Truncated) == [Truncated()], "one that was refused is none"


def test_a_far_side_that_runs_dry_is_counted_once_a_gap(open_talk: OpenTalk) -> None:
    talk = open_talk(client_buffer_ms=100)
    respond(talk)
    talk.audio(1000)
    talk.wait(1.05)
    talk.audio(1000)  # in time: the client still plays its buffer
    assert talk.session.underruns == 0
    talk.wait(1.2)
    talk.audio(1000)
    talk.wait(5.0)
    talk.audio(1000)
    talk.audio(1000)
    assert talk.session.underruns == 2
    talk.end()
    talk.wait(5.0)
    respond(talk)
    talk.audio(1000)
    assert talk.session.underruns == 2, "between two answers nothing is missed"
