"""Carries arrays between threads of one process by reference, without a copy."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from transport.base import Array, Bits, Full, Lease, Ref, Slot, Ticket
from transport.errors import PlaneError, StaleRef
from transport.layout import lay_out

State = Literal["free", "reserved", "filled", "leased"]


@dataclass(slots=True)
class _Cell:
    """One slot: a credit and what was put for it. The generation grows each time the credit returns."""

    generation: int = 0
    state: State = "free"
    arrays: dict[str, Array] = field(default_factory=dict)


class InprocPlane:
    """A data plane whose arena is references: `slots` credits, each for a payload of at most `slot_bytes` bytes.

    Both sides in one object, see `Sender` and `Receiver`. The arrays that are put must not change afterwards; the
    receiver sees read-only views of them, which stay good beyond the lease. Raises `ValueError` for a plane without
    room.
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
        """See `Sender.reserve`."""
        if not 0 <= nbytes <= self.slot_bytes:
            raise PlaneError(f"plane {self.name!r}: {nbytes} bytes asked, a slot takes 0 to {self.slot_bytes}")
        began = time.monotonic()
        with self._changed:
            if not self._changed.wait_for(lambda: self._free, timeout_s):
                return Full(waited_s=time.monotonic() - began)
            index = self._free.pop()
            cell = self._cells[index]
            cell.state = "reserved"
            return Slot(index, cell.generation, nbytes)

    def put(self, slot: Slot, arrays: Mapping[str, Array | Bits]) -> Ticket:
        """See `Sender.put`. It is done at once."""
        layout, sources, total = lay_out(arrays)
        if total > slot.nbytes:
            raise PlaneError(f"plane {self.name!r}: {total} bytes put into a slot reserved for {slot.nbytes}")
        views = {}
        for place, array in zip(layout, sources, strict=True):
            views[place.name] = array.view()
            views[place.name].flags.writeable = False
        with self._changed:
            cell = self._cell(slot.index, slot.generation, "reserved")
            cell.state, cell.arrays = "filled", views
        return Ticket(Ref(self.name, slot.index, slot.generation, layout))

    def poll(self, ticket: Ticket) -> bool:
        """See `Sender.poll`."""
        with self._changed:
            self._cell(ticket.ref.slot, ticket.ref.generation, "filled")
            return True

    def open(self, ref: Ref) -> Lease:
        """See `Receiver.open`. Raises `PlaneError` for the reference of another plane."""
        if ref.plane != self.name:
            raise PlaneError(f"{ref} was given to plane {self.name!r}: hand it to the plane it names")
        with self._changed:
            cell = self._cell(ref.slot, ref.generation, "filled")
            cell.state, arrays = "leased", cell.arrays
            return Lease(ref, arrays, self._released)

    def withdraw(self, what: Slot | Ref) -> bool:
        """See `Sender.withdraw`."""
        return self._return(what.index if isinstance(what, Slot) else what.slot, what.generation, "reserved", "filled")

    def _released(self, ref: Ref) -> None:
        self._return(ref.slot, ref.generation, "leased")

    def _cell(self, index: int, generation: int, state: State) -> _Cell:
        """The slot that should be in this generation and state. Raises `StaleRef` when it isn't."""
        cell = self._at(index)
        if cell.generation != generation or cell.state != state:
            raise StaleRef(
                f"plane {self.name!r}: slot {index} generation {generation} should be {state}; "
                f"it stands at generation {cell.generation}, {cell.state}"
            )
        return cell

    def _return(self, index: int, generation: int, *states: State) -> bool:
        with self._changed:
            cell = self._at(index)
            if cell.generation != generation or cell.state not in states:
                return False
            cell.generation += 1
            cell.state, cell.arrays = "free", {}
            self._free.append(index)
            self._changed.notify()
            return True

    def _at(self, index: int) -> _Cell:
        if not 0 <= index < len(self._cells):
            raise PlaneError(f"plane {self.name!r} has no slot {index}, it has {len(self._cells)}")
        return self._cells[index]
