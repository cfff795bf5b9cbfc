"""Says byte by byte which texts may still be written: grammars as values, each what is left of one that was read.

A grammar can always be ended: what could not be is never made. So whoever writes only bytes that `first` allows never
gets stuck. The idea is Brzozowski's (Derivatives of Regular Expressions, 1964).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Protocol

ALL = (1 << 256) - 1
CONTINUES = ((1 << 64) - 1) << 0x80
"""The bytes that go on with a character of several bytes."""


class Grammar(Protocol):
    """What may still be written."""

    @property
    def nullable(self) -> bool:
        """Whether the text may end here."""

    @property
    def first(self) -> int:
        """The bytes that may come next: bit n stands for byte n."""

    def read(self, byte: int) -> Grammar | None:
        """What may follow a byte; None when the byte may not come."""


def mask(bytes_: Iterable[int]) -> int:
    """The bytes as a set of bits."""
    return reduce(lambda found, byte: found | 1 << byte, bytes_, 0)


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """A text of fixed length; for each place the bytes that may stand there."""

    places: tuple[int, ...]
    at: int = 0

    @property
    def nullable(self) -> bool:
        return self.at == len(self.places)

    @property
    def first(self) -> int:
        return 0 if self.nullable else self.places[self.at]

    def read(self, byte: int) -> Grammar | None:
        return Run(self.places, self.at + 1) if self.first >> byte & 1 else None


def literal(text: str) -> Run:
    """Just this text."""
    return Run(tuple(1 << byte for byte in text.encode()))


EMPTY = Run(())


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """One text, then another."""

    head: Grammar
    tail: Grammar

    @property
    def nullable(self) -> bool:
        return self.head.nullable and self.tail.nullable

    @property
    def first(self) -> int:
        return self.head.first | (self.tail.first if self.head.nullable else 0)

    def read(self, byte: int) -> Grammar | None:
        after = self.head.read(byte)
        inside = None if after is None else then(after, self.tail)
        return either((inside, self.tail.read(byte) if self.head.nullable else None))


def then(*grammars: Grammar) -> Grammar:
    """Texts one after another."""
    *heads, last = grammars
    for head in reversed(heads):
        over = isinstance(head, Run) and head.nullable
        last = last if over else Pair(head, last)
    return last


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """One of several texts."""

    options: tuple[Grammar, ...]

    @property
    def nullable(self) -> bool:
        return any(option.nullable for option in self.options)

    @property
    def first(self) -> int:
        return reduce(lambda found, option: found | option.first, self.options, 0)

    def read(self, byte: int) -> Grammar | None:
        return either(option.read(byte) for option in self.options)


def either(options: Iterable[Grammar | None]) -> Grammar | None:
    """One of the texts that can be had; None when there is none."""
    found = tuple(option for option in options if option is not None)
    return found[0] if len(found) == 1 else Choice(found) if found else None


def choice(options: Sequence[Grammar]) -> Grammar:
    """One of the texts, of which there is at least one."""
    return options[0] if len(options) == 1 else Choice(tuple(options))


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """The rest of a list: from `least` to `most` more items, each after a comma."""

    item: Grammar
    least: int
    most: int

    @property
    def nullable(self) -> bool:
        return self.least <= 0

    @property
    def first(self) -> int:
        return 1 << ord(",") if self.most > 0 else 0

    def read(self, byte: int) -> Grammar | None:
        if self.most <= 0 or byte != ord(","):
            return None
        return then(literal(" "), self.item, Items(self.item, self.least - 1, self.most - 1))


def listed(item: Grammar, least: int, most: int) -> Grammar:
    """From `least` to `most` items, with commas between."""
    some = then(item, Items(item, least - 1, most - 1)) if most > 0 else EMPTY
    return some if least > 0 or most <= 0 else Choice((EMPTY, some))


class _Unfolded(ABC):
    """A grammar that is a choice, which is made up only when it is looked at."""

    __slots__ = ()

    @abstractmethod
    def _more(self) -> Grammar | None:
        """The choice; None when nothing more may come."""

    @property
    def first(self) -> int:
        more = self._more()
        return more.first if more is not None else 0

    def read(self, byte: int) -> Grammar | None:
        more = self._more()
        return more.read(byte) if more is not None else None


@dataclass(frozen=True, slots=True, eq=False)
class Picks(_Unfolded):
    """The rest of a list in which nothing comes twice: from `least` to `most` of the options, in any order."""

    options: tuple[Grammar, ...]
    least: int
    most: int
    begun: bool = False

    def _more(self) -> Grammar | None:
        if self.most <= 0:
            return None
        comma = literal(", " if self.begun else "")
        return either(
            then(comma, option, Picks(self._without(index), self.least - 1, self.most - 1, True))
            for index, option in enumerate(self.options)
        )

    def _without(self, index: int) -> tuple[Grammar, ...]:
        return self.options[:index] + self.options[index + 1 :]

    @property
    def nullable(self) -> bool:
        return self.least <= 0


@dataclass(frozen=True, slots=True)
class Member:
    """A member of an object: its key as JSON with the colon, and what its value may be."""

    key: str
    value: Grammar
    required: bool


@dataclass(frozen=True, slots=True, eq=False)
class Members(_Unfolded):
    """The rest of an object's members, in their order; those that are not required may be left out."""

    members: tuple[Member, ...]
    at: int = 0
    begun: bool = False

    def _more(self) -> Grammar | None:
        options: list[Grammar] = []
        for index in range(self.at, len(self.members)):
            member = self.members[index]
            key = literal(f", {member.key}" if self.begun else member.key)
            options.append(then(key, member.value, Members(self.members, index + 1, True)))
            if member.required:
                break
        return either(options)

    @property
    def nullable(self) -> bool:
        return not any(member.required for member in self.members[self.at :])


