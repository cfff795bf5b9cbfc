"""Defines the values that travel between a session and its stages, and from stage to stage.

Everything here is a frozen msgspec struct with a tag, so that the same value crosses a thread by reference and a
process as msgpack. Audio is signed 16-bit little-endian mono everywhere; a payload names its rate.
"""

from __future__ import annotations

from typing import Literal, assert_never

import msgspec

from pipeline.errors import FailureKind
from transport.base import Blocks


class Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The base of every value on a pipeline edge."""


# ---- fences -------------------------------------------------------------------------------------------------------


class Segment(Struct, frozen=True, tag="segment"):
    """One recognition pass over one stretch of a stream's input.

    `number` counts the passes of the stream, so two passes over the same stretch are different fences. `upto_sample` is
    the first input sample (24 kHz) that the pass does not cover.
    """

    stream: str
    number: int
    upto_sample: int


class Reply(Struct, frozen=True, tag="reply"):
    """One thing the assistant says; `epoch` grows with every reply of the stream."""

    stream: str
    epoch: int


Fence = Segment | Reply


# ---- prompts ------------------------------------------------------------------------------------------------------

Role = Literal["system", "user", "assistant"]


class TextPart(Struct, frozen=True, tag="text_part"):
    """Text of one item. A changed text keeps the `id` and raises `revision`."""

    id: str
    role: Role
    text: str
    revision: int = 0


class AudioPart(Struct, frozen=True, tag="audio_part"):
    """Sound of one user item, for thinkers that hear."""

    id: str
    role: Role
    audio: Blocks
    rate_hz: int
    revision: int = 0


class CallPart(Struct, frozen=True, tag="call_part"):
    """A function call the assistant made; `arguments` is JSON text."""

    id: str
    call_id: str
    name: str
    arguments: str
    revision: int = 0


class ResultPart(Struct, frozen=True, tag="result_part"):
    """What a function call returned."""

    id: str
    call_id: str
    output: str
    revision: int = 0


Part = TextPart | AudioPart | CallPart | ResultPart


class Tool(Struct, frozen=True):
    """A function the thinker may call; `parameters` is a JSON schema as JSON text."""

    name: str
    description: str
    parameters: str


class Prompt(Struct, frozen=True):
    """What the context is. A stage keeps the longest prefix its cache holds and computes the rest."""

    parts: tuple[Part, ...]
    tools: tuple[Tool, ...] = ()


# ---- jobs ---------------------------------------------------------------------------------------------------------


class Transcribe(Struct, frozen=True, tag="transcribe"):
    """Ask a recognizer for the words of `audio` (one block named "pcm", int16, shape (n,), at `rate_hz`)."""

    fence: Segment
    audio: Blocks
    rate_hz: int
    final: bool
    language: str | None = None
    prompt: str | None = None


class ToolNamed(Struct, frozen=True, tag="named"):
    """The choice of one tool of the prompt."""

    name: str


ToolChoice = Literal["auto", "none", "required"] | ToolNamed
"""Whether the thinker may, may not or must call a tool of the prompt, or which one it must call."""


class Retention(Struct, frozen=True):
    """How a prompt that is too long is cut: what follows the instructions takes at most `ratio` of its room then.

    A smaller ratio cuts more at once and less often. `most_tokens` is that room, where it is less than the model has.
    """

    ratio: float = 0.75
    most_tokens: int | None = None


class Think(Struct, frozen=True, tag="think"):
    """Ask a thinker to continue `prompt`. `temperature` None means the stage's own default, 0 is greedy.

    It keeps to `tool_choice`, and makes one call at most unless it may make `parallel_calls`. Arguments of a call that
    must be made are valid by the tool's schema; a thinker that can't see to that fails the job. A prompt that is too
    long is cut by `retention`; without one, the job fails (`context_full`).
    """

    fence: Reply
    prompt: Prompt
    max_tokens: int
    temperature: float | None = None
    tool_choice: ToolChoice = "auto"
    parallel_calls: bool = True
    retention: Retention | None = Retention()


class Speak(Struct, frozen=True, tag="speak"):
    """Ask a talker to say the `Text` chunks that will be fed to it under the same fence.

    The vocoder of a talker that gives codes gets the same order.
    `max_samples` bounds the speech, in samples at the talker's own rate.
    """

    fence: Reply
    voice: str | None = None
    speed: float = 1.0
    max_samples: int | None = None


Job = Transcribe | Think | Speak


class Prepare(Struct, frozen=True, tag="prepare"):
    """Prefill `prompt` for `stream` ahead of the `Think` that will come. It yields no chunk and may be skipped."""

    stream: str
    prompt: Prompt
    retention: Retention | None = Retention()


# ---- chunks -------------------------------------------------------------------------------------------------------


class Text(Struct, frozen=True, tag="text"):
    """A delta of what the thinker writes, as written."""

    text: str


class Caption(Struct, frozen=True, tag="caption"):
    """A delta of what will be heard, as a reader would see it. It precedes the audio that speaks it."""

    text: str


class Audio(Struct, frozen=True, tag="audio"):
    """Speech: `pcm` holds int16 samples at `rate_hz`.

    The chunk's `text_span` is the range of characters, in the joined captions of the reply, that this audio speaks.
    """

    pcm: bytes
    rate_hz: int


class Transcript(Struct, frozen=True, tag="transcript"):
    """What a recognizer heard in a pass. Empty when nothing was said."""

    text: str
    language: str | None = None


class CallDelta(Struct, frozen=True, tag="call_delta"):
    """A delta of a function call's JSON `arguments`; the first of a call has its `name`."""

    call_id: str
    name: str
    arguments: str


class Tensors(Struct, frozen=True, tag="tensors"):
    """Named arrays for the stage at the other end of the edge that starts at `port`; no session ever sees them."""

    port: str
    blocks: Blocks


class Usage(Struct, frozen=True):
    """Tokens a thinker read and wrote for a reply; `cached_tokens` of the input were not computed again."""

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0


class End(Struct, frozen=True, tag="end"):
    """The stage has said all it had to say for this fence. `length` means a bound was reached."""

    finish: Literal["stop", "length"] = "stop"
    usage: Usage | None = None


class Failed(Struct, frozen=True, tag="failed"):
    """The stage could not do the job: the job is over, the stage lives or is respawned, the session goes on."""

    kind: FailureKind
    message: str


Payload = Text | Caption | Audio | Transcript | CallDelta | Tensors | End | Failed

StageRole = Literal["recognizer", "thinker", "talker", "vocoder"]


class Chunk(Struct, frozen=True):
    """One message on an edge.

    `seq` counts from 0 for each (fence, role). `last` is true on exactly one chunk of a job, which carries
    `Transcript`, `End` or `Failed`. `exact` says that `text_span` came from an alignment, not from an estimate.
    """

    fence: Fence
    role: StageRole
    seq: int
    payload: Payload
    text_span: tuple[int, int] | None = None
    exact: bool = False
    last: bool = False


def port_of(payload: Payload) -> str | None:
    """The port a payload leaves its stage by; None for what concerns the job as a whole."""
    match payload:
        case Text():
            return "text"
        case Audio() | Caption():
            return "audio"
        case Transcript():
            return "transcript"
        case Tensors(port):
            return port
        case CallDelta() | End() | Failed():
            return None
    assert_never(payload)
