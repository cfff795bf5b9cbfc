"""Defines the data plane: how blocks of audio and tensors reach another stage, with credits and leases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType, TracebackType
from typing import Protocol, Self

import msgspec
import numpy as np

from transport.errors import PlaneError
from transport.layout import Array as Array
from transport.layout import Bits as Bits
from transport.layout import Layout as Layout
from transport.layout import bare, view
from transport.patience import until

# ---- what travels in a control message ----------------------------------------------------------------------------


class Block(msgspec.Struct, frozen=True):
    """One named array that rides inside a control message; for small payloads.

    `data` is a view of the bytes, so that neither packing nor decoding copies them. `dtype` is numpy's string, or a key
    of `transport.layout.BITS`.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: memoryview


class Inline(msgspec.Struct, frozen=True, tag="inline"):
    """A payload that rides inside the message itself."""

    blocks: tuple[Block, ...]


class Ref(msgspec.Struct, frozen=True, tag="ref"):
    """A payload that lies in a data plane's slot; `generation` tells a reused slot from the one meant.

    `layout` says what lies where, so that a receiver reads nothing but the arrays from the slot.
    """

    plane: str
    slot: int
    generation: int
    layout: tuple[Layout, ...] = ()

    @property
    def nbytes(self) -> int:
        """How many bytes the arrays have."""
        return sum(one.nbytes for one in self.layout)


Blocks = Inline | Ref


def inline(arrays: Mapping[str, Array | Bits]) -> Inline:
    """Pack arrays into a message. Contiguous ones are not copied: they must not change while the message is in use.

    That holds for the arrays of a lease too: copy them, or keep the lease for as long as the message lives. Raises
    `PlaneError` for a dtype that can't travel.
    """
    return Inline(tuple(_block(name, *bare(value)) for name, value in arrays.items()))


def unpack(payload: Inline) -> dict[str, Array]:
    """The arrays of an inline payload, as read-only views of the message; they may be unaligned.

    Raises `PlaneError` for a block that does not hold what it says.
    """
    return {b.name: _unpacked(b) for b in payload.blocks}


def _block(name: str, dtype: str, array: Array) -> Block:
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return Block(name, dtype, array.shape, flat.data.toreadonly())


def _unpacked(block: Block) -> Array:
    return view(np.frombuffer(block.data, np.uint8), Layout(block.name, block.dtype, block.shape, 0))


# ---- slots, tickets, leases ---------------------------------------------------------------------------------------


class Slot(msgspec.Struct, frozen=True):
    """Room in the receiver's arena that a sender may fill once; holding one is holding a credit."""

    index: int
    generation: int
    nbytes: int


class Full(msgspec.Struct, frozen=True):
    """No credit was free before the deadline."""

    waited_s: float


class Ticket(msgspec.Struct, frozen=True):
    """A put under way; `poll` says when `ref` may be opened, and so when it may be sent."""

    ref: Ref


class Lease:
    """The arrays of one payload, read-only, until released; releasing returns the credit, once, to the sender.

    An array (or a view of one) that is used after the release shows whatever came into the slot next: copy what must
    outlive the lease.
    """

    __slots__ = ("_arrays", "_give_back", "ref")

    def __init__(self, ref: Ref, arrays: Mapping[str, Array], give_back: Callable[[Ref], object]) -> None:
        self.ref = ref
        self._arrays: Mapping[str, Array] | None = MappingProxyType(dict(arrays))
        self._give_back = give_back

    @property
    def arrays(self) -> Mapping[str, Array]:
        """The arrays by name. Raises `PlaneError` after the release."""
        if self._arrays is None:
            raise PlaneError(f"the lease of {self.ref} was released: copy what must outlive it")
        return self._arrays

    def release(self) -> None:
        """Give the credit back. Harmless when it was given back before, also by somebody else."""
        if self._arrays is not None:
            self._arrays = None
            self._give_back(self.ref)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


# ---- the two sides ------------------------------------------------------------------------------------------------


class Sender(Protocol):
    """The side that fills slots. Safe to use from several threads of its process."""

    def reserve(self, nbytes: int, timeout_s: float) -> Slot | Full:
        """A slot for a payload of `nbytes` bytes, or `Full` when no credit came back within `timeout_s` seconds.

        `nbytes` is the sum of the arrays' sizes. Raises `PlaneError` for a payload that no slot can ever take.
        """

    def put(self, slot: Slot, arrays: Mapping[str, Array | Bits]) -> Ticket:
        """Begin to fill a reserved slot; the arrays must not change before `poll` says that it is done.

        Raises `StaleRef` for a slot that isn't reserved (any more), `PlaneError` for more than was reserved or a dtype
        that can't travel; the reservation stands then.
        """

    def poll(self, ticket: Ticket) -> bool:
        """Whether the put is done: its `ref` may be opened, hence sent.

        Raises `StaleRef` when it was taken back, and, on a plane whose sender can tell, when it was opened.
        """

    def withdraw(self, what: Slot | Ref) -> bool:
        """Take back a reservation, or a put that nobody opened; false, and nothing happens, when it is too late.

        After true, whoever opens the reference gets `StaleRef`.
        """


class Receiver(Protocol):
    """The side that owns the arena and reads from it. Safe to use from several threads of its process."""

    def open(self, ref: Ref) -> Lease:
        """What was put, without a copy. Raises `StaleRef` when it was opened before, taken back, or never put."""


def completed(sender: Sender, ticket: Ticket, timeout_s: float) -> bool:
    """Wait until a put is done; false when it still was not after `timeout_s` seconds. Raises `StaleRef`."""
    return until(lambda: sender.poll(ticket) or None, timeout_s) is not None
