"""Tests the settings of a session: what is shown, what a client may change, and that a bad change changes nothing."""

from __future__ import annotations

from typing import Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duplex_server.realtime import wire
from duplex_server.realtime.config import Abilities
from duplex_server.realtime.effects import Begin, Prepare, Recognize
from duplex_server.realtime.schema import (
    AudioOutput,
    FunctionTool,
    NoiseReduction,
    PromptReference,
    RetentionRatio,
    SemanticVad,
    ServerVad,
    Session,
    SessionAudio,
    SessionPatch,
    Transcription,
)
from duplex_server.realtime.settings import merge, opening, resolve_voice
from duplex_server.realtime.wire import Fault, SessionUpdate
from pipeline.chunk import TextPart
from tests.realtime.conftest import OpenTalk
from tests.realtime.talk import CASES, DEFAULTS, Talk, kinds

ALWAYS = {
    "type",
    "object",
    "id",
    "model",
    "expires_at",
    "output_modalities",
    "instructions",
    "audio",
    "tools",
    "tool_choice",
    "max_output_tokens",
    "truncation",
    "tracing",
    "prompt",
    "include",
}


def echoed(talk: Talk) -> Session:
    """The settings that the last update was answered with."""
    session = talk.last(wire.SessionUpdated).session
    assert isinstance(session, Session)
    return session


def check_refused(talk: Talk, param: str, code: str = "invalid_value") -> None:
    """The last update was refused for this field and changed nothing."""
    before = talk.last(wire.SessionCreated).session
    error = talk.last(wire.Error).error
    assert (error.param, error.code) == (param, code)
    assert not talk.events(wire.SessionUpdated)
    assert talk.session.settings == before


LOGPROBS: Final = "item.input_audio_transcription.logprobs"
ABLE = Abilities(noise_reduction=("near_field", "far_field"), include=(LOGPROBS,))
"""A pipeline that honours what none of ours does."""


def output(talk: Talk, **fields: object) -> list[str]:
    return kinds(talk.update(audio={"output": fields}))


# ---- what is shown ------------------------------------------------------------------------------------------------


def test_check_042_a_session_shows_every_setting_at_once(talk: Talk) -> None:
    assert kinds(talk.told) == ["session.created"]
    shown = msgspec.json.decode(wire.encode(talk.told[0]))["session"]
    assert set(shown) == ALWAYS
    assert (shown["type"], shown["object"], shown["model"]) == ("realtime", "realtime.session", "gpt-realtime")
    assert shown["id"].startswith("sess_")
    assert shown["instructions"] == "Be brief."
    assert set(shown["audio"]["input"]) == {"format", "transcription", "noise_reduction", "turn_detection"}
    assert shown["audio"]["output"] == {
        "format": {"type": "audio/pcm", "rate": 24000},
        "voice": "marin",
        "speed": 1.0,
    }


def test_check_043_a_session_speaks_unless_asked_otherwise(talk: Talk) -> None:
    session = talk.last(wire.SessionCreated).session
    assert isinstance(session, Session)
    assert session.output_modalities == ("audio",)


# ---- merging ------------------------------------------------------------------------------------------------------


def test_check_047_naming_the_kind_of_detection_refills_its_defaults(talk: Talk) -> None:
    talk.listen(turn_detection={"type": "server_vad", "threshold": 0.8, "silence_duration_ms": 900})
    talk.listen(turn_detection={"type": "server_vad", "prefix_padding_ms": 100})
    assert echoed(talk).audio.input.turn_detection == ServerVad(prefix_padding_ms=100)


def test_check_048_without_a_kind_the_detection_is_merged(talk: Talk) -> None:
    talk.listen(turn_detection={"type": "server_vad", "threshold": 0.8})
    talk.listen(turn_detection={"silence_duration_ms": 900, "threshold": None})
    assert echoed(talk).audio.input.turn_detection == ServerVad(threshold=0.8, silence_duration_ms=900)


def test_check_048_detection_that_was_off_comes_back_by_one_of_its_fields(talk: Talk) -> None:
    talk.by_hand()
    talk.listen(turn_detection={"create_response": False})
    assert echoed(talk).audio.input.turn_detection == ServerVad(create_response=False)


def test_check_048_fields_of_the_other_kind_are_ignored(talk: Talk) -> None:
    talk.listen(turn_detection={"type": "semantic_vad", "eagerness": "low", "threshold": 0.9})
    assert echoed(talk).audio.input.turn_detection == SemanticVad(eagerness="low")


