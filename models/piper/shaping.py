"""Shapes the sound of one clause so that clauses follow each other without clicks, jumps or long gaps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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
PIECE_MS, LEAST_MS = 200, 20
FULL_SCALE = 32767.0


def shape(sound: NDArray[np.float32], rate_hz: int, pause: Pause) -> tuple[NDArray[np.int16], int]:
    """Samples of one clause: float32 (n,) in [-1, 1] as synthesised, to int16 (m,) with m <= n.

    Also how many samples were left out at its beginning; none are between, so positions only move by that.
    """
    loud = np.nonzero(np.abs(sound) * GAIN > QUIET)[0]
    if not loud.size:
        return np.zeros(0, np.int16), len(sound)
    start = max(0, int(loud[0]) - rate_hz * LEAD_MS // 1000)
    end = min(len(sound), int(loud[-1]) + 1 + rate_hz * TAIL_MS[pause] // 1000)
    cut = sound[start:end] * np.float32(GAIN * FULL_SCALE)
    fade = min(rate_hz * FADE_MS // 1000, len(cut) // 2)
    ramp = np.linspace(0.0, 1.0, fade, dtype=np.float32)
    cut[:fade] *= ramp
    cut[len(cut) - fade :] *= ramp[::-1]
    samples: NDArray[np.int16] = np.clip(cut, -FULL_SCALE, FULL_SCALE).astype(np.int16)
    return samples, start


@dataclass(frozen=True, slots=True)
class Mark:
    """When `upto_sample` has been heard, so have the caption's first `chars` characters."""

    upto_sample: int
    chars: int


def word_marks(ends: Sequence[int], heard: Sequence[int], left_out: int, samples: int, rate_hz: int) -> list[Mark]:
    """A mark at the end of each word: `ends` are their samples, `heard` the caption's characters at each of them.

    The ends are those in the sound as it was synthesised, of which the first `left_out` are gone and `samples` stay.
    The last mark stands where the clause ends at the latest. Of ends that are too close for a piece between them the
    later counts; a word that completes no character has none.
    """
    least = rate_hz * LEAST_MS // 1000
    marks: list[Mark] = []
    for end, chars in zip(ends, heard, strict=True):
        mark = Mark(min(max(end - left_out, 1), samples), chars)
        if marks and mark.chars == marks[-1].chars:
            continue
        if marks and mark.upto_sample - marks[-1].upto_sample < least:
            marks.pop()
        marks.append(mark)
    return marks


def pieces(marks: Sequence[Mark], rate_hz: int, exact: bool) -> Iterator[tuple[slice, tuple[int, int]]]:
    """Cut a clause at its marks and into pieces of at most `PIECE_MS`, each with the characters that it speaks.

    What lies between two marks is spoken when the second is reached if that is `exact`, else in proportion.
    """
    most = rate_hz * PIECE_MS // 1000
    at = chars = 0
    for mark in marks:
        samples, fresh = mark.upto_sample - at, mark.chars - chars
        count = -(-samples // most)
        said = 0
        for number in range(1, count + 1):
            piece = slice(at + samples * (number - 1) // count, at + samples * number // count)
            upto = 0 if exact and number < count else fresh * number // count
            yield piece, (chars + said, chars + upto)
            said = upto
        at, chars = mark.upto_sample, mark.chars
