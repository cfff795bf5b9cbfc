"""Tests sessions that only transcribe: turns, items and words, and nothing of an answer, whatever is asked."""

from __future__ import annotations

import msgspec
import pytest

from duplex_server.realtime import wire
from duplex_server.realtime.config import Abilities
from duplex_server.realtime.effects import Begin, Effect, Pace, Prepare, Recognize
from duplex_server.realtime.schema import (
    AudioInputPatch,
    AudioPatch,
    SemanticVad,
    ServerVad,
    SessionPatch,
    Transcription,
    TranscriptionPatch,
    TranscriptionSession,
)
from duplex_server.realtime.settings import opening
from tests.realtime.conftest import OpenTalk
from tests.realtime.talk import DEFAULTS, RATE_HZ, Talk, kinds

WHISPER = Abilities(recognizer="whisper-tiny.en", languages=("en",))
TURN = ["input_audio_buffer.committed", "conversation.item.added", "conversation.item.done"]
WORDS = "conversation.item.input_audio_transcription"


@pytest.fixture
def scribe(open_talk: OpenTalk) -> Talk:
    return open_talk(kind="transcription", abilities=WHISPER)


def update(talk: Talk, **session: object) -> list[str]:
    return kinds(talk.ask("session.update", session={"type": "transcription", **session}))


def detection(talk: Talk) -> object:
    return talk.last(wire.SessionUpdated).session.audio.input.turn_detection


def check_no_answer(talk: Talk) -> None:
    """Nothing of a thinker or talker was asked for, and nothing was told of a response."""
    asked: list[Effect] = [effect for effect in talk.done if isinstance(effect, Begin | Prepare | Pace)]
    assert asked == []
    assert not [kind for kind in kinds(talk.told) if kind.startswith("response.")]


def test_check_009_a_transcription_session_shows_what_it_is(scribe: Talk) -> None:
    shown = msgspec.json.decode(wire.encode(scribe.told[0]))["session"]
    assert shown == {
        "type": "transcription",
        "object": "realtime.transcription_session",
        "id": scribe.session.settings.id,
        "expires_at": DEFAULTS.expires_at,
        "audio": {
            "input": {
                "format": {"type": "audio/pcm", "rate": 24000},
                "transcription": {"model": "whisper-tiny.en"},
                "noise_reduction": None,
                "turn_detection": {
                    "type": "server_vad",
                    "threshold": 0.5,
                    "prefix_padding_ms": 300,
                    "silence_duration_ms": 500,
                    "idle_timeout_ms": None,
                    "create_response": False,
                    "interrupt_response": False,
                },
            }
        },
        "include": None,
    }
    check_no_answer(scribe)


def test_check_026_the_settings_of_one_are_known_before_it_begins() -> None:
    start = SessionPatch(
        type="transcription", audio=AudioPatch(input=AudioInputPatch(transcription=TranscriptionPatch(language="en")))
    )
    config = msgspec.structs.replace(DEFAULTS, kind="transcription", abilities=WHISPER, start=start)
    session = opening(config)
    assert isinstance(session, TranscriptionSession)
    assert session.object == "realtime.transcription_session"
    assert session.audio.input.transcription == Transcription(language="en")
    assert Talk(config).open().last(wire.SessionCreated).session == session


def test_f13_a_turn_is_transcribed_and_nothing_is_answered(scribe: Talk) -> None:
    item_id = scribe.say("what is the time?")
    scribe.wait(30)
    told = [kind.removeprefix("input_audio_buffer.") for kind in kinds(scribe.told)]
    assert told == [
        "session.created",
        "speech_started",
        "speech_stopped",
        "committed",
        "conversation.item.added",
        "conversation.item.done",
        f"{WORDS}.delta",
        f"{WORDS}.completed",
    ]
    completed = scribe.last(wire.TranscriptionCompleted)
    assert (completed.item_id, completed.content_index, completed.transcript) == (item_id, 0, "what is the time?")
    assert completed.usage.seconds > 0
    check_no_answer(scribe)


