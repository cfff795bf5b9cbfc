"""Turns the text a thinker writes, as it comes, into clauses: what a reader sees of each, and what is said for it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from models.runtime.clauses import Pause, Splitter
from models.runtime.english import read_english
from models.runtime.markup import PlainText
from models.runtime.traced import Traced, heard_chars

SILENT_CHARS = 1000  # text without anything to say is shown with the clause after it, as far as this
ENDINGS = ".,;:!?"
_BLANKS = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Clause:
    """One piece of speech. The captions of a reply, joined, are its text without markup and emoji.

    `spoken` never lacks something to say and ends in a punctuation mark; `pause` is what should follow it. `heard` has
    one entry for each word between blanks of `spoken`: how many characters of the caption have been heard when that
    word is over.
    """

    caption: str
    spoken: str
    pause: Pause
    heard: tuple[int, ...]


class SpokenText:
    """The text of one reply. How it is cut into deltas makes no difference to the clauses.

    `language` is that of the voice. English is written out in words. In other languages markup goes, and numbers and
    signs are left to the synthesiser, which knows them there.
    """

    def __init__(self, language: str = "en") -> None:
        self._english = language.lower().startswith("en")
        self._plain = PlainText()
        self._splitter = Splitter()
        self._silent = ""

    def push(self, delta: str) -> list[Clause]:
        """Take in a delta; returns the clauses that it completes."""
        return self._clauses(self._splitter.push(self._plain.push(delta)))

    def finish(self) -> list[Clause]:
        """The rest: the text is over. Trailing blanks and signs that nobody says are left out."""
        rest = self._splitter.push(self._plain.finish())
        return self._clauses([*rest, *self._splitter.finish()])

    def _clauses(self, cuts: list[tuple[str, Pause]]) -> list[Clause]:
        clauses = []
        for text, pause in cuts:
            silent, self._silent = self._silent, ""
            original = Traced.of(text)
            traced = read_english(original) if self._english else _plain_words(original)
            if not traced.text:
                self._silent = (silent + text)[-SILENT_CHARS:]
                continue
            if pause == "sentence":
                traced = traced.rstrip(",;: ")
            spoken = traced.text
            if spoken[-1] not in ENDINGS:
                spoken += "." if pause == "sentence" else ","
            heard = tuple(len(silent) + chars for chars in heard_chars(text, traced))
            clauses.append(Clause(silent + text, spoken, pause, heard))
        return clauses


def _plain_words(text: Traced) -> Traced:
    spoken = text.rewrite(_BLANKS, lambda _: " ").strip()
    return spoken if any(char.isalnum() for char in spoken.text) else spoken[:0]
