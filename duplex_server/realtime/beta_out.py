"""Writes the server's events in the older dialect: other names, flat objects, and one event for each new item.

What is not named here is written as in the GA dialect. The shapes are those of `openai.types.beta.realtime`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from duplex_server.realtime import wire
from duplex_server.realtime.schema import (
    Content,
    Eagerness,
    FormatType,
    FunctionCall,
    FunctionCallOutput,
    FunctionTool,
    Include,
    InputAudio,
    InputImage,
    InputText,
    Item,
    ItemStatus,
    LegacyFormat,
    Message,
    MessageRole,
    Modality,
    NoiseReduction,
    OutputAudio,
    OutputText,
    OutputTokens,
    ResponseObject,
    ResponseStatus,
    ResponseUsage,
    Session,
    StatusDetails,
    ToolChoice,
    Transcription,
    TranscriptionSession,
    TurnDetection,
    Wire,
)

TEMPERATURE = 0.8
"""What is shown where neither the client nor the server's settings say one: what such clients take for the default."""
FORMATS: Mapping[FormatType, LegacyFormat] = {
    "audio/pcm": "pcm16",
    "audio/pcmu": "g711_ulaw",
    "audio/pcma": "g711_alaw",
}
IGNORED_IN_TRANSCRIPTION = frozenset(("create_response", "interrupt_response"))

Form = Callable[[Any], tuple[bytes, ...]]  # each takes the one event that it stands beside in `FORMS`

# ---- objects ------------------------------------------------------------------------------------------------------


class FlatTurnDetection(Wire, frozen=True, kw_only=True):
    type: str
    threshold: float | UnsetType = UNSET
    prefix_padding_ms: int | UnsetType = UNSET
    silence_duration_ms: int | UnsetType = UNSET
    idle_timeout_ms: int | UnsetType = UNSET
    eagerness: Eagerness | UnsetType = UNSET
    create_response: bool | UnsetType = UNSET
    interrupt_response: bool | UnsetType = UNSET


class FlatSession(Wire, frozen=True, kw_only=True):
    """The settings of a session, all side by side."""

    id: str
    model: str
    expires_at: int
    modalities: tuple[Modality, ...]
    instructions: str
    voice: str
    input_audio_format: LegacyFormat
    output_audio_format: LegacyFormat
    input_audio_transcription: Transcription | None
    input_audio_noise_reduction: NoiseReduction | None
    turn_detection: FlatTurnDetection | None
    tools: tuple[FunctionTool, ...]
    tool_choice: str
    temperature: float
    max_response_output_tokens: int | Literal["inf"]
    speed: float
    tracing: msgspec.Raw | None
    include: tuple[Include, ...] | UnsetType
    object: Literal["realtime.session"] = "realtime.session"


class FlatTranscription(Wire, frozen=True, kw_only=True):
    """The settings of a session that only transcribes, all side by side."""

    id: str
    expires_at: int
    input_audio_format: LegacyFormat
    input_audio_transcription: Transcription | None
    input_audio_noise_reduction: NoiseReduction | None
    turn_detection: FlatTurnDetection | None
    include: tuple[Include, ...] | UnsetType
    object: Literal["realtime.transcription_session"] = "realtime.transcription_session"


class FlatUsageInput(Wire, frozen=True, kw_only=True):
    text_tokens: int
    audio_tokens: int
    cached_tokens: int


class FlatUsage(Wire, frozen=True, kw_only=True):
    total_tokens: int
    input_tokens: int
    output_tokens: int
    input_token_details: FlatUsageInput
    output_token_details: OutputTokens


class FlatMessage(Wire, frozen=True, kw_only=True, tag="message"):
    """A message; an assistant's parts have the types that `response.content_part` has."""

    id: str
    role: MessageRole
    content: tuple[FlatContent, ...]
    status: ItemStatus
    object: Literal["realtime.item"] = "realtime.item"


class FlatText(Wire, frozen=True, kw_only=True, tag="text"):
    text: str


class FlatAudio(Wire, frozen=True, kw_only=True, tag="audio"):
    transcript: str
    audio: str | UnsetType


