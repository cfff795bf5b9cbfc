"""Accounts for every sample of input audio: pending, in an item, or discarded for a named reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

DiscardReason = Literal["silence", "cleared", "overflow", "echo", "late"]
"""Why samples are in no item; `late` ones were not listened to, because the server was slower than real time."""
UnheardReason = Literal["overloaded", "failed"]
"""Why the words of an item are not known: it was given up because too many waited, or its recognition failed."""
DropReason = Literal["overflow", "late", "overloaded", "failed"]
"""The reasons that are a loss."""


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of input, [start, stop) in samples at 24 kHz since the start of the session."""

    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


class InputBuffer:
    """The input audio buffer of a session; it knows positions only, the driver holds the sound.

    At any time `committed + discarded + pending == appended`, and `heard + unheard + waiting == committed`.
    """

    __slots__ = ("_discarded", "_start", "_unheard", "appended", "committed", "committed_upto", "heard")

    def __init__(self) -> None:
        self.appended = 0
        self.committed = 0
        self.committed_upto = 0  # where the newest item ends
        self.heard = 0
        self._start = 0
        self._discarded: dict[DiscardReason, int] = {"silence": 0, "cleared": 0, "overflow": 0, "echo": 0, "late": 0}
        self._unheard: dict[UnheardReason, int] = {"overloaded": 0, "failed": 0}

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

    @property
    def unheard(self) -> int:
        """Samples of items whose words will never be known."""
        return sum(self._unheard.values())

    @property
    def waiting(self) -> int:
        """Samples of items whose words are still to come."""
        return self.committed - self.heard - self.unheard

    @property
    def dropped(self) -> dict[DropReason, int]:
        """Samples that were lost to the conversation, by reason."""
        dropped: dict[DropReason, int] = {
            "overflow": self._discarded["overflow"],
            "late": self._discarded["late"],
            "overloaded": self._unheard["overloaded"],
            "failed": self._unheard["failed"],
        }
        return dropped

    def append(self, samples: int) -> None:
        self.appended += samples

    def commit(self, upto_sample: int) -> Span:
        """Take the pending samples before `upto_sample` out, for an item."""
        span = Span(self._start, min(max(upto_sample, self._start), self.appended))
        self._start = self.committed_upto = span.stop
        self.committed += len(span)
        return span

    def settle(self, samples: int, failure: UnheardReason | None) -> None:
        """The words of an item with so many samples are known, or never will be."""
        if failure is None:
            self.heard += samples
        else:
            self._unheard[failure] += samples

    def discard(self, upto_sample: int, reason: DiscardReason) -> None:
        """Let the pending samples before `upto_sample` go; a position already passed changes nothing."""
        upto_sample = min(upto_sample, self.appended)
        if upto_sample > self._start:
            self._discarded[reason] += upto_sample - self._start
            self._start = upto_sample
