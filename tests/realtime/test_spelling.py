"""Tests that a client may write its settings and terms in either spelling, and is told of its mistakes in its own."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duplex_server.realtime import beta_in, wire
from duplex_server.realtime.dialect import Codec, Dialect
from duplex_server.realtime.effects import Begin
from tests.realtime import anything
from tests.realtime.connection import Connection, Json, problems
from tests.realtime.talk import CASES, Talk

DIALECTS: tuple[Dialect, ...] = ("ga", "beta")


def test_check_170_a_response_takes_the_older_names(talk: Talk) -> None:
    client = Connection(talk)
    asked = {
        "modalities": ["audio", "text"],
        "voice": "amy",
        "output_audio_format": "pcm16",
        "temperature": 0.7,
        "max_response_output_tokens": 64,
        "conversation": "none",
        "metadata": {"for": "you"},
        "input": [{"type": "message", "role": "assistant", "content": [{"type": "text", "text": "Well?"}]}],
    }
    created = next(frame for frame in client.ask("response.create", response=asked))
    begin = talk.effects(Begin)[-1]
    assert begin.speak is not None
    assert (begin.speak.voice, begin.think.temperature, begin.think.max_tokens) == ("amy", 0.7, 64)
    shown = created["response"]
    assert shown["modalities"] == ["audio", "text"]
    assert (shown["voice"], shown["temperature"], shown["max_output_tokens"]) == ("amy", 0.7, 64)
    assert problems([{"type": "response.create", "response": asked}], client=True) == []


@pytest.mark.parametrize("dialect", DIALECTS)
def test_both_spellings_may_be_mixed_and_the_nested_one_counts(talk: Talk, dialect: Dialect) -> None:
    client = Connection(talk, Codec(dialect))
    client.update(
        type="realtime",
        audio={"output": {"speed": 1.5}, "input": {"turn_detection": {"type": "semantic_vad"}}},
        voice="amy",
        speed=0.5,
        turn_detection=None,
        input_audio_transcription={"model": "whisper-1"},
        modalities=["audio", "text"],
    )
    settings = talk.session.settings
    assert (settings.audio.output.voice, settings.audio.output.speed) == ("amy", 1.5)
    assert settings.audio.input.turn_detection is not None
    assert settings.audio.input.transcription is not None
    assert settings.output_modalities == ("audio",)
    client.ask("response.create", response={"output_modalities": ["text"], "modalities": ["audio"], "voice": "joe"})
    assert talk.effects(Begin)[-1].speak is None


@CASES
@given(st.one_of(*map(anything.of, get_args(wire.AnyClientEvent))))
def test_what_has_only_nested_fields_is_read_as_the_plain_decoder_reads_it(event: wire.AnyClientEvent) -> None:
    if isinstance(event, wire.SessionUpdate | wire.CreateResponse):
        event = msgspec.structs.replace(event, spelled=())  # nothing that a client can say
    frame = msgspec.json.encode(event)
    assert beta_in.read(frame) == wire.decode(frame)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("session", "param"),
    [
        ({"input_audio_format": "pcm8"}, "input_audio_format"),
        ({"input_audio_format": {"type": "audio/pcm", "rate": 16000}}, "input_audio_format.rate"),
        ({"output_audio_format": {"type": "audio/pcm", "rate": 16000}}, "output_audio_format.rate"),
        ({"audio": {"output": {"format": {"type": "audio/pcm", "rate": 16000}}}}, "audio.output.format.rate"),
        ({"modalities": []}, "modalities"),
        ({"output_modalities": []}, "output_modalities"),
        ({"modalities": ["smell"]}, "modalities[0]"),
        ({"voice": 3}, "voice"),
        ({"speed": 9}, "speed"),
        ({"turn_detection": {"type": "server_vad", "threshold": 2}}, "turn_detection.threshold"),
        ({"input_audio_transcription": {"model": 3}}, "input_audio_transcription.model"),
        ({"input_audio_noise_reduction": {}}, "input_audio_noise_reduction.type"),
        ({"audio": {"input": {"noise_reduction": {}}}}, "audio.input.noise_reduction.type"),
        ({"temperature": 0.5}, "temperature"),
        ({"temperature": 1.3}, "temperature"),
        ({"max_response_output_tokens": 4097}, "max_response_output_tokens"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
    ],
)
def test_an_error_names_the_setting_as_the_client_wrote_it(
    talk: Talk, dialect: Dialect, session: Json, param: str
) -> None:
    before = talk.session.settings
    answer = Connection(talk, Codec(dialect)).update(instructions="Never.", **session)
    assert answer["type"] == "error"
    assert answer["error"]["param"] == f"session.{param}"
    assert talk.session.settings == before


@pytest.mark.parametrize(
    ("response", "param"),
    [
        ({"output_audio_format": {"type": "audio/pcm", "rate": 8000}}, "output_audio_format.rate"),
        ({"audio": {"output": {"format": {"type": "audio/pcm", "rate": 8000}}}}, "audio.output.format.rate"),
        ({"modalities": ["smell"]}, "modalities[0]"),
        ({"temperature": 2}, "temperature"),
        ({"max_response_output_tokens": "much"}, "max_response_output_tokens"),
        ({"input": [{"type": "item_reference", "id": "gone"}], "voice": "amy"}, "input[0].id"),
    ],
)
def test_an_error_names_the_term_as_the_client_wrote_it(talk: Talk, response: Json, param: str) -> None:
    answer = Connection(talk).ask("response.create", event_id="e7", response=response)[-1]
    assert answer["type"] == "error"
    assert (answer["error"]["param"], answer["error"]["event_id"]) == (f"response.{param}", "e7")


def test_a_voice_that_is_fixed_is_named_as_the_client_wrote_it(talk: Talk) -> None:
    client = Connection(talk)
    client.ask("response.create")
    talk.speak(("Hello. ", 300))
    talk.wait(2)
    client.hear()
    error = client.update(voice="amy")["error"]
    assert (error["code"], error["param"]) == ("cannot_update_voice", "session.voice")
    error = client.update(audio={"output": {"voice": "amy"}})["error"]
    assert (error["code"], error["param"]) == ("cannot_update_voice", "session.audio.output.voice")


def test_a_word_where_we_have_an_object_is_named_as_a_whole() -> None:
    event = beta_in.read(
        '{"type":"session.update","session":{"input_audio_format":"g711_ulaw","output_audio_format":{}}}'
    )
    assert isinstance(event, wire.Fault)
    assert event.param == "session.output_audio_format.type"
    event = beta_in.read('{"type":"session.update","session":{"input_audio_format":"g711_ulaw"}}')
    assert isinstance(event, wire.SessionUpdate)
    fault = wire.Fault(code="invalid_value", message="No.", param="session.audio.input.format.type")
    assert wire.in_its_words(fault, event).param == "session.input_audio_format"
