"""Feeds our own voice back: it may cut a reply once, but not for ever, and it is never taken for the user's words."""

from __future__ import annotations

import msgspec
import pytest

from duplex_server.realtime import wire
from duplex_server.realtime.echo import ECHO_AFTER_S, MEMORY_S, Doubt, Said, echoes
from duplex_server.realtime.effects import Begin, Cancel, Recognize
from duplex_server.realtime.inputs import Tick
from tests.realtime.story import STORY as CLAUSES
from tests.realtime.talk import DEFAULTS, Talk, texts

STORY = "Once upon a time there was a king who had three daughters and a very old horse."


def said(words: str, at_once: str = "", *, over: bool = True) -> Said:
    return Said(words, at_once, over)


@pytest.mark.parametrize(
    ("heard", "echo"),
    [
        ("there was a king", True),
        ("Was a king, who had tree daughters", True),
        ("There was a ring who hat three daughter's", True),  # misheard
        ("There was King Hood", True),
        ("horse", True),
        ("king", False),  # not just now
        ("stop please", False),
        ("what was his name?", False),
        ("There was a king. Stop it, please.", False),  # two voices
        ("There was a king. Stop it, please. And a very old horse.", False),
        ("there was a king okay", False),
        ("there was a umm king who had three daughters", True),
        ("what do you mean by that it was not a king", False),
        ("", False),
        ("...", False),
    ],
)
def test_an_echo_is_known_by_its_words(heard: str, echo: bool) -> None:
    assert echoes(heard, said(STORY, "very old horse.")) is echo


def test_numbers_are_compared_as_they_are_said() -> None:
    ours = said("In nineteen sixty nine, 2 men walked on the moon for the 1st time.")
    assert echoes("in 1969 two men walked on the moon", ours)
    assert not echoes("in 1970 how many men were there", ours)


def test_letters_of_any_script_are_compared() -> None:
    ours = said("Жил-был старый король, и было у него три дочери.")
    assert echoes("старый король и было у него", ours)
    assert not echoes("подожди пожалуйста", ours)


@pytest.mark.parametrize("heard", ["coffee", "Tea.", "Coffee, please.", "tea or"])
def test_a_word_or_two_repeated_after_us_are_the_user_s(heard: str) -> None:
    assert not echoes(heard, said("Do you want tea or coffee?", "tea or coffee?", over=False))
    assert echoes("do you want tea", said("Do you want tea or coffee?", "tea or coffee?", over=False))


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
    talk.recognize("a king who had three")
    kinds = {type(event) for event in talk.told[before:]}
    assert wire.SpeechStarted not in kinds
    assert wire.ResponseDone not in kinds
    assert not talk.session.detects or talk.session.input.discarded_for("echo") > 0


def test_words_that_may_be_ours_are_waited_on(talk: Talk) -> None:
    fooled_once(talk)
    started, asked = len(talk.events(wire.SpeechStarted)), len(talk.effects(Recognize))
    talk.speech(800)
    talk.recognize("sing")  # "king"
    assert len(talk.events(wire.SpeechStarted)) == started, "neither told"
    assert talk.session.input.discarded_for("echo") == 0, "nor dropped"
    talk.speech(600)
    assert len(talk.effects(Recognize)) == asked + 2
    talk.recognize("singing is what I asked for")
    assert len(talk.events(wire.SpeechStarted)) == started + 1
    talk.silence()
    talk.recognize("singing is what I asked for")
    assert texts(talk.prompt)[-1] == "singing is what I asked for"
    talk.end()


def test_a_word_that_may_be_ours_is_the_user_s_when_no_more_follows(talk: Talk) -> None:
    fooled_once(talk)
    started = len(talk.events(wire.SpeechStarted))
    talk.speech(300)
    talk.silence(250)
    talk.recognize("sing")
    assert len(talk.events(wire.SpeechStarted)) == started + 1
    talk.silence()
    talk.end()


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


# ---- echoes that cut nothing --------------------------------------------------------------------------------------


def uncut(talk: Talk) -> None:
    """A client that lets a reply go on when its user speaks."""
    talk.listen(
        transcription={"model": "whisper-1"},
        turn_detection={"type": "server_vad", "interrupt_response": False},
    )
    talk.say("tell me a story")


def test_an_echo_that_cuts_nothing_is_not_answered_and_the_next_is_not_told(talk: Talk) -> None:
    uncut(talk)
    tell_a_story(talk)
    talk.speech(300)
    talk.silence()
    talk.recognize("there was a king")
    echo = talk.last(wire.Committed).item_id
    started = len(talk.events(wire.SpeechStarted))
    talk.speech(800)
    talk.recognize("who had three")
    assert len(talk.events(wire.SpeechStarted)) == started, "from now on it is in doubt"
    talk.end()
    talk.wait(10)
    assert [done.response.status for done in talk.events(wire.ResponseDone)] == ["completed"]
    assert len(talk.events(wire.ResponseCreated)) == 1
    entry = talk.session.conversation.get(echo)
    assert entry is not None
    assert entry.ours, "the item stays, and the model is not told of it"


