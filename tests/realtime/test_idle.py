"""Tests that a user who says nothing is asked, once what was said to them has been heard, and only then."""

from __future__ import annotations

import pytest

from duplex_server.realtime import wire
from duplex_server.realtime.effects import Recognize
from duplex_server.realtime.idle import IN_A_ROW, silence_note
from duplex_server.realtime.schema import InputAudio, Message
from pipeline.chunk import Failed
from tests.realtime.conftest import OpenTalk
from tests.realtime.talk import RATE_HZ, Talk, kinds, texts
from tests.realtime.test_responses import respond

IDLE_S = 6.0
TIMED_OUT = [
    "input_audio_buffer.timeout_triggered",
    "input_audio_buffer.committed",
    "conversation.item.added",
    "conversation.item.done",
]


@pytest.fixture
def patient(open_talk: OpenTalk) -> Talk:
    talk = open_talk()
    talk.listen(turn_detection={"type": "server_vad", "idle_timeout_ms": 6000})
    return talk


def answered(talk: Talk, ms: int = 3000) -> float:
    """An answer of that length is made and sent; gives when it will have been heard."""
    talk.say("hello")
    starts = talk.now
    talk.speak(("Hello to you. ", ms))
    return starts + 0.1 + ms / 1000  # the client's buffer


def timeouts(talk: Talk) -> int:
    return len(talk.events(wire.TimeoutTriggered))


def test_check_088_the_timeout_fires_once_the_answer_was_heard_and_the_silence_is_answered(patient: Talk) -> None:
    heard_at = answered(patient)
    patient.silence(1000)
    assert patient.silence(7000) == []
    assert patient.now < heard_at + IDLE_S
    told: list[wire.AnyServerEvent] = []
    while not told:
        told = patient.silence(32)
    assert kinds(told) == [*TIMED_OUT, "response.created"]
    assert heard_at + IDLE_S <= patient.now < heard_at + IDLE_S + 0.033
    fired = patient.last(wire.TimeoutTriggered)
    item = patient.last(wire.ItemDone).item
    assert fired.item_id == patient.last(wire.Committed).item_id == item.id
    assert 0 <= patient.session.input.appended * 1000 // RATE_HZ - fired.audio_end_ms <= 32
    assert fired.audio_end_ms - fired.audio_start_ms == pytest.approx(6000, abs=40)
    assert isinstance(item, Message)
    assert item.content == (InputAudio(transcript=None),)
    assert texts(patient.prompt) == ["hello", "Hello to you. ", silence_note(6)]
    patient.speak(("Are you still there? ", 1000))
    assert timeouts(patient) == 1


def test_the_session_asks_for_a_tick_when_the_silence_is_over(patient: Talk) -> None:
    heard_at = answered(patient)
    patient.wait(4.0)
    assert patient.session.deadline() == pytest.approx(heard_at + IDLE_S)
    assert kinds(patient.wait(7.0))[:1] == TIMED_OUT[:1], "no sound has to come"
    patient.end()


def test_nobody_is_asked_before_anything_was_said(patient: Talk) -> None:
    assert patient.silence(20_000) == []


def test_the_silence_has_no_words_and_asks_for_no_pass(patient: Talk) -> None:
    patient.listen(transcription={"model": "whisper-1"})
    answered(patient)
    passes = len(patient.effects(Recognize))
    patient.silence(10_000)
    item_id = patient.last(wire.TimeoutTriggered).item_id
    completed = patient.last(wire.TranscriptionCompleted)
    assert (completed.item_id, completed.transcript, completed.usage.seconds) == (item_id, "", 0.0)
    assert len(patient.effects(Recognize)) == passes
    patient.ask("conversation.item.retrieve", item_id=item_id)
    item = patient.last(wire.ItemRetrieved).item
    assert isinstance(item, Message)
    assert item.content == (InputAudio(transcript=""),)
    patient.end()


def test_speech_that_begins_as_the_timeout_fires_loses_nothing(patient: Talk) -> None:
    answered(patient)
    patient.silence(9000)
    onset = patient.session.input.appended
    while not timeouts(patient):
        patient.sound(32, 0.6 if patient.session.input.appended - onset < 2 * 768 else 0.02)
    patient.speech(600)
    assert patient.session.input_floor <= onset
    patient.end()


def test_check_089_speech_stops_the_wait(patient: Talk) -> None:
    answered(patient)
    patient.silence(7000)
    patient.speech(400)
    patient.silence()
    patient.recognize("")
    patient.wait(30)
    assert timeouts(patient) == 0, "it was a cough; the wait begins anew after the next answer"


def test_check_089_speech_that_was_cleared_stops_the_wait_too(patient: Talk) -> None:
    answered(patient)
    patient.silence(5000)
    patient.speech(400)
    patient.ask("input_audio_buffer.clear")
    patient.wait(30)
    assert timeouts(patient) == 0


def test_a_wait_does_not_end_in_the_middle_of_speech(patient: Talk) -> None:
    patient.listen(turn_detection={"interrupt_response": False})
    answered(patient, ms=9000)
    patient.speech(25_000)
    assert patient.events(wire.ResponseDone), "it was done while they spoke"
    assert timeouts(patient) == 0
    patient.silence()
    patient.recognize("a long story")
    patient.end()