def test_f13_asking_for_a_response_is_an_error_and_ends_nothing(scribe: Talk) -> None:
    for response in ({}, {"conversation": "none"}):
        assert kinds(scribe.ask("response.create", response=response, event_id="mine")) == ["error"]
        error = scribe.last(wire.Error).error
        assert (error.type, error.code, error.event_id) == ("invalid_request_error", "invalid_value", "mine")
    assert kinds(scribe.ask("response.cancel")) == ["error"]
    scribe.say("hello")
    assert scribe.last(wire.TranscriptionCompleted).transcript == "hello"
    check_no_answer(scribe)


def test_check_092_words_are_told_while_they_are_spoken_and_join_to_the_transcript(scribe: Talk) -> None:
    scribe.speech(1400)
    scribe.recognize("it was the")
    scribe.speech(1100)
    assert kinds(scribe.recognize("it was the best off")) == [f"{WORDS}.delta"]
    scribe.silence()
    scribe.recognize("It was the best of times.")
    deltas = "".join(event.delta for event in scribe.events(wire.TranscriptionDelta))
    assert scribe.last(wire.TranscriptionCompleted).transcript == deltas == "it was the best of times."
    check_no_answer(scribe)


def test_by_hand_a_commit_is_transcribed(scribe: Talk) -> None:
    update(scribe, audio={"input": {"turn_detection": None, "transcription": {"model": "gpt-realtime-whisper"}}})
    scribe.append(RATE_HZ)
    assert kinds(scribe.ask("input_audio_buffer.commit")) == TURN
    assert kinds(scribe.recognize("hello")) == [f"{WORDS}.completed"]
    check_no_answer(scribe)


def test_without_transcription_there_are_turns_and_no_words(scribe: Talk) -> None:
    update(scribe, audio={"input": {"transcription": None}})
    scribe.speech()
    scribe.silence()
    scribe.recognize("hello")
    assert not [kind for kind in kinds(scribe.told) if kind.startswith(WORDS)]
    check_no_answer(scribe)


@pytest.mark.parametrize(
    ("asked", "had"),
    [
        (
            {"type": "server_vad", "create_response": True, "interrupt_response": True, "idle_timeout_ms": 5000},
            ServerVad(create_response=False, interrupt_response=False),
        ),
        (
            {"type": "semantic_vad", "eagerness": "low", "create_response": True},
            SemanticVad(eagerness="low", create_response=False, interrupt_response=False),
        ),
        (
            {"silence_duration_ms": 900},
            ServerVad(silence_duration_ms=900, create_response=False, interrupt_response=False),
        ),
        (None, None),
    ],
)
def test_what_concerns_answers_is_off_whatever_is_asked(scribe: Talk, asked: object, had: object) -> None:
    assert update(scribe, audio={"input": {"turn_detection": asked}}) == ["session.updated"]
    assert detection(scribe) == had


def test_what_a_transcription_session_lacks_is_ignored_and_not_shown(scribe: Talk) -> None:
    before = scribe.session.settings
    assert update(scribe, instructions="Be a pirate.", audio={"output": {"voice": "amy"}}, tools=[]) == [
        "session.updated"
    ]
    assert scribe.session.settings == before
    assert isinstance(scribe.last(wire.SessionUpdated).session, TranscriptionSession)
    check_no_answer(scribe)


def test_a_session_of_one_kind_does_not_become_the_other(scribe: Talk, talk: Talk) -> None:
    assert kinds(scribe.update(instructions="Hello?")) == ["error"]
    assert scribe.last(wire.Error).error.param == "session.type"
    assert update(talk) == ["error"]
    assert talk.last(wire.Error).error.param == "session.type"
    assert "realtime" in talk.last(wire.Error).error.message


def test_items_may_be_kept_and_looked_at(scribe: Talk) -> None:
    message = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]}
    assert kinds(scribe.ask("conversation.item.create", item=message)) == TURN[1:]
    item_id = scribe.last(wire.ItemAdded).item.id
    assert kinds(scribe.ask("conversation.item.retrieve", item_id=item_id)) == ["conversation.item.retrieved"]
    check_no_answer(scribe)


def test_the_words_are_asked_for_once_a_turn_when_nobody_goes_on(scribe: Talk) -> None:
    scribe.say("yes")
    assert len(scribe.effects(Recognize)) == 1
    check_no_answer(scribe)
