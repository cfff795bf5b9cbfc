"""Tests the turns of `semantic_vad`: their words tell how long a pause may be."""

from __future__ import annotations

import pytest

from duplex_server.realtime import wire
from duplex_server.realtime.schema import Eagerness
from duplex_server.realtime.turns import EAGERNESS_SILENCE_MS, Ending, ending
from tests.realtime.talk import Talk, texts
from tests.realtime.test_turns import ms


@pytest.mark.parametrize(("eagerness", "silence_ms"), [("low", 1200), ("medium", 700), ("auto", 700), ("high", 400)])
def test_eagerness_chooses_how_long_a_silence_ends_the_turn(talk: Talk, eagerness: str, silence_ms: int) -> None:
    talk.listen(turn_detection={"type": "semantic_vad", "eagerness": eagerness})
    talk.speech()
    voiced_upto = talk.session.input.appended
    talk.silence(2000)
    silence = talk.last(wire.SpeechStopped).audio_end_ms - ms(voiced_upto)
    assert silence_ms <= silence < silence_ms + 32


@pytest.mark.parametrize("eagerness", ["low", "medium", "auto", "high"])
@pytest.mark.parametrize(
    ("words", "kind"),
    [("What time is it?", "finished"), ("one two three", "unsure"), ("I would like to have the", "unfinished")],
)
def test_the_words_tell_how_long_a_silence_ends_a_semantic_turn(
    talk: Talk, eagerness: Eagerness, words: str, kind: Ending
) -> None:
    talk.listen(turn_detection={"type": "semantic_vad", "eagerness": eagerness})
    talk.speech()
    voiced_upto = talk.session.input.appended
    talk.silence(224)
    talk.recognize(words)
    talk.silence(9000)
    silence = talk.last(wire.SpeechStopped).audio_end_ms - ms(voiced_upto)
    wanted = EAGERNESS_SILENCE_MS[eagerness][kind]
    assert wanted <= silence < wanted + 33
    assert texts(talk.prompt) == [words]
    talk.end()


def test_no_unfinished_sentence_is_waited_for_longer_than_the_protocol_says() -> None:
    most = {eagerness: max(silences.values()) for eagerness, silences in EAGERNESS_SILENCE_MS.items()}
    assert most == {"low": 8000, "medium": 4000, "auto": 4000, "high": 2000}
    for silences in EAGERNESS_SILENCE_MS.values():
        assert silences["finished"] < silences["unsure"] < silences["unfinished"]


def test_who_goes_on_after_an_unfinished_sentence_is_waited_for_anew(talk: Talk) -> None:
    talk.listen(turn_detection={"type": "semantic_vad"})
    talk.speech()
    talk.silence(224)
    talk.recognize("I would like to have the")
    talk.silence(2000)
    assert not talk.events(wire.SpeechStopped)
    talk.speech()
    voiced_upto = talk.session.input.appended
    talk.silence(1500)
    assert talk.last(wire.SpeechStopped).audio_end_ms - ms(voiced_upto) < 740, "what comes now is another sentence"
    talk.recognize("I would like to have the soup.")
    talk.end()


def test_words_do_not_change_a_silence_that_the_client_has_chosen(talk: Talk) -> None:
    talk.speech()
    talk.silence(224)
    talk.recognize("I would like to have the")
    talk.silence(300)
    assert talk.events(wire.SpeechStopped)
    talk.end()


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("", "unsure"),
        (" . ", "unsure"),
        ("one two", "unsure"),
        ("That is all.", "finished"),
        ('He said "stop."', "finished"),
        ("Really?", "finished"),
        ("Look at the!", "finished"),
        ("真的。", "finished"),
        ("I think...", "unfinished"),
        ("First,", "unfinished"),
        ("We went there and", "unfinished"),
        ("I want to see the.", "unfinished"),
        ("Theatre.", "finished"),
    ],
)
def test_a_sentence_is_finished_if_it_ends_like_one(words: str, kind: Ending) -> None:
    assert ending(words) == kind