@pytest.mark.parametrize(
    "detection",
    [None, {"type": "semantic_vad"}, {"type": "server_vad"}, {"idle_timeout_ms": None}],
)
def test_check_089_switching_it_off_stops_the_wait(patient: Talk, detection: object) -> None:
    answered(patient)
    patient.wait(6.0)
    patient.listen(turn_detection=detection)
    patient.wait(30)
    patient.listen(turn_detection={"type": "server_vad", "idle_timeout_ms": 6000})
    patient.wait(30)
    assert timeouts(patient) == 0, "a wait that was stopped is not taken up again"


def test_another_change_of_detection_begins_the_wait_anew(patient: Talk) -> None:
    answered(patient)
    patient.wait(8.0)
    patient.listen(turn_detection={"threshold": 0.7})
    patient.wait(5.9)
    assert timeouts(patient) == 0
    patient.wait(0.2)
    assert timeouts(patient) == 1
    patient.end()


@pytest.mark.parametrize("kind", ["input_audio_buffer.commit", "response.create"])
def test_check_089_a_commit_and_a_response_stop_the_wait(patient: Talk, kind: str) -> None:
    answered(patient)
    patient.wait(4.0)
    patient.speech(400)
    patient.ask("input_audio_buffer.commit")
    patient.recognize("yes")
    if kind == "response.create":
        patient.ask(kind)
    patient.wait(30)
    assert timeouts(patient) == 0
    if kind == "response.create":
        patient.speak(("Good. ", 500))
        patient.wait(8)
        assert timeouts(patient) == 1, "it waits again once that was heard"
        patient.end()


def test_check_089_a_response_that_takes_long_is_not_taken_for_silence(patient: Talk) -> None:
    answered(patient)
    patient.wait(4.0)
    patient.ask("response.create")
    patient.wait(30)
    assert timeouts(patient) == 0
    patient.speak(("I had to think. ", 500))


def test_an_answer_that_was_interrupted_begins_no_wait(patient: Talk) -> None:
    patient.say("tell me a story")
    patient.speak(("Once upon a time. ", 9000), end=False)
    patient.speech(400)
    assert patient.last(wire.ResponseDone).response.status == "cancelled"
    patient.silence()
    patient.recognize("")
    patient.end()  # the answer goes on after a cough
    patient.wait(7)
    assert timeouts(patient) == 1


def test_while_the_client_carries_out_a_function_nobody_is_asked(patient: Talk) -> None:
    patient.say("what time is it?")
    patient.call("call_1", "clock", "{}")
    patient.end()
    patient.wait(30)
    assert timeouts(patient) == 0
    patient.ask(
        "conversation.item.create", item={"type": "function_call_output", "call_id": "call_1", "output": "noon"}
    )
    patient.ask("response.create")
    patient.speak(("It is noon. ", 500))
    patient.wait(7)
    assert timeouts(patient) == 1
    patient.end()


def test_an_answer_that_the_client_cancelled_begins_one(patient: Talk) -> None:
    patient.say("tell me a story")
    patient.speak(("Once upon a time. ", 9000), end=False)
    patient.ask("response.cancel")
    cancelled_at = patient.now
    patient.wait(5.9)
    assert timeouts(patient) == 0
    patient.wait(0.2)
    assert patient.now - cancelled_at < 6.2
    assert timeouts(patient) == 1
    patient.end()


def test_a_response_beside_the_conversation_changes_nothing(patient: Talk) -> None:
    answered(patient)
    patient.wait(5.0)
    respond(patient, conversation="none", input=[])
    patient.end()
    patient.wait(4.2)
    assert timeouts(patient) == 1
    patient.end()


def test_a_silence_is_told_and_not_answered_if_the_client_answers_itself(patient: Talk) -> None:
    patient.listen(turn_detection={"create_response": False})
    patient.ask("response.create")
    patient.speak(("Hello. ", 500))
    assert kinds(patient.wait(7)) == TIMED_OUT
    assert kinds(patient.wait(60)) == []


def test_silences_are_answered_a_few_times_in_a_row_and_again_once_somebody_did_something(patient: Talk) -> None:
    answered(patient)
    for number in range(1, IN_A_ROW + 1):
        patient.wait(10)
        assert timeouts(patient) == number
        patient.speak(("Are you still there? ", 500))
    patient.wait(600)
    assert timeouts(patient) == IN_A_ROW
    answered(patient)
    patient.wait(10)
    assert timeouts(patient) == IN_A_ROW + 1
    patient.end()


def test_a_silence_that_could_not_be_answered_is_followed_by_another_wait(patient: Talk) -> None:
    answered(patient)
    patient.wait(10)
    patient.chunk("thinker", Failed("stage_failed", "it broke"))
    patient.chunk("talker", Failed("stage_failed", "it broke"))
    assert patient.last(wire.ResponseDone).response.status == "failed"
    patient.wait(6.1)
    assert timeouts(patient) == 2
    patient.end()


def test_a_silence_begins_no_earlier_than_the_speech_before_it(patient: Talk) -> None:
    answered(patient, 500)
    patient.silence(3000)
    patient.speech()
    patient.ask("input_audio_buffer.clear")
    respond(patient)
    patient.speak(("Never mind. ", 500))
    patient.wait(9.0)  # no sound comes, so that the silence is longer than the sound of it
    assert patient.last(wire.TimeoutTriggered).audio_start_ms >= patient.last(wire.SpeechStopped).audio_end_ms
