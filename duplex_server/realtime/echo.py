"""Tells whether what was heard over a reply is the reply itself, come back through a loudspeaker.

A microphone that hears our own voice makes us interrupt ourselves. After that has happened, speech over a reply is
believed to be the user's only once its words are known; a user who wears headphones never notices any of this.
"""

from __future__ import annotations

from difflib import SequenceMatcher

ECHO_SHARE = 0.6
"""As much of what was heard must stand, in order, in what was being said."""
NEAR_WORDS = 40
"""An echo repeats what was said just now, not at the beginning of a long reply."""
NEAR_WORDS_OF_ONE = 8
"""A single word proves little: it must be among the very last."""
MEMORY_S = 60.0
"""How long we stay careful after we were fooled."""
NOISES = 2
"""A cough is a cough; a second wordless interruption within the memory is an echo too faint to be words, or a noise."""


def echoes(heard: str, said: str) -> bool:
    """True when `heard` is probably `said`, or a part of it."""
    words = _bare(heard)
    near = _bare(said)[-(NEAR_WORDS if len(words) > 1 else NEAR_WORDS_OF_ONE) :]
    if not words:
        return False
    matches = SequenceMatcher(None, words, near, autojunk=False).get_matching_blocks()
    return sum(match.size for match in matches) >= ECHO_SHARE * len(words)


def _bare(text: str) -> list[str]:
    bare = ("".join(filter(str.isalnum, word.lower())) for word in text.split())
    return [word for word in bare if word]


class Doubt:
    """Whether speech over a reply has to prove itself."""

    __slots__ = ("_noises", "_until", "_wary")

    def __init__(self, wary: bool) -> None:
        """Without `wary` it never has to."""
        self._wary = wary
        self._until = 0.0
        self._noises: list[float] = []

    def holds(self, now: float) -> bool:
        return self._wary and now < self._until

    def fooled(self, now: float, *, by_words: bool) -> None:
        """An interruption was our own voice, or had no words at all."""
        self._noises = [at for at in self._noises if now - at < MEMORY_S]
        self._noises.append(now)
        if by_words or len(self._noises) >= NOISES:
            self._until = now + MEMORY_S
