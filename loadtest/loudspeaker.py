"""Is an ideal loudspeaker: it plays each sample when it arrives or when the one before it ends, and remembers when."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Pcm = NDArray[np.int16]
RATE_HZ = 24_000
VOICED = 300
"""A sample beyond this is heard; below it is the room."""


@dataclass(slots=True)
class _Stretch:
    """Samples played without a gap from `start_s` on."""

    start_s: float
    pcm: Pcm

    @property
    def end_s(self) -> float:
        return self.start_s + len(self.pcm) / RATE_HZ


class Loudspeaker:
    """A ring buffer that is emptied by `cut`; times are those of the caller's clock, in seconds."""

    def __init__(self) -> None:
        self._stretches: list[_Stretch] = []

    @property
    def free_at(self) -> float:
        """When all that has arrived will have been played."""
        return self._stretches[-1].end_s if self._stretches else 0.0

    def play(self, pcm: Pcm, now: float) -> None:
        """`pcm` (int16, shape (n,), 24 kHz) arrived at `now`."""
        self._stretches.append(_Stretch(max(now, self.free_at), pcm))

    def cut(self, now: float) -> None:
        """Fall silent at `now`: what has not been played never will be."""
        for stretch in self._stretches:
            stretch.pcm = stretch.pcm[: max(0, int((now - stretch.start_s) * RATE_HZ))]
        self._stretches = [stretch for stretch in self._stretches if len(stretch.pcm)]

    def sound(self, from_s: float, samples: int) -> Pcm:
        """What is played in the time of `samples` samples from `from_s` on, int16, shape (samples,)."""
        sound = np.zeros(samples, np.int16)
        for stretch in self._stretches:
            at = round((stretch.start_s - from_s) * RATE_HZ)
            start, stop = max(at, 0), min(at + len(stretch.pcm), samples)
            if start < stop:
                sound[start:stop] = stretch.pcm[start - at : stop - at]
        return sound

    @property
    def played(self) -> Pcm:
        """All that is played, without the gaps between, int16, shape (n,)."""
        return np.concatenate([np.zeros(0, np.int16), *(stretch.pcm for stretch in self._stretches)])

    def first_voiced(self, after: float) -> float | None:
        """When the first audible sample at or after a time is played."""
        times = self._voiced(after, float("inf"))
        return float(times[0]) if len(times) else None

    def last_voiced(self, after: float, before: float) -> float | None:
        """When the last audible sample between two times is played."""
        times = self._voiced(after, before)
        return float(times[-1]) if len(times) else None

    def _voiced(self, after: float, before: float) -> NDArray[np.float64]:
        found = [np.zeros(0)]
        for stretch in self._stretches:
            if stretch.start_s <= before and stretch.end_s >= after:
                times = stretch.start_s + np.flatnonzero(np.abs(stretch.pcm.astype(np.int32)) > VOICED) / RATE_HZ
                found.append(times[(times >= after) & (times <= before)])
        return np.concatenate(found)
