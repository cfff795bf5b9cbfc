"""Makes a text that only ever grows out of hypotheses that change: a word is told once two in a row agree on it.

Source: local agreement, as in Liu et al., "Low-Latency Sequence-to-Sequence Speech Recognition" (2020).
"""

from __future__ import annotations


class GrowingText:
    """The words told so far."""

    __slots__ = ("_last", "_told")

    def __init__(self) -> None:
        self._told: list[str] = []
        self._last: list[str] = []

    @property
    def told(self) -> str:
        return " ".join(self._told)

    def hear(self, hypothesis: str) -> str:
        """Take in what the stretch seems to say now; gives what is sure beyond what was told, with its blank."""
        words = hypothesis.split()
        agreed = 0
        for one, other in zip(words, self._last, strict=False):
            if _bare(one) != _bare(other):
                break
            agreed += 1
        self._last = words
        # The newest word may be half a word; and what was told is never taken back.
        agreed = min(agreed, len(words) - 1)
        return self._tell(words[len(self._told) : agreed])

    def finish(self, final: str) -> tuple[str, str]:
        """The whole text and what of it was not told. What was told stays, even where the final pass disagrees."""
        if not self._told:
            return final, final
        growth = self._tell(final.split()[len(self._told) :])
        return self.told, growth

    def _tell(self, words: list[str]) -> str:
        if not words:
            return ""
        blank = " " if self._told else ""
        self._told += words
        return blank + " ".join(words)


def _bare(word: str) -> str:
    return "".join(filter(str.isalnum, word.lower()))
