"""Carries arrays between threads of one process by reference, without a copy."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType, TracebackType
from typing import Literal, Self

from transport.base import Array, Full, Ref, Slot, Ticket
from transport.errors import PlaneError, StaleRef

State = Literal["free", "reserved", "filled", "leased"]


@dataclass(slots=True)
class _Cell:
    """One slot: a credit and what was put for it. The generation grows each time the credit returns."""

    generation: int = 0
    state: State = "free"
    nbytes: int = 0
    arrays: dict[str, Array] = field(default_factory=dict)


class InprocLease:
    """The arrays of one put, read-only, until released; releasing twice is harmless."""

    def __init__(self, plane: InprocPlane, ref: Ref, arrays: Mapping[str, Array]) -> None:
        self._plane = plane
        self._ref = ref
        self._arrays: Mapping[str, Array] | None = MappingProxyType(dict(arrays))

    @property
    def arrays(self) -> Mapping[str, Array]:
        """The arrays by name. Raises `PlaneError` after the release."""
        if self._arrays is None:
            raise PlaneError(f"the lease of {self._ref} was released: copy what must outlive it")
        return self._arrays

    def release(self) -> None:
        if self._arrays is not None:
            self._arrays = None
            self._plane._return(self._ref.slot, self._ref.generation)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class InprocPlane:
    """A data plane whose arena is references: `slots` credits, each for a payload of at most `slot_bytes` bytes.

    The arrays that are put must not change afterwards; the receiver sees read-only views of them. Safe to use from
    any number of threads. Raises `ValueError` for a plane without room.
    """

    def __init__(self, name: str, *, slots: int, slot_bytes: int) -> None:
        if slots < 1 or slot_bytes < 1:
            raise ValueError(f"a plane needs at least one slot of one byte, not {slots} of {slot_bytes}")
        self.name = name
        self.slot_bytes = slot_bytes
        self._cells = [_Cell() for _ in range(slots)]
        self._free = list(range(slots))
        self._changed = threading.Condition()

    @property
    def credits(self) -> int:
        """How many slots are free now."""
        with self._changed:
            return len(self._free)

    def reserve(self, nbytes: int, timeout_s: float) -> Slot | Full:
        """A slot for a payload of `nbytes` bytes, or `Full` when no credit came back within `timeout_s` seconds.

        Raises `PlaneError` for a payload that no slot of this plane can ever take.
        """
        if not 0 <= nbytes <= self.slot_bytes:
            raise PlaneError(f"plane {self.name!r}: {nbytes} bytes asked, a slot takes 0 to {self.slot_bytes}")
        began = time.monotonic()
        with self._changed:
            if not self._changed.wait_for(lambda: self._free, timeout_s):
                return Full(waited_s=time.monotonic() - began)
            index = self._free.pop()
            cell = self._cells[index]
            cell.state, cell.nbytes = "reserved", nbytes
            return Slot(index, cell.generation, nbytes)

    def put(self, slot: Slot, arrays: Mapping[str, Array]) -> Ticket:
        """Fill a reserved slot. Raises `StaleRef` for a slot that isn't reserved, `PlaneError` for too much data."""
        total = sum(a.nbytes for a in arrays.values())
        if total > slot.nbytes:
            raise PlaneError(f"plane {self.name!r}: {total} bytes put into a slot reserved for {slot.nbytes}")
        views = {}
        for name, array in arrays.items():
            views[name] = array.view()
            views[name].flags.writeable = False
        with self._changed:
            cell = self._cell(slot.index, slot.generation, "reserved")
            cell.state, cell.arrays = "filled", views
        return Ticket(Ref(self.name, slot.index, slot.generation))

    def poll(self, ticket: Ticket) -> bool:
        """True: a put within one process is there at once. Raises `StaleRef` when it was opened or taken back."""
        with self._changed:
            self._cell(ticket.ref.slot, ticket.ref.generation, "filled")
            return True

    def open(self, ref: Ref) -> InprocLease:
        """Take what was put. Raises `StaleRef` when it was opened before, taken back, or never put."""
        if ref.plane != self.name:
            raise PlaneError(f"{ref} was given to plane {self.name!r}: hand it to the plane it names")
        with self._changed:
            cell = self._cell(ref.slot, ref.generation, "filled")
            cell.state, arrays = "leased", cell.arrays
            return InprocLease(self, ref, arrays)

    def withdraw(self, slot: Slot | Ref) -> bool:
        """Take back a reservation or a put that nobody opened; false (and nothing happens) when it is too late."""
        index = slot.index if isinstance(slot, Slot) else slot.slot
        with self._changed:
            cell = self._cells[index]
            if cell.generation != slot.generation or cell.state not in ("reserved", "filled"):
                return False
        self._return(index, slot.generation)
        return True

    def _cell(self, index: int, generation: int, state: State) -> _Cell:
        cell = self._cells[index]
        if cell.generation != generation or cell.state != state:
            raise StaleRef(
                f"plane {self.name!r}: slot {index} generation {generation} should be {state}; "
                f"it stands at generation {cell.generation}, {cell.state}"
            )
        return cell

    def _return(self, index: int, generation: int) -> None:
        with self._changed:
            cell = self._cells[index]
            if cell.generation != generation:
                return
            cell.generation += 1
            cell.state, cell.nbytes, cell.arrays = "free", 0, {}
            self._free.append(index)
            self._changed.notify()
