"""Takes items over from a client, and writes what is told about them."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

import msgspec

from duplex_server.realtime import wire
from duplex_server.realtime.conversation import Entry
from duplex_server.realtime.hearing import Heard
from duplex_server.realtime.schema import (
    INPUT_RATE_HZ,
    AudioIn,
    Content,
    ContentIn,
    ErrorDetail,
    FunctionCall,
    FunctionCallIn,
    FunctionCallOutput,
    FunctionCallOutputIn,
    GivenSound,
    InputAudio,
    InputAudioIn,
    InputImage,
    InputText,
    Item,
    ItemIn,
    Message,
    MessageIn,
    OutputAudioIn,
    OutputText,
    TextIn,
)
from duplex_server.realtime.wire import AnyServerEvent, Fault
from pipeline.chunk import Failed

FAILURE_CODES = {
    "stage_failed": "inference_failed",
    "capacity": "rate_limit_exceeded",
    "context_full": "context_length_exceeded",
}
"""Failures of stages that the protocol has a name for."""
ITEM_BYTES = 512 * 1024
"""A client's item, as JSON: it is echoed in one frame, and clients take frames below 1 MiB."""
IMAGE_CHARS = 256 * 1024
"""A larger image is not kept, since no thinker here sees; its item stays."""
LEAST_SOUND_MS = 100


def accept(item: ItemIn, new_id: Callable[[str], str], path: str) -> Entry | Fault:
    """A client's item as the conversation keeps it; `path` is where it stood, for the error that names a field."""
    taken = _item(item, new_id, path)
    if isinstance(taken, Fault):
        return taken
    size = len(msgspec.json.encode(taken))
    if size > ITEM_BYTES:
        message = f"Expected at most {ITEM_BYTES} bytes of JSON in one item, got {size}. Split it."
        return Fault(code="invalid_value", message=message, param=path)
    sound = _sound(item, path)
    return sound if isinstance(sound, Fault) else Entry(taken, size=size, given=sound)


def _item(item: ItemIn, new_id: Callable[[str], str], path: str) -> Item | Fault:
    item_id = item.id if isinstance(item.id, str) else new_id("item")
    match item:
        case MessageIn():
            content: list[Content] = []
            for index, part in enumerate(item.content):
                taken = _content(part, item.role, f"{path}.content[{index}]")
                if isinstance(taken, Fault):
                    return taken
                content.append(taken)
            role = "system" if item.role == "developer" else item.role
            return Message(id=item_id, role=role, content=tuple(content))
        case FunctionCallIn():
            call_id = item.call_id if isinstance(item.call_id, str) else new_id("call")
            return FunctionCall(id=item_id, call_id=call_id, name=item.name, arguments=item.arguments)
        case FunctionCallOutputIn():
            return FunctionCallOutput(id=item_id, call_id=item.call_id, output=item.output)
    assert_never(item)


def _sound(item: ItemIn, path: str) -> GivenSound | Fault | None:
    """The sound of a user's item; one that has no words needs enough of it to hold some."""
    found: GivenSound | None = None
    if not isinstance(item, MessageIn) or item.role != "user":
        return None
    for index, part in enumerate(item.content):
        if not isinstance(part, InputAudioIn) or not isinstance(part.sound, GivenSound):
            continue
        where, length_ms = f"{path}.content[{index}].audio", part.sound.samples * 1000 // INPUT_RATE_HZ
        if found is not None:
            message = "An item has one part with sound. Create an item for each."
            return Fault(code="invalid_value", message=message, param=where)
        if not isinstance(part.transcript, str) and length_ms < LEAST_SOUND_MS:
            message = f"Expected at least {LEAST_SOUND_MS} ms of sound, got {length_ms} ms."
            return Fault(code="invalid_value", message=message, param=where)
        found = part.sound
    return found


