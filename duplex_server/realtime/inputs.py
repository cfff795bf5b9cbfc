"""Defines what a session is fed. A journal is a list of these, each with the time it came."""

from __future__ import annotations

import msgspec

from duplex_server.realtime.wire import AnyClientEvent, Fault
from pipeline.chunk import Chunk, Reply


class _Input(msgspec.Struct, frozen=True, tag_field="input"):
    """The base of every input. Sample positions count at 24 kHz from the start of the session."""


class Opened(_Input, frozen=True, tag="opened"):
    """The peer is there."""


class Event(_Input, frozen=True, tag="event"):
    """The peer sent an event. An `Append` never comes this way: its sound comes as `AudioIn`."""

    event: AnyClientEvent


class Rejected(_Input, frozen=True, tag="rejected"):
    """The peer sent something that could not be taken."""

    fault: Fault


class AudioIn(_Input, frozen=True, tag="audio_in"):
    """`samples` samples arrived, the first of them at `at_sample`; `late` ones no detector listens to."""

    at_sample: int
    samples: int
    late: bool = False


class Voice(_Input, frozen=True, tag="voice"):
    """The detector's probability of speech in the frame [from_sample, upto_sample)."""

    from_sample: int
    upto_sample: int
    probability: float


class Spoke(_Input, frozen=True, tag="spoke"):
    """A talker's audio chunk, without its sound: it grew the reply by `samples` at 24 kHz.

    The chunk's sound ends at `upto_sample` of the reply, by default at the reply's end so far; that is later while the
    resampler holds some of it.
    """

    reply: Reply
    samples: int
    text_span: tuple[int, int] | None = None
    exact: bool = False
    upto_sample: int | None = None


class Produced(_Input, frozen=True, tag="produced"):
    """Any other chunk of a stage."""

    chunk: Chunk


class Played(_Input, frozen=True, tag="played"):
    """A paced channel put `samples` of the reply's audio on the air, counted from its start."""

    reply: Reply
    samples: int


class PeerLost(_Input, frozen=True, tag="peer_lost"):
    """The peer is gone; nothing can be sent any more."""


class Tick(_Input, frozen=True, tag="tick"):
    """The time a deadline asked for has come."""


Input = Opened | Event | Rejected | AudioIn | Voice | Spoke | Produced | Played | PeerLost | Tick