# ---- strings ------------------------------------------------------------------------------------------------------

_QUOTE, _SLASH = ord('"'), ord("\\")
_ESCAPES = mask(b'"\\/bfnrtu')
_HEX = mask(b"0123456789abcdefABCDEF")
_UNICODE = (_HEX & ~mask(b"dD"), _HEX, _HEX, _HEX)  # without surrogates, half of which would be no character
_LOW, _HIGH = ((1 << 32) - 1) << 0x80, ((1 << 32) - 1) << 0xA0


def _starts() -> dict[int, tuple[int, ...]]:
    """For each byte that may begin a character of a string: what must come to complete it."""
    found: dict[int, tuple[int, ...]] = {byte: () for byte in range(0x20, 0x80) if byte not in (_QUOTE, _SLASH)}
    found[_SLASH] = (_ESCAPES,)
    found |= dict.fromkeys(range(194, 224), (CONTINUES,))
    found |= dict.fromkeys(range(224, 240), (CONTINUES, CONTINUES))
    found |= dict.fromkeys(range(240, 245), (CONTINUES, CONTINUES, CONTINUES))
    # UTF-8 has one way to write a character, and none for surrogates and beyond U+10FFFF.
    sixteen = (1 << 16) - 1
    found[0xE0], found[0xED] = (_HIGH, CONTINUES), (_LOW, CONTINUES)
    found[0xF0] = (CONTINUES & ~(sixteen << 0x80), CONTINUES, CONTINUES)
    found[0xF4] = (sixteen << 0x80, CONTINUES, CONTINUES)
    return found


_STARTS = _starts()
_CHARACTERS = mask(_STARTS)


@dataclass(frozen=True, slots=True, eq=False)
class StringRest:
    """The rest of a JSON string with its closing quote: from `least` to `most` more characters.

    `pending` is what must come to complete a character that has begun.
    """

    least: int
    most: int
    pending: tuple[int, ...] = ()

    @property
    def nullable(self) -> bool:
        return False

    @property
    def first(self) -> int:
        if self.pending:
            return self.pending[0]
        return (_CHARACTERS if self.most > 0 else 0) | (1 << _QUOTE if self.least <= 0 else 0)

    def read(self, byte: int) -> Grammar | None:
        if not self.first >> byte & 1:
            return None
        if self.pending:
            unicode = self.pending[0] == _ESCAPES and byte == ord("u")
            return StringRest(self.least, self.most, _UNICODE if unicode else self.pending[1:])
        if byte == _QUOTE:
            return EMPTY
        return StringRest(self.least - 1, self.most - 1, _STARTS[byte])


def string(least: int, most: int) -> Grammar:
    """A JSON string of so many characters."""
    return then(literal('"'), StringRest(least, most))


# ---- reading ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Anything:
    """Any bytes."""

    nullable: bool = True
    first: int = ALL

    def read(self, byte: int) -> Grammar | None:
        return self


def read(grammar: Grammar, text: bytes) -> Grammar | None:
    """What may follow a text; None when the text may not come."""
    after: Grammar | None = grammar
    for byte in text:
        if after is None:
            return None
        after = after.read(byte)
    return after


def forced(grammar: Grammar) -> tuple[bytes, Grammar]:
    """The text that must come, of whole characters, and what may follow it."""
    text = bytearray()
    whole = (0, grammar)
    while not grammar.nullable and (byte := grammar.first.bit_length() - 1) >= 0 and grammar.first == 1 << byte:
        after = grammar.read(byte)
        assert after is not None
        text.append(byte)
        grammar = after
        if not grammar.first & CONTINUES:
            whole = (len(text), grammar)
    return bytes(text[: whole[0]]), whole[1]


def over(grammar: Grammar) -> bool:
    """Whether nothing can follow."""
    return grammar.nullable and not grammar.first
