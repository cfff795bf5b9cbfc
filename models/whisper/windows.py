"""Cuts audio longer than the model's window at its quietest place."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FULL_WINDOW_S = 30
SEARCH_S = 8  # the cut lies in the last seconds of a window
QUIET_MS = 200  # the stretch that has to be quiet
HOP_MS = 20


def window_end(pcm: NDArray[np.int16], start: int, rate_hz: int) -> int:
    """The sample at which the window that begins at `start` ends.

    `pcm` is int16, shape (n,), at `rate_hz`. It is n when the rest fits one window, else the middle of the quietest
    200 ms of the window's last 8 s, so that words stay whole where the speaker pauses.
    """
    limit = start + FULL_WINDOW_S * rate_hz
    if limit >= len(pcm):
        return len(pcm)
    begin = limit - SEARCH_S * rate_hz
    hop, width = rate_hz * HOP_MS // 1000, QUIET_MS // HOP_MS
    tail = pcm[begin : begin + (limit - begin) // hop * hop].astype(np.float64)
    energy = np.convolve((tail.reshape(-1, hop) ** 2).sum(axis=1), np.ones(width), "valid")
    return begin + (int(energy.argmin()) + width // 2) * hop
