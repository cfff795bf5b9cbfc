"""Tells how many of the words that were said a recognizer has heard."""

from __future__ import annotations

import re
from collections.abc import Sequence

from models.runtime.english import english


def words(text: str) -> list[str]:
    """As they are said, so that "$3.50" and "three dollars fifty" are the same."""
    return re.findall(r"[a-z']+", english(text).lower().replace("-", " "))


def errors(said: Sequence[str], heard: Sequence[str]) -> list[int]:
    """The edit distance between `heard` and the first n words that were `said`, for each n."""
    row = [len(heard)]
    column = list(range(len(heard) + 1))
    for word in said:
        diagonal, column[0] = column[0], column[0] + 1
        for at, other in enumerate(heard, 1):
            diagonal, column[at] = column[at], min(column[at] + 1, column[at - 1] + 1, diagonal + (word != other))
        row.append(column[-1])
    return row


def counts(said: Sequence[str], heard: Sequence[str]) -> frozenset[int]:
    """How many of the first words explain best what was heard; a last one that was garbled leaves it open."""
    row = errors(said, heard)
    return frozenset(n for n, distance in enumerate(row) if distance == min(row))
