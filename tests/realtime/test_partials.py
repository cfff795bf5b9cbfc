"""Tells the user's words while they are spoken, to clients that ask for it, and keeps what long turns have said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duplex_server.realtime import wire
from duplex_server.realtime.effects import Cancel, Recognize
from duplex_server.realtime.growing import GrowingText
from duplex_server.realtime.hearing import KEEP_BACK, KEEP_FROM, PARTIAL_MOST
from duplex_server.realtime.schema import INPUT_RATE_HZ
from tests.realtime.talk import Talk, texts

words = st.lists(st.sampled_from(["one", "two", "Three,", "three", "four."]), max_size=6).map(" ".join)


def eager(talk: Talk) -> Talk:
    talk.listen(transcription={"model": "whisper-1", "delay": "minimal"})
    return talk


def deltas(talk: Talk) -> str:
    return "".join(event.delta for event in talk.events(wire.TranscriptionDelta))


def test_words_are_told_once_two_passes_agree_on_them(talk: Talk) -> None:
    eager(talk).speech(1400)
    talk.recognize("it was the")
    assert deltas(talk) == ""
    talk.speech(1100)
    talk.recognize("it was the best off")
    assert deltas(talk) == "it was the"
    talk.silence()
    talk.recognize("It was the best of times.")
    completed = talk.last(wire.TranscriptionCompleted)
    assert completed.transcript == deltas(talk) == "it was the best of times."
    assert {event.item_id for event in talk.events(wire.TranscriptionDelta)} == {completed.item_id}


def test_a_client_that_did_not_ask_for_them_costs_no_partial_pass(talk: Talk) -> None:
    talk.transcribed().speech(5000)
    assert not talk.effects(Recognize)
    talk.silence()
    talk.recognize("a long sentence")
    assert not talk.events(wire.TranscriptionDelta)


def test_one_pass_runs_at_a_time_and_none_once_silence_has_begun(talk: Talk) -> None:
    eager(talk).speech(4000)
    assert len(talk.effects(Recognize)) == 1, "the second waits for the first"
    partial = talk.effects(Recognize)[0].segment
    talk.silence(250)
    assert Cancel(partial) in talk.effects(Cancel), "the pass on the whole goes first"
    assert len(talk.effects(Recognize)) == 2
    assert not talk.effects(Recognize)[1].final
    talk.silence(500)
    assert len(talk.effects(Recognize)) == 2, "and it is the final one"


def test_a_stretch_without_a_pause_gets_partials_up_to_a_bound(talk: Talk) -> None:
    eager(talk)
    for _ in range(20):
        talk.speech(1000)
        if talk.effects(Recognize):
            talk.recognize("on and on")
    longest = max(ask.segment.upto_sample - ask.from_sample for ask in talk.effects(Recognize))
    assert PARTIAL_MOST - 2 * INPUT_RATE_HZ < longest <= PARTIAL_MOST


@pytest.mark.parametrize("told", [True, False])
def test_a_long_turn_is_heard_piece_by_piece(talk: Talk, told: bool) -> None:
    (eager(talk) if told else talk.transcribed()).speech(6000)
    talk.silence(250)
    talk.recognize("we had everything before us,")
    first = talk.effects(Recognize)[-1]
    talk.speech(2000)
    if told:
        talk.recognize("we had")
    talk.silence()
    last = talk.effects(Recognize)[-1]
    assert last.from_sample == first.segment.upto_sample - KEEP_BACK, "what was heard is not heard again"
    talk.recognize("we had nothing before us.")
    whole = "we had everything before us, we had nothing before us."
    assert talk.last(wire.TranscriptionCompleted).transcript == whole
    assert texts(talk.prompt) == [whole]
    assert deltas(talk) == (whole if told else "")


def test_a_short_piece_is_heard_again_with_what_follows(talk: Talk) -> None:
    talk.transcribed().speech(KEEP_FROM * 1000 // INPUT_RATE_HZ // 2)
    talk.silence(250)
    talk.recognize("we had")
    talk.speech(2000)
    talk.silence()
    first, last = talk.effects(Recognize)[0], talk.effects(Recognize)[-1]
    assert last.from_sample == first.from_sample
    talk.recognize("we had everything")
    assert talk.last(wire.TranscriptionCompleted).transcript == "we had everything"


@given(st.lists(words, max_size=6), words)
def test_what_was_told_only_grows_and_joins_to_the_end(hypotheses: list[str], final: str) -> None:
    text = GrowingText()
    told = ""
    for hypothesis in hypotheses:
        told += text.hear(hypothesis)
        assert text.told == told
    whole, growth = text.finish(final)
    assert whole == told + growth
    if not told:
        assert whole == final


def test_a_word_that_was_told_is_not_taken_back() -> None:
    text = GrowingText()
    assert text.hear("the cat sat") == ""
    assert text.hear("the cat sat on") == "the cat sat"
    assert text.hear("a dog sat on the mat") == ""
    assert text.finish("A dog sat on the mat.") == ("the cat sat on the mat.", " on the mat.")


def test_f29_a_recognizer_slower_than_speech_has_one_pass_to_do_and_catches_up_when_it_can(talk: Talk) -> None:
    eager(talk).speech(6000)
    assert len(talk.effects(Recognize)) == 1, "six seconds of speech, and one pass waits"
    talk.recognize("once upon a")
    talk.speech(100)
    newest = talk.effects(Recognize)[-1].segment.upto_sample
    assert talk.session.input.appended - newest < INPUT_RATE_HZ // 5, "the next covers all that was said meanwhile"
    talk.silence()
    talk.recognize("Once upon a time there was a king.")
    assert texts(talk.prompt) == ["Once upon a time there was a king."]
