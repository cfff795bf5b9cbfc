"""Is what one person says: known words and wordless noise at known samples, and what a detector makes of it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import pairwise

RATE_HZ = 24_000
SURE, DIP, NOISE = 0.95, 0.42, 0.04
"""Probabilities of speech: in a word, between two words, in a quiet room."""
GAP_S = 0.1
"""A gap between words up to this long still sounds like speech."""
ENOUGH = 0.85
"""A recognizer knows a word by this much of it."""


@dataclass(frozen=True, slots=True)
class Sound:
    """A voiced stretch, [start, stop) in input samples. A cough has no word; an echo of the assistant is `ours`."""

    start: int
    stop: int
    word: str
    ours: bool = False


class Speech:
    """The sound of one person since the session began, in order."""

    def __init__(self, soft_onset_s: float) -> None:
        self._soft = int(soft_onset_s * RATE_HZ)
        self._starts: list[int] = []
        self.sounds: list[Sound] = []
        self._echoes: set[str] = set()  # words of the assistant that came back

    def add(self, sound: Sound) -> None:
        assert not self.sounds or sound.start >= self.sounds[-1].stop
        self._starts.append(sound.start)
        self.sounds.append(sound)
        if sound.ours:
            self._echoes.add(sound.word)

    @property
    def end(self) -> int:
        """Where the last sound ends."""
        return self.sounds[-1].stop if self.sounds else 0

    def probability(self, start: int, stop: int) -> float:
        """What a detector says of the frame [start, stop)."""
        at = bisect_left(self._starts, stop) - 1
        if at < 0:
            return NOISE
        sound = self.sounds[at]
        began = sound.start + (self._soft if self._breaks_silence(at) else 0)
        voiced = min(stop, sound.stop) - max(start, began)
        if at and self.sounds[at - 1].stop > start:
            voiced += self.sounds[at - 1].stop - start
        if 2 * voiced >= stop - start:
            return SURE
        follows = start < sound.stop + GAP_S * RATE_HZ and at + 1 < len(self.sounds)
        if follows and self.sounds[at + 1].start - sound.stop <= GAP_S * RATE_HZ and stop > sound.stop:
            return DIP
        return NOISE

    def _breaks_silence(self, at: int) -> bool:
        return at == 0 or self.sounds[at].start - self.sounds[at - 1].stop > GAP_S * RATE_HZ

    def words(self, start: int, stop: int) -> str:
        """What a recognizer hears in [start, stop)."""
        found = []
        for sound in self._between(start, stop):
            covered = min(stop, sound.stop) - max(start, sound.start)
            if sound.word and covered >= ENOUGH * (sound.stop - sound.start):
                found.append(sound.word)
        return " ".join(found)

    def own(self, words: str) -> str:
        """What of it the user said. How little of an echo makes a word is nobody's concern."""
        return " ".join(word for word in words.split() if word not in self._echoes)

    def two_in_a_row(self, words: str) -> bool:
        """Whether the user said two of the words or more without any of the assistant's between."""
        ours = [word in self._echoes for word in words.split()]
        return any(not one and not other for one, other in pairwise(ours))

    def echoed(self, start: int, stop: int) -> bool:
        """Whether [start, stop) holds anything of the assistant's voice."""
        return any(sound.ours for sound in self._between(start, stop))

    def _between(self, start: int, stop: int) -> list[Sound]:
        first = bisect_right(self._starts, start)
        return self.sounds[max(0, first - 1) : bisect_left(self._starts, stop)]
