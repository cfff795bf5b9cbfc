"""Defines the protocol's objects: session, items, responses and usage, as they are written on the wire.

A field typed `... | UnsetType` is left out when it is unset. A field typed `... | None` is always written, as null
when it is None. Clients depend on which of the two it is. Source: the OpenAI Realtime API, GA dialect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

INPUT_RATE_HZ = 24_000
"""The rate of `audio/pcm`, and the clock of every sample position a session speaks of."""


class Wire(msgspec.Struct, frozen=True, kw_only=True):
    """The base of every object on the wire. Unknown keys of a client are ignored, as the hosted API does."""


# ---- session ------------------------------------------------------------------------------------------------------

Modality = Literal["audio", "text"]
FormatType = Literal["audio/pcm", "audio/pcmu", "audio/pcma"]
Eagerness = Literal["low", "medium", "high", "auto"]
NoiseType = Literal["near_field", "far_field"]
Include = Literal["item.input_audio_transcription.logprobs"]
SessionKind = Literal["realtime", "transcription"]


class Format(Wire, frozen=True, kw_only=True):
    """An audio format; only `audio/pcm` has a rate."""

    type: FormatType
    rate: int | UnsetType = UNSET


PCM = Format(type="audio/pcm", rate=INPUT_RATE_HZ)
NARROW_RATE_HZ = 8_000
FORMAT_RATES_HZ: Mapping[FormatType, int] = {
    "audio/pcm": INPUT_RATE_HZ,
    "audio/pcmu": NARROW_RATE_HZ,
    "audio/pcma": NARROW_RATE_HZ,
}


class Transcription(Wire, frozen=True, kw_only=True):
    """How the user's speech is transcribed. A key the client did not set is never echoed: it breaks clients."""

    model: str | UnsetType = UNSET
    language: str | UnsetType = UNSET
    prompt: str | UnsetType = UNSET
    delay: Literal["minimal", "low", "medium", "high", "xhigh"] | UnsetType = UNSET
    keywords: tuple[str, ...] | UnsetType = UNSET
    languages: tuple[str, ...] | UnsetType = UNSET


class NoiseReduction(Wire, frozen=True, kw_only=True):
    """The microphone's distance; `strength` is an extension of some clients."""

    type: NoiseType
    strength: float | str | UnsetType = UNSET


class ServerVad(Wire, frozen=True, kw_only=True, tag="server_vad"):
    """Turns end after a stretch of silence."""

    threshold: float = 0.5
    prefix_padding_ms: int = 300
    silence_duration_ms: int = 500
    idle_timeout_ms: int | None = None
    create_response: bool = True
    interrupt_response: bool = True


class SemanticVad(Wire, frozen=True, kw_only=True, tag="semantic_vad"):
    """Turns end when the words sound finished."""

    eagerness: Eagerness = "auto"
    create_response: bool = True
    interrupt_response: bool = True


TurnDetection = ServerVad | SemanticVad


class AudioInput(Wire, frozen=True, kw_only=True):
    format: Format = PCM
    transcription: Transcription | None = None
    noise_reduction: NoiseReduction | None = None
    turn_detection: TurnDetection | None = ServerVad()


class AudioOutput(Wire, frozen=True, kw_only=True):
    format: Format = PCM
    voice: str = "marin"
    speed: float = 1.0


class SessionAudio(Wire, frozen=True, kw_only=True):
    input: AudioInput = AudioInput()
    output: AudioOutput = AudioOutput()


class FunctionTool(Wire, frozen=True, kw_only=True, tag="function"):
    """A function the model may call; `parameters` is kept and echoed as the client wrote it."""

    name: str
    description: str | UnsetType | None = UNSET  # never null in what is kept
    parameters: msgspec.Raw | UnsetType = UNSET


class NamedFunction(Wire, frozen=True, kw_only=True):
    """The choice of one function."""

    type: Literal["function"]
    name: str


ToolChoice = Literal["auto", "none", "required"] | NamedFunction


class TokenLimits(Wire, frozen=True, kw_only=True):
    """The most tokens of a context, not counting instructions and tools."""

    post_instructions: Annotated[int, Meta(ge=0)] | UnsetType | None = UNSET


class RetentionRatio(Wire, frozen=True, kw_only=True):
    """How much of a context that has grown too long is kept."""

    type: Literal["retention_ratio"]
    retention_ratio: Annotated[float, Meta(ge=0, le=1)]
    token_limits: TokenLimits | UnsetType | None = UNSET


