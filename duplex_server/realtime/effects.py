"""Defines what a session asks for. The driver carries effects out in the order they are given."""

from __future__ import annotations

import msgspec

from duplex_server.realtime.wire import AnyServerEvent
from pipeline.chunk import Fence, Prompt, Reply, Segment, Speak, Think


class _Effect(msgspec.Struct, frozen=True, tag_field="effect"):
    """The base of every effect. Sample positions count at 24 kHz."""


class Send(_Effect, frozen=True, tag="send"):
    """Send an event to the peer."""

    event: AnyServerEvent


class PlayAudio(_Effect, frozen=True, tag="play_audio"):
    """Give the channel the reply's samples [from_sample, upto_sample).

    A text channel makes one audio delta of it under `event_id` and the place in the response; a paced channel plays it.
    """

    reply: Reply
    from_sample: int
    upto_sample: int
    event_id: str
    response_id: str
    item_id: str
    output_index: int
    content_index: int


class ClearAudio(_Effect, frozen=True, tag="clear_audio"):
    """Fall silent: drop whatever of the reply has not been heard."""

    reply: Reply


class Recognize(_Effect, frozen=True, tag="recognize"):
    """Transcribe the input samples [from_sample, segment.upto_sample)."""

    segment: Segment
    from_sample: int
    final: bool
    language: str | None = None
    prompt: str | None = None


class Prepare(_Effect, frozen=True, tag="prepare"):
    """Prefill a prompt that is likely to come."""

    prompt: Prompt


class Begin(_Effect, frozen=True, tag="begin"):
    """Make a reply. Without `speak` it is written only."""

    think: Think
    speak: Speak | None


class Cancel(_Effect, frozen=True, tag="cancel"):
    """Stop the work under a fence; nobody waits for it."""

    fence: Fence


class Pace(_Effect, frozen=True, tag="pace"):
    """What has been made of the reply will have been heard at `plays_until`: there is time until then."""

    reply: Reply
    plays_until: float


class Close(_Effect, frozen=True, tag="close"):
    """End the connection."""

    code: int
    reason: str


Effect = Send | PlayAudio | ClearAudio | Recognize | Prepare | Begin | Cancel | Pace | Close