def test_check_049_new_instructions_leave_the_audio_alone(talk: Talk) -> None:
    talk.listen(turn_detection={"type": "server_vad", "threshold": 0.7}, transcription={"model": "m"})
    before = echoed(talk)
    talk.update(instructions="Speak like a pirate.")
    assert echoed(talk) == msgspec.structs.replace(before, instructions="Speak like a pirate.")


def test_check_050_empty_values_clear(talk: Talk) -> None:
    talk.update(tools=[{"type": "function", "name": "f"}])
    assert echoed(talk).tools == (FunctionTool(name="f"),)
    talk.update(instructions="", tools=[])
    assert (echoed(talk).instructions, echoed(talk).tools) == ("", ())
    talk.ask("response.create")
    assert talk.prompt == ()
    talk.end()


@pytest.mark.parametrize("model", ["gpt-realtime", "another", None])
def test_check_051_the_model_can_not_be_changed_and_asking_is_no_error(talk: Talk, model: str | None) -> None:
    talk.update(model=model)
    assert echoed(talk).model == "gpt-realtime"
    assert talk.errors == []


@pytest.mark.parametrize("tracing", ["auto", {"workflow_name": "w", "metadata": {"a": 1}}, None])
def test_check_052_tracing_is_echoed(talk: Talk, tracing: object) -> None:
    talk.update(tracing="auto")
    talk.update(tracing=tracing)
    kept = echoed(talk).tracing
    assert (None if kept is None else msgspec.json.decode(kept)) == tracing


def test_check_053_an_update_needs_no_type(talk: Talk) -> None:
    assert kinds(talk.ask("session.update", session={"instructions": "x"})) == ["session.updated"]


def test_check_053_a_session_keeps_its_type(talk: Talk) -> None:
    assert kinds(talk.ask("session.update", session={"type": "transcription"})) == ["error"]
    check_refused(talk, "session.type")


def test_check_054_the_settings_of_transcription_are_echoed_as_they_were_set(talk: Talk) -> None:
    talk.listen(transcription={"model": "whisper-1", "language": None, "keywords": None})
    assert msgspec.to_builtins(echoed(talk).audio.input.transcription) == {"model": "whisper-1"}
    talk.listen(transcription={"keywords": ["Ada", "Linz"], "languages": ["de"]})
    kept = echoed(talk).audio.input.transcription
    assert kept == Transcription(keywords=("Ada", "Linz"), languages=("de",)), "the client asked for them"
    talk.speech()
    talk.silence()
    asked = talk.effects(Recognize)[-1]
    assert (asked.language, asked.prompt) == ("de", "Ada, Linz")


def test_check_055_null_turns_off(open_talk: OpenTalk) -> None:
    talk = open_talk(abilities=ABLE)
    talk.update(
        tracing="auto",
        prompt={"id": "pmpt_1"},
        include=[LOGPROBS, LOGPROBS],
        audio={"input": {"transcription": {"model": "m"}, "noise_reduction": {"type": "near_field"}}},
    )
    assert echoed(talk).include == (LOGPROBS,)
    talk.update(
        tracing=None, prompt=None, include=None, audio={"input": {"transcription": None, "noise_reduction": None}}
    )
    after = echoed(talk)
    assert (after.tracing, after.prompt, after.include) == (None, None, None)
    assert (after.audio.input.transcription, after.audio.input.noise_reduction) == (None, None)


def test_check_055_absent_leaves_alone_and_null_where_it_means_nothing_too(talk: Talk) -> None:
    talk.update(tracing="auto", prompt={"id": "p"}, instructions="x", max_output_tokens=7)
    before = echoed(talk)
    talk.update()
    talk.update(
        instructions=None,
        output_modalities=None,
        tools=None,
        tool_choice=None,
        max_output_tokens=None,
        truncation=None,
        audio={"input": None, "output": {"voice": None, "speed": None, "format": None}},
    )
    talk.update(audio=None)
    talk.update(audio={"output": None, "input": {"format": None}})
    assert echoed(talk) == before


def test_noise_reduction_keeps_its_strength(open_talk: OpenTalk) -> None:
    talk = open_talk(abilities=ABLE)
    talk.listen(noise_reduction={"type": "far_field", "strength": 0.4})
    talk.listen(noise_reduction={"type": "far_field"})
    assert echoed(talk).audio.input.noise_reduction == NoiseReduction(type="far_field", strength=0.4)
    talk.listen(noise_reduction={"strength": 0.2})
    assert echoed(talk).audio.input.noise_reduction == NoiseReduction(type="far_field", strength=0.2)


