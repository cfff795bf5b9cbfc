"""Says of one server event, by itself, what in it no client could read."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from dataclasses import dataclass

from duplex_server.conformance.checks import Json, shorten

PLACE = "response_id:str item_id:str output_index:int content_index:int"
_TRANSCRIPTION = "conversation.item.input_audio_transcription"

SHAPES: dict[str, str] = {
    "error": "error.type:str error.message:str error.code:str? error.param:str? error.event_id:str?",
    "session.created": "session:session",
    "session.updated": "session:session",
    "conversation.created": "conversation.id:str conversation.object:str",
    "conversation.item.added": "item:item previous_item_id:str?",
    "conversation.item.done": "item:item previous_item_id:str?",
    "conversation.item.retrieved": "item:item",
    "conversation.item.truncated": "item_id:str content_index:int audio_end_ms:int",
    "conversation.item.deleted": "item_id:str",
    f"{_TRANSCRIPTION}.delta": "item_id:str content_index:int delta:str",
    f"{_TRANSCRIPTION}.completed": "item_id:str content_index:int transcript:str usage:transcribed",
    f"{_TRANSCRIPTION}.failed": "item_id:str content_index:int error.type:str error.message:str",
    f"{_TRANSCRIPTION}.segment": "id:str item_id:str content_index:int text:str speaker:str start:num end:num",
    "input_audio_buffer.committed": "item_id:str previous_item_id:str?",
    "input_audio_buffer.cleared": "",
    "input_audio_buffer.speech_started": "item_id:str audio_start_ms:int",
    "input_audio_buffer.speech_stopped": "item_id:str audio_end_ms:int",
    "input_audio_buffer.timeout_triggered": "item_id:str audio_start_ms:int audio_end_ms:int",
    "input_audio_buffer.dtmf_event_received": "event:str received_at:int",
    "output_audio_buffer.started": "response_id:str",
    "output_audio_buffer.stopped": "response_id:str",
    "output_audio_buffer.cleared": "response_id:str",
    "response.created": "response:response",
    "response.done": "response:response",
    "response.output_item.added": "response_id:str output_index:int item:item",
    "response.output_item.done": "response_id:str output_index:int item:item",
    "response.content_part.added": f"{PLACE} part:part",
    "response.content_part.done": f"{PLACE} part:part",
    "response.output_text.delta": f"{PLACE} delta:str",
    "response.output_text.done": f"{PLACE} text:str",
    "response.output_audio_transcript.delta": f"{PLACE} delta:str",
    "response.output_audio_transcript.done": f"{PLACE} transcript:str",
    "response.output_audio.delta": f"{PLACE} delta:base64",
    "response.output_audio.done": PLACE,
    "response.function_call_arguments.delta": "response_id:str item_id:str output_index:int call_id:str delta:str",
    "response.function_call_arguments.done": (
        "response_id:str item_id:str output_index:int call_id:str arguments:str name:str"
    ),
    "response.mcp_call_arguments.delta": "response_id:str item_id:str output_index:int delta:str",
    "response.mcp_call_arguments.done": "response_id:str item_id:str output_index:int arguments:str",
    "response.mcp_call.in_progress": "item_id:str output_index:int",
    "response.mcp_call.completed": "item_id:str output_index:int",
    "response.mcp_call.failed": "item_id:str output_index:int",
    "mcp_list_tools.in_progress": "item_id:str",
    "mcp_list_tools.completed": "item_id:str",
    "mcp_list_tools.failed": "item_id:str",
    "rate_limits.updated": "rate_limits:limits",
    "transcription_session.created": "session:object",
    "transcription_session.updated": "session:object",
}
"""The fields that every event of a type has. `str?` may be null, but stands there."""

BETA_NAMES = {
    "conversation.item.created": "conversation.item.added",
    **{
        f"response.{kind}.{end}": f"response.output_{kind}.{end}"
        for kind in ("text", "audio", "audio_transcript")
        for end in ("delta", "done")
    },
}
"""What the older dialect calls otherwise."""

ITEM_TYPES = (
    "message",
    "function_call",
    "function_call_output",
    "mcp_list_tools",
    "mcp_call",
    "mcp_approval_request",
    "mcp_approval_response",
)
STATUSES = ("in_progress", "completed", "cancelled", "incomplete", "failed")
REASONS = {
    "cancelled": ("turn_detected", "client_cancelled"),
    "incomplete": ("max_output_tokens", "content_filter"),
}
NEVER_NULL = ("status", "name", "call_id", "arguments", "role", "content")
ROLES = ("user", "assistant", "system")
PARTS = ("audio", "text")
GRAMMAR, NULLS, SPOKEN_PARTS, PART_TYPES, USAGE = 180, 110, 111, 122, 134
"""The numbers of the checks under which these findings are told."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong in what a server sent, and the number of the check that it belongs to."""

    number: int
    text: str


