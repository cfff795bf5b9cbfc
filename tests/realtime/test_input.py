"""Tests the input audio buffer: every sample is pending, committed or discarded for a reason."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duplex_server.realtime import wire
from duplex_server.realtime.effects import Cancel, Recognize
from duplex_server.realtime.input_buffer import DiscardReason, InputBuffer, Span
from duplex_server.realtime.inputs import AudioIn
from duplex_server.realtime.listening import MAX_PENDING_S
from tests.realtime.talk import CASES, RATE_HZ, Talk, kinds, texts

COMMITTED = ["input_audio_buffer.committed", "conversation.item.added", "conversation.item.done"]


def test_check_070_an_append_is_not_acknowledged(talk: Talk) -> None:
    talk.by_hand()
    told = len(talk.told)
    talk.append(2400)
    assert len(talk.told) == told
    assert talk.session.input.pending == 2400


def test_check_073_f12_a_commit_of_nothing_is_an_error_and_no_item(talk: Talk) -> None:
    talk.by_hand()
    talk.ask("input_audio_buffer.commit", event_id="mine")
    error = talk.last(wire.Error).error
    assert (error.code, error.event_id) == ("input_audio_buffer_commit_empty", "mine")
    assert "0 ms" in error.message
    assert not list(talk.session.conversation)


def test_check_073_f12_commit_of_99_ms_fails_and_of_100_ms_succeeds(talk: Talk) -> None:
    talk.by_hand()
    talk.append(2399)
    assert kinds(talk.ask("input_audio_buffer.commit")) == ["error"]
    assert talk.session.input.pending == 2399, "what is too short is kept"
    talk.append(1)
    assert kinds(talk.ask("input_audio_buffer.commit")) == COMMITTED
    assert talk.session.input.committed == 2400


def test_check_074_a_commit_by_hand_makes_an_item_and_no_answer(talk: Talk) -> None:
    talk.by_hand()
    talk.append(RATE_HZ)
    assert kinds(talk.ask("input_audio_buffer.commit")) == COMMITTED
    talk.recognize("hello")
    talk.wait(5)
    assert not talk.events(wire.ResponseCreated)


def test_check_076_clearing_an_empty_buffer_is_confirmed(talk: Talk) -> None:
    assert kinds(talk.ask("input_audio_buffer.clear")) == ["input_audio_buffer.cleared"]


def test_a_cleared_buffer_holds_nothing(talk: Talk) -> None:
    talk.by_hand()
    talk.append(RATE_HZ)
    talk.ask("input_audio_buffer.clear")
    assert kinds(talk.ask("input_audio_buffer.commit")) == ["error"]
    assert talk.session.input.discarded_for("cleared") == RATE_HZ


def test_check_083_a_commit_in_mid_speech_takes_the_announced_id_and_stops_nothing(talk: Talk) -> None:
    talk.speech()
    assert kinds(talk.ask("input_audio_buffer.commit")) == COMMITTED
    assert talk.last(wire.Committed).item_id == talk.last(wire.SpeechStarted).item_id
    assert not talk.events(wire.SpeechStopped)
    talk.silence()
    assert not talk.events(wire.SpeechStopped), "the turn is over already"
    talk.speech()
    assert talk.last(wire.SpeechStarted).item_id != talk.last(wire.Committed).item_id


def test_a_commit_of_what_a_turn_has_committed_already_is_the_same_error(talk: Talk) -> None:
    talk.say("hello")
    talk.silence(500)
    assert talk.session.input.pending > 2400
    assert kinds(talk.ask("input_audio_buffer.commit")) == ["error"]
    assert talk.errors == ["input_audio_buffer_commit_empty"]
    talk.end()


def test_clearing_in_mid_speech_forgets_the_turn(talk: Talk) -> None:
    talk.speech(500)
    talk.sound(256, 0.02)
    early = talk.effects(Recognize)[-1].segment
    told = kinds(talk.ask("input_audio_buffer.clear"))
    assert told == ["input_audio_buffer.speech_stopped", "input_audio_buffer.cleared"], "no speech stays open"
    assert talk.effects(Cancel)[-1].fence == early
    talk.recognize("never")
    assert talk.silence() == []
    assert not list(talk.session.conversation)


def test_a_turn_that_waited_for_the_one_after_it_is_answered_when_that_is_cleared(talk: Talk) -> None:
    talk.speech()
    talk.silence()
    talk.speech()
    talk.recognize("what is the time?")
    assert not talk.events(wire.ResponseCreated), "the user speaks"
    talk.ask("input_audio_buffer.clear")
    assert texts(talk.prompt) == ["what is the time?"]
    talk.end()


def test_f15_sound_that_is_never_committed_takes_no_more_than_its_bound(talk: Talk) -> None:
    talk.by_hand()
    for _ in range(40):
        talk.append(60 * RATE_HZ)
    assert talk.session.input.pending == MAX_PENDING_S * RATE_HZ
    assert talk.session.input.discarded_for("overflow") == 10 * 60 * RATE_HZ
    assert talk.errors == ["invalid_value"], "told once, not with every frame"
    assert kinds(talk.ask("input_audio_buffer.commit")) == COMMITTED


def test_f15_half_an_hour_of_silence_is_let_go_as_it_comes(talk: Talk) -> None:
    for _ in range(30):
        talk.silence(60_000)
        assert talk.session.input.pending < RATE_HZ
    assert talk.errors == []


def test_a_turn_longer_than_the_buffer_is_recognized_from_where_it_is_still_held(talk: Talk) -> None:
    talk.speech(320)
    talk.feed(AudioIn(talk.session.input.appended, (MAX_PENDING_S + 60) * RATE_HZ))
    floor = talk.session.input_floor
    assert floor > 0
    talk.ask("input_audio_buffer.commit")
    assert talk.effects(Recognize)[-1].from_sample == floor


# ---- the ledger alone ---------------------------------------------------------------------------------------------

reasons: st.SearchStrategy[DiscardReason] = st.sampled_from(["silence", "cleared", "overflow"])
positions = st.integers(-1000, 60_000)
appends = st.tuples(st.just("append"), st.integers(0, 20_000), reasons)
commits = st.tuples(st.just("commit"), positions, reasons)
discards = st.tuples(st.just("discard"), positions, reasons)


@CASES
@given(st.lists(st.one_of(appends, commits, discards), max_size=40))
def test_every_sample_is_accounted_for(operations: list[tuple[str, int, DiscardReason]]) -> None:
    buffer = InputBuffer()
    spans: list[Span] = []
    for operation, samples, reason in operations:
        start, gone = buffer.start, buffer.discarded_for(reason)
        match operation:
            case "append":
                buffer.append(samples)
            case "commit":
                span = buffer.commit(samples)
                assert span.start == start
                assert span.stop == buffer.start
                spans.append(span)
            case _:
                buffer.discard(samples, reason)
                assert buffer.discarded_for(reason) - gone == buffer.start - start
        assert start <= buffer.start <= buffer.appended
        assert buffer.committed + buffer.discarded + buffer.pending == buffer.appended
    assert sum(map(len, spans)) == buffer.committed
    assert all(one.stop <= other.start for one, other in pairwise(spans))


@pytest.mark.parametrize("upto_sample", [-5, 0, 100, 900])
def test_a_commit_takes_no_more_than_there_is(upto_sample: int) -> None:
    buffer = InputBuffer()
    buffer.append(500)
    buffer.discard(100, "silence")
    span = buffer.commit(upto_sample)
    assert span == Span(100, 500 if upto_sample == 900 else 100)
