"""Holds single events against what real clients need beyond the types of the openai package."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from tests.conformance.schema import Finding, Json

NULLABLE_ITEM = {"output", "approval_request_id", "approve", "reason", "error"}
MAX_DELTA_BYTES = 5 * 2**20
PLAIN_TRANSCRIPTION = {"model", "language", "prompt"}


def client_rules(event: dict[str, Json], asked_for: AbstractSet[str] = frozenset()) -> Iterator[Finding]:
    """Every rule that the event breaks; `asked_for` are transcription keys that the client set itself."""
    if not isinstance(event.get("event_id"), str):
        yield _finding("event_id", "every server event needs a string event_id")
    for path, item in _items(event):
        yield from _item(path, item)
    match event.get("type"):
        case "response.content_part.added" | "response.content_part.done":
            yield from _part(event.get("part") or {})
        case "session.created" | "session.updated":
            yield from _session(event.get("session") or {}, asked_for)
        case "response.created" | "response.done":
            yield from _response(event.get("response") or {})
        case "conversation.item.input_audio_transcription.completed":
            yield from _transcription_usage(event.get("usage"))
        case "conversation.item.input_audio_transcription.failed":
            yield from _transcription_error(event.get("error") or {})
        case "response.mcp_call_arguments.delta" if not isinstance(event.get("obfuscation"), str):
            yield _finding("obfuscation", "JS agents requires a string")
        case "response.output_audio.delta" | "response.audio.delta":
            yield from _audio(event.get("delta") or "")


def _finding(path: str, message: str) -> Finding:
    return Finding("portable", path, message)


def _items(event: dict[str, Json]) -> Iterator[tuple[str, dict[str, Json]]]:
    if isinstance(event.get("item"), dict):
        yield "item", event["item"]
    response = event.get("response")
    if isinstance(response, dict):
        for number, item in enumerate(response.get("output") or []):
            if isinstance(item, dict):
                yield f"response.output[{number}]", item


def _item(path: str, item: dict[str, Json]) -> Iterator[Finding]:
    for key, value in item.items():
        if value is None and key not in NULLABLE_ITEM:
            yield _finding(f"{path}.{key}", "null item field: omit it (agents-realtime JS drops the event)")
    if not item.get("id"):
        yield _finding(f"{path}.id", "items must carry an id (LiveKit asserts)")
    if item.get("type") == "message":
        if not isinstance(item.get("content"), list):
            yield _finding(f"{path}.content", "content must be an array")
        for number, content in enumerate(item.get("content") or []):
            yield from _content(f"{path}.content[{number}]", content)
    if item.get("type") == "function_call":
        for key in ("call_id", "name", "arguments", "status"):
            if not isinstance(item.get(key), str):
                yield _finding(f"{path}.{key}", "function_call needs string call_id,name,arguments,status")


def _content(path: str, content: dict[str, Json]) -> Iterator[Finding]:
    kind = content.get("type")
    if kind == "input_audio" and "transcript" not in content:
        yield _finding(
            f"{path}.transcript", "input_audio must carry transcript (null allowed); JS agents throws otherwise"
        )
    if kind in ("input_text", "output_text") and not isinstance(content.get("text"), str):
        yield _finding(f"{path}.text", "text parts need a string text")


def _part(part: dict[str, Json]) -> Iterator[Finding]:
    if part.get("type") not in ("text", "audio"):
        yield _finding("part.type", "part.type must be text|audio on the wire (not output_text/output_audio)")
    for key, value in part.items():
        if value is None:
            yield _finding(f"part.{key}", "null part field: omit it")


def _session(session: dict[str, Json], asked_for: AbstractSet[str]) -> Iterator[Finding]:
    if "type" not in session:
        yield _finding("session.type", "session.type is required (agents Python rejects the event)")
    audio = session.get("audio") or {}
    given, made = audio.get("input") or {}, audio.get("output") or {}
    if "voice" in made and not isinstance(made["voice"], str):
        yield _finding("session.audio.output.voice", "echo voices as a plain string (pipecat dies on objects)")
    transcription = given.get("transcription")
    surplus = set(transcription) - PLAIN_TRANSCRIPTION - asked_for if isinstance(transcription, dict) else set()
    if surplus:
        yield _finding(
            "session.audio.input.transcription",
            f"keys that kill pipecat, and that the client did not set itself: {sorted(surplus)}",
        )
    noise = given.get("noise_reduction")
    if isinstance(noise, dict) and "type" not in noise:
        yield _finding("session.audio.input.noise_reduction.type", "needs type")
    turns = given.get("turn_detection")
    speaks = session.get("type") == "realtime"
    if speaks and isinstance(turns, dict) and not isinstance(turns.get("interrupt_response"), bool):
        yield _finding(
            "session.audio.input.turn_detection.interrupt_response",
            "echo the effective boolean, else agents clients send response.cancel on every speech start",
        )


def _response(response: dict[str, Json]) -> Iterator[Finding]:
    if not isinstance(response.get("id"), str):
        yield _finding("response.id", "response.id must be a string")
    voice = ((response.get("audio") or {}).get("output") or {}).get("voice")
    if voice is not None and not isinstance(voice, str):
        yield _finding("response.audio.output.voice", "must be a string")
    usage = response.get("usage")
    if isinstance(usage, dict):
        for key in ("input_tokens", "output_tokens", "total_tokens"):
            if not isinstance(usage.get(key), int):
                yield _finding(f"response.usage.{key}", "must be an integer")


def _transcription_usage(usage: Json) -> Iterator[Finding]:
    if isinstance(usage, dict) and usage.get("type") == "tokens":
        details = usage.get("input_token_details") or {}
        if not all(isinstance(details.get(key), int) for key in ("text_tokens", "audio_tokens")):
            yield _finding("usage.input_token_details", "tokens usage needs text_tokens and audio_tokens")


def _transcription_error(error: dict[str, Json]) -> Iterator[Finding]:
    for key, value in error.items():
        if value is None:
            yield _finding(f"error.{key}", "null: omit it")
    for key in ("type", "message"):
        if not isinstance(error.get(key), str):
            yield _finding(f"error.{key}", "pipecat requires it")


def _audio(delta: Json) -> Iterator[Finding]:
    try:
        count = len(base64.b64decode(delta, validate=True))
    except (binascii.Error, ValueError, TypeError):
        yield _finding("delta", "not valid base64")
        return
    if count == 0:
        yield _finding("delta", "empty audio delta")
    if count > MAX_DELTA_BYTES:
        yield _finding("delta", "audio delta over 5 MiB (agents Python closes above 8 MiB per frame)")
