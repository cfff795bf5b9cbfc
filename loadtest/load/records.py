"""Says what callers are told to do, and what they tell of their calls."""

from __future__ import annotations

import msgspec

ANSWER_S = 30.0
"""An answer that takes longer counts as none."""


class Call(msgspec.Struct, frozen=True, tag=True):
    """A user shall call `url`, and talk until the call is over."""

    user: int
    url: str
    key: str | None = None
    answer_s: float = ANSWER_S


class HangUp(msgspec.Struct, frozen=True, tag=True):
    """A user shall end its call at once."""

    user: int


class Opened(msgspec.Struct, frozen=True, tag=True):
    """A session was opened. `at`, here and below, is seconds since the epoch."""

    user: int
    at: float
    dial_ms: float


class Answered(msgspec.Struct, frozen=True, tag=True):
    """The first audible sample of an answer was heard, so long after the last one of what was said had left."""

    user: int
    at: float
    voice_to_voice_ms: float


class Stopped(msgspec.Struct, frozen=True, tag=True):
    """An answer that was interrupted fell silent, so long after the first sample of the interruption had left."""

    user: int
    at: float
    stop_ms: float


class Heard(msgspec.Struct, frozen=True, tag=True):
    """How late each piece of sound came, below zero if in time; the first of an answer has nothing to be late for."""

    user: int
    at: float
    late_ms: list[float]


class Spoke(msgspec.Struct, frozen=True, tag=True):
    """How late the latest frame of the caller's microphone left, since it was told last: the client's own fault."""

    user: int
    at: float
    late_ms: float


class Failed(msgspec.Struct, frozen=True, tag=True):
    """Something that a caller may expect did not happen; docs/load-tests.md lists the kinds."""

    user: int
    at: float
    kind: str
    message: str


class Refused(msgspec.Struct, frozen=True, tag=True):
    """The server was full, and said so (503)."""

    user: int
    at: float


class Closed(msgspec.Struct, frozen=True, tag=True):
    """The call is over, or never began; the user may call again after so many seconds."""

    user: int
    at: float
    again_s: float


Order = Call | HangUp
Record = Opened | Answered | Stopped | Heard | Spoke | Failed | Refused | Closed

orders = msgspec.json.Decoder(Order)
told = msgspec.json.Decoder(Record)


def line(message: Order | Record) -> bytes:
    """A message as a line, its end included."""
    return msgspec.json.encode(message) + b"\n"
