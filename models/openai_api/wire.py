"""Writes chat completion requests and reads the events of their streams."""

from __future__ import annotations

import msgspec

from models.openai_api.family import Options
from pipeline import chunk
from pipeline.chunk import AudioPart, CallPart, Prompt, ResultPart, TextPart, Think
from pipeline.errors import StageError

NO_RESULT = "(no result yet)"  # the service refuses a call that nothing answers


# ---- request ------------------------------------------------------------------------------------------------------


class FunctionCall(msgspec.Struct, frozen=True):
    """The function of a call."""

    name: str
    arguments: str


class ToolCall(msgspec.Struct, frozen=True):
    """A call the assistant made."""

    id: str
    function: FunctionCall
    type: str = "function"


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message of the conversation; `content` is None beside calls alone."""

    role: str
    content: str | msgspec.UnsetType | None = msgspec.UNSET
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


class FunctionSpec(msgspec.Struct, frozen=True):
    """A function that may be called; `parameters` is a JSON schema."""

    name: str
    description: str
    parameters: msgspec.Raw


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool of the request."""

    function: FunctionSpec
    type: str = "function"


class FunctionName(msgspec.Struct, frozen=True):
    """A function by its name."""

    name: str


class ToolNamed(msgspec.Struct, frozen=True):
    """The choice of one function."""

    function: FunctionName
    type: str = "function"


class StreamOptions(msgspec.Struct, frozen=True):
    """What the stream is to carry besides the text."""

    include_usage: bool


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of `POST /chat/completions`."""

    model: str
    messages: tuple[Message, ...]
    stream: bool = False
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str | ToolNamed | None = None
    parallel_tool_calls: bool | None = None


def request_body(job: Think, options: Options) -> bytes:
    """The JSON body for a job. Raises `StageError` for a part that can't be sent as text."""
    modern = options.token_limit_field == "max_completion_tokens"
    request = Request(
        model=options.model,
        messages=messages(job.prompt),
        stream=True,
        stream_options=StreamOptions(include_usage=True) if options.usage else None,
        temperature=options.temperature if job.temperature is None else job.temperature,
        max_tokens=None if modern else job.max_tokens,
        max_completion_tokens=job.max_tokens if modern else None,
        tools=tuple(
            ToolSpec(FunctionSpec(tool.name, tool.description, msgspec.Raw(tool.parameters.encode())))
            for tool in job.prompt.tools
        ),
        tool_choice=_tool_choice(job),
        parallel_tool_calls=False if job.prompt.tools and not job.parallel_calls else None,
    )
    return msgspec.json.encode(request)


def _tool_choice(job: Think) -> str | ToolNamed | None:
    """The choice where it is not the service's own default; services refuse one without tools."""
    match job.tool_choice:
        case chunk.ToolNamed(name=name):
            return ToolNamed(FunctionName(name))
        case "auto":
            return None
        case choice:
            return choice if job.prompt.tools else None


def messages(prompt: Prompt) -> tuple[Message, ...]:
    """The prompt as messages. Neighbouring calls share one message, and every call's result follows it at once."""
    results = {part.call_id: part.output for part in prompt.parts if isinstance(part, ResultPart)}
    called = {part.call_id for part in prompt.parts if isinstance(part, CallPart)}
    written: list[Message] = []
    calls: list[ToolCall] = []
    for part in prompt.parts:
        match part:
            case CallPart():
                calls.append(ToolCall(part.call_id, FunctionCall(part.name, part.arguments)))
            case ResultPart():
                if part.call_id not in called:
                    raise StageError(
                        f"got a prompt that has a result for the call {part.call_id!r} but not the call; "
                        f"delete the result's item too"
                    )
            case TextPart():
                written += _flush(calls, results)
                written.append(Message(part.role, part.text))
            case AudioPart():
                raise StageError("got audio and reads text; put a recognizer in front that writes it down")
    return (*written, *_flush(calls, results))


def _flush(calls: list[ToolCall], results: dict[str, str]) -> list[Message]:
    if not calls:
        return []
    written = [Message("assistant", None, tool_calls=tuple(calls))]
    written += [Message("tool", results.get(call.id, NO_RESULT), tool_call_id=call.id) for call in calls]
    calls.clear()
    return written


# ---- stream -------------------------------------------------------------------------------------------------------


class FunctionDelta(msgspec.Struct, frozen=True):
    """More of a call; the name comes once."""

    name: str | None = None
    arguments: str | None = None


class CallEvent(msgspec.Struct, frozen=True):
    """More of the call at `index`; its id comes once."""

    index: int = 0
    id: str | None = None
    function: FunctionDelta | None = None


class Delta(msgspec.Struct, frozen=True):
    """More of the reply."""

    content: str | None = None
    tool_calls: tuple[CallEvent, ...] | None = None
    refusal: str | None = None


class Choice(msgspec.Struct, frozen=True):
    """One of the alternatives; only one is asked for."""

    delta: Delta | None = None
    finish_reason: str | None = None


class CachedTokens(msgspec.Struct, frozen=True):
    """Tokens that were not computed again."""

    cached_tokens: int | None = None


class Counted(msgspec.Struct, frozen=True):
    """Tokens read and written."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: CachedTokens | None = None


class ErrorBody(msgspec.Struct, frozen=True):
    """What went wrong; servers put a text or a number into `code`."""

    message: str = ""
    code: str | int | None = None
    type: str | None = None


class StreamEvent(msgspec.Struct, frozen=True):
    """One event of the stream. An error in the middle of a stream comes as an event too."""

    choices: tuple[Choice, ...] | None = None
    usage: Counted | None = None
    error: ErrorBody | str | None = None


class _Envelope(msgspec.Struct, frozen=True):
    error: ErrorBody | str | None = None
    message: str | None = None
    detail: str | None = None


_events = msgspec.json.Decoder(StreamEvent)
_envelopes = msgspec.json.Decoder(_Envelope)

MAX_QUOTED = 500  # characters of a body that is not OpenAI's envelope


def read_event(data: bytes) -> StreamEvent:
    """One event's data. Raises msgspec.DecodeError when it isn't one."""
    return _events.decode(data)


def error_message(body: bytes) -> str:
    """What a refusal's body says: the message of the envelopes in use, else the start of its text."""
    try:
        envelope = _envelopes.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return body.decode(errors="replace").strip()[:MAX_QUOTED]
    said = said_by(envelope.error) or envelope.message or envelope.detail
    return said or body.decode(errors="replace").strip()[:MAX_QUOTED]


def said_by(error: ErrorBody | str | None) -> str:
    """The words of an error, empty when there are none."""
    return error.message if isinstance(error, ErrorBody) else error or ""
