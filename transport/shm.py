"""Carries arrays between two processes of one machine through shared memory: one copy in, none out.

An arena is made by the server before it spawns the workers, which inherit its descriptor. It has no name: when the last
process that holds it ends, however it ends, it is gone.

Each slot has one word of eight bytes in the arena's header: its generation and its state.

    FREE ─reserve─▸ RESERVED ─put─▸ FILLING ─▸ FILLED ─open─▸ LEASED ─release─▸ FREE of the next generation
                        └──withdraw──▸ FREE ◂──withdraw──┘

Why two processes may share it without an atomic exchange, which Python lacks:

- An aligned word is read and written in one access (a `memoryview` of format "Q" copies eight bytes: one instruction on
  x86-64 and arm64), so no half of a word is ever seen.
- In each state one side alone may write the next: the sender in FREE, RESERVED and FILLING, the receiver in LEASED.
  Threads of one process take the arena's lock. Only FILLED is contested (open against withdraw), and is left under
  a lock of the kernel on that slot's byte of the file, which a dying process drops.
- What was put is seen by whoever opens it: the reference went through the kernel, or through a lock, in between, and
  both order all writes before it before all reads after it. The word itself is not relied upon for that.
- What is read from a slot is read before the sender can write there again. On x86-64 a read never passes a later write.
  On arm64 it may, hence `released` lets go of a lock and takes one before it writes FREE: a release followed by an
  acquire orders what is before them against what is after. The sender writes only if it has read FREE, and neither
  processor writes ahead of a branch.

A process that dies leaves its slots as they are; `reclaim` gives them back.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading
import time
from collections.abc import Mapping
from functools import partial
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from transport import memory
from transport.base import Array, Bits, Full, Lease, Ref, Slot, Ticket
from transport.errors import PlaneError, StaleRef
from transport.layout import lay_out, room, view
from transport.patience import until

LOCK_S = 1.0  # how long one side may hold a slot's lock: it is held for microseconds, unless its process is stopped

FREE, RESERVED, FILLING, FILLED, LEASED = range(5)
STATES = ("free", "reserved", "being filled", "filled", "leased")
STATE_BITS = 3
STATE_MASK = (1 << STATE_BITS) - 1

MAGIC = b"duplex\x00\x01"  # the last byte is the version of what follows
NAME_BYTES = 200
_HEADER = struct.Struct(f"<8sQQ{NAME_BYTES}s")
_FIRST_WORD = 256  # where the header's words begin
_LINE_BYTES = 64  # each word has a cache line of its own, which only travels when that slot does
_WORD_BYTES = 8

# What a side that died may have left behind. A payload that was put and not opened is lost with either side: the
# messages that named it went with the receiver, and the one who would follow them up went with the sender.
_LEFT_BY = {"sender": (RESERVED, FILLING, FILLED), "receiver": (FILLED, LEASED)}


class ShmArena:
    """The shared memory of one direction between two processes: `slots` slots of `slot_bytes` bytes each.

    One object per process. Raises `ValueError` for an arena without room, `PlaneError` when there is not enough memory
    or a descriptor is no arena.
    """

    def __init__(self, fd: int, name: str, slots: int, slot_bytes: int) -> None:
        """Take over the descriptor of an arena; use `create` or `attach`."""
        self.name = name
        self.slots = slots
        self.slot_bytes = slot_bytes
        self.fd = fd
        """To be handed to the other process, which attaches it; closed by `close`."""
        stride, begin = _stride(slot_bytes), _begin(slots)
        with memoryview(memory.attach(fd, begin + slots * stride)) as whole:  # unmapped with the last view of it
            words = whole[_FIRST_WORD : _FIRST_WORD + slots * _LINE_BYTES].cast("Q")
            self._words = words[:: _LINE_BYTES // _WORD_BYTES]
            inside, outside = np.frombuffer(whole, np.uint8), np.frombuffer(whole.toreadonly(), np.uint8)
        spans = [slice(at, at + stride) for at in range(begin, begin + slots * stride, stride)]
        self._writable = [inside[span] for span in spans]
        self._readable = [outside[span] for span in spans]
        self._lock = threading.Lock()
        self._next = 0
        self._usable = slots  # none once closed

    @classmethod
    def create(cls, name: str, slots: int, slot_bytes: int) -> Self:
        """Make an arena, with all its memory there already."""
        if slots < 1 or slot_bytes < 1:
            raise ValueError(f"an arena needs at least one slot of one byte, not {slots} of {slot_bytes}")
        label = name.encode()
        if len(label) > NAME_BYTES:
            raise ValueError(f"the name of an arena takes {NAME_BYTES} bytes, {name!r} has {len(label)}")
        fd = memory.create(f"duplex-{name}", _begin(slots) + slots * _stride(slot_bytes))
        os.pwrite(fd, _HEADER.pack(MAGIC, slots, slot_bytes, label), 0)
        return cls(fd, name, slots, slot_bytes)

    @classmethod
    def attach(cls, fd: int) -> Self:
        """The arena behind an inherited descriptor, which it takes over."""
        try:
            header = os.pread(fd, _HEADER.size, 0)
            magic, slots, slot_bytes, label = _HEADER.unpack(header)
            nbytes = os.fstat(fd).st_size
            whole = magic == MAGIC and nbytes == _begin(slots) + slots * _stride(slot_bytes)
        except (OSError, struct.error) as error:
            raise PlaneError(f"the descriptor {fd} is no arena: {error}") from error
        if not whole:
            raise PlaneError(f"the descriptor {fd} is no arena of this version: {nbytes} bytes, beginning {magic!r}")
        return cls(fd, label.rstrip(b"\x00").decode(), slots, slot_bytes)

    @property
    def credits(self) -> int:
        """How many slots are free now."""
        with self._lock:
            return sum(1 for index in range(self.slots) if self._word(index) & STATE_MASK == FREE)

    def reclaim(self, side: Literal["sender", "receiver"]) -> int:
        """Give back all that a side held when it died: how many slots it was. Its references stay stale.

        From any process, the other side may go on meanwhile. Call it once the process of that side is gone for sure,
        and before another one takes its place.
        """
        states = _LEFT_BY[side]
        return sum(1 for index in range(self.slots) if self.give_back(index, self.state(index)[0], *states))

    def close(self) -> None:
        """Let go of the memory; it stays for the other process, and for leases that are out. Harmless twice."""
        with self._lock:
            if self._usable == 0:
                return
            self._usable = 0
            self._words.release()
            self._writable, self._readable = [], []
            os.close(self.fd)

    # ---- for the two sides ----

    def take(self) -> tuple[int, int] | None:
        """Reserve a free slot: its index and generation. In turn, so that a slot rests as long as it can."""
        with self._lock:
            for step in range(self.slots):
                index = (self._next + step) % self.slots
                word = self._word(index)
                if word & STATE_MASK == FREE:
                    self._words[index] = word | RESERVED
                    self._next = index + 1
                    return index, word >> STATE_BITS
        return None

    def move(self, index: int, generation: int, was: int, to: int) -> bool:
        """Bring a slot from one state to the next; false, and nothing happens, when it is in another one.

        Raises `PlaneError` for a slot that is not there, once the arena is closed, and when the other process is
        stopped while it holds the slot's lock.
        """
        word = generation << STATE_BITS | was
        with self._lock:
            if self._word(index) != word:
                return False
            if was == FILLED:
                return self._settle(index, word, to)
            self._words[index] = _next(word, to)
            return True

    def give_back(self, index: int, generation: int, *states: int) -> bool:
        """Return the credit of a slot that is in one of `states`; false when it is in none."""
        return any(self.move(index, generation, state, FREE) for state in states)

    def state(self, index: int) -> tuple[int, int]:
        """A slot's generation and state. Raises `PlaneError` as `move` does."""
        with self._lock:
            word = self._word(index)
        return word >> STATE_BITS, word & STATE_MASK

    def stale(self, index: int, generation: int, should_be: int) -> StaleRef:
        """The error that says how a slot stands, and how it should."""
        now, state = self.state(index)
        return StaleRef(
            f"plane {self.name!r}: slot {index} generation {generation} should be {STATES[should_be]}; "
            f"it stands at generation {now}, {STATES[state]}"
        )

    def writable(self, index: int) -> NDArray[np.uint8]:
        """The bytes of a slot, for the sender. Raises `PlaneError` as `move` does."""
        with self._lock:
            self._word(index)
            return self._writable[index]

    def readable(self, index: int) -> NDArray[np.uint8]:
        """The bytes of a slot, for the receiver. Raises `PlaneError` as `move` does."""
        with self._lock:
            self._word(index)
            return self._readable[index]

    def released(self, ref: Ref) -> None:
        """Return the credit of a lease; nothing happens when it was returned before, or the arena is closed."""
        word = ref.generation << STATE_BITS | LEASED
        with self._lock:  # let go of here and taken again below, for arm64: see above
            pass
        with self._lock:
            if self._usable and self._words[ref.slot] == word:
                self._words[ref.slot] = _next(word, FREE)

    # ---- the lock is held ----

    def _word(self, index: int) -> int:
        if not 0 <= index < self._usable:
            if self._usable == 0:
                raise PlaneError(f"the arena {self.name!r} is closed")
            raise PlaneError(f"plane {self.name!r} has no slot {index}, it has {self.slots}")
        return self._words[index]

    def _settle(self, index: int, word: int, to: int) -> bool:
        """Leave FILLED, if the other side has not."""
        if self._locked(index) is None and until(partial(self._locked, index), LOCK_S) is None:
            raise PlaneError(f"plane {self.name!r}: slot {index} was locked for {LOCK_S} s: is the other side stopped?")
        try:
            if self._words[index] != word:
                return False
            self._words[index] = _next(word, to)
            return True
        finally:
            fcntl.lockf(self.fd, fcntl.LOCK_UN, 1, _at(index))

    def _locked(self, index: int) -> Literal[True] | None:
        try:
            # Never blocking: the kernel would take several threads with several arenas for a deadlock.
            fcntl.lockf(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _at(index))
        except (BlockingIOError, PermissionError):
            return None
        return True


