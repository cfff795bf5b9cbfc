"""Says how much words sound like others, so that a misheard word is known again.

It knows letters, not languages: vowels are like one another, and so are consonants that are made in the same place.
Source: weighted edit distance, free at both ends of what is searched (Sellers, 1980).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

VOWELS, FAINT = "aeiou", "hwy"
KINDS = ("bp", "fv", "gkqc", "dtj", "sz", "mn", "lr")
"""Consonants that a recognizer takes for one another."""
ALIKE, SAME_KIND, FAINT_FOR_VOWEL = 0.35, 0.3, 0.7
"""The cost of a vowel for another, of a consonant for its like, and of a faint one for a vowel; any other costs 1."""
VOWEL_GAP, FAINT_GAP = 0.5, 0.4
"""The cost of a letter that is not there, or too much; of any other 1."""
SPELLINGS = (("ph", "f"), ("ght", "t"), ("kn", "n"), ("wr", "r"), ("ck", "k"), ("qu", "kw"), ("x", "ks"), ("ng", "n"))
_DOUBLE = re.compile(r"(.)\1")


def likeness(words: Sequence[str], among: Sequence[str]) -> float:
    """How much `words` sound like the most similar stretch of `among` that begins with a word; 1 is the same.

    Both are lower case letters and digits. It takes time in proportion to the product of their letters.
    """
    letters = "".join(map(_sound, words))
    weight = sum(map(_gap, letters))
    return 1.0 - _distance(letters, [_sound(word) for word in among]) / weight if weight else 0.0


def _distance(letters: str, among: Iterable[str]) -> float:
    where, begins = "", []
    for word in among:
        begins += [0.0] + [float("inf")] * (len(word) - 1) if word else []
        where += word
    row = [*begins, 0.0]
    gaps = [_gap(letter) for letter in where]
    for letter in letters:
        missing, costs = _gap(letter), _costs(letter)
        diagonal, left = row[0], row[0] + missing
        row[0] = left
        for at, other in enumerate(where):
            above = row[at + 1]
            best = diagonal + costs.get(other, 1.0)
            if above + missing < best:
                best = above + missing
            if left + gaps[at] < best:
                best = left + gaps[at]
            diagonal, row[at + 1], left = above, best, best
    return min(row)


@lru_cache(maxsize=1024)
def _sound(word: str) -> str:
    """A word with letters that are not heard left out."""
    for spelling, sound in SPELLINGS:
        word = word.replace(spelling, sound)
    word = _DOUBLE.sub(r"\1", word)
    return word[:-1] if len(word) > 3 and word.endswith("e") else word


def _gap(letter: str) -> float:
    return VOWEL_GAP if letter in VOWELS else FAINT_GAP if letter in FAINT else 1.0


@lru_cache(maxsize=64)
def _costs(letter: str) -> dict[str, float]:
    """What it costs to take `letter` for another; those that are not in it cost 1."""
    costs: dict[str, float] = {}
    if letter in VOWELS:
        costs = dict.fromkeys(VOWELS, ALIKE) | dict.fromkeys(FAINT, FAINT_FOR_VOWEL)
    elif letter in FAINT:
        costs = dict.fromkeys(VOWELS, FAINT_FOR_VOWEL)
    for kind in KINDS:
        if letter in kind:
            costs |= dict.fromkeys(kind, SAME_KIND)
    return costs | {letter: 0.0}
