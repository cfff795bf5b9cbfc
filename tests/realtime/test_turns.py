"""Tests when a turn of the user begins and ends, and what of the input belongs to it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duplex_server.realtime import wire
from duplex_server.realtime.effects import Begin, Cancel, Recognize
from duplex_server.realtime.inputs import AudioIn, Voice
from duplex_server.realtime.schema import ErrorDetail, SemanticVad, ServerVad
from duplex_server.realtime.turns import (
    ManualTurns,
    Paused,
    Resumed,
    Started,
    Stopped,
    TurnEvent,
    VadTurns,
    policy,
)
from duplex_server.realtime.wire import AnyServerEvent
from pipeline.chunk import Failed
from tests.realtime.conftest import OpenTalk
from tests.realtime.talk import CASES, FRAME_SAMPLES, RATE_HZ, Talk, kinds, texts

TURN = [
    "input_audio_buffer.speech_stopped",
    "input_audio_buffer.committed",
    "conversation.item.added",
    "conversation.item.done",
]


def ms(samples: int) -> int:
    return samples * 1000 // RATE_HZ


def frames(turns: VadTurns, *stretches: tuple[int, float]) -> list[TurnEvent]:
    """What a policy makes of stretches of (frames, probability)."""
    events, at = [], 0
    for count, probability in stretches:
        for _ in range(count):
            event = turns.observe(Voice(at, at + FRAME_SAMPLES, probability))
            events += [event] if event else []
            at += FRAME_SAMPLES
    return events


def test_check_044_turns_end_by_silence_unless_asked_otherwise(talk: Talk) -> None:
    detection = talk.last(wire.SessionCreated).session.audio.input.turn_detection
    assert detection == ServerVad(
        threshold=0.5, prefix_padding_ms=300, silence_duration_ms=500, create_response=True, interrupt_response=True
    )


def test_check_045_semantic_turns_are_echoed_with_their_defaults(talk: Talk) -> None:
    talk.listen(turn_detection={"type": "semantic_vad"})
    detection = talk.last(wire.SessionUpdated).session.audio.input.turn_detection
    assert detection == SemanticVad(eagerness="auto", create_response=True, interrupt_response=True)


def test_check_046_without_turn_detection_speech_means_nothing(talk: Talk) -> None:
    talk.by_hand()
    assert talk.last(wire.SessionUpdated).session.audio.input.turn_detection is None
    assert talk.speech(2000) + talk.silence(2000) == []
    assert ManualTurns().observe(Voice(0, FRAME_SAMPLES, 1.0)) is None


def test_check_077_a_turn_has_one_item_id_from_its_first_event_on(talk: Talk) -> None:
    started = talk.speech()
    ended = talk.silence()
    assert kinds(started) == ["input_audio_buffer.speech_started"]
    assert kinds(ended) == TURN
    added = talk.last(wire.ItemAdded).item.id
    assert talk.last(wire.SpeechStarted).item_id == talk.last(wire.SpeechStopped).item_id == added
    assert talk.last(wire.Committed).item_id == added


def test_check_078_f3_the_first_syllables_are_kept_with_the_padding_before_them(talk: Talk) -> None:
    talk.silence(2000)
    onset = talk.session.input.appended
    talk.speech(400)
    floor = talk.session.input_floor
    assert floor == onset - 300 * RATE_HZ // 1000, "300 ms before the first voiced sample"
    assert talk.last(wire.SpeechStarted).audio_start_ms == ms(floor)
    talk.silence()
    assert talk.effects(Recognize)[-1].from_sample == floor


def test_check_078_padding_is_cut_where_the_session_began(talk: Talk) -> None:
    talk.speech(400)
    assert talk.last(wire.SpeechStarted).audio_start_ms == 0


def test_f3_the_first_syllables_of_a_barge_in_are_kept(talk: Talk) -> None:
    talk.say("hello")
    talk.speak(("I could go on for a long while. ", 4000))
    talk.silence(500)
    onset = talk.session.input.appended
    talk.speech(500)
    assert talk.session.input_floor == onset - 300 * RATE_HZ // 1000
    talk.silence()
    entry = talk.session.conversation.get(talk.last(wire.Committed).item_id)
    assert entry is not None
    assert entry.input_span is not None
    assert entry.input_span.start <= onset < entry.input_span.stop


@pytest.mark.parametrize("padding_ms", [0, 100, 1000])
def test_f3_the_padding_is_what_the_client_asked_for(talk: Talk, padding_ms: int) -> None:
    talk.listen(turn_detection={"type": "server_vad", "prefix_padding_ms": padding_ms})
    talk.silence(3000)
    onset = talk.session.input.appended
    talk.speech(400)
    assert talk.session.input_floor == onset - padding_ms * RATE_HZ // 1000


def test_check_079_times_are_whole_and_grow_from_turn_to_turn(talk: Talk) -> None:
    turns: list[tuple[int, int]] = []
    for words in ("one", "two", "three"):
        talk.say(words)
        talk.end()
        turns.append((talk.last(wire.SpeechStarted).audio_start_ms, talk.last(wire.SpeechStopped).audio_end_ms))
    assert all(type(at) is int for turn in turns for at in turn)
    assert all(start < end for start, end in turns)
    assert all(end <= start for (_, end), (start, _) in pairwise(turns))


@pytest.mark.parametrize("speed", [0.5, 1.0, 10.0])
def test_check_080_times_follow_the_sound_however_fast_it_is_sent(talk: Talk, speed: float) -> None:
    talk.sound(1024, 0.02, speed=speed)
    talk.sound(640, 0.9, speed=speed)
    talk.sound(640, 0.02, speed=speed)
    assert talk.last(wire.SpeechStarted).audio_start_ms == 1024 - 300
    assert talk.last(wire.SpeechStopped).audio_end_ms == 1024 + 640 + 512, "the first frame past 500 ms of silence"


def test_check_081_a_commit_names_the_item_before_it(talk: Talk) -> None:
    first = talk.say("one")
    talk.end()
    second = talk.say("two")
    assert [event.previous_item_id for event in talk.events(wire.Committed)] == [None, first]
    assert talk.session.conversation.last_id == second


def test_check_082_turns_back_to_back_do_not_overlap(talk: Talk) -> None:
    for _ in range(4):
        talk.speech(300)
        talk.silence(520)
    seen = [kind for kind in kinds(talk.told) if "speech" in kind]
    assert seen == ["input_audio_buffer.speech_started", "input_audio_buffer.speech_stopped"] * 4


def test_check_084_a_turn_is_kept_unanswered_if_the_client_answers_itself(talk: Talk) -> None:
    talk.listen(turn_detection={"type": "server_vad", "create_response": False})
    talk.say("hello")
    talk.wait(5)
    assert talk.events(wire.Committed)
    assert not talk.events(wire.ResponseCreated)


def test_check_085_f2_speech_over_a_reply_that_may_not_be_interrupted_is_answered_after_it(talk: Talk) -> None:
    talk.listen(turn_detection={"type": "server_vad", "interrupt_response": False})
    talk.say("tell me a story")
    talk.speak(("Once upon a time there was a king. ", 5000))
    first = talk.last(wire.ResponseCreated).response.id
    item_id = talk.say("and a queen")
    assert not talk.events(wire.ResponseDone), "the reply goes on"
    assert item_id in talk.session.conversation
    talk.wait(6)
    assert talk.last(wire.ResponseDone).response.id == first
    assert talk.last(wire.ResponseDone).response.status == "completed"
    assert kinds(talk.told[-1:]) == ["response.created"]
    assert talk.last(wire.ResponseCreated).response.id != first
    assert texts(talk.prompt) == ["tell me a story", "Once upon a time there was a king. ", "and a queen"]
    talk.end()


def test_check_085_turns_over_such_a_reply_are_answered_once_and_not_at_all_if_the_client_is_first(talk: Talk) -> None:
    talk.listen(turn_detection={"type": "server_vad", "interrupt_response": False})
    talk.say("tell me a story")
    talk.speak(("Once upon a time there was a king. ", 9000), end=False)
    talk.say("and a queen")
    talk.say("and a cat")
    talk.ask("response.create", event_id="early")
    assert talk.errors == ["conversation_already_has_active_response"]
    talk.ask("response.cancel")
    talk.ask("response.create", response={"metadata": {"by": "client"}})
    talk.end()
    talk.wait(20)
    created = [event.response.metadata for event in talk.events(wire.ResponseCreated)]
    assert created == [None, {"by": "client"}], "the automatic answer was dropped"


def test_check_086_with_both_off_there_are_only_turns(talk: Talk) -> None:
    talk.listen(turn_detection={"type": "server_vad", "create_response": False, "interrupt_response": False})
    talk.ask("response.create")
    talk.speak(("Four seconds of speech. ", 4000), end=False)
    talk.speech()
    talk.silence()
    assert talk.events(wire.Committed)
    assert not talk.events(wire.ResponseDone)
    assert not talk.effects(Cancel)
    talk.end()
    talk.wait(5)
    assert len(talk.events(wire.ResponseCreated)) == 1


def test_check_087_low_noise_is_no_speech(talk: Talk) -> None:
    assert talk.sound(30_000, 0.45) == []
    assert talk.session.input.pending <= 600 * RATE_HZ // 1000, "nothing is kept but what a turn may still need"


def test_a_click_is_no_speech(talk: Talk) -> None:
    for _ in range(10):
        assert talk.sound(64, 0.99) + talk.silence(200) == []


def test_check_090_turning_detection_off_in_mid_speech_keeps_what_was_said(talk: Talk) -> None:
    talk.speech(800)
    announced = talk.last(wire.SpeechStarted).item_id
    talk.by_hand()
    talk.sound(500, 0.9)
    assert kinds(talk.ask("input_audio_buffer.commit"))[0] == "input_audio_buffer.committed"
    assert talk.last(wire.Committed).item_id == announced
    assert talk.session.input.committed == talk.session.input.appended
    assert not talk.events(wire.SpeechStopped)


def test_detection_that_comes_back_in_mid_speech_ends_the_turn_that_is_open(talk: Talk) -> None:
    talk.speech(800)
    talk.by_hand()
    talk.listen(turn_detection={"type": "server_vad", "silence_duration_ms": 300})
    assert kinds(talk.silence()) == TURN
    assert talk.last(wire.SpeechStopped).item_id == talk.last(wire.SpeechStarted).item_id


def test_words_after_a_change_of_detection_in_a_pause_are_recognized_too(talk: Talk) -> None:
    talk.speech(500)
    talk.sound(300, 0.02)
    early = talk.effects(Recognize)[-1].segment
    talk.listen(turn_detection={"type": "server_vad", "silence_duration_ms": 100})
    assert talk.effects(Cancel)[-1].fence == early
    talk.speech(500)
    talk.silence(200)
    last = talk.effects(Recognize)[-1]
    assert last.final
    assert last.segment.upto_sample == talk.session.input.committed


def test_a_second_pass_over_the_same_stretch_has_a_fence_of_its_own(talk: Talk) -> None:
    talk.speech()
    while not talk.effects(Recognize):
        talk.silence(32)
    talk.ask("input_audio_buffer.commit")
    first, second = talk.effects(Recognize)
    assert (first.from_sample, first.segment.upto_sample) == (second.from_sample, second.segment.upto_sample)
    assert Cancel(first.segment) in talk.effects(Cancel)
    assert second.segment != first.segment, "the first is still being cancelled when the second begins"


def test_a_pause_inside_a_turn_does_not_end_it(talk: Talk) -> None:
    talk.speech(500)
    talk.sound(400, 0.02)
    talk.speech(500)
    assert not talk.events(wire.SpeechStopped)
    passes = talk.effects(Recognize)
    assert [(one.final, one.segment.number) for one in passes] == [(False, 1)]
    assert talk.effects(Cancel)[-1].fence == passes[0].segment, "the pass on half of the turn is of no use"
    talk.silence()
    assert talk.effects(Recognize)[-1].segment.upto_sample > passes[0].segment.upto_sample


def test_f5_a_short_word_is_answered_as_soon_as_a_long_turn(talk: Talk) -> None:
    waits = []
    for length_ms in (288, 3008):
        talk.silence(1000)
        talk.speech(length_ms)
        voiced_upto, asked = talk.session.input.appended, len(talk.effects(Recognize))
        talk.silence(256)
        assert len(talk.effects(Recognize)) == asked + 1, "its transcript is begun while the silence is counted"
        talk.recognize("yeah")
        talk.silence()
        waits.append(talk.last(wire.SpeechStopped).audio_end_ms - ms(voiced_upto))
        assert isinstance(talk.effects(Begin)[-1], Begin)
        assert texts(talk.prompt)[-1] == "yeah"
        talk.end()
    assert waits == [512, 512]


def test_a_turn_without_words_is_not_answered(talk: Talk) -> None:
    talk.say("")
    talk.wait(5)
    assert not talk.events(wire.ResponseCreated)


def test_a_turn_without_words_is_answered_where_the_server_is_told_to(open_talk: OpenTalk) -> None:
    talk = open_talk(answer_empty=True)
    talk.say("")
    assert talk.events(wire.ResponseCreated)
    talk.end()


def test_two_turns_whose_words_are_late_are_answered_once(talk: Talk) -> None:
    talk.speech()
    talk.silence()
    talk.speech()
    talk.silence()
    first, second = (one for one in talk.effects(Recognize))
    assert first.segment != second.segment
    talk.recognize("two", at=1)
    assert not talk.events(wire.ResponseCreated), "the first words are still to come"
    talk.recognize("one", at=0)
    assert len(talk.events(wire.ResponseCreated)) == 1
    assert texts(talk.prompt) == ["one", "two"]
    talk.end()


def test_a_turn_that_nobody_could_transcribe_fails_its_answer_and_says_why(talk: Talk) -> None:
    talk.speech()
    talk.silence()
    talk.recognize(Failed("stage_timeout", "no answer in 10 s"))
    done = talk.last(wire.ResponseDone).response
    assert done.status == "failed"
    assert done.status_details is not None
    assert done.status_details.error == ErrorDetail(
        type="server_error", code="stage_timeout", message="no answer in 10 s"
    )
    talk.say("again")
    assert texts(talk.prompt) == ["again"], "the session goes on"
    talk.end()


# ---- the policy alone ---------------------------------------------------------------------------------------------


def test_an_onset_counts_voiced_sound_across_the_gaps_of_consonants() -> None:
    events = frames(VadTurns(0.5, 500), (5, 0.1), (1, 0.9), (1, 0.3), (2, 0.9))
    assert events == [Started(5 * FRAME_SAMPLES)]


def test_an_onset_starts_anew_after_a_gap() -> None:
    events = frames(VadTurns(0.5, 500), (1, 0.9), (2, 0.1), (3, 0.9))
    assert events == [Started(3 * FRAME_SAMPLES)]


def test_speech_goes_on_at_a_lower_probability_than_it_began_with() -> None:
    turns = VadTurns(0.5, 500)
    assert len(frames(turns, (4, 0.9), (50, 0.36))) == 1
    assert turns.speaking
    assert not frames(VadTurns(0.5, 500), (50, 0.36))


def test_a_turn_is_started_paused_resumed_and_stopped() -> None:
    events = frames(VadTurns(0.5, 500), (4, 0.9), (8, 0.0), (1, 0.9), (17, 0.0))
    assert [type(event) for event in events] == [Started, Paused, Resumed, Paused, Stopped]


def test_a_silence_shorter_than_the_first_guess_ends_the_turn_without_a_pause() -> None:
    events = frames(VadTurns(0.5, 100), (4, 0.9), (8, 0.0))
    assert [type(event) for event in events] == [Started, Stopped]


def test_a_reset_forgets_an_open_turn() -> None:
    turns = policy(ServerVad())
    assert isinstance(turns, VadTurns)
    frames(turns, (4, 0.9))
    turns.reset()
    assert not turns.speaking
    assert frames(turns, (30, 0.0)) == []
    manual = policy(None)
    manual.reset()
    assert not manual.speaking


# ---- however it is cut --------------------------------------------------------------------------------------------

sounds = st.lists(st.tuples(st.integers(1, 30), st.sampled_from([0.02, 0.3, 0.4, 0.6, 0.95])), min_size=1, max_size=12)


def _heard(stretches: list[tuple[int, float]], pieces: list[int]) -> list[tuple[str, object]]:
    """The turns of some sound that arrives cut into pieces of so many samples, over and over."""
    talk = Talk().open()
    talk.listen(turn_detection={"type": "server_vad", "create_response": False})
    probabilities = [probability for count, probability in stretches for _ in range(count)]
    total, at, frame, piece = len(probabilities) * FRAME_SAMPLES, 0, 0, 0
    while at < total:
        samples = min(pieces[piece % len(pieces)], total - at)
        talk.feed(AudioIn(at, samples))
        at, piece = at + samples, piece + 1
        while (frame + 1) * FRAME_SAMPLES <= at:
            talk.feed(Voice(frame * FRAME_SAMPLES, (frame + 1) * FRAME_SAMPLES, probabilities[frame]))
            frame += 1
    spans = [entry.input_span for entry in talk.session.conversation]
    return [*map(_when, talk.told), *(("span", span) for span in spans)]


def _when(event: AnyServerEvent) -> tuple[str, object]:
    match event:
        case wire.SpeechStarted(audio_start_ms=at) | wire.SpeechStopped(audio_end_ms=at):
            return type(event).__name__, at
        case _:
            return type(event).__name__, None


@CASES
@given(sounds, st.lists(st.integers(101, 5000), min_size=1, max_size=5))
def test_turns_do_not_depend_on_how_the_sound_was_cut(stretches: list[tuple[int, float]], pieces: list[int]) -> None:
    assert _heard(stretches, pieces) == _heard(stretches, [FRAME_SAMPLES])
