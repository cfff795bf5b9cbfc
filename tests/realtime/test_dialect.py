"""Tests the older dialect of the protocol: what its clients write, what they are told, and how they are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duplex_server.realtime import wire
from duplex_server.realtime.config import Abilities
from duplex_server.realtime.dialect import Codec, open_codec
from duplex_server.realtime.effects import Begin
from tests.conformance.realtime_validator import Validator
from tests.realtime import anything
from tests.realtime.conftest import OpenTalk
from tests.realtime.connection import Connection, Json, problems
from tests.realtime.talk import CASES, Talk

NO_WORD_FOR = {"idle_timeout_ms", "delay", "keywords", "languages", "strength", "image_url", "detail"}
"""Fields that the older dialect's types do not declare; each is there only because its client has asked for it."""
CLIENT_OF_BETA = {"openai-beta": "realtime=v1"}
SWITCHING: dict[str, object] = {"modalities": ["text", "audio"], "instructions": "Be kind."}


def hold_a_conversation(talk: Talk) -> Connection:
    """Speech, a spoken answer with a call, a typed turn, an interruption, and all that is done to items."""
    client = Connection(talk)
    client.update(input_audio_transcription={"model": "whisper-1"}, turn_detection={"type": "server_vad"})
    talk.say("What time is it?")
    talk.speak(("Let me see. ", 400), end=False)
    talk.call("call_1", "clock", "{}")
    talk.end()
    talk.wait(5)
    client.ask("conversation.item.create", item={"type": "function_call_output", "call_id": "call_1", "output": "1"})
    client.ask("response.create", response={"modalities": ["text"]})
    talk.write("It is one.")
    talk.end()
    for role, kind in (("user", "input_text"), ("assistant", "text"), ("system", "input_text")):
        content = [{"type": kind, "text": "Hello."}]
        client.ask("conversation.item.create", item={"type": "message", "role": role, "content": content})
    client.ask("response.create", event_id="e1", response={"instructions": "Tell a story."})
    talk.speak(("Once upon a time ", 1000), ("there was a king. ", 1000), end=False)
    talk.speech()
    spoken = next(item for frame in client.hear() if (item := frame.get("item")) and item.get("role") == "assistant")
    client.ask("conversation.item.truncate", item_id=spoken["id"], content_index=0, audio_end_ms=600)
    client.ask("conversation.item.retrieve", item_id=spoken["id"])
    client.ask("conversation.item.delete", item_id=spoken["id"])
    talk.silence()
    talk.recognize("Stop.")
    talk.speak(("Yes. ", 200))
    talk.wait(5)
    client.ask("response.cancel")
    client.hear()
    return client


@pytest.fixture
def client(talk: Talk) -> Connection:
    return hold_a_conversation(talk)


# ---- what is told -------------------------------------------------------------------------------------------------


def test_check_165_the_conversation_is_created_right_after_the_session(talk: Talk, client: Connection) -> None:
    assert client.kinds[:2] == ["session.created", "conversation.created"]
    assert client.frames[1]["conversation"] == {"id": talk.session.conversation.id, "object": "realtime.conversation"}
    assert client.kinds.count("conversation.created") == 1
    assert {frame["response"]["conversation_id"] for frame in client.of("response.done")} == {
        talk.session.conversation.id
    }
    ids = [frame["event_id"] for frame in client.frames]
    assert len(ids) == len(set(ids))


def test_check_166_each_item_is_created_once_and_neither_added_nor_done(talk: Talk, client: Connection) -> None:
    created = client.of("conversation.item.created")
    added = talk.events(wire.ItemAdded)
    assert [frame["item"]["id"] for frame in created] == [event.item.id for event in added]
    assert [frame["previous_item_id"] for frame in created] == [event.previous_item_id for event in added]
    assert len(added) >= 8
    assert not {"conversation.item.added", "conversation.item.done"} & set(client.kinds)
    announced = client.kinds.index("response.output_item.added")
    assert client.kinds[announced : announced + 3] == [
        "response.output_item.added",
        "conversation.item.created",
        "response.content_part.added",
    ]


def test_check_167_what_is_heard_and_read_goes_by_the_older_names(talk: Talk, client: Connection) -> None:
    named = {kind for kind in client.kinds if kind.startswith("response.")}
    assert named >= {
        f"response.{what}.{end}" for what in ("audio", "audio_transcript", "text") for end in ("delta", "done")
    }
    assert not [kind for kind in named if kind.startswith("response.output_") and "output_item" not in kind]
    for ga, beta in ((wire.AudioDelta, "audio"), (wire.TranscriptDelta, "audio_transcript"), (wire.TextDelta, "text")):
        told = [msgspec.to_builtins(event) for event in talk.events(ga)]
        assert client.of(f"response.{beta}.delta") == [{**event, "type": f"response.{beta}.delta"} for event in told]