def faults(event: Json) -> Iterator[Finding]:
    """All that is wrong in an event, whatever came before it; its type is known to be a string."""
    shape = SHAPES.get(event["type"])
    if shape is None:
        yield Finding(GRAMMAR, f"{event['type']}: no event of the protocol")
        return
    for one in shape.split():
        path, _, kind = one.partition(":")
        yield from _field(event, path, kind)


def _field(event: Json, path: str, kind: str) -> Iterator[Finding]:
    found = event
    for name in path.split("."):
        if not isinstance(found, dict) or name not in found:
            yield Finding(GRAMMAR, f"{event['type']}: no {path}")
            return
        found = found[name]
    where = f"{event['type']}.{path}"
    match kind:
        case "session":
            yield from _session(found, where)
        case "item":
            yield from _item(found, where)
        case "part":
            yield from _part(found, where)
        case "response":
            yield from _response(found, where)
        case "limits":
            yield from _limits(found, where)
        case "transcribed":
            yield from _transcribed(found, where)
        case _:
            if not _is(found, kind):
                yield Finding(GRAMMAR, f"{where}: expected {kind}, got {shorten(found)}")


def _is(value: Json, kind: str) -> bool:
    match kind:
        case "str":
            return isinstance(value, str)
        case "str?":
            return value is None or isinstance(value, str)
        case "int":
            return isinstance(value, int) and not isinstance(value, bool)
        case "num":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "base64":
            return isinstance(value, str) and _decodes(value)
        case _:
            return isinstance(value, dict)


