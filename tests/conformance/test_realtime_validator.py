"""Tests that the validator is content with a good connection and finds each planted fault."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from duplex_server.realtime import wire
from tests.conformance.realtime_validator import Problem, Validator, main
from tests.conformance.schema import Json
from tests.realtime.talk import Talk

Stream = list[dict[str, Json]]
Fault = Callable[[Stream], object]


@pytest.fixture(scope="module")
def recorded() -> bytes:
    """A connection with a spoken turn, a call, a text and a cancel, as JSON lines."""
    talk = Talk().open().transcribed()
    talk.say("hello")
    talk.speak(("Hi there. ", 400), end=False)
    talk.call("call_1", "clock", "{}")
    talk.end()
    talk.ask("response.create", response={"output_modalities": ["text"]})
    talk.write("Noon.")
    talk.ask("response.cancel")
    return b"\n".join(map(wire.encode, talk.told))


def judge(stream: Stream) -> list[Problem]:
    validator = Validator(portable=True, sequence=True)
    problems = [problem for event in stream for problem in validator.feed(event)]
    return problems + validator.finish()


def parse(lines: bytes) -> Stream:
    return [msgspec.json.decode(line) for line in lines.splitlines()]


def first(stream: Stream, kind: str) -> dict[str, Json]:
    return next(event for event in stream if event["type"] == kind)


def drop(kind: str) -> Fault:
    return lambda stream: stream.remove(first(stream, kind))


def again(kind: str) -> Fault:
    return lambda stream: stream.append({**first(stream, kind), "event_id": "event_new"})


def change(kind: str, *path: str | int, to: Json) -> Fault:
    def fault(stream: Stream) -> None:
        place: Json = first(stream, kind)
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = to

    return fault


def test_a_good_connection_has_no_problems(recorded: bytes) -> None:
    assert judge(parse(recorded)) == []


@pytest.mark.parametrize(
    ("fault", "kind", "path"),
    [
        (change("session.created", "event_id", to=None), "portable", "event_id"),
        (change("session.created", "session", "audio", "output", "voice", to={"id": "x"}), "portable", "voice"),
        (change("session.created", "session", "audio", "input", "turn_detection", to={}), "portable", "interrupt"),
        (change("session.created", "type", to="session.begun"), "unknown_type", "type"),
        (change("response.content_part.added", "part", "type", to="output_audio"), "portable", "part.type"),
        (change("conversation.item.added", "item", "call_id", to=None), "portable", "item.call_id"),
        (change("conversation.item.added", "item", "content", 0, to={"type": "input_audio"}), "portable", "transcript"),
        (change("conversation.item.added", "item", "status", to="cancelled"), "bad_value", "item.status"),
        (change("input_audio_buffer.speech_started", "audio_start_ms", to=1.5), "wrong_type", "audio_start_ms"),
        (change("response.output_audio.delta", "delta", to=""), "portable", "delta"),
        (change("response.output_audio.delta", "delta", to="?"), "portable", "delta"),
        (change("response.done", "response", "usage", "total_tokens", to="many"), "portable", "usage"),
        (change("response.output_audio_transcript.done", "transcript", to="Bye."), "sequence", "transcript"),
        (change("response.function_call_arguments.done", "arguments", to="[]"), "sequence", "arguments"),
        (drop("session.created"), "sequence", "type"),
        (drop("response.output_item.done"), "sequence", "response.output"),
        (drop("response.content_part.done"), "sequence", "content_index"),
        (drop("response.content_part.added"), "sequence", "content_index"),
        (drop("conversation.item.added"), "sequence", "item.id"),
        (drop("response.done"), "sequence", "response.id"),
        (again("response.output_audio.delta"), "sequence", "response_id"),
        (again("response.done"), "sequence", "response.id"),
        (again("response.created"), "sequence", "response.id"),
        (again("input_audio_buffer.speech_stopped"), "sequence", "item_id"),
        (lambda stream: stream.append(stream[0]), "sequence", "event_id"),
        (lambda stream: stream.insert(0, {"type": "error"}), "missing", "error"),
    ],
)
def test_a_planted_fault_is_found(recorded: bytes, fault: Fault, kind: str, path: str) -> None:
    stream = parse(recorded)
    fault(stream)
    assert [problem for problem in judge(stream) if problem.kind == kind and path in problem.path], judge(stream)


def test_speech_may_begin_anew_after_the_buffer_was_cleared(recorded: bytes) -> None:
    stream = parse(recorded)
    started = first(stream, "input_audio_buffer.speech_started")
    head = stream[: stream.index(started) + 1]
    anew = {**started, "event_id": "event_new"}
    cleared = {"type": "input_audio_buffer.cleared", "event_id": "event_cleared"}
    assert judge([*head, cleared, anew]) == []
    assert judge([*head, anew]) != []


def test_a_clients_events_are_judged_by_their_own_types() -> None:
    validator = Validator(client=True)
    items = [{"type": "item_reference", "id": "item_1"}]
    assert validator.feed({"type": "response.create", "response": {"input": items}}) == []
    assert validator.feed({"type": "conversation.item.create", "item": items[0]}) != []


def test_from_the_command_line(recorded: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(recorded + b"\n\n")
    assert main(["--portable", "--sequence", str(path)]) == 0
    assert ", 0 problems" in capsys.readouterr().out
    path.write_bytes(recorded + b"\n{not json\n[]\n")
    assert main(["--json", str(path)]) == 1
    found = [json.loads(line)["kind"] for line in capsys.readouterr().out.splitlines()[:-1]]
    assert found == ["bad_json", "wrong_type"]