def test_check_168_the_parts_of_an_assistants_items_are_audio_and_text(client: Connection) -> None:
    items = [item for frame in client.frames if (item := frame.get("item"))]
    items += [item for frame in client.of("response.done") for item in frame["response"]["output"]]
    own, others = (
        {
            part["type"]
            for item in items
            if (item.get("role") == "assistant") is ours
            for part in item.get("content", ())
        }
        for ours in (True, False)
    )
    assert own == {"audio", "text"}
    assert others == {"input_audio", "input_text"}
    retrieved = client.of("conversation.item.retrieved")[0]["item"]["content"][0]
    assert (retrieved["type"], retrieved["transcript"]) == ("audio", "Once upon")


def test_check_169_a_whole_conversation_is_valid_in_the_older_dialect(client: Connection) -> None:
    assert problems(client.frames) == []
    assert problems(client.sent, client=True) == []
    assert len(set(client.kinds)) >= 25
    assert client.of("error")[0]["error"]["code"] == "response_cancel_not_active"


def test_check_169_a_fault_of_the_older_dialect_would_be_found(client: Connection) -> None:
    faults: list[Callable[[Json], Json]] = [
        lambda frame: {**frame, "type": frame["type"].replace("response.audio", "response.output_audio")},
        lambda frame: {**frame, "response": {**frame["response"], "audio": {}}} if "response" in frame else frame,
        lambda frame: {**frame, "type": frame["type"].replace("item.created", "item.added")},
    ]
    for fault in faults:
        assert problems([fault(frame) for frame in client.frames]) != []


def test_a_response_shows_its_terms_side_by_side(client: Connection) -> None:
    spoken, written = (frame["response"] for frame in client.of("response.done")[:2])
    assert set(spoken) == {
        "id",
        "object",
        "status",
        "status_details",
        "output",
        "conversation_id",
        "modalities",
        "voice",
        "output_audio_format",
        "temperature",
        "max_output_tokens",
        "metadata",
        "usage",
    }
    assert (spoken["modalities"], written["modalities"]) == (["audio", "text"], ["text"])
    assert (spoken["voice"], spoken["output_audio_format"], spoken["temperature"]) == ("marin", "pcm16", 0.8)
    assert spoken["max_output_tokens"] == "inf"
    usage = spoken["usage"]
    assert set(usage["input_token_details"]) == {"text_tokens", "audio_tokens", "cached_tokens"}
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]


@pytest.mark.parametrize("kind", get_args(wire.AnyServerEvent))
@given(data=st.data())
@settings(deadline=None, max_examples=30)
def test_any_event_has_a_form_in_the_older_dialect(kind: type[wire.AnyServerEvent], data: st.DataObject) -> None:
    event = data.draw(anything.of(kind))
    frames = Codec("beta").encode(event)
    if isinstance(event, wire.ItemDone | wire.TimeoutTriggered):
        assert frames == ()
        return
    assert len(frames) == 1
    found = Validator(beta=True).feed(msgspec.json.decode(frames[0]))
    assert [str(problem) for problem in found if not _asked_for(problem.path, problem.message)] == []


def _asked_for(path: str, message: str) -> bool:
    """A deviation from the types that only a client who wants it gets, or a name that the types want to know."""
    free = (path.startswith("session.") and path.endswith("model")) or message.startswith("'input_image'")
    return free or path.rpartition(".")[2] in NO_WORD_FOR


@CASES
@given(st.one_of(*map(anything.of, get_args(wire.AnyServerEvent))))
def test_the_ga_dialect_is_what_the_session_tells_without_the_temperature(event: wire.AnyServerEvent) -> None:
    plain: Any = msgspec.json.decode(wire.encode(event))
    for name in ("session", "response"):
        if isinstance(plain.get(name), dict):
            plain[name].pop("temperature", None)
    assert [msgspec.json.decode(frame) for frame in Codec().encode(event)] == [plain]


# ---- settings -----------------------------------------------------------------------------------------------------

ABLE = Abilities(recognizer="whisper-1", noise_reduction=("near_field",))
FLAT: Json = {
    "modalities": ["text"],
    "instructions": "Be kind.",
    "voice": "amy",
    "input_audio_format": "pcm16",
    "output_audio_format": "pcm16",
    "input_audio_transcription": {"model": "whisper-1", "language": "en"},
    "input_audio_noise_reduction": {"type": "near_field"},
    "turn_detection": {"type": "server_vad", "threshold": 0.6, "silence_duration_ms": 700},
    "tools": [{"type": "function", "name": "clock", "parameters": {"type": "object"}}],
    "tool_choice": "auto",
    "temperature": 1.0,
    "max_response_output_tokens": 100,
    "speed": 1.25,
    "tracing": "auto",
}


