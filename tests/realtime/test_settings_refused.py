"""Tests what of a client's settings is refused: what is too long or wrong, and what a strict server can't honour."""

from __future__ import annotations

import msgspec
import pytest

from duplex_server.realtime import wire
from duplex_server.realtime.bounds import INSTRUCTIONS_CHARS, TOOLS
from duplex_server.realtime.config import Abilities
from duplex_server.realtime.schema import FunctionTool, Transcription
from tests.realtime.conftest import OpenTalk
from tests.realtime.talk import Talk, kinds
from tests.realtime.test_settings import LOGPROBS, check_refused, echoed

ENGLISH = Abilities(languages=("en",))


def test_check_069_tools_of_other_servers_are_refused_by_name_and_their_secrets_never_told(talk: Talk) -> None:
    secrets = {"authorization": "Bearer s3cret", "headers": {"X-Key": "s3cret"}}
    talk.update(tools=[{"type": "function", "name": "f"}, {"type": "mcp", "server_label": "s", **secrets}])
    check_refused(talk, "session.tools[1].type")
    talk.update(tools=[{"type": "function", "name": "f", **secrets}])
    assert echoed(talk).tools == (FunctionTool(name="f"),)
    assert not [event for event in talk.told if b"s3cret" in wire.encode(event)]


@pytest.mark.parametrize(
    ("tools", "param", "code"),
    [
        ([{"type": "function", "name": "one"}, {"type": "function", "name": "look up"}], "[1].name", "invalid_value"),
        ([{"type": "function", "name": ""}], "[0].name", "invalid_value"),
        ([{"type": "function", "name": "f" * 65}], "[0].name", "invalid_value"),
        ([{"type": "function", "name": "one"}, {"type": "function", "name": "one"}], "[1].name", "invalid_value"),
        ([{"type": "function"}], "[0].name", "missing_required_parameter"),
        ([{"type": "function", "name": "f", "parameters": [1]}], "[0].parameters", "invalid_type"),
        ([{"type": "function", "name": f"f{number}"} for number in range(TOOLS + 1)], "", "invalid_value"),
        ([{"type": "function", "name": f"f{n}", "description": "d" * 90_000} for n in range(3)], "", "invalid_value"),
    ],
)
def test_tools_that_can_not_be_used_are_refused_where_they_stand(
    talk: Talk, tools: list[object], param: str, code: str
) -> None:
    talk.update(instructions="changed?", tools=tools)
    check_refused(talk, f"session.tools{param}", code)


@pytest.mark.parametrize(
    ("response", "param"),
    [
        ({"instructions": "x" * (INSTRUCTIONS_CHARS + 1)}, "response.instructions"),
        ({"tools": [{"type": "function", "name": "f"}, {"type": "function", "name": "f"}]}, "response.tools[1].name"),
    ],
)
def test_the_same_bounds_hold_for_a_single_response(talk: Talk, response: dict[str, object], param: str) -> None:
    assert kinds(talk.ask("response.create", response=response, event_id="mine")) == ["error"]
    error = talk.last(wire.Error).error
    assert (error.code, error.param, error.event_id) == ("invalid_value", param, "mine")


def test_null_in_a_tool_means_not_given(talk: Talk) -> None:
    talk.update(tools=[{"type": "function", "name": "f", "description": None, "parameters": None}])
    assert msgspec.json.encode(echoed(talk).tools) == b'[{"type":"function","name":"f"}]'


def test_instructions_longer_than_can_be_echoed_are_refused(talk: Talk) -> None:
    talk.update(instructions="x" * (INSTRUCTIONS_CHARS + 1))
    check_refused(talk, "session.instructions")
    assert str(INSTRUCTIONS_CHARS + 1) in talk.last(wire.Error).error.message
    talk.update(instructions="x" * INSTRUCTIONS_CHARS)
    assert len(echoed(talk).instructions) == INSTRUCTIONS_CHARS


def test_all_settings_at_their_bounds_are_told_in_a_frame_that_clients_take(talk: Talk) -> None:
    talk.update(
        instructions="\0" * INSTRUCTIONS_CHARS,
        tools=[{"type": "function", "name": f"f{n}", "description": "d" * 87_000} for n in range(3)],
        tracing={"metadata": "m" * 16_000},
        audio={"input": {"transcription": {"prompt": "\0" * 4096, "keywords": ["\0"] * 4096}}},
    )
    assert len(wire.encode(talk.last(wire.SessionUpdated))) < 2**20


