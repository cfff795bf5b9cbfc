"""Turns the text a thinker writes, as it comes, into clauses: what a reader sees of each, and what is said for it."""

from __future__ import annotations

from dataclasses import dataclass

from models.runtime.clauses import Pause, Splitter
from models.runtime.english import english
from models.runtime.markup import PlainText

SILENT_CHARS = 1000  # text without anything to say is shown with the clause after it, as far as this
ENDINGS = ".,;:!?"


@dataclass(frozen=True, slots=True)
class Clause:
    """One piece of speech. The captions of a reply, joined, are its text without markup and emoji.

    `spoken` never lacks something to say and ends in a punctuation mark; `pause` is what should follow it.
    """

    caption: str
    spoken: str
    pause: Pause


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
            caption, self._silent = self._silent + text, ""
            spoken = english(text) if self._english else _plain_words(text)
            if not spoken:
                self._silent = caption[-SILENT_CHARS:]
                continue
            if pause == "sentence":
                spoken = spoken.rstrip(",;: ")
            if spoken[-1] not in ENDINGS:
                spoken += "." if pause == "sentence" else ","
            clauses.append(Clause(caption, spoken, pause))
        return clauses


def _plain_words(text: str) -> str:
    spoken = " ".join(text.split())
    return spoken if any(char.isalnum() for char in spoken) else ""
