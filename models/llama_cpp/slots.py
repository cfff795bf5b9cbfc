"""Keeps account of which tokens each sequence of a shared KV cache holds, and lends sequences to jobs.

Idle sequences stay as they are, since the next prompt of the stream will begin like the last one. They are given up in
the order of last use, when a sequence or room for tokens is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pipeline.errors import StageError


class Memory(Protocol):
    """The cache itself. Positions count from 0 in each sequence."""

    def cut(self, seq: int, length: int) -> bool:
        """Keep the first `length` tokens of a sequence; False when the cache can only be emptied."""

    def copy(self, source: int, target: int, length: int) -> None:
        """Let an empty sequence share the first `length` tokens of another."""


@dataclass(slots=True)
class Slot:
    """One sequence. `tokens` is exactly what the cache holds of it; `reserved` bounds its growth while `busy`."""

    seq: int
    stream: str = ""
    tokens: list[int] = field(default_factory=list)
    busy: bool = False
    reserved: int = 0
    last_used: int = 0


class Pool:
    """`count` sequences that share room for `capacity` tokens."""

    def __init__(self, memory: Memory, count: int, capacity: int) -> None:
        self._memory = memory
        self._capacity = capacity
        self._slots = [Slot(seq) for seq in range(count)]
        self._clock = 0

    def claim(self, stream: str, tokens: Sequence[int], reserve: int) -> Slot:
        """Lend a sequence that holds the longest known beginning of `tokens`, always short of the last one.

        It may grow to `reserve` tokens. The caller fills in the rest and calls `release`. Raises `StageError`
        (`capacity`) when all sequences are busy or the room is taken.
        """
        want = list(tokens[:-1])
        donor = max(self._slots, key=lambda slot: common_prefix(slot.tokens, want))
        shared = common_prefix(donor.tokens, want)
        target = self._target(stream, donor, shared)
        if target is not donor:
            self._cut(target, min(shared, common_prefix(target.tokens, want)))
            if len(target.tokens) < shared:
                self._cut(target, 0)
                self._memory.copy(donor.seq, target.seq, shared)
                target.tokens = want[:shared]
        else:
            self._cut(target, shared)
        self._clock += 1
        target.stream, target.busy, target.reserved, target.last_used = stream, True, reserve, self._clock
        try:
            self._make_room()
        except StageError:
            self.release(target)
            raise
        return target

    def _target(self, stream: str, donor: Slot, shared: int) -> Slot:
        idle = [slot for slot in self._slots if not slot.busy]
        if not idle:
            raise StageError(
                f"all {len(self._slots)} sequences are busy: retry, or raise the option `sequences`", "capacity"
            )
        # Its own sequence is taken in place only if most of it stays: a reply beside the conversation, with another
        # prompt, must not cost the conversation its cache.
        if not donor.busy and donor.stream == stream and 2 * shared >= len(donor.tokens):
            return donor
        return min(idle, key=lambda slot: (bool(slot.tokens), slot is donor, slot.last_used))

    def _make_room(self) -> None:
        while (taken := sum(max(len(slot.tokens), slot.reserved) for slot in self._slots)) > self._capacity:
            idle = [slot for slot in self._slots if slot.tokens and not slot.busy]
            if not idle:
                raise StageError(
                    f"the running replies may need {taken} tokens and the cache holds {self._capacity}: retry, ask "
                    f"for fewer tokens, or raise the option `cache_tokens`",
                    "capacity",
                )
            self._clear(min(idle, key=lambda slot: slot.last_used))

    def grow(self, slot: Slot, reserve: int) -> bool:
        """Set room aside for `reserve` tokens in a busy sequence; False when there is none."""
        before, slot.reserved = slot.reserved, reserve
        try:
            self._make_room()
        except StageError:
            slot.reserved = before
            return False
        return True

    def rewind(self, slot: Slot, tokens: Sequence[int]) -> None:
        """What a busy sequence holds is to go on otherwise: keep of it what `tokens` begins with, short of the last."""
        self._cut(slot, common_prefix(slot.tokens, tokens[:-1]))

    def release(self, slot: Slot) -> None:
        """Give a sequence back; what it holds stays of use."""
        slot.busy, slot.reserved = False, 0

    def forget(self, stream: str) -> None:
        """Empty the sequences of a stream."""
        for slot in self._slots:
            if slot.stream == stream:
                self.release(slot)
                self._clear(slot)

    def longest(self, stream: str, tokens: Sequence[int]) -> int:
        """How many of the first `tokens` some sequence of the stream holds."""
        return max((common_prefix(slot.tokens, tokens) for slot in self._slots if slot.stream == stream), default=0)

    def _clear(self, slot: Slot) -> None:
        self._cut(slot, 0)
        slot.stream = ""

    def _cut(self, slot: Slot, length: int) -> None:
        if length == len(slot.tokens):
            return
        if not self._memory.cut(slot.seq, length):
            self._memory.cut(slot.seq, 0)
            length = 0
        del slot.tokens[length:]


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens two sequences have in common from the start."""
    for index, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return index
    return min(len(a), len(b))
