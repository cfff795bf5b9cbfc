"""Is text that remembers, while it is rewritten, which characters of the original it came from."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from re import Match

Origin = tuple[int, int]
"""A range of characters of the original."""

_WORD = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class Traced:
    """`origins` has one entry for each character of `text`; their bounds never fall."""

    text: str
    origins: tuple[Origin, ...]

    @classmethod
    def of(cls, text: str) -> Traced:
        """The original itself."""
        return cls(text, tuple((at, at + 1) for at in range(len(text))))

    def __getitem__(self, part: slice) -> Traced:
        return Traced(self.text[part], self.origins[part])

    def strip(self, signs: str | None = None) -> Traced:
        return self.lstrip(signs).rstrip(signs)

    def lstrip(self, signs: str | None = None) -> Traced:
        return self[len(self.text) - len(self.text.lstrip(signs)) :]

    def rstrip(self, signs: str | None = None) -> Traced:
        return self[: len(self.text.rstrip(signs))]

    def keep(self, wanted: Callable[[str], bool]) -> Traced:
        """The characters that are wanted."""
        kept = [at for at, char in enumerate(self.text) if wanted(char)]
        return Traced("".join(self.text[at] for at in kept), tuple(self.origins[at] for at in kept))

    def rewrite(self, pattern: re.Pattern[str], read: Callable[[Match[str]], str]) -> Traced:
        """What `pattern.sub` gives. New characters come from all that they stand for, old ones from where they did."""
        text: list[str] = []
        origins: list[Origin] = []
        upto = 0
        for found in pattern.finditer(self.text):
            new = read(found)
            if new == found[0]:
                continue
            text += self.text[upto : found.start()], new
            origins += self.origins[upto : found.start()]
            origins += self._replaced(found, new)
            upto = found.end()
        if not text:
            return self
        return Traced("".join(text) + self.text[upto:], (*origins, *self.origins[upto:]))

    def _replaced(self, found: Match[str], new: str) -> list[Origin]:
        """The origins of `new`: its beginning and end stay what they were, as far as they are the same."""
        old, here = found[0], self.origins[found.start() : found.end()]
        most = min(len(old), len(new))
        head = next((at for at in range(most) if old[at] != new[at]), most)
        tail = next((at for at in range(most - head) if old[-1 - at] != new[-1 - at]), most - head)
        middle = here[head : len(here) - tail]
        if middle:
            source = middle[0][0], middle[-1][1]
        else:  # something was put in where nothing stood
            at = found.start() + head
            edge = self.origins[at - 1][1] if at else self.origins[at][0] if self.origins else 0
            follows = self.origins[at][0] if at < len(self.origins) else edge
            source = min(edge, follows), edge
        return [*here[:head], *[source] * (len(new) - head - tail), *here[len(here) - tail :]]

    def word_origins(self) -> list[Origin]:
        """Of each word between blanks, what its letters and digits came from; without any, what its signs did."""
        origins = []
        for found in _WORD.finditer(self.text):
            word = range(found.start(), found.end())
            said = [at for at in word if self.text[at].isalnum()] or word
            origins.append((self.origins[said[0]][0], self.origins[said[-1]][1]))
        return origins


def heard_chars(original: str, spoken: Traced) -> tuple[int, ...]:
    """For each word of `spoken`, how many characters of `original` have been heard when that word is over.

    Counts end between words of the original, never fall, and the last is all of it. Where some words stand for
    several others, as in "10:30 a.m.", those are counted in proportion, and none before its share is complete.
    """
    written = [found.span() for found in _WORD.finditer(original)]
    counts: list[int] = []
    for first, last, words in _groups(written, spoken.word_origins()):
        for number in range(1, words + 1):
            complete = first + (last - first) * number // words
            counts.append(written[complete - 1][1] if complete else 0)
    return (*counts[:-1], len(original)) if counts else ()


def _groups(written: list[Origin], origins: list[Origin]) -> list[tuple[int, int, int]]:
    """Which words [first, last) of the original belong together with how many words that are spoken for them."""
    groups: list[tuple[int, int, int]] = []
    for start, stop in origins:
        first = next((at for at, word in enumerate(written) if word[1] > start), len(written))
        last = next((at for at, word in enumerate(written) if word[0] >= stop), len(written))
        if groups and first < groups[-1][1]:
            begun, done, count = groups.pop()
            groups.append((begun, max(done, last), count + 1))
        else:
            at = groups[-1][1] if groups else 0
            groups.append((max(first, at), max(last, first, at), 1))
    return groups
