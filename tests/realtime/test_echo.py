"""Feeds our own voice back: it may cut a reply once, but not for ever, and it is never taken for the user's words."""

from __future__ import annotations

import msgspec
import pytest

from duplex_server.realtime import wire
from duplex_server.realtime.echo import MEMORY_S, Doubt, echoes
from duplex_server.realtime.effects import Recognize
from tests.realtime.talk import DEFAULTS, Talk, texts

STORY = "Once upon a time there was a king who had three daughters and a very old horse."


@pytest.mark.parametrize(
    ("heard", "echo"),
    [
        ("there was a king", True),
        ("Was a king, who had tree daughters", True),
        ("horse", True),
        ("king", False),  # long ago
        ("stop please", False),
        ("what was his name?", False),
        ("", False),
    ],
)
def test_an_echo_is_known_by_its_words(heard: str, echo: bool) -> None:
    assert echoes(heard, STORY) is echo


def test_doubt_comes_with_an_echo_or_two_noises_and_goes_with_time() -> None:
    doubt = Doubt(wary=True)
    doubt.fooled(10.0, by_words=False)
    assert not doubt.holds(10.0)
    doubt.fooled(20.0, by_words=False)
    assert doubt.holds(20.0)
    assert not doubt.holds(20.0 + MEMORY_S)
    doubt.fooled(200.0, by_words=True)
    assert doubt.holds(201.0)
    trusting = Doubt(wary=False)
    trusting.fooled(0.0, by_words=True)
    assert not trusting.holds(1.0)


def tell_a_story(talk: Talk) -> None:
    talk.speak((STORY, 8000), end=False)
    talk.wait(4.0)


def fooled_once(talk: Talk) -> Talk:
    """The first echo cuts the reply; its words give it away, and the story goes on."""
    talk.transcribed().say("tell me a story")
    tell_a_story(talk)
    talk.speech(300)
    talk.silence()
    talk.recognize("there was a king")
    tell_a_story(talk)
    return talk


def test_the_first_echo_cuts_the_reply_which_then_goes_on_and_is_not_told_its_own_words(talk: Talk) -> None:
    fooled_once(talk)
    assert [done.response.status for done in talk.events(wire.ResponseDone)] == ["cancelled"]
    assert len(talk.events(wire.ResponseCreated)) == 2
    assert "there was a king" not in texts(talk.prompt)


def test_one_word_is_known_for_an_echo_however_much_was_sent_ahead_of_it(talk: Talk) -> None:
    fooled_once(talk)
    before = len(talk.told)
    talk.speech(800)
    talk.recognize("king")
    assert wire.SpeechStarted not in {type(event) for event in talk.told[before:]}


def test_the_second_echo_cuts_nothing_and_nobody_is_told_of_it(talk: Talk) -> None:
    fooled_once(talk)
    before, asked = len(talk.told), len(talk.effects(Recognize))
    talk.speech(800)
    assert len(talk.effects(Recognize)) == asked + 1, "its words are looked at"
    talk.recognize("who had three daughters")
    kinds = {type(event) for event in talk.told[before:]}
    assert wire.SpeechStarted not in kinds
    assert wire.ResponseDone not in kinds
    assert not talk.session.detects or talk.session.input.discarded_for("echo") > 0


def test_a_user_who_speaks_over_it_still_gets_through_and_loses_no_word(talk: Talk) -> None:
    fooled_once(talk)
    talk.silence(400)
    onset_ms = talk.session.input.appended // 24
    talk.speech(800)
    assert len(talk.events(wire.SpeechStarted)) == 2, "not yet"
    talk.recognize("stop it please")
    started = talk.last(wire.SpeechStarted)
    assert len(talk.events(wire.SpeechStarted)) == 3
    assert started.audio_start_ms <= onset_ms - 200, "with the padding before its onset"
    assert talk.last(wire.ResponseDone).response.status == "cancelled"
    talk.silence()
    talk.recognize("stop it please")
    assert texts(talk.prompt)[-1] == "stop it please"


def test_speech_that_outlasts_the_reply_is_the_user_s(talk: Talk) -> None:
    fooled_once(talk)
    talk.ask("response.cancel")
    talk.speech(500)
    assert len(talk.events(wire.SpeechStarted)) == 3


def test_a_cough_in_doubt_is_not_even_told(talk: Talk) -> None:
    fooled_once(talk)
    started = len(talk.events(wire.SpeechStarted))
    talk.speech(300)
    talk.silence(250)
    talk.recognize("")
    talk.silence(500)
    assert len(talk.events(wire.SpeechStarted)) == started
    talk.end()
    talk.wait(9)
    assert talk.last(wire.ResponseDone).response.status == "completed"


def test_a_word_after_a_pass_that_found_none_is_not_lost(talk: Talk) -> None:
    fooled_once(talk)
    talk.listen(turn_detection={"type": "server_vad", "silence_duration_ms": 150})
    talk.speech(800)
    talk.recognize("")
    talk.silence(200)
    talk.recognize("stop")
    assert texts(talk.prompt)[-1] == "stop"


def test_words_told_while_in_doubt_come_after_the_turn_is_told(talk: Talk) -> None:
    fooled_once(talk)
    talk.listen(transcription={"model": "whisper-1", "delay": "minimal"})
    talk.speech(800)
    talk.recognize("stop it")
    talk.speech(1200)
    talk.recognize("stop it please now")
    talk.silence()
    talk.recognize("Stop it, please, now.")
    item_id = talk.last(wire.TranscriptionCompleted).item_id
    told = "".join(event.delta for event in talk.events(wire.TranscriptionDelta) if event.item_id == item_id)
    assert told == talk.last(wire.TranscriptionCompleted).transcript


def test_without_the_guard_every_word_is_the_user_s() -> None:
    talk = Talk(msgspec.structs.replace(DEFAULTS, echo_guard=False)).open()
    talk.transcribed().say("tell me a story")
    tell_a_story(talk)
    talk.speech(300)
    talk.silence()
    talk.recognize("there was a king")
    assert texts(talk.prompt)[-1] == "there was a king"


def test_speech_that_goes_on_when_the_reply_is_over_needs_no_proof(talk: Talk) -> None:
    fooled_once(talk)
    talk.end()
    talk.wait(8.0 - 4.0 - 0.3)
    started = len(talk.events(wire.SpeechStarted))
    talk.speech(400)
    assert len(talk.events(wire.SpeechStarted)) == started, "it may be the last of the reply, come back"
    talk.speech(700)
    assert len(talk.events(wire.SpeechStarted)) == started + 1