def test_noise_reduction_without_a_type_is_an_error(talk: Talk) -> None:
    talk.listen(noise_reduction={"strength": 0.2})
    check_refused(talk, "session.audio.input.noise_reduction.type", "missing_required_parameter")


# ---- voices -------------------------------------------------------------------------------------------------------


def test_check_056_a_voice_by_its_id_is_echoed_as_a_string(talk: Talk) -> None:
    output(talk, voice={"id": "amy"})
    assert echoed(talk).audio.output.voice == "amy"


def test_check_057_the_voice_may_change_until_it_was_heard(talk: Talk) -> None:
    output(talk, voice="amy")
    talk.say("hello")
    talk.speak(("Hi. ", 500))
    assert output(talk, voice="joe") == ["error"]
    error = talk.last(wire.Error).error
    assert (error.code, error.param) == ("cannot_update_voice", "session.audio.output.voice")
    assert talk.session.settings.audio.output.voice == "amy"


def test_check_058_the_same_voice_again_is_no_error(talk: Talk) -> None:
    output(talk, voice="amy")
    talk.say("hello")
    talk.speak(("Hi. ", 500))
    assert output(talk, voice="amy", speed=1.2) == ["session.updated"]
    assert echoed(talk).audio.output.speed == 1.2


def test_a_voice_the_talker_does_not_have_becomes_its_default_and_is_echoed_as_that(talk: Talk) -> None:
    output(talk, voice="nobody")
    assert echoed(talk).audio.output.voice == "joe"
    assert resolve_voice("shimmer", "joe", ("joe",)) == "shimmer", "a name that stock clients ask for"
    assert resolve_voice("nobody", "marin", ()) == "nobody", "a talker that names no voices"


# ---- values that can't be taken -----------------------------------------------------------------------------------


@pytest.mark.parametrize("speed", [0.24, 1.51])
def test_check_059_a_speed_out_of_range_is_refused(talk: Talk, speed: float) -> None:
    assert output(talk, speed=speed) == ["error"]
    check_refused(talk, "session.audio.output.speed")


@pytest.mark.parametrize("tokens", [0, 4097])
def test_check_060_a_bound_out_of_range_is_refused(talk: Talk, tokens: int) -> None:
    talk.update(max_output_tokens=tokens)
    check_refused(talk, "session.max_output_tokens")


@pytest.mark.parametrize("tokens", [1, 4096, "inf"])
def test_check_060_a_bound_in_range_is_taken(talk: Talk, tokens: int | str) -> None:
    talk.update(max_output_tokens=tokens)
    assert echoed(talk).max_output_tokens == tokens


@pytest.mark.parametrize("timeout_ms", [4999, 30_001])
def test_check_061_an_idle_timeout_out_of_range_is_refused(talk: Talk, timeout_ms: int) -> None:
    talk.listen(turn_detection={"type": "server_vad", "idle_timeout_ms": timeout_ms})
    check_refused(talk, "session.audio.input.turn_detection.idle_timeout_ms")


@pytest.mark.parametrize("timeout_ms", [5000, 30_000, None])
def test_check_061_an_idle_timeout_in_range_is_taken(talk: Talk, timeout_ms: int | None) -> None:
    talk.listen(turn_detection={"type": "server_vad", "idle_timeout_ms": 6000})
    talk.listen(turn_detection={"idle_timeout_ms": timeout_ms})
    assert echoed(talk).audio.input.turn_detection == ServerVad(idle_timeout_ms=timeout_ms)


@pytest.mark.parametrize("side", ["input", "output"])
@pytest.mark.parametrize(
    ("kind", "rate_hz"), [("audio/pcm", 8000), ("audio/pcm", 16_000), ("audio/pcm", 48_000), ("audio/pcmu", 24_000)]
)
def test_check_062_another_rate_is_refused(talk: Talk, side: str, kind: str, rate_hz: int) -> None:
    talk.update(audio={side: {"format": {"type": kind, "rate": rate_hz}}})
    check_refused(talk, f"session.audio.{side}.format.rate")


@pytest.mark.parametrize("heard", ["audio/pcm", "audio/pcmu", "audio/pcma"])
@pytest.mark.parametrize("told", ["audio/pcm", "audio/pcmu", "audio/pcma"])
def test_check_063_each_side_has_a_format_of_its_own(talk: Talk, told: str, heard: str) -> None:
    talk.update(audio={"input": {"format": {"type": told}}, "output": {"format": {"type": heard}}})
    audio = echoed(talk).audio
    assert (audio.input.format.type, audio.output.format.type) == (told, heard)
    talk.update(audio={"output": {"format": {"type": "audio/pcm"}}})
    assert echoed(talk).audio.input.format.type == told


