"""Picks the next token among those that a grammar allows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.llama_cpp.grammar import Grammar, read
from pipeline.errors import StageError

LIKELIEST = 64
"""So many of the likeliest tokens are tried before the others are."""
TOP_K = 40
TOP_P = 0.95

Scores = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Drawing:
    """How a token is drawn. `temperature` 0 takes the likeliest."""

    temperature: float
    random: np.random.Generator


class Vocabulary:
    """The texts of a model's tokens, as bytes; an empty one is no text."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = tuple(pieces)
        self._first = np.array([piece[0] if piece else 0 for piece in pieces], np.uint8)
        self._texts = np.array([bool(piece) for piece in pieces])

    def __getitem__(self, token: int) -> bytes:
        return self._pieces[token]

    def pick(self, scores: Scores, grammar: Grammar, drawing: Drawing) -> tuple[int, Grammar]:
        """A token, and what may follow it. `scores` (n_tokens,) are the model's, the higher the likelier.

        The likeliest that the grammar allows; with a temperature, one drawn from the likeliest of them. Raises
        `StageError` if the vocabulary has none.
        """
        fitting: list[tuple[int, Grammar]] = []
        for token in self._likeliest(scores):
            after = read(grammar, self._pieces[token])
            if after is not None and self._pieces[token]:
                fitting.append((token, after))
                if drawing.temperature <= 0.0:
                    break
        if not fitting:
            fitting = [self._best(scores, grammar)]
        return fitting[_draw(scores[[token for token, _ in fitting[:TOP_K]]], drawing)]

    def _likeliest(self, scores: Scores) -> Iterator[int]:
        few = min(LIKELIEST, len(scores))
        top = np.argpartition(scores, -few)[-few:]
        return iter(top[np.argsort(-scores[top])].tolist())

    def _best(self, scores: Scores, grammar: Grammar) -> tuple[int, Grammar]:
        allowed = np.unpackbits(np.frombuffer(grammar.first.to_bytes(32, "little"), np.uint8), bitorder="little")
        tokens = np.flatnonzero(allowed[self._first].astype(bool) & self._texts)
        for token in tokens[np.argsort(-scores[tokens])].tolist():
            after = read(grammar, self._pieces[token])
            if after is not None:
                return token, after
        raise StageError("the model's vocabulary can't write what the tool's parameters ask for")


def _draw(scores: Scores, drawing: Drawing) -> int:
    """The place of one of the scores, which fall; drawn from those that make up `TOP_P` of the probability."""
    if drawing.temperature <= 0.0 or len(scores) == 1:
        return 0
    weights = np.exp((scores - scores[0]).astype(np.float64) / drawing.temperature)
    weights /= weights.sum()
    weights[1:][np.cumsum(weights)[:-1] >= TOP_P] = 0.0
    return int(drawing.random.choice(len(weights), p=weights / weights.sum()))


def bytes_of(text: str) -> bytes:
    """The bytes of a token that is no whole character, by its entry in the vocabulary; empty when it has none.

    Entries are `<0xE9>`, or one character a byte as GPT-2 writes them.
    """
    if len(text) == 6 and text.startswith("<0x"):
        return bytes((int(text[3:5], 16),))
    found = [_BYTES.get(char) for char in text]
    return b"" if None in found else bytes(byte for byte in found if byte is not None)


def _gpt2() -> dict[str, int]:
    """GPT-2's characters for bytes: those that can be seen stand for themselves, the others for what follows U+00FF."""
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    unseen = [byte for byte in range(0x100) if byte not in seen]
    return {chr(byte): byte for byte in seen} | {chr(0x100 + at): byte for at, byte in enumerate(unseen)}


_BYTES = _gpt2()
