"""Tests items that come with their sound: it is recognized like a turn's, and can be heard again."""

from __future__ import annotations

import base64

import pytest

from duplex_server.realtime import wire
from duplex_server.realtime.effects import Begin, Keep, LetGo, Recognize, SendWithSound
from duplex_server.realtime.schema import InputAudio, Message
from pipeline.chunk import Failed
from tests.realtime.story import STORY, spoken_id
from tests.realtime.talk import RATE_HZ, Talk, kinds, texts
from tests.realtime.test_items import content, create, message, user
from tests.realtime.test_responses import OUT_OF_BAND, done, respond


def sound(ms: int) -> str:
    return base64.b64encode(bytes(2 * ms * RATE_HZ // 1000)).decode()


def part(ms: int) -> dict[str, object]:
    return {"type": "input_audio", "audio": sound(ms)}


def spoken(ms: int = 1000, **fields: object) -> dict[str, object]:
    return message("user", {**part(ms), **fields}, id="mine")


def test_check_095_the_sound_of_an_item_is_recognized_like_a_turn(talk: Talk) -> None:
    talk.transcribed()
    assert create(talk, spoken()) == ["conversation.item.added", "conversation.item.done"]
    assert content(talk) == (InputAudio(transcript=None),), "its words are told later, and its sound never here"
    asked = talk.effects(Recognize)[-1]
    assert (asked.from_sample, asked.segment.upto_sample, asked.final, asked.given) == (0, RATE_HZ, True, 0)
    told = talk.recognize("how are you?")
    assert kinds(told) == ["conversation.item.input_audio_transcription.completed"]
    assert talk.last(wire.TranscriptionCompleted).transcript == "how are you?"
    assert talk.last(wire.TranscriptionCompleted).usage.seconds == 1.0
    talk.ask("conversation.item.retrieve", item_id="mine")
    item = talk.last(wire.ItemRetrieved).item
    assert isinstance(item, Message)
    assert item.content == (InputAudio(transcript="how are you?"),)


def test_a_response_waits_for_the_words_of_a_created_item(talk: Talk) -> None:
    create(talk, spoken())
    respond(talk)
    assert not talk.effects(Begin)
    assert talk.recognize("how are you?") == [], "nobody asked for transcripts"
    assert texts(talk.prompt) == ["how are you?"]
    talk.end()
    usage = done(talk).response.usage
    assert usage is not None
    assert usage.input_token_details.audio_tokens == 10


def test_words_that_the_client_gave_with_the_sound_count(talk: Talk) -> None:
    create(talk, spoken(10, transcript="hi"))
    assert content(talk) == (InputAudio(transcript="hi"),)
    assert not talk.effects(Recognize)
    assert talk.effects(Keep)[-1] == Keep("mine", 0, 240, 0)
    respond(talk)
    assert texts(talk.prompt) == ["hi"]
    talk.end()


def test_speech_without_words_or_sound_is_kept_and_tells_nothing(talk: Talk) -> None:
    create(talk, message("user", {"type": "input_audio"}, {"type": "input_audio", "audio": "", "transcript": None}))
    assert content(talk) == (InputAudio(), InputAudio())
    respond(talk)
    assert texts(talk.prompt) == []
    talk.end()


@pytest.mark.parametrize(
    ("item", "param"),
    [
        (spoken(99), "item.content[0].audio"),
        (message("assistant", {"type": "input_audio", "audio": sound(500)}), "item.content[0].type"),
        (message("user", *(part(500) for _ in "ab")), "item.content[1].audio"),
    ],
)
def test_f19_sound_that_can_not_be_taken_is_named(talk: Talk, item: dict[str, object], param: str) -> None:
    assert create(talk, item, event_id="e1") == ["error"]
    error = talk.last(wire.Error).error
    assert (error.code, error.param, error.event_id) == ("invalid_value", param, "e1")
    assert not talk.effects(Recognize)
    assert not list(talk.session.conversation)


def test_a_client_can_not_pretend_that_sound_has_come(talk: Talk) -> None:
    create(talk, message("user", {"type": "input_audio", "sound": {"number": 7, "samples": 24_000}}))
    assert not talk.effects(Recognize)
    assert not talk.effects(Keep)


@pytest.mark.parametrize("transcribed", [True, False])
def test_check_094_words_that_never_come_are_told_and_a_response_that_needs_them_fails(
    talk: Talk, transcribed: bool
) -> None:
    if transcribed:
        talk.transcribed()
    create(talk, spoken())
    respond(talk)
    talk.recognize(Failed("stage_timeout", "no answer in 10 s"))
    assert done(talk).response.status == "failed"
    failed = talk.events(wire.TranscriptionFailed)
    assert len(failed) == transcribed
    assert talk.errors == ([] if transcribed else ["stage_timeout"])
    respond(talk)
    talk.end()
    assert done(talk).response.status == "completed"


def test_sound_in_the_context_of_one_response_is_heard_for_it_alone(talk: Talk) -> None:
    talk.transcribed()
    respond(talk, **{**OUT_OF_BAND, "input": [user("Listen:"), spoken()]})
    assert not talk.effects(Begin)
    assert not talk.effects(Keep)
    assert talk.recognize("how are you?") == [], "it is no item of the conversation"
    assert texts(talk.prompt) == ["Listen:", "how are you?"]
    talk.end()
    assert not list(talk.session.conversation)


def test_two_sounds_in_one_context_are_refused(talk: Talk) -> None:
    assert kinds(talk.ask("response.create", response={"input": [spoken(), spoken()]})) == ["error"]
    assert talk.last(wire.Error).error.param == "response.input[1]"
    assert not talk.effects(Recognize)


def test_check_108_what_was_said_to_us_and_by_us_is_asked_for_with_its_sound(talk: Talk) -> None:
    item_id = talk.say("a story please")
    span = talk.session.conversation.get(item_id)
    assert span is not None
    assert span.input_span is not None
    assert talk.effects(Keep)[-1] == Keep(item_id, span.input_span.start, span.input_span.stop)
    talk.speak(*STORY)
    talk.wait(5)
    for asked, samples in ((item_id, len(span.input_span)), (spoken_id(talk), 3 * RATE_HZ)):
        talk.ask("conversation.item.retrieve", item_id=asked)
        assert talk.effects(SendWithSound)[-1].upto_sample == samples
    create(talk, user("hello", id="typed"))
    talk.ask("conversation.item.retrieve", item_id="typed")
    assert len(talk.effects(SendWithSound)) == 2, "words have no sound"


def test_check_152_the_sound_ends_where_the_client_cut_it_and_is_let_go_from_there(talk: Talk) -> None:
    talk.say("a story please")
    talk.speak(*STORY, end=False)
    item_id = spoken_id(talk)
    talk.ask("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=1000)
    assert not talk.effects(LetGo), "a client may find out that it played more"
    talk.ask("conversation.item.retrieve", item_id=item_id)
    assert talk.effects(SendWithSound)[-1].upto_sample == RATE_HZ
    talk.end()
    talk.wait(5)
    talk.ask("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=600)
    assert talk.effects(LetGo) == [LetGo(item_id, 600 * 24)]
    talk.ask("conversation.item.delete", item_id=item_id)
    assert talk.effects(LetGo)[-1] == LetGo(item_id)
