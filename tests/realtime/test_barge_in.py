"""Tests that speech over a reply silences it cleanly, and that the model is told what was heard of it."""

from __future__ import annotations

import msgspec
import pytest

from duplex_server.realtime import wire
from duplex_server.realtime.effects import Cancel, ClearAudio, Prepare
from duplex_server.realtime.schema import StatusDetails
from pipeline.chunk import Failed
from tests.realtime.story import CLOSING, STORY, spoken_id, transcript
from tests.realtime.talk import DEFAULTS, RATE_HZ, Talk, kinds, texts
from tests.realtime.test_responses import OUT_OF_BAND, done, respond


def test_check_138_speech_over_a_reply_ends_it_in_one_step(talk: Talk) -> None:
    talk.say("a story please")
    talk.speak(*STORY, end=False)
    talk.wait(1.0)
    reply, before = talk.reply, len(talk.done)
    onset = talk.session.input.appended
    talk.speech(128)
    assert kinds(talk.told)[-8:] == ["input_audio_buffer.speech_started", *CLOSING]
    assert talk.done[before : before + 2] == [ClearAudio(reply), Cancel(reply)], "first silence, then the work"
    response = done(talk).response
    assert response.status == "cancelled"
    assert response.status_details == StatusDetails(type="cancelled", reason="turn_detected")
    assert response.output[0].status == "incomplete"
    assert (talk.session.input.appended - onset) * 1000 / RATE_HZ < 200


def test_check_139_nothing_follows_a_response_that_is_done(talk: Talk) -> None:
    talk.say("a story please")
    talk.speak(*STORY, end=False)
    talk.speech()
    cancelled = done(talk).response.id
    at = talk.told.index(done(talk))
    talk.caption("and", talk.reply)
    talk.audio(500)
    talk.chunk("talker", Failed("stage_failed", "late"))
    talk.wait(5)
    assert not [event for event in talk.told[at + 1 :] if getattr(event, "response_id", "") == cancelled]
    assert len(talk.events(wire.ResponseDone)) == 1


def test_check_145_responses_beside_the_conversation_are_not_interrupted(talk: Talk) -> None:
    beside = respond(talk, **OUT_OF_BAND)
    reply = talk.reply
    talk.caption("A summary. ", reply)
    talk.audio(3000, (0, 11), reply)
    talk.speech()
    assert not talk.events(wire.ResponseDone)
    talk.end(reply=reply)
    talk.wait(3)
    assert (done(talk).response.id, done(talk).response.status) == (beside, "completed")
    assert not talk.effects(ClearAudio)


def test_check_146_the_server_truncates_nothing_unasked(talk: Talk) -> None:
    talk.say("a story please")
    talk.speak(*STORY)
    talk.wait(0.5)
    talk.speech()
    assert not talk.events(wire.ItemTruncated)


def test_check_161_a_reply_that_is_made_but_still_plays_is_silenced_too(talk: Talk) -> None:
    talk.say("a story please")
    talk.speak(*STORY)
    talk.wait(1.5)
    assert done(talk).response.status == "completed"
    item_id = spoken_id(talk)
    talk.speech()
    assert talk.effects(ClearAudio) == [ClearAudio(talk.reply)]
    assert not talk.effects(Cancel), "there is no work left"
    assert len(talk.events(wire.ResponseDone)) == 1
    assert transcript(talk, item_id) == "Once upon a time there was a king who had a cat. ", "as it was said"
    assert "cat" not in str(talk.effects(Prepare)[-1].prompt), "as it was heard"


def test_f4_nothing_is_interrupted_when_nothing_plays(talk: Talk) -> None:
    talk.say("a story please")
    talk.speak(*STORY)
    talk.wait(600)
    before = len(talk.told)
    talk.speech()
    assert kinds(talk.told[before:]) == ["input_audio_buffer.speech_started"]
    assert not talk.effects(ClearAudio)
    assert not talk.effects(Cancel)
    talk.silence()
    talk.recognize("thank you")
    assert texts(talk.prompt) == ["a story please", "Once upon a time there was a king who had a cat. ", "thank you"]
    talk.end()


