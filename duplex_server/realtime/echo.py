"""Tells whether what was heard is what we said, come back through a loudspeaker.

A microphone that hears our own voice makes us interrupt ourselves, or answer ourselves. What we say is known, and when;
so is what was heard, but a faint echo is misheard: "boil the pasta" comes back as "post it". So letters are compared
by how they sound. Whoever speaks into an echo is not taken for it: their words are left when ours are taken away.

After we were fooled, speech over a reply is believed to be the user's only once its words are known; a user who wears
headphones never notices any of this.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Literal

from duplex_server.realtime.sounding import likeness
from models.runtime.english import english

ECHO_AFTER_S = 2.0
"""An echo is back within this time: a loudspeaker far away, its buffers, and the network both ways."""
AT_ONCE_S = 0.75
"""A single word proves little: it must be of what was said this shortly before."""
ALIKE = (0.88, 0.64, 0.56)
"""How much one, two or three words must sound like ours to be an echo, when nothing else was heard."""
ALIKE_LAST = (0.4, 0.62, 0.58)
"""The same for one, two, and more words that follow ours: many a user's word is heard behind an echo that it cuts."""
ALIKE_AMONG = (0.0, 0.5, 0.55)
"""The same where more of ours follow; a single word there is misheard."""
UNSURE, UNSURE_WORD = 0.08, 0.38
"""Words, and a single one, that fall short of it by no more than this may be ours all the same: more will tell."""
MISHEARD = 6
"""No more words than these in a row are misheard; they are somebody's."""
WORDS_AFTER = 3
"""So many words make an echo when we had fallen silent before they began. Fewer are a user's who repeats them."""
MEMORY_S = 60.0
"""How long we stay careful after we were fooled."""
NOISES = 2
"""A cough is a cough; a second wordless interruption within the memory is an echo too faint to be words, or a noise."""


_NUMBER = re.compile(r"(?<![\w.,])\d+(?:[.,]\d+)*(?!\w)")


Whose = Literal["ours", "theirs", "unsure"]


@dataclass(frozen=True, slots=True)
class Said:
    """What we said that a microphone may have heard during a stretch of speech; `at_once` is the newest of it.

    `over` says that we spoke when it began, or that we can't be sure that we did not.
    """

    words: str
    at_once: str
    over: bool


def echoes(heard: str, said: Said) -> bool:
    """True when all of `heard` is probably of what we said."""
    return _margin(heard, said, unfinished=False) >= 0


def whose(heard: str, said: Said) -> Whose:
    """Whose words these are, as far as they go: there will be more, and the last may be half a word."""
    margin = _margin(heard, said, unfinished=True)
    if margin >= 0:
        return "ours"
    return "unsure" if margin >= -(UNSURE_WORD if len(_bare(heard)) == 1 else UNSURE) else "theirs"


def _margin(heard: str, said: Said, *, unfinished: bool) -> float:
    """By how much the words that are most unlike ours are still like them; below 0 they are somebody's."""
    words = _bare(heard)
    if not words or (not said.over and len(words) < WORDS_AFTER):
        return -1.0
    ours = _bare(said.at_once if len(words) == 1 else said.words)
    if len(words) <= len(ALIKE):
        return likeness(words, ours) - ALIKE[len(words) - 1]
    return min((_likely(strange, unfinished) for strange in _strange(words, ours)), default=1.0)


@dataclass(frozen=True, slots=True)
class _Strange:
    """Words in a row that we have not said, and what we said in their place; `last` if none of ours follow."""

    words: Sequence[str]
    ours: Sequence[str]
    last: bool


def _strange(words: Sequence[str], ours: Sequence[str]) -> Iterator[_Strange]:
    """What is left of the words when ours are taken away, in their order."""
    heard_upto = said_upto = 0
    blocks = SequenceMatcher(None, words, ours, autojunk=False).get_matching_blocks()
    nothing = len(blocks) == 1
    for block in blocks:  # the last one is empty, and stands at the end of both
        strange, last = words[heard_upto : block.a], block.a == len(words) and not block.size
        start, stop = said_upto, block.b
        if last and not nothing:
            stop = min(stop, start + len(strange) + 2)
        elif heard_upto == 0 and not last:
            start = max(start, stop - len(strange) - 2)
        if strange:
            yield _Strange(strange, ours[start:stop], last)
        heard_upto, said_upto = block.a + block.size, block.b + block.size


def _likely(strange: _Strange, unfinished: bool) -> float:
    count = len(strange.words)
    if count > MISHEARD:
        return -1.0
    last = strange.last and not (unfinished and count == 1)
    alike = ALIKE_LAST if last else ALIKE_AMONG
    return likeness(strange.words, strange.ours) - alike[min(count, len(alike)) - 1]


def _bare(text: str) -> list[str]:
    """The words without case and signs; numbers as they are said."""
    spoken = _NUMBER.sub(lambda number: _spoken(number[0]), text.lower())
    return "".join(sign if sign.isalnum() else "" if sign in "'’" else " " for sign in spoken).split()


@lru_cache(maxsize=256)
def _spoken(number: str) -> str:
    return english(number).lower()


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
