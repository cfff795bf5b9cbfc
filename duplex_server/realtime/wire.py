"""Defines the events of the Realtime API, with the decoder of a client's and the encoder of the server's.

It holds no state: dialects and channels translate here and nowhere else.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, TypedDict, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from duplex_server.realtime.schema import (
    Item,
    ItemIn,
    ResponseObject,
    ResponseParams,
    SessionPatch,
    ShownSession,
    Wire,
)

# ---- what a client sends ------------------------------------------------------------------------------------------


class ClientEvent(Wire, frozen=True, kw_only=True):
    event_id: str | None = None


class SessionUpdate(ClientEvent, frozen=True, kw_only=True, tag="session.update"):
    session: SessionPatch
    spelled: tuple[tuple[str, str], ...] = ()
    """Fields that the client calls by other names: the path here, and its own. Not on the wire; errors name its own."""


class Append(ClientEvent, frozen=True, kw_only=True, tag="input_audio_buffer.append"):
    """Base64 audio in the session's input format. The driver takes the sound out; a session never sees it."""

    audio: str


class Commit(ClientEvent, frozen=True, kw_only=True, tag="input_audio_buffer.commit"):
    pass


class Clear(ClientEvent, frozen=True, kw_only=True, tag="input_audio_buffer.clear"):
    pass


class ClearOutput(ClientEvent, frozen=True, kw_only=True, tag="output_audio_buffer.clear"):
    pass


class CreateItem(ClientEvent, frozen=True, kw_only=True, tag="conversation.item.create"):
    item: ItemIn
    previous_item_id: str | None = None


class RetrieveItem(ClientEvent, frozen=True, kw_only=True, tag="conversation.item.retrieve"):
    item_id: str


class TruncateItem(ClientEvent, frozen=True, kw_only=True, tag="conversation.item.truncate"):
    item_id: str
    audio_end_ms: Annotated[int, Meta(ge=0)]
    content_index: int = 0


class DeleteItem(ClientEvent, frozen=True, kw_only=True, tag="conversation.item.delete"):
    item_id: str


class CreateResponse(ClientEvent, frozen=True, kw_only=True, tag="response.create"):
    response: ResponseParams | None = None
    spelled: tuple[tuple[str, str], ...] = ()
    """As in a `SessionUpdate`."""


class CancelResponse(ClientEvent, frozen=True, kw_only=True, tag="response.cancel"):
    response_id: str | None = None


AnyClientEvent = (
    SessionUpdate
    | Append
    | Commit
    | Clear
    | ClearOutput
    | CreateItem
    | RetrieveItem
    | TruncateItem
    | DeleteItem
    | CreateResponse
    | CancelResponse
)


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """A peer's mistake as a value: what an `error` event will say. `event_id` is the client's own."""

    message: str
    code: str
    param: str | None = None
    event_id: str | None = None
    type: Literal["invalid_request_error", "server_error"] = "invalid_request_error"


def in_its_words(fault: Fault, event: AnyClientEvent) -> Fault:
    """The fault of an event, with its field named as the client wrote it."""
    if isinstance(event, SessionUpdate | CreateResponse) and fault.param is not None:
        for ours, its_own in event.spelled:
            if fault.param == ours or fault.param.startswith((f"{ours}.", f"{ours}[")):
                return msgspec.structs.replace(fault, param=its_own + fault.param[len(ours) :])
    return fault


# ---- what the server sends ----------------------------------------------------------------------------------------


class ServerEvent(Wire, frozen=True, kw_only=True):
    event_id: str


class ErrorBody(Wire, frozen=True, kw_only=True):
    type: str
    code: str | None
    message: str
    param: str | None
    event_id: str | None


class Error(ServerEvent, frozen=True, kw_only=True, tag="error"):
    error: ErrorBody


class SessionCreated(ServerEvent, frozen=True, kw_only=True, tag="session.created"):
    session: ShownSession


class SessionUpdated(ServerEvent, frozen=True, kw_only=True, tag="session.updated"):
    session: ShownSession


class SpeechStarted(ServerEvent, frozen=True, kw_only=True, tag="input_audio_buffer.speech_started"):
    item_id: str
    audio_start_ms: int


class SpeechStopped(ServerEvent, frozen=True, kw_only=True, tag="input_audio_buffer.speech_stopped"):
    item_id: str
    audio_end_ms: int


