"""Tests what a session does when speech comes faster than it is recognized, and when it can't be listened to."""

from __future__ import annotations

import pytest

from duplex_server.realtime import wire
from duplex_server.realtime.effects import Cancel, Recognize
from duplex_server.realtime.hearing import GIVEN_UP, PASSES
from duplex_server.realtime.inputs import AudioIn, Voice
from duplex_server.realtime.meter import Meter, lasts_s
from duplex_server.realtime.schema import ErrorDetail
from pipeline.chunk import Failed, Segment
from tests.realtime.talk import FRAME_SAMPLES, RATE_HZ, Talk, texts


def crowd(talk: Talk, turns: int) -> list[Recognize]:
    """So many turns, of which nobody has heard a word; gives the pass of each."""
    passes = []
    for _ in range(turns):
        talk.speech()
        talk.silence()
        passes.append(talk.effects(Recognize)[-1])
    return passes


def place(talk: Talk, asked: Recognize) -> int:
    """Where among all passes that were asked for one stands."""
    return talk.effects(Recognize).index(asked)


def failure(talk: Talk) -> str | None:
    """Why the last response failed."""
    done = talk.last(wire.ResponseDone).response
    assert done.status == "failed"
    assert done.status_details is not None
    assert isinstance(done.status_details.error, ErrorDetail)
    return done.status_details.error.code


def test_the_turn_after_the_oldest_is_given_up_when_too_many_wait(talk: Talk) -> None:
    talk.transcribed()
    first, second, third = crowd(talk, PASSES + 1)
    items = [event.item_id for event in talk.events(wire.Committed)]
    failed = talk.events(wire.TranscriptionFailed)
    assert [event.item_id for event in failed] == [items[1]]
    assert failed[0].error.code == "overloaded"
    assert failed[0].error.message == GIVEN_UP.message
    assert talk.effects(Cancel)[-1] == Cancel(second.segment), "it is not worked on for nothing"
    assert talk.session.dropped_turns == 1
    assert talk.session.passes_waiting == PASSES
    assert items[1] in talk.session.conversation, "its item stays"
    talk.recognize("first words", place(talk, first))
    talk.recognize("third words", place(talk, third))
    assert texts(talk.prompt) == ["first words", "third words"]
    assert talk.last(wire.ResponseCreated).response.status == "in_progress", "what was heard is answered"
    talk.end()


def test_the_samples_of_a_turn_that_was_given_up_are_accounted_for(talk: Talk) -> None:
    first, _, third = crowd(talk, PASSES + 1)
    account = talk.session.input
    entries = [talk.session.conversation.get(event.item_id) for event in talk.events(wire.Committed)]
    lengths = [len(entry.input_span) for entry in entries if entry and entry.input_span]
    assert account.dropped == {"overflow": 0, "late": 0, "overloaded": lengths[1], "failed": 0}
    assert account.waiting == lengths[0] + lengths[2]
    talk.recognize("hello", place(talk, first))
    talk.recognize(Failed("stage_failed", "it broke"), place(talk, third))
    assert (account.heard, account.unheard, account.waiting) == (lengths[0], lengths[1] + lengths[2], 0)
    assert account.dropped["failed"] == lengths[2]


def test_a_client_without_transcripts_is_told_by_an_error(talk: Talk) -> None:
    crowd(talk, PASSES + 1)
    error = talk.last(wire.Error).error
    assert (error.type, error.code) == ("server_error", "overloaded")
    assert error.message.startswith(talk.events(wire.Committed)[1].item_id)


def test_under_a_load_that_lasts_the_oldest_is_heard_to_its_end_and_the_newest_follows(talk: Talk) -> None:
    talk.transcribed()
    passes = crowd(talk, 6)
    items = [event.item_id for event in talk.events(wire.Committed)]
    assert [event.item_id for event in talk.events(wire.TranscriptionFailed)] == items[1:5]
    assert [asked for asked in passes if talk.session.wants(asked.segment)] == [passes[0], passes[5]]
    talk.recognize("the first", place(talk, passes[0]))
    talk.recognize("the last", place(talk, passes[5]))
    assert talk.session.dropped_turns == 4
    talk.end()
    talk.say("and now?")
    assert talk.session.dropped_turns == 4, "the load is over"
    assert texts(talk.prompt)[-1] == "and now?"


