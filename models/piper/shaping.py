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
UNKNOWN = 1 << 62  # more samples than there will be


class Shaper:
    """Makes samples of the sound of one clause, which may come in any pieces: int16 of float32 in [-1, 1].

    Silence in front is left out, and what is longer than the pause behind; none between, so that positions only move
    by `left_out`, which is known once a sample was given. The samples are the same however the sound came.
    """

    def __init__(self, rate_hz: int, pause: Pause) -> None:
        self._lead, self._tail = rate_hz * LEAD_MS // 1000, rate_hz * TAIL_MS[pause] // 1000
        self._fade = rate_hz * FADE_MS // 1000
        self._held = np.zeros(0, np.float32)  # what may yet turn out to be silence, or the end
        self._loud_upto: int | None = None  # in what is held, the end of the last loud sample; None before the first
        self._given = False
        self.left_out = 0

    def push(self, sound: NDArray[np.float32], *, last: bool) -> NDArray[np.int16]:
        """Take more of the sound in, float32 (n,), and give what is sure, int16 (m,). After the last all is given."""
        held = np.concatenate((self._held, sound))
        fresh = np.nonzero(np.abs(held[len(self._held) :]) * GAIN > QUIET)[0] + len(self._held)
        if self._loud_upto is None:
            skipped = max(0, (int(fresh[0]) if fresh.size else len(held)) - self._lead)
            if last and not fresh.size:
                skipped = len(held)
            held, fresh = held[skipped:], fresh - skipped
            self.left_out += skipped
        if fresh.size:
            self._loud_upto = int(fresh[-1]) + 1
        loud_upto = self._loud_upto or 0
        if last:
            sure = min(len(held), loud_upto + self._tail) if self._loud_upto is not None else 0
        else:
            sure = loud_upto - self._fade
            if sure <= (0 if self._given else 2 * self._fade):
                sure = 0
        self._held = held[sure:]
        if self._loud_upto is not None:
            self._loud_upto = loud_upto - sure
        return self._samples(held[:sure], last)

    def _samples(self, sound: NDArray[np.float32], last: bool) -> NDArray[np.int16]:
        cut = sound * np.float32(GAIN * FULL_SCALE)
        fade = self._fade if self._given else min(self._fade, len(cut) // 2)
        ramp = np.linspace(0.0, 1.0, fade, dtype=np.float32)
        if not self._given:
            cut[:fade] *= ramp
        if last:
            cut[len(cut) - fade :] *= ramp[::-1]
        self._given |= bool(len(cut))
        samples: NDArray[np.int16] = np.clip(cut, -FULL_SCALE, FULL_SCALE).astype(np.int16)
        return samples


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


class Cutter:
    """Cuts the samples of one clause, as they come, where its words end and into pieces of at most `PIECE_MS`.

    `ends` are the samples of the whole sound at which the words end, `heard` the characters of the caption at each of
    them, of `chars` in all. A piece comes with the characters that it speaks, from and up to. Between two words' ends
    nothing is spoken before the second is reached. Without ends the characters are in proportion.
    """

    def __init__(self, ends: Sequence[int] | None, heard: Sequence[int], chars: int, rate_hz: int) -> None:
        self._ends, self._heard, self._all, self._rate_hz = ends, heard, chars, rate_hz
        self._kept = np.zeros(0, np.int16)
        self._at = self._chars = 0

    def cut(
        self, samples: NDArray[np.int16], left_out: int, *, last: bool, whole: int | None = None
    ) -> Iterator[tuple[NDArray[np.int16], tuple[int, int]]]:
        """Take samples in and give pieces. With the last, `whole` says how many there were before some were cut off."""
        self._kept = np.concatenate((self._kept, samples))
        have = self._at + len(self._kept)
        sure = have if last else have - self._rate_hz * LEAST_MS // 1000
        for mark in self._marks(left_out, have, last, whole):
            if mark.upto_sample <= self._at:
                continue
            while self._at < mark.upto_sample:
                left = mark.upto_sample - self._at
                size = left // -(-left // (self._rate_hz * PIECE_MS // 1000))
                if self._at + size > sure:
                    return
                spoken = mark.chars - self._chars if size == left else 0
                if self._ends is None:
                    spoken = (mark.chars - self._chars) * size // left
                yield self._kept[:size], (self._chars, self._chars + spoken)
                self._kept = self._kept[size:]
                self._at, self._chars = self._at + size, self._chars + spoken

    def _marks(self, left_out: int, have: int, last: bool, whole: int | None) -> list[Mark]:
        if self._ends is None:
            return [Mark(have, self._all * have // (whole or have))] if last and have else []
        if whole is not None:
            said = [mark for mark in self._word_marks(left_out, whole) if mark.upto_sample <= have]
            return [*said, Mark(have, said[-1].chars if said else 0)]
        marks = self._word_marks(left_out, have if last else UNKNOWN)
        return [*marks, Mark(have, self._all)] if last else marks

    def _word_marks(self, left_out: int, samples: int) -> list[Mark]:
        assert self._ends is not None
        return word_marks(self._ends, self._heard, left_out, samples, self._rate_hz)
