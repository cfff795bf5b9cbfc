"""Defines the data plane: how blocks of audio and tensors reach another stage, with credits and leases."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Protocol, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]  # any dtype: a plane carries audio, features, token ids and hidden states alike


class Block(msgspec.Struct, frozen=True):
    """One named array that rides inside a control message; for small payloads."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: bytes


class Inline(msgspec.Struct, frozen=True, tag="inline"):
    """A payload that rides inside the message itself."""

    blocks: tuple[Block, ...]


class Ref(msgspec.Struct, frozen=True, tag="ref"):
    """A payload that lies in a data plane's slot; `generation` tells a reused slot from the one meant."""

    plane: str
    slot: int
    generation: int


Blocks = Inline | Ref


def inline(arrays: Mapping[str, Array]) -> Inline:
    """Pack arrays into a message."""
    return Inline(
        tuple(Block(name, a.dtype.str, a.shape, np.ascontiguousarray(a).tobytes()) for name, a in arrays.items())
    )


def unpack(payload: Inline) -> dict[str, Array]:
    """The arrays of an inline payload, as read-only views."""
    return {b.name: np.frombuffer(b.data, np.dtype(b.dtype)).reshape(b.shape) for b in payload.blocks}


class Slot(msgspec.Struct, frozen=True):
    """Room in the receiver's arena that a sender may fill once; holding one is holding a credit."""

    index: int
    generation: int
    nbytes: int


class Full(msgspec.Struct, frozen=True):
    """No credit was free before the deadline."""

    waited_s: float


class Ticket(msgspec.Struct, frozen=True):
    """A put under way; `poll` says when `ref` may be opened."""

    ref: Ref


class Lease(Protocol):
    """Arrays that stay valid until released; releasing returns the credit to the sender."""

    @property
    def arrays(self) -> Mapping[str, Array]: ...

    def release(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class DataPlane(Protocol):
    """One direction between a sender and a receiver. Every wait has a deadline; nothing is unbounded."""

    def reserve(self, nbytes: int, timeout_s: float) -> Slot | Full: ...

    def put(self, slot: Slot, arrays: Mapping[str, Array]) -> Ticket: ...

    def poll(self, ticket: Ticket) -> bool: ...

    def open(self, ref: Ref) -> Lease: ...