def test_an_answer_to_words_that_are_not_known_fails_and_tells_why(talk: Talk) -> None:
    first, last = crowd(talk, 2)
    talk.recognize("hello", place(talk, first))
    talk.recognize(Failed("stage_timeout", "the recognizer hangs"), place(talk, last))
    assert failure(talk) == "stage_timeout"


def test_a_failure_of_older_words_does_not_keep_the_newest_from_being_answered(talk: Talk) -> None:
    first, last = crowd(talk, 2)
    talk.recognize(Failed("stage_timeout", "the recognizer hangs"), place(talk, first))
    talk.recognize("are you there?", place(talk, last))
    assert texts(talk.prompt) == ["are you there?"]
    talk.end()
    assert talk.last(wire.ResponseDone).response.status == "completed"


def test_a_response_that_waits_for_words_that_are_given_up_fails(talk: Talk) -> None:
    talk.by_hand()
    for _ in range(PASSES):
        talk.append(RATE_HZ)
        talk.ask("input_audio_buffer.commit")
    talk.ask("response.create")
    talk.append(RATE_HZ)
    talk.ask("input_audio_buffer.commit")
    assert failure(talk) == "overloaded"


def test_no_words_are_told_while_somebody_speaks_as_long_as_others_are_waited_for(talk: Talk) -> None:
    talk.listen(transcription={"model": "whisper-1", "delay": "minimal"})
    (first,) = crowd(talk, 1)
    talk.speech(3000)
    assert talk.effects(Recognize)[-1] == first, "a pass that the final one repeats can be spared"
    talk.recognize("hello")
    talk.speech(100)
    assert talk.effects(Recognize)[-1] != first


# ---- sound that nobody listens to ---------------------------------------------------------------------------------


def late(talk: Talk, samples: int) -> None:
    """So much sound goes by the detector."""
    talk.feed(AudioIn(talk.session.input.appended, samples, late=True))
    talk._frame_from = talk.session.input.appended


def test_late_sound_outside_of_a_turn_is_dropped_and_the_silence_before_it_is_silence(talk: Talk) -> None:
    talk.silence(320)
    account = talk.session.input
    kept = account.pending
    assert kept
    late(talk, 5 * RATE_HZ)
    assert account.dropped["late"] == 5 * RATE_HZ
    assert account.discarded_for("silence") == account.appended - 5 * RATE_HZ
    assert account.pending == 0
    talk.say("and now?")
    assert texts(talk.prompt) == ["and now?"]
    talk.end()


def test_late_sound_within_a_turn_belongs_to_it(talk: Talk) -> None:
    talk.speech(320)
    late(talk, 5 * RATE_HZ)
    talk.speech(320)
    talk.silence()
    assert talk.session.input.dropped["late"] == 0
    assert talk.session.input.committed > 5 * RATE_HZ
    talk.recognize("a long sentence")
    talk.end()


def test_a_turn_ends_after_late_sound_when_it_goes_on_in_silence(talk: Talk) -> None:
    talk.speech(320)
    late(talk, 5 * RATE_HZ)
    start = talk.session.input.appended
    talk.feed(AudioIn(start, FRAME_SAMPLES))
    talk.feed(Voice(start, start + FRAME_SAMPLES, 0.02))
    assert talk.events(wire.Committed)
    assert isinstance(talk.effects(Recognize)[-1].segment, Segment)
    talk.recognize("hello")
    talk.end()


# ---- the meter ----------------------------------------------------------------------------------------------------


def test_who_sends_in_real_time_is_never_ahead() -> None:
    meter = Meter()
    for frame in range(500):
        now = 10.0 + frame * 0.02
        assert meter.arrived(480, now) == pytest.approx(now)


def test_who_sends_at_once_is_ahead_by_what_was_sent() -> None:
    meter = Meter()
    second_s = lasts_s(RATE_HZ)
    assert [meter.arrived(RATE_HZ, 10.0) for _ in range(4)] == pytest.approx([10.0 + n * second_s for n in range(4)])
    assert meter.arrived(RATE_HZ, 11.0) == pytest.approx(10.0 + 4 * second_s)


def test_a_pause_gives_no_credit() -> None:
    meter = Meter()
    meter.arrived(RATE_HZ, 10.0)
    assert [meter.arrived(RATE_HZ, 600.0) for _ in range(2)] == pytest.approx([600.0, 600.0 + lasts_s(RATE_HZ)])