def _decodes(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except binascii.Error:
        return False
    return True


def _session(session: Json, where: str) -> Iterator[Finding]:
    flat = isinstance(session, dict) and "modalities" in session  # the older dialect's, which has no type
    if not isinstance(session, dict) or not (flat or isinstance(session.get("type"), str)):
        yield Finding(GRAMMAR, f"{where}: expected an object with a type, got {shorten(session)}")


def _item(item: Json, where: str) -> Iterator[Finding]:
    if not isinstance(item, dict) or not isinstance(item.get("id"), str):
        yield Finding(GRAMMAR, f"{where}: expected an item with an id, got {shorten(item)}")
        return
    if item.get("type") not in ITEM_TYPES:
        yield Finding(GRAMMAR, f"{where}.type: {item.get('type')!r} is no type of item")
    if item.get("object", "realtime.item") != "realtime.item":
        yield Finding(GRAMMAR, f"{where}.object: expected 'realtime.item', got {item['object']!r}")
    if item.get("status", "completed") not in ("in_progress", "completed", "incomplete", None):
        yield Finding(GRAMMAR, f"{where}.status: {item['status']!r} is no status of an item")
    for name in NEVER_NULL:
        if name in item and item[name] is None:
            yield Finding(NULLS, f"{where}.{name} is null; it should be left out")
    if item.get("type") == "message":
        if item.get("role") not in ROLES:
            yield Finding(GRAMMAR, f"{where}.role: expected one of {ROLES}, got {shorten(item.get('role'))}")
        yield from _content(item, where)


def _content(item: Json, where: str) -> Iterator[Finding]:
    content = item.get("content")
    if not isinstance(content, list):
        yield Finding(GRAMMAR, f"{where}.content: expected an array in a message, got {shorten(content)}")
        return
    for number, part in enumerate(content):
        place = f"{where}.content[{number}]"
        if not isinstance(part, dict):
            yield Finding(GRAMMAR, f"{place}: expected an object, got {shorten(part)}")
        elif part.get("type") == "input_audio" and not _is(part.get("transcript", 0), "str?"):
            yield Finding(SPOKEN_PARTS, f"{place}: no transcript, neither null nor a string")
        elif part.get("type") in ("input_text", "output_text", "text") and not isinstance(part.get("text"), str):
            yield Finding(GRAMMAR, f"{place}.text: expected a string, got {shorten(part.get('text'))}")


def _part(part: Json, where: str) -> Iterator[Finding]:
    if not isinstance(part, dict):
        yield Finding(GRAMMAR, f"{where}: expected an object, got {shorten(part)}")
        return
    if part.get("type") not in PARTS:
        yield Finding(PART_TYPES, f"{where}.type: expected 'audio' or 'text', got {shorten(part)}")
        return
    words = "transcript" if part["type"] == "audio" else "text"
    if not isinstance(part.get(words), str):
        yield Finding(GRAMMAR, f"{where}.{words}: expected a string, got {shorten(part)}")


def _response(response: Json, where: str) -> Iterator[Finding]:
    if not isinstance(response, dict) or not isinstance(response.get("id"), str):
        yield Finding(GRAMMAR, f"{where}: expected a response with an id, got {shorten(response)}")
        return
    status, details = response.get("status"), response.get("status_details")
    if status not in STATUSES:
        yield Finding(GRAMMAR, f"{where}.status: {status!r} is no status of a response")
    reason = details.get("reason") if isinstance(details, dict) else None
    if isinstance(status, str) and status in REASONS and reason not in REASONS[status]:
        yield Finding(
            GRAMMAR, f"{where}.status_details: expected a reason of {REASONS[status]}, got {shorten(details)}"
        )
    metadata = response.get("metadata")
    if metadata is not None and not (isinstance(metadata, dict) and all(isinstance(v, str) for v in metadata.values())):
        yield Finding(GRAMMAR, f"{where}.metadata: expected strings, got {shorten(metadata)}")
    if not isinstance(response.get("output"), list):
        yield Finding(GRAMMAR, f"{where}.output: expected an array, got {shorten(response.get('output'))}")
        return
    for number, item in enumerate(response["output"]):
        yield from _item(item, f"{where}.output[{number}]")
    if status != "in_progress":
        older = "modalities" in response  # its dialect knows of no images
        yield from _usage(response.get("usage"), f"{where}.usage", () if older else ("image",))


def _usage(usage: Json, where: str, pictured: tuple[str, ...]) -> Iterator[Finding]:
    if not isinstance(usage, dict):
        yield Finding(USAGE, f"{where}: expected an object, got {shorten(usage)}")
        return
    for name in ("total_tokens", "input_tokens", "output_tokens"):
        if not _is(usage.get(name), "int") or usage[name] < 0:
            yield Finding(USAGE, f"{where}.{name}: expected a count, got {shorten(usage.get(name))}")
            return
    if usage["total_tokens"] != usage["input_tokens"] + usage["output_tokens"]:
        yield Finding(USAGE, f"{where}: total_tokens is not the sum of the other two: {shorten(usage)}")
    for name, kinds in (("input", ("text", "audio", "cached", *pictured)), ("output", ("text", "audio"))):
        details = usage.get(f"{name}_token_details")
        missing = [
            kind for kind in kinds if not isinstance(details, dict) or not _is(details.get(f"{kind}_tokens"), "int")
        ]
        if missing:
            yield Finding(USAGE, f"{where}.{name}_token_details: no counts of {', '.join(missing)} tokens")


def _limits(limits: Json, where: str) -> Iterator[Finding]:
    entries = limits if isinstance(limits, list) else [limits]
    for entry in entries:
        named = isinstance(entry, dict) and entry.get("name") in ("requests", "tokens")
        counted = named and all(_is(entry.get(name), "int") for name in ("limit", "remaining"))
        if not counted or not _is(entry.get("reset_seconds"), "num"):
            yield Finding(GRAMMAR, f"{where}: expected limits of requests or tokens, got {shorten(entry)}")


def _transcribed(usage: Json, where: str) -> Iterator[Finding]:
    kind = usage.get("type") if isinstance(usage, dict) else None
    timed = kind == "duration" and _is(usage.get("seconds"), "num")
    names = ("input_tokens", "output_tokens", "total_tokens")
    counted = kind == "tokens" and all(_is(usage.get(name), "int") for name in names)
    if not timed and not counted:
        yield Finding(GRAMMAR, f"{where}: expected seconds or tokens, got {shorten(usage)}")
