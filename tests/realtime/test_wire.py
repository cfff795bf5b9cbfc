"""Tests that a frame becomes an event or a fault that names its field, and never an exception."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duplex_server.realtime import wire
from duplex_server.realtime.schema import Format
from duplex_server.realtime.wire import ClientEvent, Fault
from tests.realtime.talk import CASES, Talk, kinds


def fault(frame: str | bytes) -> Fault:
    event = wire.decode(frame)
    assert isinstance(event, Fault), event
    return event


@pytest.mark.parametrize("frame", ["hello", b"hello", "", b"\xff\xfe", "{", '{"type":"response.cancel"}x', "\ud800"])
def test_check_018_a_frame_that_is_no_json_is_one_error_and_the_session_lives(talk: Talk, frame: str | bytes) -> None:
    assert kinds(talk.frame(frame)) == ["error"]
    assert talk.errors == ["invalid_json"]
    assert kinds(talk.update()) == ["session.updated"]


@pytest.mark.parametrize("frame", ["[]", "3", "null", '"response.cancel"'])
def test_check_019_a_frame_that_is_no_object_is_one_error(talk: Talk, frame: str) -> None:
    assert kinds(talk.frame(frame)) == ["error"]
    assert talk.errors == ["invalid_type"]


def test_check_020_an_unknown_event_is_named_with_the_clients_id(talk: Talk) -> None:
    talk.ask("response.shout", event_id="e1")
    error = talk.last(wire.Error).error
    assert (error.code, error.param, error.event_id) == ("invalid_value", "type", "e1")
    assert "response.shout" in error.message


@pytest.mark.parametrize(
    ("frame", "code", "param"),
    [
        ('{"event_id":"e"}', "missing_required_parameter", "type"),
        ('{"type":3,"event_id":"e"}', "invalid_value", "type"),
        ('{"type":"session.update"}', "missing_required_parameter", "session"),
        ('{"type":"session.update","session":[]}', "invalid_type", "session"),
        ('{"type":"input_audio_buffer.append"}', "missing_required_parameter", "audio"),
        ('{"type":"input_audio_buffer.append","audio":3}', "invalid_type", "audio"),
        ('{"type":"conversation.item.delete"}', "missing_required_parameter", "item_id"),
        ('{"type":"conversation.item.truncate","item_id":"a","audio_end_ms":-1}', "invalid_value", "audio_end_ms"),
        ('{"type":"conversation.item.truncate","item_id":"a","audio_end_ms":"1"}', "invalid_type", "audio_end_ms"),
        ('{"type":"conversation.item.truncate","item_id":"a","audio_end_ms":1e400}', "invalid_value", "audio_end_ms"),
        ('{"type":"conversation.item.create","item":{"type":"mcp_call"}}', "invalid_value", "item.type"),
        (
            '{"type":"conversation.item.create","item":{"type":"message","role":"user","content":[{"type":"video"}]}}',
            "invalid_value",
            "item.content[0].type",
        ),
        ('{"type":"response.create","response":{"metadata":{"a":1}}}', "invalid_type", "response.metadata"),
        ('{"type":"response.create","response":{"tool_choice":"maybe"}}', "invalid_value", "response.tool_choice"),
        ('{"type":"response.cancel","event_id":5}', "invalid_type", "event_id"),
    ],
)
def test_f19_the_field_that_is_wrong_is_named(frame: str, code: str, param: str) -> None:
    found = fault(frame)
    assert (found.code, found.param) == (code, param)


def test_f19_a_fault_carries_the_clients_id_if_it_can_be_read() -> None:
    assert fault('{"type":"session.update","event_id":"e7"}').event_id == "e7"
    assert fault('{"type":"response.cancel","event_id":5}').event_id is None


@pytest.mark.parametrize("deep", ['{"a":', "["])
def test_f19_deep_nesting_is_an_error(deep: str) -> None:
    frame = '{"type":"session.update","session":{"tracing":' + deep * 100_000
    assert fault(frame).code == "invalid_json"


def test_f19_a_huge_number_is_taken_or_refused_and_never_raises(talk: Talk) -> None:
    talk.say("hello")
    talk.speak(("Hi. ", 500))
    item_id = talk.last(wire.OutputItemDone).item.id
    talk.ask("conversation.item.truncate", item_id=item_id, audio_end_ms=10**30)
    assert talk.last(wire.ItemTruncated).audio_end_ms == 500


def test_f19_a_binary_frame_of_json_is_read_as_text() -> None:
    assert wire.decode(b'{"type":"response.cancel","response_id":"r"}') == wire.CancelResponse(response_id="r")


def test_f19_bytes_that_are_no_text_are_found_where_nobody_looks() -> None:
    frame = b'{"type":"session.update","session":{"tools":[{"type":"function","name":"f","parameters":{"a":"\xff"}}]}}'
    assert fault(frame).code == "invalid_json"


def test_unknown_fields_are_ignored() -> None:
    assert wire.decode('{"type":"response.cancel","since":"2026"}') == wire.CancelResponse()


def test_a_frame_on_many_lines_keeps_its_words_and_is_one_line_inside() -> None:
    event = wire.decode('{"type":\n"session.update","session":{"tracing":{\r\n "a":\t"x\\n y"}}}')
    assert isinstance(event, wire.SessionUpdate)
    assert isinstance(event.session.tracing, msgspec.Raw)
    assert bytes(event.session.tracing) == b'{"a":"x\\n y"}'


def test_an_unset_field_is_left_out_and_none_is_written() -> None:
    assert msgspec.json.encode(Format(type="audio/pcmu")) == b'{"type":"audio/pcmu"}'
    committed = wire.Committed(event_id="e", item_id="i", previous_item_id=None)
    assert msgspec.json.decode(wire.encode(committed))["previous_item_id"] is None


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
    max_leaves=8,
)
tags = [str(event.__struct_config__.tag) for event in ClientEvent.__subclasses__()]
names = ["session", "item", "response", "audio", "item_id", "audio_end_ms", "event_id", "previous_item_id"]


@CASES
@given(st.sampled_from(tags), st.dictionaries(st.sampled_from(names), json_values, max_size=4))
def test_f19_any_object_is_an_event_or_a_fault(tag: str, fields: dict[str, object]) -> None:
    event = wire.decode(msgspec.json.encode({"type": tag, **fields}))
    assert isinstance(event, Fault | ClientEvent)


@CASES
@given(st.binary(max_size=60))
def test_f19_any_bytes_are_an_event_or_a_fault(frame: bytes) -> None:
    assert isinstance(wire.decode(frame), Fault | ClientEvent)
