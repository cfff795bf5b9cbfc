"""Accounts for every sample of input audio: pending, committed to an item, or discarded for a named reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

DiscardReason = Literal["silence", "cleared", "overflow", "echo"]


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of input, [start, stop) in samples at 24 kHz since the start of the session."""

    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


class InputBuffer:
    """The input audio buffer of a session; it knows positions only, the driver holds the sound.

    At any time `committed + discarded + pending == appended`.
    """

    __slots__ = ("_discarded", "_start", "appended", "committed")

    def __init__(self) -> None:
        self.appended = 0
        self.committed = 0
        self._start = 0
        self._discarded: dict[DiscardReason, int] = {"silence": 0, "cleared": 0, "overflow": 0, "echo": 0}

    @property
    def start(self) -> int:
        """The first sample that is still pending."""
        return self._start

    @property
    def pending(self) -> int:
        return self.appended - self._start

    @property
    def discarded(self) -> int:
        return sum(self._discarded.values())

    def discarded_for(self, reason: DiscardReason) -> int:
        return self._discarded[reason]

    def append(self, samples: int) -> None:
        self.appended += samples

    def commit(self, upto_sample: int) -> Span:
        """Take the pending samples before `upto_sample` out, for an item."""
        span = Span(self._start, min(max(upto_sample, self._start), self.appended))
        self._start = span.stop
        self.committed += len(span)
        return span

    def discard(self, upto_sample: int, reason: DiscardReason) -> None:
        """Let the pending samples before `upto_sample` go; a position already passed changes nothing."""
        upto_sample = min(upto_sample, self.appended)
        if upto_sample > self._start:
            self._discarded[reason] += upto_sample - self._start
            self._start = upto_sample
