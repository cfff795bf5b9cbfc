"""Cuts text that arrives in pieces into clauses that can be spoken one after another.

Whether to cut after a word is decided from the words before it and the one after it, and not before that one is known.
So the clauses never depend on how the text was cut into pieces. Joined, they are the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Pause = Literal["none", "comma", "sentence"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


@dataclass(frozen=True, slots=True)
class Bounds:
    """From how many words on a clause may end at a comma, before a conjunction, and anywhere."""

    comma_words: int
    conjunction_words: int
    any_words: int


FIRST = Bounds(3, 5, 8)  # short, so that speech starts soon
LATER = Bounds(12, 18, 28)  # whole sentences, unless they are long
CLAUSE_CHARS = 300
WORD_CHARS = 100  # a longer word is cut: it is no word
DIGITS_PER_WORD = 2  # so many digits take as long to say as one more word
NUMBER_GRACE_WORDS = 6  # how long a cut waits for a place that is not beside a number

_WORD = re.compile(r"\S+")
_CLOSERS = "\"'\u201d\u2019\u00bb)]}"
_OPENERS = "\"'\u201c\u2018\u00ab([{"
_STOPS = ".!?\u2026\u3002\uff01\uff1f"  # also those of Chinese and Japanese
_CONJUNCTIONS = _words(
    "and but or so because that which who when where while if since although though unless until after before then"
)
# A full stop after these ends no sentence; after the others, only one before a capital does.
_NEVER_LAST = _words(
    "mr. mrs. ms. dr. prof. st. mt. gen. col. sgt. lt. capt. rev. hon. sen. rep. gov. e.g. i.e. vs. cf. no. nos. fig. "
    "vol. pp. ed. approx. ca. dept. est."
)
_PERHAPS_LAST = _words(
    "etc. inc. ltd. co. corp. jr. sr. ave. blvd. rd. al. a.m. p.m. jan. feb. aug. sept. oct. nov. dec."
)
_LETTERS = re.compile(r"(?:[a-z]\.){2,}$")
_INITIAL = re.compile(r"[A-Z]\.$")
_LIST_NUMBER = re.compile(r"\d{1,3}[.)]$")


@dataclass(frozen=True, slots=True)
class _Word:
    text: str
    end: int
    count: int  # words of the clause, this one included; digits count for more
    first: bool
    after: str  # the first character of the next word; empty at the end of the text


class Splitter:
    """Feed it plain text; it returns the clauses that are certain, each with the pause that should follow it."""

    def __init__(self) -> None:
        self._text = ""
        self._bounds = FIRST

    def push(self, text: str) -> list[tuple[str, Pause]]:
        """Take in a piece of text. At most `CLAUSE_CHARS` + `WORD_CHARS` characters and blanks are held back."""
        self._text += text
        return self._cut_all(final=False)

    def finish(self) -> list[tuple[str, Pause]]:
        """The rest: the text is over."""
        clauses = self._cut_all(final=True)
        rest, self._text = self._text, ""
        if rest.strip():
            clauses.append((rest, "sentence"))
        return clauses

    def _cut_all(self, final: bool) -> list[tuple[str, Pause]]:
        clauses: list[tuple[str, Pause]] = []
        while (cut := self._cut(final)) is not None:
            end, pause = cut
            clause, self._text = self._text[:end], self._text[end:]
            if any(char.isalnum() for char in clause):
                self._bounds = LATER
            clauses.append((clause, pause))
        return clauses

    def _cut(self, final: bool) -> tuple[int, Pause] | None:
        text = self._text
        if len(text) - len(text.lstrip()) > WORD_CHARS:
            return WORD_CHARS, "none"
        count = 0
        for found in _WORD.finditer(text):
            if found.end() - found.start() > WORD_CHARS:
                return (found.start() if count else found.start() + WORD_CHARS), "none"
            count += 1 + sum(map(str.isdigit, found[0])) // DIGITS_PER_WORD
            following = _WORD.search(text, found.end())
            gap = text[found.end() : following.start() if following else len(text)]
            if ("\n" in gap and following) or len(gap) > WORD_CHARS:
                return found.end(), "sentence"
            if following is None:
                return None  # the word may go on, or the text is over
            word = _Word(found[0], found.end(), count, not text[: found.start()].strip(), following[0][0])
            pause = self._pause(word)
            if pause is not None:
                return found.end(), pause
            if word.count >= self._bounds.conjunction_words:
                whole = final or following.end() < len(text)
                if not whole:
                    return None
                if following[0].lower() in _CONJUNCTIONS:
                    return found.end(), "none"
            if self._too_long(word):
                return found.end(), "none"
        return None

    def _pause(self, word: _Word) -> Pause | None:
        core = word.text.rstrip(_CLOSERS)
        last = core[-1:]
        if last and last in _STOPS:
            quoted = len(core) < len(word.text)
            if last in ".\u2026":
                ends = not word.after.islower() and not _abbreviated(core.lstrip(_OPENERS), word)
            else:
                ends = not (quoted and word.after.islower())
            return "sentence" if ends else None
        if last in (",", ";", ":", "\u2014", "\u2013") or word.text == "-":
            between_digits = core[-2:-1].isdigit() and word.after.isdigit()
            if word.count >= self._bounds.comma_words and not between_digits:
                return "comma"
        return None

    def _too_long(self, word: _Word) -> bool:
        if word.end >= CLAUSE_CHARS:
            return True
        beside_number = word.text[-1].isdigit() or word.after.isdigit() or word.after in "$€£¥+-%°"
        return word.count >= self._bounds.any_words + (NUMBER_GRACE_WORDS if beside_number else 0)


def _abbreviated(core: str, word: _Word) -> bool:
    lower = core.lower()
    if lower in _NEVER_LAST or _INITIAL.match(core) or (word.first and _LIST_NUMBER.match(core)):
        return True
    return (lower in _PERHAPS_LAST or _LETTERS.match(lower) is not None) and not word.after.isupper()
