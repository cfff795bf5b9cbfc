"""Finds where, in the sound of a text, each of its words ends.

A synthesiser speaks phonemes, and knows how long each of them lasts. Its words are not those of the text: "in the" is
spoken as one, "A.M." as two. So the words that were said are paired with those that would be said for each word alone,
by how alike they are; where one stands for several, its sounds are shared out among these in proportion.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

Sounds = tuple[str, ...]
_STRESS = "ˈˌ"
MERGED_WORDS = 6
"""At most so many words more than one are drawn together into one."""


@dataclass(frozen=True, slots=True)
class SpokenWord:
    """What is spoken between two blanks: its sounds, and for each of them the sample at which it ends."""

    sounds: Sounds
    ends: tuple[int, ...]


def spoken_words(phonemes: Sequence[str], ends: Sequence[int]) -> list[SpokenWord]:
    """The words in a row of phonemes, of which each ends at the sample of the same index."""
    words: list[SpokenWord] = []
    begun: list[tuple[str, int]] = []
    for phoneme, end in zip((*phonemes, " "), (*ends, 0), strict=True):
        if phoneme != " ":
            if _is_sound(phoneme):
                begun.append((phoneme, end))
        elif begun:
            words.append(SpokenWord(tuple(sound for sound, _ in begun), tuple(at for _, at in begun)))
            begun = []
    return words


def _is_sound(phoneme: str) -> bool:
    return phoneme not in _STRESS and not unicodedata.category(phoneme[0]).startswith("P")


def word_ends(words: Sequence[str], alone: Callable[[str], Sequence[Sounds]], said: Sequence[SpokenWord]) -> list[int]:
    """The sample at which each of `words` ends; they never fall.

    `alone` gives what is spoken for a word by itself, which may be several words or none; a word without a sound ends
    with the one before it.
    """
    parts = [(owner, sounds) for owner, word in enumerate(words) for sounds in alone(word)]
    found = [0] * len(words)
    at = 0
    for merged, those in _stretches([sounds for _, sounds in parts], said):
        stretch = parts[at : at + merged]
        at += merged
        for (owner, _), end in zip(stretch, _share([sounds for _, sounds in stretch], those), strict=True):
            found[owner] = end
    return list(accumulate(found, max))


def _stretches(expected: Sequence[Sounds], said: Sequence[SpokenWord]) -> list[tuple[int, Sequence[SpokenWord]]]:
    """How many of the expected words each of those that were said stands for, in order.

    In context words are only ever drawn together. Should there be more of them than expected, or too few, nothing is
    known but that all were said for all.
    """
    spare = len(expected) - len(said)
    if not 0 <= spare <= MERGED_WORDS * len(said):
        return [(len(expected), said)]
    # best[upto]: the least cost of the words said so far standing for so many expected ones, and for how many each.
    best: dict[int, tuple[int, tuple[int, ...]]] = {0: (0, ())}
    for word in said:
        after: dict[int, tuple[int, tuple[int, ...]]] = {}
        for upto, (cost, counts) in best.items():
            for count in range(1, min(spare - (upto - len(counts)), MERGED_WORDS) + 2):
                sounds = [sound for one in expected[upto : upto + count] for sound in one]
                total = cost + _unlike(sounds, word.sounds)
                known = after.get(upto + count)
                if known is None or total < known[0]:
                    after[upto + count] = total, (*counts, count)
        best = after
    _, counts = best[len(expected)]
    return [(count, [word]) for count, word in zip(counts, said, strict=True)]


def _unlike(sounds: Sequence[str], others: Sequence[str]) -> int:
    return abs(len(sounds) - len(others)) + (sounds[0] != others[0]) + (sounds[-1] != others[-1])


def _share(expected: Sequence[Sounds], said: Sequence[SpokenWord]) -> list[int]:
    """Where each expected word ends in what was said for all of them, in proportion to its sounds."""
    ends = [end for word in said for end in word.ends]
    total = sum(map(len, expected))
    if not ends:
        return [0] * len(expected)
    return [ends[max(0, round(upto * len(ends) / total) - 1)] for upto in accumulate(map(len, expected))]