FlatContent = InputText | InputAudio | InputImage | FlatText | FlatAudio
FlatItem = FlatMessage | FunctionCall | FunctionCallOutput


class FlatResponse(Wire, frozen=True, kw_only=True):
    id: str
    status: ResponseStatus
    status_details: StatusDetails | None
    output: tuple[FlatItem, ...]
    conversation_id: str | None
    modalities: tuple[Modality, ...]
    voice: str
    output_audio_format: LegacyFormat
    temperature: float
    max_output_tokens: int | Literal["inf"]
    metadata: dict[str, str] | None
    usage: FlatUsage | None
    object: Literal["realtime.response"] = "realtime.response"


class Conversation(Wire, frozen=True, kw_only=True):
    id: str
    object: Literal["realtime.conversation"] = "realtime.conversation"


# ---- events that only the older dialect has -----------------------------------------------------------------------


class ConversationCreated(wire.ServerEvent, frozen=True, kw_only=True, tag="conversation.created"):
    conversation: Conversation


class ItemCreated(wire.ServerEvent, frozen=True, kw_only=True, tag="conversation.item.created"):
    item: FlatItem
    previous_item_id: str | None


def conversation_created(after: wire.SessionCreated, conversation_id: str) -> tuple[bytes, ...]:
    """What follows `session.created`, unless the session only transcribes. Its id is made from that event's."""
    if not isinstance(after.session, Session):
        return ()
    event_id = f"{after.event_id}_conversation"
    return (_encode(ConversationCreated(event_id=event_id, conversation=Conversation(id=conversation_id))),)


# ---- forms of objects ---------------------------------------------------------------------------------------------


def flat_session(session: Session) -> FlatSession:
    """A session's settings as the older dialect shows them; what it has no name for is left out."""
    heard, told = session.audio.input, session.audio.output
    return FlatSession(
        id=session.id,
        model=session.model,
        expires_at=session.expires_at,
        modalities=_modalities(session.output_modalities),
        instructions=session.instructions,
        voice=told.voice,
        input_audio_format=FORMATS[heard.format.type],
        output_audio_format=FORMATS[told.format.type],
        input_audio_transcription=heard.transcription,
        input_audio_noise_reduction=heard.noise_reduction,
        turn_detection=_turn_detection(heard.turn_detection),
        tools=session.tools,
        tool_choice=_tool_choice(session.tool_choice),
        temperature=_temperature(session.temperature),
        max_response_output_tokens=session.max_output_tokens,
        speed=told.speed,
        tracing=session.tracing,
        include=UNSET if session.include is None else session.include,
    )


def flat_transcription(session: TranscriptionSession) -> FlatTranscription:
    """The settings of a session that only transcribes, as the older dialect shows them."""
    heard = session.audio.input
    return FlatTranscription(
        id=session.id,
        expires_at=session.expires_at,
        input_audio_format=FORMATS[heard.format.type],
        input_audio_transcription=heard.transcription,
        input_audio_noise_reduction=heard.noise_reduction,
        turn_detection=_turn_detection(heard.turn_detection, IGNORED_IN_TRANSCRIPTION),
        include=UNSET if session.include is None else session.include,
    )


def flat_response(response: ResponseObject) -> FlatResponse:
    """A response as the older dialect shows it."""
    return FlatResponse(
        id=response.id,
        status=response.status,
        status_details=response.status_details,
        output=tuple(map(flat_item, response.output)),
        conversation_id=response.conversation_id,
        modalities=_modalities(response.output_modalities),
        voice=response.audio.output.voice,
        output_audio_format=FORMATS[response.audio.output.format.type],
        temperature=_temperature(response.temperature),
        max_output_tokens=response.max_output_tokens,
        metadata=response.metadata,
        usage=None if response.usage is None else _usage(response.usage),
    )


def flat_item(item: Item) -> FlatItem:
    """An item as the older dialect shows it."""
    if not isinstance(item, Message):
        return item
    content = tuple(map(_content, item.content))
    return FlatMessage(id=item.id, role=item.role, content=content, status=item.status)


def _content(part: Content) -> FlatContent:
    match part:
        case OutputText(text=text):
            return FlatText(text=text)
        case OutputAudio(transcript=transcript, audio=audio):
            return FlatAudio(transcript=transcript, audio=audio)
        case _:
            return part