class TimeoutTriggered(ServerEvent, frozen=True, kw_only=True, tag="input_audio_buffer.timeout_triggered"):
    """Nobody has spoken for as long as the client allows; the silence becomes an item."""

    item_id: str
    audio_start_ms: int
    audio_end_ms: int


class Committed(ServerEvent, frozen=True, kw_only=True, tag="input_audio_buffer.committed"):
    item_id: str
    previous_item_id: str | None


class Cleared(ServerEvent, frozen=True, kw_only=True, tag="input_audio_buffer.cleared"):
    pass


class ItemAdded(ServerEvent, frozen=True, kw_only=True, tag="conversation.item.added"):
    item: Item
    previous_item_id: str | None


class ItemDone(ServerEvent, frozen=True, kw_only=True, tag="conversation.item.done"):
    item: Item
    previous_item_id: str | None


class ItemRetrieved(ServerEvent, frozen=True, kw_only=True, tag="conversation.item.retrieved"):
    item: Item


class ItemTruncated(ServerEvent, frozen=True, kw_only=True, tag="conversation.item.truncated"):
    item_id: str
    content_index: int
    audio_end_ms: int


class ItemDeleted(ServerEvent, frozen=True, kw_only=True, tag="conversation.item.deleted"):
    item_id: str


class DurationUsage(Wire, frozen=True, kw_only=True, tag="duration"):
    seconds: float


class TranscriptionDelta(
    ServerEvent, frozen=True, kw_only=True, tag="conversation.item.input_audio_transcription.delta"
):
    item_id: str
    content_index: int
    delta: str


class TranscriptionCompleted(
    ServerEvent, frozen=True, kw_only=True, tag="conversation.item.input_audio_transcription.completed"
):
    item_id: str
    content_index: int
    transcript: str
    usage: DurationUsage


class TranscriptionError(Wire, frozen=True, kw_only=True):
    type: str
    message: str
    code: str


class TranscriptionFailed(
    ServerEvent, frozen=True, kw_only=True, tag="conversation.item.input_audio_transcription.failed"
):
    item_id: str
    content_index: int
    error: TranscriptionError


class ResponseCreated(ServerEvent, frozen=True, kw_only=True, tag="response.created"):
    response: ResponseObject


class ResponseDone(ServerEvent, frozen=True, kw_only=True, tag="response.done"):
    response: ResponseObject


class OutputItemAdded(ServerEvent, frozen=True, kw_only=True, tag="response.output_item.added"):
    response_id: str
    output_index: int
    item: Item


class OutputItemDone(ServerEvent, frozen=True, kw_only=True, tag="response.output_item.done"):
    response_id: str
    output_index: int
    item: Item


class Place(ServerEvent, frozen=True, kw_only=True):
    """Where in a response a delta belongs."""

    response_id: str
    item_id: str
    output_index: int
    content_index: int


class PlaceFields(TypedDict):
    """The fields of a `Place`, to be spread into one of its events."""

    event_id: str
    response_id: str
    item_id: str
    output_index: int
    content_index: int


class SpokenPart(Wire, frozen=True, kw_only=True, tag="audio"):
    transcript: str


class WrittenPart(Wire, frozen=True, kw_only=True, tag="text"):
    text: str


class PartAdded(Place, frozen=True, kw_only=True, tag="response.content_part.added"):
    part: SpokenPart | WrittenPart


class PartDone(Place, frozen=True, kw_only=True, tag="response.content_part.done"):
    part: SpokenPart | WrittenPart


class TextDelta(Place, frozen=True, kw_only=True, tag="response.output_text.delta"):
    delta: str


class TextDone(Place, frozen=True, kw_only=True, tag="response.output_text.done"):
    text: str


class TranscriptDelta(Place, frozen=True, kw_only=True, tag="response.output_audio_transcript.delta"):
    delta: str


class TranscriptDone(Place, frozen=True, kw_only=True, tag="response.output_audio_transcript.done"):
    transcript: str


class AudioDelta(Place, frozen=True, kw_only=True, tag="response.output_audio.delta"):
    """Base64 audio in the session's output format. Only a channel makes one, from a `PlayAudio` effect."""

    delta: str


class AudioDone(Place, frozen=True, kw_only=True, tag="response.output_audio.done"):
    pass


class CallFields(TypedDict):
    """Where a call stands, to be spread into one of its events."""

    event_id: str
    response_id: str
    item_id: str
    output_index: int
    call_id: str