def test_check_066_a_flat_update_is_echoed_flat(open_talk: OpenTalk) -> None:
    talk = open_talk(abilities=ABLE)
    client = Connection(talk)
    before = client.frames[0]["session"]
    updated = client.update(**FLAT)
    assert updated["type"] == "session.updated"
    vad = {"prefix_padding_ms": 300, "create_response": True, "interrupt_response": True}
    assert updated["session"] == {
        **FLAT,
        "turn_detection": {**FLAT["turn_detection"], **vad},
        "id": talk.session.settings.id,
        "object": "realtime.session",
        "model": "gpt-realtime",
        "expires_at": talk.session.settings.expires_at,
    }
    assert set(before) == set(updated["session"])
    assert before["modalities"] == ["audio", "text"]
    assert problems([{"type": "session.update", "session": FLAT}], client=True) == []
    assert problems(client.frames) == []


def test_a_flat_update_changes_what_it_names_and_null_turns_off(open_talk: OpenTalk) -> None:
    talk = open_talk(abilities=ABLE)
    client = Connection(talk)
    client.update(**FLAT)
    session = client.update(turn_detection=None, input_audio_transcription=None, voice=None, modalities=None)["session"]
    changed = {"turn_detection": None, "input_audio_transcription": None}
    kept = {name: value for name, value in FLAT.items() if name not in changed and name != "turn_detection"}
    assert {name: session[name] for name in (*kept, *changed)} == {**kept, **changed}
    assert not talk.session.detects


def test_a_named_function_is_shown_by_its_name(talk: Talk) -> None:
    client = Connection(talk)
    tools = [{"type": "function", "name": "clock"}]
    session = client.update(tools=tools, tool_choice={"type": "function", "name": "clock"})["session"]
    assert (session["tools"], session["tool_choice"]) == (tools, "clock")


def test_a_temperature_changes_the_thinking_and_is_told_to_the_older_dialect_alone(open_talk: OpenTalk) -> None:
    talk = open_talk()
    client = Connection(talk)
    assert client.frames[0]["session"]["temperature"] == 0.8
    client.ask("response.create")
    assert talk.effects(Begin)[-1].think.temperature is None
    talk.end()
    assert client.update(temperature=1.1)["session"]["temperature"] == 1.1
    client.ask("response.create")
    talk.end()
    client.ask("response.create", response={"temperature": 0.6})
    talk.end()
    client.hear()
    assert [begin.think.temperature for begin in talk.effects(Begin)[1:]] == [1.1, 0.6]
    assert [frame["response"]["temperature"] for frame in client.of("response.done")] == [0.8, 1.1, 0.6]
    other = Connection(talk, Codec())
    assert not [frame for frame in other.frames if "temperature" in str(frame)]


def test_the_temperature_of_the_server_is_shown_and_holds_until_it_is_changed(open_talk: OpenTalk) -> None:
    talk = open_talk(temperature=0.2)
    client = Connection(talk)
    assert client.frames[0]["session"]["temperature"] == 0.2
    client.ask("response.create")
    talk.end()
    client.update(temperature=0.9)
    client.ask("response.create")
    assert [begin.think.temperature for begin in talk.effects(Begin)] == [0.2, 0.9]


# ---- sessions that only transcribe --------------------------------------------------------------------------------


@pytest.fixture
def scribe(open_talk: OpenTalk) -> Talk:
    return open_talk(kind="transcription", abilities=ABLE)


def test_a_session_that_only_transcribes_is_told_in_its_own_events(scribe: Talk) -> None:
    client = Connection(scribe)
    assert client.kinds == ["transcription_session.created"]
    asked: Json = {
        "input_audio_format": "pcm16",
        "input_audio_transcription": {"model": "whisper-1", "language": "en"},
        "input_audio_noise_reduction": {"type": "near_field"},
        "turn_detection": {"type": "server_vad", "threshold": 0.4},
        "modalities": ["text"],
        "include": None,
    }
    updated = client.ask("transcription_session.update", session=asked)[-1]
    assert updated["type"] == "transcription_session.updated"
    del asked["modalities"], asked["include"]
    vad = {"type": "server_vad", "threshold": 0.4, "prefix_padding_ms": 300, "silence_duration_ms": 500}
    assert updated["session"] == {
        **asked,
        "turn_detection": vad,
        "id": scribe.session.settings.id,
        "object": "realtime.transcription_session",
        "expires_at": scribe.session.settings.expires_at,
    }
    scribe.say("Note this.")
    client.hear()
    assert client.of("conversation.item.input_audio_transcription.completed")[0]["transcript"] == "Note this."
    assert client.kinds.count("conversation.item.created") == 1
    assert problems(client.frames) == []
    assert problems([{"type": "transcription_session.update", "session": asked}], client=True) == []