def _modalities(modalities: tuple[Modality, ...]) -> tuple[Modality, ...]:
    """Speech always comes with its words."""
    return ("audio", "text") if "audio" in modalities else ("text",)


def _turn_detection(
    detection: TurnDetection | None, left_out: frozenset[str] = frozenset()
) -> FlatTurnDetection | None:
    if detection is None:
        return None
    fields = msgspec.structs.asdict(detection).items()
    shown = {name: value for name, value in fields if value is not None and name not in left_out}
    return FlatTurnDetection(type=str(detection.__struct_config__.tag), **shown)


def _tool_choice(choice: ToolChoice) -> str:
    return choice if isinstance(choice, str) else choice.name


def _temperature(value: float | UnsetType) -> float:
    return TEMPERATURE if isinstance(value, UnsetType) else value


def _usage(usage: ResponseUsage) -> FlatUsage:
    read = usage.input_token_details
    return FlatUsage(
        total_tokens=usage.total_tokens,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        input_token_details=FlatUsageInput(
            text_tokens=read.text_tokens, audio_tokens=read.audio_tokens, cached_tokens=read.cached_tokens
        ),
        output_token_details=usage.output_token_details,
    )


# ---- forms of events ----------------------------------------------------------------------------------------------

_encode = msgspec.json.Encoder().encode
_BEFORE_TYPE = b'{"type":"'


def _named(name: str) -> Form:
    """The event as it is, under another name."""
    return lambda event: (_rename(event, _encode(event), name),)


def _rename(event: wire.AnyServerEvent, frame: bytes, name: str) -> bytes:
    """The event's frame under another name. The type is the first thing that is written, whatever the fields."""
    after_type = len(_BEFORE_TYPE) + len(str(event.__struct_config__.tag))
    return _BEFORE_TYPE + name.encode() + frame[after_type:]


def _with_session(event: wire.SessionCreated | wire.SessionUpdated) -> tuple[bytes, ...]:
    if isinstance(event.session, Session):
        return (_put(event, session=flat_session(event.session)),)
    frame = _put(event, session=flat_transcription(event.session))
    return (_rename(event, frame, f"transcription_{event.__struct_config__.tag}"),)


def _with_response(event: wire.ResponseCreated | wire.ResponseDone) -> tuple[bytes, ...]:
    return (_put(event, response=flat_response(event.response)),)


def _with_item(event: wire.ItemRetrieved | wire.OutputItemAdded | wire.OutputItemDone) -> tuple[bytes, ...]:
    return (_put(event, item=flat_item(event.item)),)


def _created(event: wire.ItemAdded) -> tuple[bytes, ...]:
    item = flat_item(event.item)
    return (_encode(ItemCreated(event_id=event.event_id, item=item, previous_item_id=event.previous_item_id)),)


def _left_out(event: wire.ItemDone | wire.TimeoutTriggered) -> tuple[bytes, ...]:
    return ()


def _put(event: wire.AnyServerEvent, **flat: Wire) -> bytes:
    """The event with an object of the older dialect in the place of ours, which only an encoder may see."""
    return _encode(msgspec.structs.replace(event, **flat))


FORMS: Mapping[type[wire.AnyServerEvent], Form] = {
    wire.SessionCreated: _with_session,
    wire.SessionUpdated: _with_session,
    wire.ResponseCreated: _with_response,
    wire.ResponseDone: _with_response,
    wire.ItemRetrieved: _with_item,
    wire.OutputItemAdded: _with_item,
    wire.OutputItemDone: _with_item,
    wire.ItemAdded: _created,
    wire.ItemDone: _left_out,
    wire.TimeoutTriggered: _left_out,
    wire.TextDelta: _named("response.text.delta"),
    wire.TextDone: _named("response.text.done"),
    wire.TranscriptDelta: _named("response.audio_transcript.delta"),
    wire.TranscriptDone: _named("response.audio_transcript.done"),
    wire.AudioDelta: _named("response.audio.delta"),
    wire.AudioDone: _named("response.audio.done"),
}
"""How each event that is told otherwise is written: as no frame, or as one."""