class PromptReference(Wire, frozen=True, kw_only=True):
    """A stored prompt's name. There are none here: it is taken and means nothing."""

    id: str
    version: str | UnsetType | None = UNSET
    variables: msgspec.Raw | UnsetType = UNSET


class Reasoning(Wire, frozen=True, kw_only=True):
    effort: Literal["minimal", "low", "medium", "high", "xhigh"] | UnsetType = UNSET


class Session(Wire, frozen=True, kw_only=True):
    """The effective settings of a session, exactly as `session.created` and `session.updated` show them.

    One that only transcribes is shown as a `TranscriptionSession`.
    """

    id: str
    model: str
    expires_at: int
    instructions: str
    type: SessionKind = "realtime"
    object: Literal["realtime.session"] = "realtime.session"
    output_modalities: tuple[Modality, ...] = ("audio",)
    audio: SessionAudio = SessionAudio()
    tools: tuple[FunctionTool, ...] = ()
    tool_choice: ToolChoice = "auto"
    max_output_tokens: int | Literal["inf"] = "inf"
    truncation: Literal["auto", "disabled"] | RetentionRatio = "auto"
    tracing: msgspec.Raw | None = None
    prompt: PromptReference | None = None
    include: tuple[Include, ...] | None = None
    parallel_tool_calls: bool | UnsetType = UNSET
    reasoning: Reasoning | UnsetType = UNSET
    temperature: float | UnsetType = UNSET
    """Known to the older dialect only: whoever writes the GA dialect leaves it out (`dialect.ga_session`)."""


class TranscriptionAudio(Wire, frozen=True, kw_only=True):
    input: AudioInput


class TranscriptionSession(Wire, frozen=True, kw_only=True):
    """The effective settings of a session that only transcribes, as its events show them."""

    id: str
    expires_at: int
    audio: TranscriptionAudio
    include: tuple[Include, ...] | None
    type: Literal["transcription"] = "transcription"
    object: Literal["realtime.transcription_session"] = "realtime.transcription_session"


ShownSession = Session | TranscriptionSession


# ---- what a client may change -------------------------------------------------------------------------------------


class VoiceReference(Wire, frozen=True, kw_only=True):
    """A voice by its id; echoed as the plain id."""

    id: str


MaxTokens = Annotated[int, Meta(ge=1, le=4096)] | Literal["inf"]
Speed = Annotated[float, Meta(ge=0.25, le=1.5)]
Temperature = Annotated[float, Meta(ge=0.6, le=1.2)]
LegacyFormat = Literal["pcm16", "g711_ulaw", "g711_alaw"]


class TurnDetectionPatch(Wire, frozen=True, kw_only=True):
    type: Literal["server_vad", "semantic_vad"] | UnsetType = UNSET
    threshold: Annotated[float, Meta(ge=0, le=1)] | UnsetType | None = UNSET
    prefix_padding_ms: Annotated[int, Meta(ge=0, le=10000)] | UnsetType | None = UNSET
    silence_duration_ms: Annotated[int, Meta(ge=0, le=60000)] | UnsetType | None = UNSET
    idle_timeout_ms: Annotated[int, Meta(ge=5000, le=30000)] | UnsetType | None = UNSET
    eagerness: Eagerness | UnsetType | None = UNSET
    create_response: bool | UnsetType | None = UNSET
    interrupt_response: bool | UnsetType | None = UNSET


class TranscriptionPatch(Wire, frozen=True, kw_only=True):
    model: str | UnsetType | None = UNSET
    language: str | UnsetType | None = UNSET
    prompt: str | UnsetType | None = UNSET
    delay: Literal["minimal", "low", "medium", "high", "xhigh"] | UnsetType | None = UNSET
    keywords: tuple[str, ...] | UnsetType | None = UNSET
    languages: tuple[str, ...] | UnsetType | None = UNSET


class NoiseReductionPatch(Wire, frozen=True, kw_only=True):
    type: NoiseType | UnsetType = UNSET
    strength: float | str | UnsetType | None = UNSET


class AudioInputPatch(Wire, frozen=True, kw_only=True):
    format: Format | LegacyFormat | UnsetType | None = UNSET
    transcription: TranscriptionPatch | UnsetType | None = UNSET
    noise_reduction: NoiseReductionPatch | UnsetType | None = UNSET
    turn_detection: TurnDetectionPatch | UnsetType | None = UNSET


