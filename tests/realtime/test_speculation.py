"""Begins answers on a probable end of turn: held and unknown to the client until the turn is sure."""

from __future__ import annotations

import msgspec
import pytest

from duplex_server.realtime import wire
from duplex_server.realtime.effects import Begin, Cancel, Pace, PlayAudio
from duplex_server.realtime.inputs import PeerLost
from duplex_server.realtime.schema import OutputText
from pipeline.chunk import Failed, TextPart
from tests.realtime.talk import DEFAULTS, Talk, texts

PAUSE_MS = 250
"""Long enough to begin on the answer, too short to end the turn."""


def pause(talk: Talk, words: str = "what is the time?") -> None:
    """The user speaks and falls silent, and the recognizer has the words before the turn is over."""
    talk.speech()
    talk.silence(PAUSE_MS)
    talk.recognize(words)


def test_the_answer_is_begun_in_the_pause_and_nobody_is_told(talk: Talk) -> None:
    pause(talk)
    before = len(talk.told)
    talk.speak(("It is noon.", 1000))
    assert texts(talk.prompt) == ["what is the time?"]
    assert talk.told[before:] == []
    assert talk.effects(PlayAudio) == []


def test_the_sound_is_there_when_the_turn_is_over_and_nothing_was_made_twice(talk: Talk) -> None:
    pause(talk)
    talk.speak(("It is noon.", 1000), end=False)
    talk.silence(500)
    assert len(talk.effects(Begin)) == 1
    order = [type(event) for event in talk.told if isinstance(event, wire.SpeechStopped | wire.ResponseCreated)]
    assert order == [wire.SpeechStopped, wire.ResponseCreated]
    assert talk.effects(PlayAudio)
    assert not [cancel for cancel in talk.effects(Cancel) if cancel.fence == talk.reply]
    talk.end()
    talk.wait(3.0)
    assert talk.last(wire.ResponseDone).response.status == "completed"
    assert talk.last(wire.ResponseDone).response.usage is not None


def test_what_is_made_ahead_of_the_turn_is_bounded_and_goes_on_when_it_is_wanted(talk: Talk) -> None:
    pause(talk)
    talk.speak(("It is ", 1000), end=False)
    assert talk.effects(Pace)[-1].plays_until < talk.now + 3, "what is said first lasts until the rest is made"
    talk.speak(("noon.", 1000), end=False)
    assert talk.effects(Pace)[-1].plays_until > talk.now + 30
    talk.silence(500)
    assert talk.effects(Pace)[-1].plays_until == pytest.approx(talk.now + 2.0, abs=0.5)


def test_a_user_who_goes_on_leaves_no_trace_of_it(talk: Talk) -> None:
    pause(talk)
    tentative = talk.reply
    talk.speak(("It is noon.", 1000), end=False)
    talk.speech()
    assert Cancel(tentative) in talk.effects(Cancel)
    assert not talk.session.wants(tentative)
    talk.silence()
    talk.recognize("what is the time in Rome?")
    assert texts(talk.prompt)[-1] == "what is the time in Rome?"
    assert len(talk.events(wire.ResponseCreated)) == 1
    talk.speak(("One.", 500))
    talk.wait(2.0)
    spoken = [part.transcript for done in talk.events(wire.ItemDone) for part in getattr(done.item, "content", ())]
    assert "It is noon." not in spoken
    assert len(talk.effects(PlayAudio)) * 4800 <= 4800 * 4, "only the second answer sounds"


def test_a_turn_that_is_cleared_or_committed_by_hand_discards_it(talk: Talk) -> None:
    for event in ("input_audio_buffer.clear", "input_audio_buffer.commit"):
        pause(talk)
        tentative = talk.reply
        talk.ask(event)
        assert Cancel(tentative) in talk.effects(Cancel), event
        assert not talk.events(wire.ResponseCreated)


def test_new_instructions_in_the_pause_make_another_answer(talk: Talk) -> None:
    pause(talk)
    tentative = talk.reply
    talk.update(instructions="Answer in Latin.")
    talk.silence(500)
    assert talk.reply != tentative
    assert talk.prompt[0] == TextPart("instructions", "system", "Answer in Latin.")
    assert Cancel(tentative) in talk.effects(Cancel)


def test_one_that_fails_is_made_again_and_only_the_second_failure_is_told(talk: Talk) -> None:
    pause(talk)
    talk.chunk("thinker", Failed("stage_lost", "gone"))
    talk.silence(500)
    assert len(talk.effects(Begin)) == 2
    assert not talk.events(wire.ResponseDone)
    talk.chunk("thinker", Failed("stage_lost", "gone again"))
    assert talk.last(wire.ResponseDone).response.status == "failed"


def test_a_written_answer_is_held_too(talk: Talk) -> None:
    talk.update(output_modalities=["text"])
    pause(talk)
    talk.write("It is ")
    talk.write("noon.")
    assert not talk.events(wire.TextDelta)
    talk.silence(500)
    talk.end("thinker")
    item = talk.last(wire.ResponseDone).response.output[0]
    assert getattr(item, "content", None) == (OutputText(text="It is noon."),)


def test_no_words_no_answer_and_none_while_another_is_given(talk: Talk) -> None:
    pause(talk, "")
    assert not talk.effects(Begin)
    talk.silence(500)
    talk.listen(turn_detection={"type": "server_vad", "interrupt_response": False})
    talk.say("a story")
    talk.speak(("Once upon a time there was a king.", 9000), end=False)
    pause(talk, "what is the time?")
    assert len(talk.effects(Begin)) == 1


def test_it_can_be_switched_off() -> None:
    talk = Talk(msgspec.structs.replace(DEFAULTS, speculate=False)).open()
    pause(talk)
    assert not talk.effects(Begin)
    talk.silence(500)
    assert len(talk.effects(Begin)) == 1


def test_a_client_that_answers_by_itself_gets_no_answer_ahead(talk: Talk) -> None:
    talk.listen(turn_detection={"type": "server_vad", "create_response": False})
    pause(talk)
    assert not talk.effects(Begin)


def test_a_peer_that_leaves_in_the_pause_leaves_no_work_behind(talk: Talk) -> None:
    pause(talk)
    talk.feed(PeerLost())
    assert Cancel(talk.reply) in talk.effects(Cancel)


def test_a_pass_that_fails_in_the_pause_lets_nothing_begin(talk: Talk) -> None:
    talk.speech()
    talk.silence(PAUSE_MS)
    talk.recognize(Failed("stage_lost", "gone"))
    assert not talk.effects(Begin)
    talk.silence(500)
    assert talk.last(wire.ResponseDone).response.status == "failed"