@pytest.mark.parametrize(
    ("session", "param", "code"),
    [
        ({"instructions": 5}, "instructions", "invalid_type"),
        ({"tracing": 5}, "tracing", "invalid_type"),
        ({"tracing": {"metadata": "m" * 20_000}}, "tracing", "invalid_value"),
        ({"tool_choice": "maybe"}, "tool_choice", "invalid_value"),
        ({"include": ["everything"]}, "include[0]", "invalid_value"),
        (
            {"audio": {"input": {"turn_detection": {"type": "none"}}}},
            "audio.input.turn_detection.type",
            "invalid_value",
        ),
        (
            {"audio": {"input": {"turn_detection": {"threshold": 1.1}}}},
            "audio.input.turn_detection.threshold",
            "invalid_value",
        ),
        (
            {"audio": {"input": {"turn_detection": {"create_response": "yes"}}}},
            "audio.input.turn_detection.create_response",
            "invalid_type",
        ),
        (
            {"audio": {"input": {"transcription": {"prompt": "p" * 5000}}}},
            "audio.input.transcription.prompt",
            "invalid_value",
        ),
        (
            {"audio": {"input": {"transcription": {"keywords": ["k" * 5000]}}}},
            "audio.input.transcription.keywords",
            "invalid_value",
        ),
    ],
)
def test_check_064_an_invalid_value_is_one_error_with_its_path_and_changes_nothing(
    talk: Talk, session: dict[str, object], param: str, code: str
) -> None:
    before = talk.session.settings
    told = talk.update(**{"max_output_tokens": 7, **session})
    assert kinds(told) == ["error"]
    error = talk.last(wire.Error).error
    assert (error.param is not None and error.param.startswith(f"session.{param}"), error.code) == (True, code), error
    assert talk.session.settings == before


# ---- values that this pipeline can't honour -----------------------------------------------------------------------

UNHONOURED: list[tuple[dict[str, object], str]] = [
    ({"audio": {"output": {"voice": "nobody"}}}, "session.audio.output.voice"),
    ({"audio": {"output": {"voice": {"id": "nobody"}}}}, "session.audio.output.voice"),
    ({"audio": {"input": {"noise_reduction": {"type": "far_field"}}}}, "session.audio.input.noise_reduction"),
    ({"audio": {"input": {"transcription": {"language": "de"}}}}, "session.audio.input.transcription.language"),
    (
        {"audio": {"input": {"transcription": {"languages": ["en", "de"]}}}},
        "session.audio.input.transcription.languages",
    ),
    ({"include": [LOGPROBS]}, "session.include"),
    ({"prompt": {"id": "pmpt_1"}}, "session.prompt"),
    ({"reasoning": {"effort": "low"}}, "session.reasoning"),
]


@pytest.mark.parametrize(("session", "param"), UNHONOURED)
def test_a_strict_server_refuses_what_it_can_not_honour_and_names_the_field(
    open_talk: OpenTalk, session: dict[str, object], param: str
) -> None:
    talk = open_talk(strict_settings=True, abilities=ENGLISH)
    talk.update(instructions="changed?", **session)
    check_refused(talk, param)


def test_another_server_takes_the_nearest_and_echoes_that(open_talk: OpenTalk) -> None:
    talk = open_talk(abilities=ENGLISH)
    for session, _ in UNHONOURED:
        assert kinds(talk.update(**session)) == ["session.updated"]
    after = echoed(talk)
    assert (after.include, after.prompt, after.reasoning) == (None, None, msgspec.UNSET)
    assert after.audio.input.noise_reduction is None
    assert after.audio.input.transcription == Transcription(languages=("en",))
    talk.listen(transcription={"model": "whisper-1", "language": "de"})
    assert echoed(talk).audio.input.transcription == Transcription(model="whisper-1", language="en")
    talk.listen(transcription={"language": "en-GB"})
    assert echoed(talk).audio.input.transcription == Transcription(language="en-GB"), "a region does not matter"
    assert after.audio.output.voice == "joe"
    assert talk.errors == []


def test_check_093_there_are_no_logprobs_and_none_are_promised(talk: Talk) -> None:
    talk.update(include=[LOGPROBS], audio={"input": {"transcription": {"model": "whisper-1"}}})
    assert echoed(talk).include is None
    talk.say("hello")
    completed = msgspec.json.decode(wire.encode(talk.last(wire.TranscriptionCompleted)))
    assert "logprobs" not in completed
    talk.end()


def test_a_strict_server_takes_what_it_can_honour(open_talk: OpenTalk) -> None:
    talk = open_talk(strict_settings=True, abilities=ENGLISH)
    off = {"noise_reduction": None, "transcription": {"model": "gpt-4o-transcribe", "language": "en"}}
    talk.update(include=None, prompt=None, tracing="auto", audio={"input": off, "output": {"voice": "alloy"}})
    assert talk.errors == []
    assert echoed(talk).audio.output.voice == "alloy"