def test_the_older_update_of_transcription_switches_and_names_its_fields(scribe: Talk) -> None:
    client = Connection(scribe, open_codec("auto", {}, ()))
    assert client.frames[0]["session"]["type"] == "transcription"
    error = client.ask("transcription_session.update", session={"input_audio_noise_reduction": {}})[-1]["error"]
    assert error["param"] == "session.input_audio_noise_reduction.type"
    answer = client.ask("transcription_session.update", session={"turn_detection": None})[-1]
    assert (answer["type"], answer["session"]["turn_detection"]) == ("transcription_session.updated", None)


def test_a_session_that_talks_is_not_made_one_that_only_transcribes(talk: Talk) -> None:
    client = Connection(talk)
    error = client.ask("transcription_session.update", event_id="e3", session={"turn_detection": None})[-1]["error"]
    assert (error["param"], error["event_id"]) == ("type", "e3")
    assert talk.session.detects


# ---- which dialect ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "beta"),
    [("realtime=v1", True), ("assistants=v2, realtime=v1", True), ("assistants=v2", False), (None, False)],
)
def test_check_006_a_client_of_the_older_dialect_is_known_by_its_header(
    talk: Talk, header: str | None, beta: bool
) -> None:
    headers = {"authorization": "Bearer x", **({} if header is None else {"openai-beta": header})}
    frames = Connection(talk, open_codec("auto", headers, ["realtime"])).frames
    assert ("modalities" in frames[0]["session"]) is beta
    assert [frame["type"] for frame in frames[1:]] == ["conversation.created"] * beta


def test_check_007_a_client_of_the_older_dialect_is_known_by_its_subprotocol(open_talk: OpenTalk) -> None:
    offered = ["realtime", "openai-insecure-api-key.x", "openai-beta.realtime-v1"]
    assert "modalities" in Connection(open_talk(), open_codec("auto", {}, offered)).frames[0]["session"]
    assert "audio" in Connection(open_talk(), open_codec("auto", {}, offered[:2])).frames[0]["session"]


@pytest.mark.parametrize("headers", [{}, CLIENT_OF_BETA], ids=["plain", "asks for beta"])
def test_the_server_may_be_told_which_dialect_to_speak(open_talk: OpenTalk, headers: dict[str, str]) -> None:
    assert Connection(open_talk(), open_codec("beta", headers, ())).kinds == ["session.created", "conversation.created"]
    ga = Connection(open_talk(), open_codec("ga", headers, ()))
    assert ga.kinds == ["session.created"]
    assert "audio" in ga.update(**SWITCHING)["session"]


@pytest.mark.parametrize(
    "session",
    [
        {"modalities": ["text"]},
        {"voice": "amy", "instructions": "Be kind."},
        {"input_audio_format": "pcm16"},
        {"output_audio_format": "pcm16"},
        {"input_audio_transcription": None},
        {"turn_detection": None},
        {"temperature": 0.7},
        {"max_response_output_tokens": "inf"},
    ],
)
def test_check_067_a_first_update_that_is_flat_switches_what_the_client_is_told(
    open_talk: OpenTalk, session: Json
) -> None:
    talk = open_talk()
    client = Connection(talk, open_codec("auto", {}, ()))
    assert "audio" in client.frames[0]["session"]
    assert "max_response_output_tokens" in client.update(**session)["session"]
    client.ask("response.create", response={"modalities": ["audio", "text"]})
    talk.speak(("Hello. ", 300))
    talk.wait(2)
    kinds = [frame["type"] for frame in client.hear()]
    assert {"response.audio.delta", "conversation.item.created"} <= {*client.kinds, *kinds}
    assert problems(client.frames[1:]) == [
        "line 1: session.updated: sequence at type: first event must be session.created"
    ]


def test_check_067_a_first_update_switches_even_if_it_is_refused(talk: Talk) -> None:
    client = Connection(talk, open_codec("auto", {}, ()))
    assert client.update(temperature=7, voice="amy")["error"]["param"] == "session.temperature"
    assert "modalities" in client.update(instructions="Be kind.")["session"]


@pytest.mark.parametrize(
    "first",
    [
        {"type": "realtime", "voice": "amy"},
        {"instructions": "Be kind."},
        {"audio": {}, "voice": "amy"},
        {"type": 3},
        {},
    ],
)
def test_check_067_only_the_first_update_switches(talk: Talk, first: Json) -> None:
    client = Connection(talk, open_codec("auto", {}, ()))
    client.ask("input_audio_buffer.clear")
    client.ask("session.shout", session=SWITCHING)
    for session in (first, SWITCHING):
        client.update(**session)
        assert "audio" in client.update()["session"]
    assert client.ask("response.create")[0]["response"]["output_modalities"] == ["audio"]
    talk.speak(("Hello. ", 300))
    talk.wait(2)
    assert {"conversation.item.added", "response.output_audio.delta"} <= {frame["type"] for frame in client.hear()}