@pytest.mark.parametrize(("kind", "name"), [("audio/pcmu", "g711_ulaw"), ("audio/pcma", "g711_alaw")])
def test_check_065_the_telephones_formats_are_echoed_as_objects_without_a_rate(
    talk: Talk, kind: str, name: str
) -> None:
    for written in (name, {"type": kind}, {"type": kind, "rate": 8000}):
        talk.update(audio={"input": {"format": written}, "output": {"format": written}})
        shown = msgspec.to_builtins(echoed(talk).audio)
        assert shown["input"]["format"] == shown["output"]["format"] == {"type": kind}
        talk.update(audio={"input": {"format": "pcm16"}, "output": {"format": "pcm16"}})


def test_check_064_a_failed_update_applies_none_of_its_fields(talk: Talk) -> None:
    audio = {"output": {"voice": "amy", "format": {"type": "audio/pcm", "rate": 8000}}}
    talk.update(instructions="new", audio=audio)
    check_refused(talk, "session.audio.output.format.rate")


@pytest.mark.parametrize("kind", ["pcm16", {"type": "audio/pcm"}, {"type": "audio/pcm", "rate": 24_000}])
def test_check_065_every_name_of_the_format_is_echoed_as_the_object(talk: Talk, kind: object) -> None:
    talk.update(audio={"input": {"format": kind}, "output": {"format": kind}})
    shown = msgspec.to_builtins(echoed(talk).audio)
    assert shown["input"]["format"] == shown["output"]["format"] == {"type": "audio/pcm", "rate": 24_000}


def test_check_068_a_rule_for_long_contexts_is_echoed(talk: Talk) -> None:
    talk.update(
        truncation={"type": "retention_ratio", "retention_ratio": 0.5, "token_limits": {"post_instructions": 9}}
    )
    kept = echoed(talk).truncation
    assert isinstance(kept, RetentionRatio)
    assert kept.retention_ratio == 0.5
    talk.update(truncation="disabled")
    assert echoed(talk).truncation == "disabled"


def test_check_068_a_ratio_over_one_is_refused(talk: Talk) -> None:
    talk.update(truncation={"type": "retention_ratio", "retention_ratio": 1.5})
    check_refused(talk, "session.truncation.retention_ratio")


# ---- what a session begins with -----------------------------------------------------------------------------------


def test_a_session_begins_with_what_it_was_given_and_shows_it_before_it_begins(open_talk: OpenTalk) -> None:
    tool = FunctionTool(name="sail", parameters=msgspec.Raw(b'{\n  "type": "object"\n}'))
    start = SessionPatch(instructions="Be a pirate.", prompt=PromptReference(id="p"), tools=(tool,))
    talk = open_talk(start=start)
    first = talk.last(wire.SessionCreated).session
    assert isinstance(first, Session)
    assert (first.instructions, first.prompt) == ("Be a pirate.", None)
    assert first == opening(msgspec.structs.replace(DEFAULTS, start=start))
    prepared = talk.effects(Prepare)[-1].prompt
    assert prepared.parts == (TextPart("instructions", "system", "Be a pirate."),)
    assert [msgspec.json.decode(one.parameters) for one in prepared.tools] == [{"type": "object"}]


@pytest.mark.parametrize(
    ("start", "param"),
    [
        (SessionPatch(type="transcription"), "session.type"),
        (SessionPatch(output_modalities=()), "session.output_modalities"),
    ],
)
def test_what_a_session_can_not_begin_with_is_told_by_its_path(start: SessionPatch, param: str) -> None:
    fault = opening(msgspec.structs.replace(DEFAULTS, start=start))
    assert isinstance(fault, Fault)
    assert fault.param == param


# ---- values and their kinds ---------------------------------------------------------------------------------------


def test_no_modality_at_all_is_refused(talk: Talk) -> None:
    talk.update(output_modalities=[])
    check_refused(talk, "session.output_modalities")


def test_both_modalities_mean_speech(talk: Talk) -> None:
    talk.update(output_modalities=["text", "audio"])
    assert echoed(talk).output_modalities == ("audio",)
    talk.update(output_modalities=["text"])
    assert echoed(talk).output_modalities == ("text",)


# ---- what they do -------------------------------------------------------------------------------------------------