class ShmSender:
    """The side that fills the slots of an arena; any number of threads of one process. See `Sender`."""

    def __init__(self, arena: ShmArena) -> None:
        self._arena = arena
        self.name = arena.name
        self.slot_bytes = arena.slot_bytes

    def reserve(self, nbytes: int, timeout_s: float) -> Slot | Full:
        """See `Sender.reserve`."""
        if not 0 <= nbytes <= self.slot_bytes:
            raise PlaneError(f"plane {self.name!r}: {nbytes} bytes asked, a slot takes 0 to {self.slot_bytes}")
        began = time.monotonic()
        if (taken := self._arena.take() or until(self._arena.take, timeout_s)) is None:
            return Full(waited_s=time.monotonic() - began)
        return Slot(*taken, nbytes)

    def put(self, slot: Slot, arrays: Mapping[str, Array | Bits]) -> Ticket:
        """See `Sender.put`. The arrays are copied here, and may change afterwards; large copies let threads run."""
        layout, sources, total = lay_out(arrays)
        if total > slot.nbytes:
            raise PlaneError(f"plane {self.name!r}: {total} bytes put into a slot reserved for {slot.nbytes}")
        region = self._arena.writable(slot.index)
        self._move(slot, RESERVED, FILLING)
        done = RESERVED
        try:
            for place, source in zip(layout, sources, strict=True):
                np.copyto(view(region, place), source)
            done = FILLED
        finally:
            self._move(slot, FILLING, done)
        return Ticket(Ref(self.name, slot.index, slot.generation, layout))

    def poll(self, ticket: Ticket) -> bool:
        """See `Sender.poll`."""
        ref = ticket.ref
        if self._arena.state(ref.slot) != (ref.generation, FILLED):
            raise self._arena.stale(ref.slot, ref.generation, FILLED)
        return True

    def withdraw(self, what: Slot | Ref) -> bool:
        """See `Sender.withdraw`. It is too late too for a slot that another thread is filling."""
        index = what.index if isinstance(what, Slot) else what.slot
        return self._arena.give_back(index, what.generation, RESERVED, FILLED)

    def _move(self, slot: Slot, was: int, to: int) -> None:
        if not self._arena.move(slot.index, slot.generation, was, to):
            raise self._arena.stale(slot.index, slot.generation, was)


