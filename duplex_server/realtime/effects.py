"""Defines what a session asks for. The driver carries effects out in the order they are given."""

from __future__ import annotations

import msgspec

from duplex_server.realtime.schema import FormatType
from duplex_server.realtime.wire import AnyServerEvent, ItemRetrieved
from pipeline.chunk import Fence, Prompt, Reply, Retention, Segment, Speak, Think


class _Effect(msgspec.Struct, frozen=True, tag_field="effect"):
    """The base of every effect. Sample positions count at 24 kHz."""


class Send(_Effect, frozen=True, tag="send"):
    """Send an event to the peer."""

    event: AnyServerEvent


class SendWithSound(_Effect, frozen=True, tag="send_with_sound"):
    """Send an item with its sound before `upto_sample`, if that is kept and fits into a frame; without it, if not."""

    event: ItemRetrieved
    upto_sample: int


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
    format: FormatType = "audio/pcm"
    """How the peer hears the response."""
    kept: bool = False
    """Whether it belongs to an item that can be retrieved."""


class ClearAudio(_Effect, frozen=True, tag="clear_audio"):
    """Fall silent: drop whatever of the reply has not been heard."""

    reply: Reply


class Keep(_Effect, frozen=True, tag="keep"):
    """Keep the input samples [from_sample, upto_sample) as the sound of a user's item, for who wants to hear it again.

    With `given`, they are those of the sound that came under this number with the event that is being taken.
    """

    item_id: str
    from_sample: int
    upto_sample: int
    given: int | None = None


class LetGo(_Effect, frozen=True, tag="let_go"):
    """The sound of an item is not needed any more from this sample of it on."""

    item_id: str
    from_sample: int = 0


class Recognize(_Effect, frozen=True, tag="recognize"):
    """Transcribe the input samples [from_sample, segment.upto_sample).

    With `given`, they are those of the sound that came under this number with the event that is being taken.
    """

    segment: Segment
    from_sample: int
    final: bool
    language: str | None = None
    prompt: str | None = None
    given: int | None = None


class Prepare(_Effect, frozen=True, tag="prepare"):
    """Prefill a prompt that is likely to come, cut as that will be."""

    prompt: Prompt
    retention: Retention | None = Retention()


class Begin(_Effect, frozen=True, tag="begin"):
    """Make a reply, to be heard in a format. Without `speak` it is written only."""

    think: Think
    speak: Speak | None
    format: FormatType = "audio/pcm"


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


Effect = (
    Send | SendWithSound | PlayAudio | ClearAudio | Keep | LetGo | Recognize | Prepare | Begin | Cancel | Pace | Close
)
