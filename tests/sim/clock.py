"""Is the time of a simulated world: one heap of what will happen, and nothing else that moves."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

MOMENTS = 5_000_000
"""More than this in one run is a loop that time can't leave."""


class Timer:
    """Something that will happen, unless it is cancelled."""

    __slots__ = ("_args", "_call", "_live", "at")

    def __init__(self, at: float, call: Callable[..., object], args: tuple[object, ...]) -> None:
        self.at, self._call, self._args = at, call, args
        self._live = True

    def cancel(self) -> None:
        self._live = False

    def happen(self) -> None:
        if self._live:
            self._call(*self._args)


class Clock:
    """Virtual time in seconds. What is due at the same time happens in the order in which it was asked for."""

    def __init__(self) -> None:
        self.now = 0.0
        self.moments = 0
        self._heap: list[tuple[float, int, Timer]] = []
        self._asked = 0

    def time(self) -> float:
        return self.now

    def call_at(self, at: float, call: Callable[..., object], *args: object) -> Timer:
        timer = Timer(max(at, self.now), call, args)
        self._asked += 1
        heappush(self._heap, (timer.at, self._asked, timer))
        return timer

    def call_later(self, delay_s: float, call: Callable[..., object], *args: object) -> Timer:
        return self.call_at(self.now + delay_s, call, *args)

    def call_soon(self, call: Callable[..., object], *args: object) -> Timer:
        return self.call_at(self.now, call, *args)

    def run_until(self, until: float) -> None:
        """Let time pass."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            self.now, _, timer = heappop(heap)
            self.moments += 1
            assert self.moments < MOMENTS, "time stands still"
            timer.happen()
        self.now = max(self.now, until)
