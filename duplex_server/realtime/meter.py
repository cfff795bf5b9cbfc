"""Tells how far a sender of sound is ahead of real time."""

from __future__ import annotations

from duplex_server.realtime.schema import INPUT_RATE_HZ

FAST = 0.02
"""How much faster than ours a sender's clock may run. Its sound comes no sooner by that, however long a call lasts."""


def lasts_s(samples: int) -> float:
    """How long a sender in real time takes for so much sound, at least."""
    return samples / (INPUT_RATE_HZ * (1 + FAST))


class Meter:
    """The time at which each sample would have come, had its sender kept to real time.

    Who pauses gains nothing by it: real time goes on from the newest sample, or from now, whichever is later.
    """

    __slots__ = ("_next_at",)

    def __init__(self) -> None:
        self._next_at = 0.0

    def arrived(self, samples: int, now: float) -> float:
        """So much came just now; gives the time of its first sample: now, or later for a sender who is ahead."""
        at = max(self._next_at, now)
        self._next_at = at + lasts_s(samples)
        return at

    def ahead_s(self, now: float) -> float:
        """How far ahead the sender is."""
        return max(0.0, self._next_at - now)
