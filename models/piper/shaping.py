"""Shapes the sound of one clause so that clauses follow each other without clicks, jumps or long gaps."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from models.runtime.clauses import Pause

# Voices peak at 0.54 to 0.73 of full scale. One gain for all clauses keeps their loudness as it was spoken; Piper's
# own scaling, each clause to full scale, makes a short soft one as loud as a long one.
GAIN = 1.25
QUIET = 0.005  # of full scale, after the gain: what is below at the ends is silence
LEAD_MS = 15  # what stays of the silence in front
TAIL_MS: dict[Pause, int] = {"none": 20, "comma": 90, "sentence": 220}  # at most this of the silence behind
FADE_MS = 4
PIECE_MS = 200
FULL_SCALE = 32767.0


def shape(sound: NDArray[np.float32], rate_hz: int, pause: Pause) -> NDArray[np.int16]:
    """Samples of one clause: float32 (n,) in [-1, 1] as synthesised, to int16 (m,) with m <= n."""
    loud = np.nonzero(np.abs(sound) * GAIN > QUIET)[0]
    if not loud.size:
        return np.zeros(0, np.int16)
    start = max(0, int(loud[0]) - rate_hz * LEAD_MS // 1000)
    end = min(len(sound), int(loud[-1]) + 1 + rate_hz * TAIL_MS[pause] // 1000)
    cut = sound[start:end] * np.float32(GAIN * FULL_SCALE)
    fade = min(rate_hz * FADE_MS // 1000, len(cut) // 2)
    ramp = np.linspace(0.0, 1.0, fade, dtype=np.float32)
    cut[:fade] *= ramp
    cut[len(cut) - fade :] *= ramp[::-1]
    samples: NDArray[np.int16] = np.clip(cut, -FULL_SCALE, FULL_SCALE).astype(np.int16)
    return samples


def pieces(samples: int, rate_hz: int, start: int, chars: int) -> Iterator[tuple[slice, tuple[int, int]]]:
    """Cut `samples` into pieces of `PIECE_MS`, and the characters `start` to `start + chars` in proportion."""
    size = rate_hz * PIECE_MS // 1000
    for first in range(0, samples, size):
        last = min(first + size, samples)
        yield slice(first, last), (start + chars * first // samples, start + chars * last // samples)