class AudioOutputPatch(Wire, frozen=True, kw_only=True):
    format: Format | LegacyFormat | UnsetType | None = UNSET
    voice: str | VoiceReference | UnsetType | None = UNSET
    speed: Speed | UnsetType | None = UNSET


class AudioPatch(Wire, frozen=True, kw_only=True):
    input: AudioInputPatch | UnsetType | None = UNSET
    output: AudioOutputPatch | UnsetType | None = UNSET


class SessionPatch(Wire, frozen=True, kw_only=True):
    """What `session.update` may carry. Absent, null and a value are three different things."""

    type: str | UnsetType | None = UNSET
    output_modalities: tuple[Modality, ...] | UnsetType | None = UNSET
    instructions: str | UnsetType | None = UNSET
    audio: AudioPatch | UnsetType | None = UNSET
    tools: tuple[FunctionTool, ...] | UnsetType | None = UNSET
    tool_choice: ToolChoice | UnsetType | None = UNSET
    max_output_tokens: MaxTokens | UnsetType | None = UNSET
    truncation: Literal["auto", "disabled"] | RetentionRatio | UnsetType | None = UNSET
    tracing: msgspec.Raw | UnsetType = UNSET
    prompt: PromptReference | UnsetType | None = UNSET
    include: tuple[Include, ...] | UnsetType | None = UNSET
    parallel_tool_calls: bool | UnsetType | None = UNSET
    reasoning: Reasoning | UnsetType | None = UNSET
    temperature: Temperature | UnsetType | None = UNSET


# ---- items --------------------------------------------------------------------------------------------------------

ItemStatus = Literal["in_progress", "completed", "incomplete"]
MessageRole = Literal["system", "user", "assistant"]


class InputText(Wire, frozen=True, kw_only=True, tag="input_text"):
    text: str


class InputAudio(Wire, frozen=True, kw_only=True, tag="input_audio"):
    """A user's speech; `transcript` is always written, null until it is known."""

    transcript: str | None = None
    audio: str | UnsetType = UNSET


class InputImage(Wire, frozen=True, kw_only=True, tag="input_image"):
    image_url: str
    detail: Literal["auto", "low", "high"] | UnsetType = UNSET


class OutputText(Wire, frozen=True, kw_only=True, tag="output_text"):
    text: str


class OutputAudio(Wire, frozen=True, kw_only=True, tag="output_audio"):
    transcript: str
    audio: str | UnsetType = UNSET


Content = InputText | InputAudio | InputImage | OutputText | OutputAudio


class Message(Wire, frozen=True, kw_only=True, tag="message"):
    id: str
    role: MessageRole
    content: tuple[Content, ...]
    status: ItemStatus = "completed"
    object: Literal["realtime.item"] = "realtime.item"


class FunctionCall(Wire, frozen=True, kw_only=True, tag="function_call"):
    id: str
    call_id: str
    name: str
    arguments: str
    status: ItemStatus = "completed"
    object: Literal["realtime.item"] = "realtime.item"


class FunctionCallOutput(Wire, frozen=True, kw_only=True, tag="function_call_output"):
    id: str
    call_id: str
    output: str
    status: ItemStatus = "completed"
    object: Literal["realtime.item"] = "realtime.item"


Item = Message | FunctionCall | FunctionCallOutput

ItemId = Annotated[str, Meta(min_length=1, max_length=128)]


class TextIn(Wire, frozen=True, kw_only=True, tag="text"):
    """What clients of the older dialect call `output_text`."""

    text: str


class OutputAudioIn(Wire, frozen=True, kw_only=True, tag="output_audio"):
    """An assistant's spoken part from another session's history: only its words can be taken over."""

    transcript: str | UnsetType | None = UNSET
    text: str | UnsetType | None = UNSET


class AudioIn(OutputAudioIn, frozen=True, kw_only=True, tag="audio"):
    """What clients of the older dialect call `output_audio`."""


class GivenSound(Wire, frozen=True, kw_only=True):
    """Sound that came inside an item, in samples at 24 kHz; `number` says which of the event's it is."""

    number: int
    samples: int


class InputAudioIn(Wire, frozen=True, kw_only=True, tag="input_audio"):
    transcript: str | UnsetType | None = UNSET
    audio: str | UnsetType | None = UNSET
    sound: GivenSound | UnsetType = UNSET
    """What `audio` was, once it is taken out (`given.without_sounds`); what a client writes here counts for nothing."""