class ShmReceiver:
    """The side that reads from an arena; any number of threads of one process. See `Receiver`."""

    def __init__(self, arena: ShmArena) -> None:
        self._arena = arena
        self.name = arena.name

    def open(self, ref: Ref) -> Lease:
        """See `Receiver.open`. Raises `PlaneError` for the reference of another plane, or one that names no arrays."""
        if ref.plane != self.name:
            raise PlaneError(f"{ref} was given to plane {self.name!r}: hand it to the plane it names")
        region = self._arena.readable(ref.slot)
        arrays = {place.name: view(region, place) for place in ref.layout}
        if not self._arena.move(ref.slot, ref.generation, FILLED, LEASED):
            raise self._arena.stale(ref.slot, ref.generation, FILLED)
        return Lease(ref, arrays, self._arena.released)


def _next(word: int, to: int) -> int:
    """The word of a slot that goes to the state `to`; with its credit it enters the next generation."""
    return (word >> STATE_BITS) + (to == FREE) << STATE_BITS | to


def _at(index: int) -> int:
    """Where the word of a slot lies in the file."""
    return _FIRST_WORD + index * _LINE_BYTES


def _begin(slots: int) -> int:
    """Where the slots begin."""
    return _pages(_at(slots))


def _stride(slot_bytes: int) -> int:
    return _pages(room(slot_bytes))


def _pages(nbytes: int) -> int:
    return -(-nbytes // memory.PAGE_BYTES) * memory.PAGE_BYTES