@pytest.mark.parametrize(
    ("heard_s", "words"),
    [
        (0.05, []),
        (0.6, ["Once upon"]),
        (1.1, ["Once upon a time"]),
        (1.6, ["Once upon a time there was"]),
        (2.2, ["Once upon a time there was a king"]),
    ],
)
def test_the_model_is_told_only_what_was_heard(talk: Talk, heard_s: float, words: list[str]) -> None:
    talk.say("a story please")
    talk.speak(*STORY)
    talk.wait(heard_s)
    talk.speech(96)
    assert talk.effects(ClearAudio)
    talk.silence()
    talk.recognize("stop")
    assert texts(talk.prompt) == ["a story please", *words, "stop"]
    talk.end()


def test_words_that_were_shown_and_not_yet_spoken_are_not_told_to_the_model(talk: Talk) -> None:
    talk.say("hello")
    talk.caption("Good morning to you. ")
    assert talk.events(wire.TranscriptDelta), "the client has read them"
    talk.speech()
    talk.silence()
    talk.recognize("stop")
    assert texts(talk.prompt) == ["hello", "stop"]
    talk.end()


def test_an_answer_that_was_cut_unheard_by_a_noise_is_given_after_all(talk: Talk) -> None:
    talk.say("what time is it?")
    talk.caption("It is noon. ")
    talk.speech(300)
    assert done(talk).response.status == "cancelled"
    talk.silence()
    talk.recognize("")
    assert len(talk.events(wire.ResponseCreated)) == 2
    assert texts(talk.prompt) == ["what time is it?"]
    talk.end()


@pytest.mark.parametrize("answer_on", [True, False])
def test_an_answer_that_was_cut_in_the_middle_by_a_noise_goes_on_if_that_is_wanted(answer_on: bool) -> None:
    talk = Talk(msgspec.structs.replace(DEFAULTS, answer_on=answer_on)).open()
    talk.say("what time is it?")
    talk.speak(("It is noon. ", 3000), ("And all is well.", 3000), end=False)
    talk.wait(3.4)
    talk.speech(300)
    talk.silence()
    talk.recognize("")
    talk.wait(5)
    assert len(talk.events(wire.ResponseCreated)) == (2 if answer_on else 1)
    assert texts(talk.prompt) == (["what time is it?", "It is noon."] if answer_on else ["what time is it?"])


def test_an_answer_that_was_all_but_heard_does_not_go_on(talk: Talk) -> None:
    talk.say("what time is it?")
    talk.speak(("It is noon.", 1500))
    talk.wait(1.0)
    talk.speech(300)
    talk.silence()
    talk.recognize("")
    talk.wait(5)
    assert len(talk.events(wire.ResponseCreated)) == 1


@pytest.mark.parametrize("ask", ["input_audio_buffer.clear", "input_audio_buffer.commit"])
def test_a_client_that_takes_the_buffer_into_its_own_hands_decides_itself(talk: Talk, ask: str) -> None:
    talk.say("what time is it?")
    talk.caption("It is noon. ")
    talk.speech(300)
    talk.ask(ask)
    if ask == "input_audio_buffer.commit":
        talk.recognize("")
    talk.wait(5)
    assert len(talk.events(wire.ResponseCreated)) == 1


def test_a_paced_channel_knows_what_was_heard(talk: Talk) -> None:
    talk.say("a story please")
    talk.speak(*STORY)
    talk.play(RATE_HZ)
    talk.wait(1.9)
    talk.speech()
    talk.silence()
    talk.recognize("stop")
    assert texts(talk.prompt) == ["a story please", "Once upon a time", "stop"]
    talk.play(2 * RATE_HZ)
    talk.end()


def test_a_short_answer_that_was_sent_to_its_end_and_cut_unheard_is_given_again(talk: Talk) -> None:
    talk.say("is it noon?")
    talk.sound(80, 0.95)  # a cough begins
    talk.speak(("Yes.", 400))
    assert talk.last(wire.ResponseDone).response.status == "completed"
    talk.sound(64, 0.95)
    talk.silence()
    talk.recognize("")
    assert len(talk.events(wire.ResponseCreated)) == 2