def test_f9_new_instructions_and_tools_hold_from_the_next_response_on(talk: Talk) -> None:
    talk.say("hello")
    talk.speak(("Hi. ", 500))
    parameters = {"type": "object", "properties": {}}
    talk.update(instructions="Use the clock.", tools=[{"type": "function", "name": "clock", "parameters": parameters}])
    prepared = talk.effects(Prepare)[-1].prompt
    talk.silence(3000)
    talk.say("what time is it?")
    begun = talk.effects(Begin)[-1].think.prompt
    for prompt in (prepared, begun):
        assert prompt.parts[0] == TextPart("instructions", "system", "Use the clock.")
        assert [(tool.name, msgspec.json.decode(tool.parameters)) for tool in prompt.tools] == [("clock", parameters)]
    assert prepared.parts == begun.parts[: len(prepared.parts)], "what was prepared is a prefix of what comes"
    talk.end()


def test_f14_a_session_starts_from_the_servers_settings_whatever_another_was_told(open_talk: OpenTalk) -> None:
    first, second = open_talk(), open_talk(stream="s2", id_seed="other")
    first.update(instructions="I am a pirate.", audio={"output": {"voice": "amy"}})
    second.update()
    assert echoed(second).instructions == "Be brief."
    assert echoed(second).audio.output.voice == "marin"
    assert not {event.event_id for event in first.told} & {event.event_id for event in second.told}


# ---- properties ---------------------------------------------------------------------------------------------------

BASE = Session(
    id="sess_1", model="m", expires_at=1, instructions="i", audio=SessionAudio(output=AudioOutput(voice="joe"))
)

values: dict[str, st.SearchStrategy[object]] = {
    "instructions": st.sampled_from(["", "a", None]),
    "output_modalities": st.sampled_from([["audio"], ["text"], [], None]),
    "max_output_tokens": st.sampled_from([1, 4096, "inf", None]),
    "tool_choice": st.sampled_from(["auto", "none", "required", None]),
    "truncation": st.sampled_from(["auto", "disabled", None]),
    "tracing": st.sampled_from(["auto", None]),
    "parallel_tool_calls": st.sampled_from([True, False, None]),
    "type": st.sampled_from(["realtime", "transcription", None]),
    "audio": st.fixed_dictionaries(
        {},
        optional={
            "input": st.fixed_dictionaries(
                {},
                optional={
                    "format": st.sampled_from(["pcm16", {"type": "audio/pcm", "rate": 8000}, None]),
                    "transcription": st.sampled_from([{"model": "m"}, {"language": None}, None]),
                    "noise_reduction": st.sampled_from([{"type": "near_field"}, {"strength": 1.0}, None]),
                    "turn_detection": st.sampled_from(
                        [
                            {"type": "server_vad"},
                            {"type": "semantic_vad"},
                            {"threshold": 0.9},
                            {"eagerness": None},
                            None,
                        ]
                    ),
                },
            ),
            "output": st.fixed_dictionaries(
                {},
                optional={
                    "voice": st.sampled_from(["joe", "marin", "nobody", {"id": "amy"}, None]),
                    "speed": st.sampled_from([0.25, 1.5, None]),
                    "format": st.sampled_from(["g711_ulaw", {"type": "audio/pcm"}, None]),
                },
            ),
        },
    ),
}
patches = st.fixed_dictionaries({}, optional=values)


def patched(session: Session, patch: dict[str, object], *, fixed: bool) -> Session | Fault:
    event = wire.decode(msgspec.json.encode({"type": "session.update", "session": patch}))
    assert isinstance(event, SessionUpdate), event
    return merge(session, event.session, DEFAULTS, voice_fixed=fixed)


@CASES
@given(st.lists(patches, max_size=4), st.booleans())
def test_a_merge_changes_what_was_named_or_nothing_at_all(steps: list[dict[str, object]], fixed: bool) -> None:
    session = BASE
    for patch in steps:
        merged = patched(session, patch, fixed=fixed)
        if isinstance(merged, Fault):
            assert (merged.param or "").startswith("session.")
            continue
        named = {name for name, value in patch.items() if value is not None or name == "tracing"}
        changed = {name for name in session.__struct_fields__ if getattr(session, name) != getattr(merged, name)}
        assert changed <= named
        assert patched(merged, patch, fixed=fixed) == merged, "the same update again changes nothing"
        shown = msgspec.json.decode(msgspec.json.encode(merged))
        again = {name: shown[name] for name in values if name in shown}
        assert patched(merged, again, fixed=fixed) == merged, "what is echoed may be sent back"
        assert not fixed or merged.audio.output.voice == session.audio.output.voice
        session = merged