class ArgumentsDelta(ServerEvent, frozen=True, kw_only=True, tag="response.function_call_arguments.delta"):
    response_id: str
    item_id: str
    output_index: int
    call_id: str
    delta: str


class ArgumentsDone(ServerEvent, frozen=True, kw_only=True, tag="response.function_call_arguments.done"):
    response_id: str
    item_id: str
    output_index: int
    call_id: str
    name: str
    arguments: str


class RateLimit(Wire, frozen=True, kw_only=True):
    name: Literal["requests", "tokens"]
    limit: int
    remaining: int
    reset_seconds: float


class RateLimitsUpdated(ServerEvent, frozen=True, kw_only=True, tag="rate_limits.updated"):
    rate_limits: tuple[RateLimit, ...]


AnyServerEvent = (
    Error
    | SessionCreated
    | SessionUpdated
    | SpeechStarted
    | SpeechStopped
    | TimeoutTriggered
    | Committed
    | Cleared
    | ItemAdded
    | ItemDone
    | ItemRetrieved
    | ItemTruncated
    | ItemDeleted
    | TranscriptionDelta
    | TranscriptionCompleted
    | TranscriptionFailed
    | ResponseCreated
    | ResponseDone
    | OutputItemAdded
    | OutputItemDone
    | PartAdded
    | PartDone
    | TextDelta
    | TextDone
    | TranscriptDelta
    | TranscriptDone
    | AudioDelta
    | AudioDone
    | ArgumentsDelta
    | ArgumentsDone
    | RateLimitsUpdated
)

# ---- codec --------------------------------------------------------------------------------------------------------


class _Envelope(msgspec.Struct):
    """What can be read of an event that is otherwise wrong, so that the error names it."""

    type: str | UnsetType = UNSET
    event_id: str | None = None


T = TypeVar("T")

_decoder = msgspec.json.Decoder(AnyClientEvent)
_envelope = msgspec.json.Decoder(_Envelope)
_encoder = msgspec.json.Encoder()
_PLACE = re.compile(r"^(?P<what>.*?)(?: - at (?:`key` in )?`\$\.?(?P<path>.*)`)?$", re.DOTALL)
_MISSING = re.compile(r"missing required field `(?P<field>[^`]+)`")
_PARENTS = re.compile(r"\[\.\.\.\]")


def decode(frame: str | bytes) -> AnyClientEvent | Fault:
    """Read one frame. A frame that can't be taken comes back as the `Fault` that tells why, never as an exception."""
    return read(frame, _decoder)


def read(frame: str | bytes, decoder: msgspec.json.Decoder[T]) -> T | Fault:
    """Read one frame as what the decoder knows; its fault names the field by the path in the frame."""
    try:
        frame = frame if isinstance(frame, str) else frame.decode()  # the decoder does not look into raw values
        if "\n" in frame or "\r" in frame:
            frame = msgspec.json.format(frame, indent=-1)  # raw values are kept as they are, on one line of a journal
        return decoder.decode(frame)
    except msgspec.ValidationError as error:
        return _fault(str(error), _read_envelope(frame))
    except (msgspec.DecodeError, UnicodeError) as error:
        return Fault(code="invalid_json", message=f"The frame is not a JSON text ({error}). Send one object a frame.")
    except RecursionError:
        return Fault(code="invalid_json", message="The frame nests deeper than any event does. Send a flatter object.")


def encode(event: AnyServerEvent) -> bytes:
    """Write one event as UTF-8 JSON."""
    return _encoder.encode(event)


def _read_envelope(frame: str | bytes) -> _Envelope:
    try:
        return _envelope.decode(frame)
    except (msgspec.DecodeError, RecursionError):
        return _Envelope()


def _fault(error: str, envelope: _Envelope) -> Fault:
    match = _PLACE.match(error)
    what, path = (match["what"], match["path"] or "") if match else (error, "")
    missing = _MISSING.search(what)
    if missing:
        path = f"{path}.{missing['field']}" if path else missing["field"]
        code = "missing_required_parameter"
    elif what.startswith("Expected") and ", got " in what:
        code = "invalid_type"
    else:
        code = "invalid_value"
    if path == "type" and isinstance(envelope.type, str):
        what = f"Unknown event type {envelope.type!r}"
    return Fault(
        code=code,
        message=f"{what}{f' at {path}' if path else ''}.",
        param=_PARENTS.sub("", path) or None,
        event_id=envelope.event_id,
    )
