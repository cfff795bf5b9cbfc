"""Knows whether somebody waits for the first sound of an answer; meanwhile no batch job begins a step."""

from __future__ import annotations

from pipeline.chunk import Fence

WINDOW_S = 10.0
"""No answer holds batch work up for longer: one that is not heard by then has a trouble of its own."""
DECIDE_S = 1.0
"""How long after the words of a turn are known its answer may begin: as long as it takes to be sure of its end."""


class Gate:
    """The live turns between their end of speech and the first sound of their answer; a pure core.

    A turn comes in with the pass that ends it or with its answer, whatever comes first, each under its own fence.
    """

    def __init__(self, window_s: float = WINDOW_S, decide_s: float = DECIDE_S) -> None:
        self._window_s = window_s
        self._decide_s = decide_s
        self._open: dict[Fence, float] = {}  # until when, at the longest
        self._deciding: dict[str, float] = {}  # streams whose words are known, and no answer has begun

    def begin(self, fence: Fence, now: float) -> None:
        """Somebody waits from now on: a pass that ends a turn, or an answer, has begun."""
        self._open.setdefault(fence, now + self._window_s)
        self._deciding.pop(fence.stream, None)

    def understood(self, fence: Fence, now: float) -> None:
        """A pass has told the words of a turn: its answer comes next, if one does."""
        if self._open.pop(fence, None) is not None:
            self._deciding[fence.stream] = now + self._decide_s

    def end(self, fence: Fence) -> None:
        """The first sound came, or will not; a fence that nobody waits for is not an error."""
        self._open.pop(fence, None)

    def forget(self, stream: str) -> None:
        """Nobody of this stream waits any more."""
        for fence in [fence for fence in self._open if fence.stream == stream]:
            del self._open[fence]
        self._deciding.pop(stream, None)

    def closed(self, now: float) -> bool:
        """Whether batch work must wait."""
        self._open = {fence: until for fence, until in self._open.items() if now < until}
        self._deciding = {stream: until for stream, until in self._deciding.items() if now < until}
        return bool(self._open or self._deciding)

    def deadline(self) -> float | None:
        """When the answer changes by itself, or may, if it does."""
        return min((*self._open.values(), *self._deciding.values()), default=None)