def test_a_user_who_speaks_over_a_reply_that_goes_on_is_answered(talk: Talk) -> None:
    uncut(talk)
    tell_a_story(talk)
    talk.speech(300)
    talk.silence()
    talk.recognize("there was a king stop it please")
    talk.end()
    talk.wait(10)
    assert texts(talk.prompt)[-1] == "there was a king stop it please", "no word of theirs is lost"
    talk.end()


def answer(talk: Talk, words: str, ms: int) -> None:
    """A short reply, until it has been heard."""
    talk.transcribed().say("can you help me")
    talk.speak((words, ms))
    talk.wait(0.1 + ms / 1000)


def test_an_echo_that_comes_when_we_are_silent_is_not_answered(talk: Talk) -> None:
    answer(talk, "Yes, of course I can.", 1000)
    talk.silence(800)
    talk.speech(900)
    talk.silence()
    talk.recognize("yes of course I can")
    talk.wait(5)
    assert len(talk.events(wire.ResponseCreated)) == 1


@pytest.mark.parametrize(
    ("silence_ms", "words"),
    [(700, "yes"), (700, "of course"), (700, "yes please do"), (1000 * ECHO_AFTER_S + 600, "yes of course I can")],
)
def test_a_user_who_repeats_what_we_said_is_answered(talk: Talk, silence_ms: int, words: str) -> None:
    answer(talk, "Yes, of course I can.", 1000)
    talk.silence(silence_ms)
    talk.speech(900)
    talk.silence()
    talk.recognize(words)
    assert texts(talk.prompt)[-1] == words
    talk.end()


def test_a_word_that_a_user_repeats_while_we_go_on_is_theirs(talk: Talk) -> None:
    talk.transcribed().say("tell me a story")
    tell_a_story(talk)
    talk.speech(300)
    talk.silence()
    talk.recognize("time")  # it was said two seconds ago
    assert texts(talk.prompt)[-1] == "time"
    talk.end()


def test_no_answer_is_begun_on_the_words_of_an_echo(talk: Talk) -> None:
    talk.transcribed().say("tell me a story")
    tell_a_story(talk)
    begun = len(talk.effects(Begin))
    talk.speech(300)
    talk.silence(250)
    talk.recognize("there was a king")
    assert len(talk.effects(Begin)) == begun
    talk.silence()
    talk.end()


def test_an_answer_begun_on_an_echo_s_words_is_discarded(talk: Talk) -> None:
    uncut(talk)
    talk.listen(turn_detection={"interrupt_response": False, "silence_duration_ms": 1500, "type": "server_vad"})
    talk.speak(*CLAUSES)
    talk.wait(1.1)
    assert talk.events(wire.ResponseDone), "all of it was sent, most of it is still to be heard"
    talk.speech(600)
    talk.silence(250)
    talk.recognize("who had a cat")  # as far as we know, we have not said that yet
    tentative = talk.reply
    created = len(talk.events(wire.ResponseCreated))
    assert texts(talk.prompt)[-1] == "who had a cat"
    talk.silence(1500)
    assert Cancel(tentative) in talk.effects(Cancel)
    assert not talk.session.wants(tentative)
    talk.wait(10)
    assert len(talk.events(wire.ResponseCreated)) == created


def test_two_sounds_without_words_over_a_reply_that_goes_on_make_it_careful(talk: Talk) -> None:
    uncut(talk)
    tell_a_story(talk)
    for _ in range(2):
        talk.speech(200)
        talk.silence()
        talk.recognize("")
    started = len(talk.events(wire.SpeechStarted))
    talk.speech(200)
    assert len(talk.events(wire.SpeechStarted)) == started
    talk.end()


# ---- what of a reply may be heard, and when -----------------------------------------------------------------------


def test_the_words_that_sounded_between_two_times_are_known(talk: Talk) -> None:
    talk.say("a story")
    began = talk.now + 0.1  # a client holds back as much
    talk.speak(*CLAUSES)
    talk.wait(6)
    talk.feed(Tick())  # it is not playing any more
    said = talk.session._answers.said
    assert said(began + 2.0 + ECHO_AFTER_S, began + 6.0, wary=False).words == "who had a cat."
    middle = said(began + 1.0 + ECHO_AFTER_S, began + 1.4, wary=False)
    assert middle.words == "there was a king", "the last word has just begun, as far as we know"
    assert said(began + 2.9, began + 3.5, wary=False).over
    assert not said(began + 3.1, began + 3.5, wary=False).over
    assert said(began + 3.1, began + 3.5, wary=True).over
    assert said(began + 3.0 + ECHO_AFTER_S, began + 6.0, wary=False).words == ""


def test_what_was_cut_is_heard_no_further(talk: Talk) -> None:
    talk.say("a story")
    began = talk.now + 0.1
    talk.speak(*CLAUSES, end=False)
    talk.wait(1.1)
    talk.ask("response.cancel")
    talk.wait(5)
    said = talk.session._answers.said
    assert said(began + 1.0, began + 5.0, wary=False).words == "Once upon a time there was"
    assert said(began + 2.0 + ECHO_AFTER_S, began + 5.0, wary=False).words == ""
