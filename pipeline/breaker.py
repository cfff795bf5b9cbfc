"""Decides when a stage that keeps failing is tried again, and when it counts as broken; a pure core, told the time."""

from __future__ import annotations

from collections import deque

FAILURES = 5  # so many within `WINDOW_S`, without a steady time between them, and the stage is broken
WINDOW_S = 600.0
STEADY_S = 60.0  # a stage that stayed up this long starts again with a clean record
BACKOFF_FIRST_S = 0.1  # before the first new try; each further failure doubles it
BACKOFF_MOST_S = 10.0  # and this before each try of a broken stage
_DOUBLINGS = 16  # beyond the most by far; an unbounded power would overflow after hours of failures


class Breaker:
    """The record of one stage: tell it of each failure and of each time it came up.

    A stage is broken from its `failures`-th failure within `window_s` on. Coming up does not mend it; staying up for
    `steady_s` does.
    """

    def __init__(
        self,
        *,
        failures: int = FAILURES,
        window_s: float = WINDOW_S,
        steady_s: float = STEADY_S,
        first_s: float = BACKOFF_FIRST_S,
        most_s: float = BACKOFF_MOST_S,
    ) -> None:
        self._most = failures
        self._window_s = window_s
        self._steady_s = steady_s
        self._first_s = first_s
        self._most_s = most_s
        self._failures: deque[float] = deque(maxlen=failures)
        self._count = 0
        self._broken = False
        self._up_since: float | None = None

    def failed(self, now: float) -> None:
        """The stage went down, or a try to bring it up failed."""
        self._mend(now)
        self._up_since = None
        self._failures.append(now)
        self._count += 1
        if len(self._failures) == self._most and now - self._failures[0] <= self._window_s:
            self._broken = True

    def came_up(self, now: float) -> None:
        """The stage is up."""
        self._up_since = now

    def broken(self, now: float) -> bool:
        """Whether the stage failed too often of late to be waited for."""
        self._mend(now)
        return self._broken

    @property
    def wait_s(self) -> float:
        """How long to wait before the next try."""
        if self._broken:
            return self._most_s
        return float(min(self._first_s * 2 ** min(max(self._count - 1, 0), _DOUBLINGS), self._most_s))

    def _mend(self, now: float) -> None:
        if self._up_since is not None and now - self._up_since >= self._steady_s:
            self._failures.clear()
            self._count = 0
            self._broken = False