def _content(part: ContentIn, role: str, path: str) -> Content | Fault:
    match part:
        case InputText() | TextIn() | OutputText():
            return _written(part.text, role)
        case InputImage() if role == "user":
            return part if len(part.image_url) <= IMAGE_CHARS else msgspec.structs.replace(part, image_url="")
        case InputImage():
            return Fault(
                code="invalid_value",
                message=f"Only a user's message can hold an image; this one has the role {role}.",
                param=f"{path}.type",
            )
        case InputAudioIn() if role == "user":
            return InputAudio(transcript=part.transcript if isinstance(part.transcript, str) else None)
        case InputAudioIn():
            if isinstance(part.transcript, str):
                return _written(part.transcript, role)
            return Fault(
                code="invalid_value",
                message=f"Only a user's message can hold sound; this one has the role {role}. Give its transcript.",
                param=f"{path}.type",
            )
        case OutputAudioIn() | AudioIn():
            words = part.text if isinstance(part.text, str) else part.transcript
            if isinstance(words, str):
                return _written(words, role)
            return Fault(
                code="missing_required_parameter",
                message="An assistant's speech can be taken over as words only: expected text or transcript.",
                param=f"{path}.text",
            )
    assert_never(part)


def _written(text: str, role: str) -> Content:
    return OutputText(text=text) if role == "assistant" else InputText(text=text)


def unknown(item_id: str, code: str) -> Fault:
    """The fault of naming an item that is not there."""
    return Fault(code=code, message=f"There is no item {item_id!r} in the conversation.", param="item_id")


def with_transcript(item: Message, transcript: str) -> Message:
    """A user's message whose speech is known now; words that the client gave stay."""
    content = tuple(
        msgspec.structs.replace(part, transcript=transcript)
        if isinstance(part, InputAudio) and part.transcript is None
        else part
        for part in item.content
    )
    return msgspec.structs.replace(item, content=content)


def lacks_words(item: Item) -> bool:
    """True for a user's speech whose words are not known."""
    return isinstance(item, Message) and any(
        isinstance(part, InputAudio) and part.transcript is None for part in item.content
    )


def transcription_delta(item_id: str, growth: str, event_id: str) -> AnyServerEvent:
    """More words of a user's turn; all of them join to its transcript."""
    return wire.TranscriptionDelta(event_id=event_id, item_id=item_id, content_index=0, delta=growth)


def transcription_end(heard: Heard, event_id: str) -> AnyServerEvent:
    """What the client is told about the words of its user, once they are settled."""
    if heard.failure is None:
        return wire.TranscriptionCompleted(
            event_id=event_id,
            item_id=heard.item_id,
            content_index=0,
            transcript=heard.text,
            usage=wire.DurationUsage(seconds=round(heard.samples / INPUT_RATE_HZ, 3)),
        )
    return wire.TranscriptionFailed(
        event_id=event_id,
        item_id=heard.item_id,
        content_index=0,
        error=wire.TranscriptionError(
            type="server_error", code=failure_code(heard.failure), message=heard.failure.message
        ),
    )


def words_given_up(heard: Heard, event_id: str) -> AnyServerEvent:
    """What a client is told about speech without its words, when it has not asked for transcripts."""
    assert heard.failure is not None
    body = wire.ErrorBody(
        type="server_error",
        code=failure_code(heard.failure),
        message=f"{heard.item_id}: {heard.failure.message}",
        param=None,
        event_id=None,
    )
    return wire.Error(event_id=event_id, error=body)


def failure_code(failed: Failed) -> str:
    """A stage's failure as the protocol names it."""
    return FAILURE_CODES.get(failed.kind, failed.kind)


def failure_detail(failed: Failed) -> ErrorDetail:
    """Why a response failed; a context that is too long is the client's to shorten."""
    kind = "invalid_request_error" if failed.kind == "context_full" else "server_error"
    return ErrorDetail(type=kind, code=failure_code(failed), message=failed.message)