ContentIn = InputText | InputAudioIn | InputImage | OutputText | TextIn | OutputAudioIn | AudioIn


class MessageIn(Wire, frozen=True, kw_only=True, tag="message"):
    role: Literal["system", "user", "assistant", "developer"]
    content: tuple[ContentIn, ...] = ()
    id: ItemId | UnsetType | None = UNSET


class FunctionCallIn(Wire, frozen=True, kw_only=True, tag="function_call"):
    name: str
    arguments: str
    call_id: str | UnsetType | None = UNSET
    id: ItemId | UnsetType | None = UNSET


class FunctionCallOutputIn(Wire, frozen=True, kw_only=True, tag="function_call_output"):
    call_id: str
    output: str
    id: ItemId | UnsetType | None = UNSET


class ItemReference(Wire, frozen=True, kw_only=True, tag="item_reference"):
    id: str


ItemIn = MessageIn | FunctionCallIn | FunctionCallOutputIn

# ---- responses ----------------------------------------------------------------------------------------------------

CancelReason = Literal["turn_detected", "client_cancelled"]


class CachedTokens(Wire, frozen=True, kw_only=True):
    text_tokens: int = 0
    audio_tokens: int = 0
    image_tokens: int = 0


class InputTokens(Wire, frozen=True, kw_only=True):
    text_tokens: int = 0
    audio_tokens: int = 0
    image_tokens: int = 0
    cached_tokens: int = 0
    cached_tokens_details: CachedTokens = CachedTokens()


class OutputTokens(Wire, frozen=True, kw_only=True):
    text_tokens: int = 0
    audio_tokens: int = 0


class ResponseUsage(Wire, frozen=True, kw_only=True):
    """Tokens of a response; `total_tokens` is the sum of input and output."""

    total_tokens: int
    input_tokens: int
    output_tokens: int
    input_token_details: InputTokens
    output_token_details: OutputTokens


class ErrorDetail(Wire, frozen=True, kw_only=True):
    type: str
    code: str
    message: str


class StatusDetails(Wire, frozen=True, kw_only=True):
    type: Literal["cancelled", "incomplete", "failed"]
    reason: CancelReason | Literal["max_output_tokens"] | UnsetType = UNSET
    error: ErrorDetail | UnsetType = UNSET


class ResponseAudioOutput(Wire, frozen=True, kw_only=True):
    format: Format
    voice: str


class ResponseAudio(Wire, frozen=True, kw_only=True):
    output: ResponseAudioOutput


ResponseStatus = Literal["in_progress", "completed", "cancelled", "incomplete", "failed"]


class ResponseObject(Wire, frozen=True, kw_only=True):
    id: str
    status: ResponseStatus
    output: tuple[Item, ...]
    conversation_id: str | None
    output_modalities: tuple[Modality, ...]
    max_output_tokens: int | Literal["inf"]
    audio: ResponseAudio
    object: Literal["realtime.response"] = "realtime.response"
    status_details: StatusDetails | None = None
    metadata: dict[str, str] | None = None  # the client's own pairs, echoed; nothing here reads them
    usage: ResponseUsage | None = None
    temperature: float | UnsetType = UNSET  # in the older dialect only, as in a session


MetadataKey = Annotated[str, Meta(max_length=64)]
MetadataValue = Annotated[str, Meta(max_length=512)]


class ResponseParams(Wire, frozen=True, kw_only=True):
    """What `response.create` may override; null means not given."""

    conversation: Literal["auto", "none"] | UnsetType | None = UNSET
    input: tuple[MessageIn | FunctionCallIn | FunctionCallOutputIn | ItemReference, ...] | UnsetType | None = UNSET
    instructions: str | UnsetType | None = UNSET
    output_modalities: tuple[Modality, ...] | UnsetType | None = UNSET
    audio: AudioPatch | UnsetType | None = UNSET
    tools: tuple[FunctionTool, ...] | UnsetType | None = UNSET
    tool_choice: ToolChoice | UnsetType | None = UNSET
    parallel_tool_calls: bool | UnsetType | None = UNSET
    max_output_tokens: MaxTokens | UnsetType | None = UNSET
    temperature: Temperature | UnsetType | None = UNSET
    prompt: PromptReference | UnsetType | None = UNSET
    reasoning: Reasoning | UnsetType | None = UNSET
    metadata: Annotated[dict[MetadataKey, MetadataValue], Meta(max_length=16)] | UnsetType | None = UNSET
