"""Tests the grammar that the conformance command holds every event against, alone and beside the validator."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duplex_server.conformance.grammar import Grammar
from tests.conformance.realtime_validator import Validator

Json = dict[str, Any]  # events as they stand on the wire

PLACE = {"response_id": "resp_1", "item_id": "item_2", "output_index": 0, "content_index": 0}
USAGE = {
    "total_tokens": 5,
    "input_tokens": 3,
    "output_tokens": 2,
    "input_token_details": {
        "text_tokens": 3,
        "audio_tokens": 0,
        "image_tokens": 0,
        "cached_tokens": 0,
        "cached_tokens_details": {"text_tokens": 0, "audio_tokens": 0, "image_tokens": 0},
    },
    "output_token_details": {"text_tokens": 1, "audio_tokens": 1},
}
SESSION = {"type": "realtime", "id": "sess_1", "object": "realtime.session"}
SAID = {"id": "item_1", "object": "realtime.item", "type": "message", "role": "user", "status": "completed"}
HEARD = {**SAID, "content": [{"type": "input_audio", "transcript": None}]}
ANSWER = {"id": "item_2", "object": "realtime.item", "type": "message", "role": "assistant"}
BEGUN = {**ANSWER, "status": "in_progress", "content": []}
ENDED = {**ANSWER, "status": "completed", "content": [{"type": "output_audio", "transcript": "Hello you."}]}
RESPONSE = {
    "id": "resp_1",
    "object": "realtime.response",
    "status_details": None,
    "conversation_id": "conv_1",
    "output_modalities": ["audio"],
    "max_output_tokens": "inf",
    "audio": {"output": {"format": {"type": "audio/pcm", "rate": 24000}, "voice": "marin"}},
    "metadata": None,
}
LIMITS = [{"name": "tokens", "limit": 10, "remaining": 9, "reset_seconds": 0.5}]
TRANSCRIPTION = "conversation.item.input_audio_transcription"


def stream() -> list[Json]:
    """A spoken turn and its answer."""
    events: list[tuple[str, Json]] = [
        ("session.created", {"session": SESSION}),
        ("input_audio_buffer.speech_started", {"item_id": "item_1", "audio_start_ms": 100}),
        ("input_audio_buffer.speech_stopped", {"item_id": "item_1", "audio_end_ms": 900}),
        ("input_audio_buffer.committed", {"item_id": "item_1", "previous_item_id": None}),
        ("conversation.item.added", {"item": HEARD, "previous_item_id": None}),
        ("conversation.item.done", {"item": HEARD, "previous_item_id": None}),
        (f"{TRANSCRIPTION}.delta", {"item_id": "item_1", "content_index": 0, "delta": "Hi."}),
        (
            f"{TRANSCRIPTION}.completed",
            {
                "item_id": "item_1",
                "content_index": 0,
                "transcript": "Hi.",
                "usage": {"type": "duration", "seconds": 0.8},
            },
        ),
        ("response.created", {"response": {**RESPONSE, "status": "in_progress", "output": [], "usage": None}}),
        ("response.output_item.added", {"response_id": "resp_1", "output_index": 0, "item": BEGUN}),
        ("conversation.item.added", {"item": BEGUN, "previous_item_id": "item_1"}),
        ("response.content_part.added", {**PLACE, "part": {"type": "audio", "transcript": ""}}),
        ("response.output_audio_transcript.delta", {**PLACE, "delta": "Hello "}),
        ("response.output_audio.delta", {**PLACE, "delta": "AAAA"}),
        ("response.output_audio_transcript.delta", {**PLACE, "delta": "you."}),
        ("response.output_audio.done", PLACE),
        ("response.output_audio_transcript.done", {**PLACE, "transcript": "Hello you."}),
        ("response.content_part.done", {**PLACE, "part": {"type": "audio", "transcript": "Hello you."}}),
        ("conversation.item.done", {"item": ENDED, "previous_item_id": "item_1"}),
        ("response.output_item.done", {"response_id": "resp_1", "output_index": 0, "item": ENDED}),
        ("response.done", {"response": {**RESPONSE, "status": "completed", "output": [ENDED], "usage": USAGE}}),
        ("rate_limits.updated", {"rate_limits": LIMITS}),
    ]
    return [
        {"type": kind, "event_id": f"event_{number}", **copy.deepcopy(fields)}
        for number, (kind, fields) in enumerate(events)
    ]


def found(events: list[Json]) -> list[str]:
    grammar = Grammar()
    for event in events:
        grammar.read(json.dumps(event))
    return [f"{one.number}: {one.text}" for one in grammar.found]


def ours_and_the_validators(events: list[Json]) -> tuple[bool, bool]:
    """Whether each of the two, which share no line, finds something."""
    validator = Validator(portable=True, sequence=True)
    problems = [problem for event in copy.deepcopy(events) for problem in validator.feed(event)]
    return bool(found(events)), bool([*problems, *validator.finish()])


def test_a_turn_and_its_answer_keep_to_the_grammar() -> None:
    assert found(stream()) == []
    assert ours_and_the_validators(stream()) == (False, False)


def test_an_event_that_is_lost_shows_unless_nothing_hangs_on_it() -> None:
    unseen = []
    for at, event in enumerate(stream()):
        if not found([one for number, one in enumerate(stream()) if number != at]):
            unseen.append(event["type"])
    assert unseen == UNSEEN


UNSEEN = [
    "input_audio_buffer.speech_stopped",  # a commit by hand ends speech without it
    "conversation.item.done",  # of the user's item: it may come later
    f"{TRANSCRIPTION}.delta",
    f"{TRANSCRIPTION}.completed",  # it may come later
    "response.output_audio.delta",
    "response.done",  # it may come later
    "rate_limits.updated",
]


@pytest.mark.parametrize("at", range(22))
def test_an_event_that_comes_twice_is_found_by_its_id(at: int) -> None:
    events = stream()
    events.insert(at, dict(events[at]))
    assert any("was there before" in one for one in found(events))


def fields() -> list[tuple[int, str]]:
    """Every field of every event of the stream, at every depth that has a name."""

    def paths(value: object, path: str) -> list[str]:
        if not isinstance(value, dict):
            return [path]
        return [path, *[one for name, inner in value.items() for one in paths(inner, f"{path}.{name}")]]

    return [(at, path[1:]) for at, event in enumerate(stream()) for path in paths(event, "") if path]


def dropped(place: Json, name: str) -> None:
    del place[name]


def wrong(place: Json, name: str) -> None:
    place[name] = {"wrong": 1.5} if not isinstance(place[name], dict) else 1.5


@pytest.mark.parametrize("mutation", [dropped, wrong])
def test_what_the_grammar_misses_of_broken_fields_is_known(mutation: Callable[[Json, str], None]) -> None:
    """Each field is broken in turn, and the validator, which knows all types, is the judge."""
    missed = set()
    for at, path in fields():
        events = stream()
        *way, last = path.split(".")
        place: Any = events[at]
        for name in way:
            place = place[name]
        mutation(place, last)
        ours, theirs = ours_and_the_validators(events)
        if theirs and not ours:
            missed.add(f"{stream()[at]['type']}.{path}")
    assert {one for one in missed if not one.startswith(NOT_JUDGED)} == set()


NOT_JUDGED = (
    "session.created.session",  # the checks of settings look at it
    "response.created.response",
    "response.done.response",  # but for its id, status, output, metadata and usage
)


def change(at: int, path: str, value: object) -> list[Json]:
    events = stream()
    *way, last = path.split(".")
    place: Any = events[at]
    for name in way:
        place = place[int(name)] if isinstance(place, list) else place[name]
    place[int(last) if isinstance(place, list) else last] = value
    return events


@pytest.mark.parametrize(
    ("at", "path", "value", "told"),
    [
        (1, "audio_start_ms", 100.0, "180: .*expected int"),
        (2, "item_id", "other", "77: speech_stopped of other"),
        (2, "audio_end_ms", 50, "79: audio_end_ms 50 lies before 100"),
        (3, "item_id", "other", "77: committed other"),
        (3, "previous_item_id", "nobody", "180: .*no item of the conversation"),
        (4, "item.content.0", {"type": "input_audio"}, "111: .*no transcript"),
        (4, "item.call_id", None, "110: .*call_id is null"),
        (5, "item.status", "in_progress", "180: .*in progress"),
        (5, "item.status", "cancelled", "180: .*no status of an item"),
        (8, "response.status", "begun", "180: .*no status of a response"),
        (9, "output_index", 1, "180: .*output_index 1, expected 0"),
        (11, "part.type", "output_audio", "122: .*expected 'audio' or 'text'"),
        (12, "delta", "Hullo ", "180: .*differs from the deltas"),
        (13, "delta", "", "120: .*no sound"),
        (13, "delta", "?", "180: .*expected base64"),
        (14, "content_index", 1, "180: .*part 1 of item_2 is not open"),
        (17, "part.transcript", "Hello.", "180: .*differ from the deltas"),
        (19, "item.id", "other", "180: .*not the item at output_index 0"),
        (20, "response.output", [], "180: .*differs from its items"),
        (20, "response.usage.total_tokens", 6, "134: .*not the sum"),
        (20, "response.usage", None, "134: .*expected an object"),
        (20, "response.metadata", {"a": 1}, "180: .*expected strings"),
        (20, "response.status", "cancelled", "180: .*expected a reason"),
        (21, "rate_limits.0.name", "words", "180: .*limits of requests or tokens"),
        (21, "type", "rate_limits.changed", "180: .*no event of the protocol"),
    ],
)
def test_a_finding_names_its_place_and_its_check(at: int, path: str, value: object, told: str) -> None:
    findings = found(change(at, path, value))
    assert any(re.match(told, one) for one in findings), findings


def test_what_follows_the_end_of_a_response_is_found() -> None:
    events = stream()
    events.append({"type": "response.output_audio.done", "event_id": "event_99", **PLACE})
    events.append({**events[20], "event_id": "event_100"})
    assert [one.partition(":")[0] for one in found(events)] == ["139", "139"]


def test_two_open_responses_of_one_conversation_are_found_and_others_may_run_beside() -> None:
    events = stream()[:9]
    beside = {**events[8]["response"], "id": "resp_2", "conversation_id": None}
    events.append({"type": "response.created", "event_id": "event_9", "response": beside})
    assert found(events) == []
    second = {**events[8]["response"], "id": "resp_3"}
    events.append({"type": "response.created", "event_id": "event_10", "response": second})
    assert found(events) == ["180: resp_3 is created while another response of the conversation is open"]


@pytest.mark.parametrize("frame", ["no JSON", "[]", "{}", '{"type": 1}', b"\xff\xfe", ""])
def test_what_is_no_event_is_found_and_read_as_none(frame: str | bytes) -> None:
    grammar = Grammar()
    assert grammar.read(frame) is None
    assert "no event" in grammar.found[0].text


def test_a_frame_of_1_mib_is_found() -> None:
    grammar = Grammar()
    event = {**stream()[0], "pad": "x" * 2**20}
    assert grammar.read(json.dumps(event)) is not None
    assert [one.number for one in grammar.found] == [16]


def test_the_older_dialect_is_known_by_its_names() -> None:
    events = stream()
    flat = {"id": "sess_1", "object": "realtime.session", "modalities": ["audio", "text"]}
    events[0]["session"] = flat
    for event in events:
        event["type"] = event["type"].replace("response.output_audio", "response.audio")
        event["type"] = event["type"].replace("conversation.item.added", "conversation.item.created")
    events = [event for event in events if event["type"] != "conversation.item.done"]
    for event in events:
        if event["type"] == "response.done":
            event["response"]["modalities"] = event["response"].pop("output_modalities")
            del event["response"]["usage"]["input_token_details"]["image_tokens"]
    assert found(events) == []


PLACES = [(at, path) for at, path in fields()]
ATOMS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
ANYTHING = st.recursive(
    ATOMS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(PLACES), ANYTHING), min_size=1, max_size=3))
def test_whatever_a_server_sends_the_grammar_reads_on(changes: list[tuple[tuple[int, str], Json]]) -> None:
    events = stream()
    for (at, path), value in changes:
        *way, last = path.split(".")
        place: Any = events[at]
        for name in way:
            place = place.get(name, {}) if isinstance(place, dict) else {}
        if isinstance(place, dict):
            place[last] = value
    grammar = Grammar()
    for event in events:
        grammar.read(json.dumps(event))
    assert len(grammar.found) < 200
