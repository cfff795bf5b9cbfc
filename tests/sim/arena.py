"""Keeps account of the data planes of a run: who holds each slot, what lies in it, and what becomes of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Literal

import numpy as np

from pipeline.chunk import StageRole
from pipeline.graph import Graph
from pipeline.spec import Source
from pipeline.wiring import Where, Wiring
from tests.sim.clock import Clock
from transport.base import Array, Bits, Full, Lease, Receiver, Ref, Sender, Slot, Ticket
from transport.errors import StaleRef
from transport.inproc import InprocPlane
from transport.shm import FILLING, RESERVED, ShmArena

LATE_S = 2.0
"""A credit that is given back again comes within so long, when another payload may lie in the slot."""

State = Literal["reserved", "filled", "leased"]
_LEFT_BY: Mapping[str, tuple[State, ...]] = {"sender": ("reserved", "filled"), "receiver": ("filled", "leased")}
"""What goes with a side that dies."""


@dataclass(slots=True)
class _Held:
    generation: int
    state: State
    arrays: Mapping[str, Array | Bits] = field(default_factory=dict)
    lease: Lease | None = None


class Account:
    """What must be true of one plane, told of all that both of its ends do."""

    def __init__(self, plane: ShmArena | InprocPlane, slots: int) -> None:
        self._plane, self._slots = plane, slots
        self._held: dict[int, _Held] = {}
        self._newest: dict[int, int] = {}

    @property
    def free(self) -> int:
        """How many slots nobody holds."""
        return self._slots - len(self._held)

    @property
    def left(self) -> list[tuple[int, State]]:
        """The slots that somebody holds."""
        return [(index, held.state) for index, held in self._held.items()]

    def reserved(self, slot: Slot) -> None:
        assert slot.index not in self._held, "a slot was handed out twice"
        assert slot.generation > self._newest.get(slot.index, -1), "a generation came again"
        self._newest[slot.index] = slot.generation
        self._held[slot.index] = _Held(slot.generation, "reserved")

    def filled(self, ref: Ref, arrays: Mapping[str, Array | Bits]) -> None:
        held = self._find(ref, "reserved")
        assert held is not None, "a slot was filled that was not reserved"
        held.state, held.arrays = "filled", arrays

    def may_open(self, ref: Ref) -> bool:
        return self._find(ref, "filled") is not None

    def opened(self, lease: Lease) -> None:
        held = self._find(lease.ref, "filled")
        assert held is not None, "a stale reference was opened"
        for name, array in lease.arrays.items():
            was = held.arrays[name]
            assert isinstance(was, np.ndarray)
            assert np.array_equal(array, was), "what was opened is not what was put"
        held.state, held.lease = "leased", lease

    def released(self, ref: Ref) -> None:
        self._drop(ref.slot, ref.generation, "leased")
        self.check()

    def withdrawn(self, index: int, generation: int, took: bool) -> None:
        assert took == self._drop(index, generation, "reserved", "filled"), "a slot that was withdrawn is not free"
        self.check()

    def left_to(self, side: Literal["sender", "receiver"]) -> list[_Held]:
        """What goes with a side that dies now."""
        return [held for held in self._held.values() if held.state in _LEFT_BY[side]]

    def reclaimed(self, left: list[_Held]) -> list[Lease]:
        """A side is gone, and what was left to it was given back; the leases that went with it."""
        gone = {index: held for index, held in self._held.items() if any(held is one for one in left)}
        for index in gone:
            del self._held[index]
        self.check()
        return [held.lease for held in gone.values() if held.lease is not None]

    def check(self) -> None:
        assert self._plane.credits == self.free, f"{self._plane.credits} credits are there, {self.free} should be"

    def _find(self, ref: Ref, state: State) -> _Held | None:
        held = self._held.get(ref.slot)
        return held if held is not None and (held.generation, held.state) == (ref.generation, state) else None

    def _drop(self, index: int, generation: int, *states: State) -> bool:
        held = self._held.get(index)
        if held is None or held.generation != generation or held.state not in states:
            return False
        del self._held[index]
        return True


class WatchedSender:
    """A sender that tells the account. Its time is virtual: whoever can wait for a slot has waited before."""

    def __init__(self, sender: Sender, account: Account, met: Counter[str]) -> None:
        self._sender, self._account, self._met = sender, account, met

    def reserve(self, nbytes: int, timeout_s: float) -> Slot | Full:
        slot = self._sender.reserve(nbytes, 0.0)
        if isinstance(slot, Full):
            assert not self._account.free, "no slot is to be had, and some are free"
            self._met["full"] += 1
            return Full(timeout_s)
        self._account.reserved(slot)
        return slot

    def put(self, slot: Slot, arrays: Mapping[str, Array | Bits]) -> Ticket:
        ticket = self._sender.put(slot, arrays)
        self._account.filled(ticket.ref, arrays)
        self._met["put"] += 1
        return ticket

    def poll(self, ticket: Ticket) -> bool:
        return self._sender.poll(ticket)

    def withdraw(self, what: Slot | Ref) -> bool:
        took = self._sender.withdraw(what)
        self._account.withdrawn(what.index if isinstance(what, Slot) else what.slot, what.generation, took)
        self._met["withdrawn" if took else "withdrawn too late"] += 1
        return took


class WatchedReceiver:
    """A receiver that tells the account, and now and then gives a credit back again, late."""

    def __init__(
        self, receiver: Receiver, account: Account, met: Counter[str], again: Callable[[Lease], None] | None = None
    ) -> None:
        self._receiver, self._account, self._met, self._again = receiver, account, met, again

    def open(self, ref: Ref) -> Lease:
        due = self._account.may_open(ref)
        try:
            lease = self._receiver.open(ref)
        except StaleRef:
            assert not due, "what was put can't be opened"
            self._met["stale"] += 1
            raise
        self._account.opened(lease)
        return Lease(ref, lease.arrays, partial(self._release, lease))

    def _release(self, lease: Lease, ref: Ref) -> None:
        lease.release()
        self._account.released(ref)
        if self._again is not None:
            self._again(lease)


class Wires(Wiring):
    """The real planes between the replicas of a run, each with its account."""

    def __init__(self, graph: Graph, clock: Clock, rng: Random, stutters: float, met: Counter[str]) -> None:
        super().__init__(graph)
        self._clock, self._rng, self._stutters, self._met = clock, rng, stutters, met
        self._accounts: dict[str, Account] = {}

    def lay(self, where: Where, beside: Collection[tuple[Source, int]] | None = None) -> None:
        super().lay(where, beside)
        for name, plane in self._planes.items():
            if name in self._accounts:
                continue
            whole = plane.arena or plane.sender
            assert isinstance(whole, ShmArena | InprocPlane)
            account = self._accounts[name] = Account(whole, whole.credits)
            again = partial(self._again, name) if self._stutters else None
            self._planes[name] = replace(
                plane,
                sender=WatchedSender(plane.sender, account, self._met),
                receiver=WatchedReceiver(plane.receiver, account, self._met, again),
            )

    def lost(self, role: StageRole, replica: int) -> Callable[[], None]:
        here = (role, replica)
        shared = [(self._accounts[name], plane) for name, plane in self._planes.items() if plane.arena is not None]
        sent = [(account, account.left_to("receiver")) for account, plane in shared if plane.target == here]
        give_back = super().lost(role, replica)

        def reclaim() -> None:
            own = [(account, account.left_to("sender")) for account, plane in shared if plane.source == here]
            give_back()
            for account, left in (*sent, *own):
                for lease in account.reclaimed(left):
                    self._met["leased by the dead"] += 1
                    self._again(lease.ref.plane, lease)

        return reclaim

    def leave(self, role: StageRole, replica: int) -> None:
        """A process dies while it puts something: the slot is reserved, or half filled."""
        for plane in self._planes.values():
            if plane.arena is not None and plane.source == (role, replica) and self._rng.random() < 0.5:
                slot = plane.sender.reserve(1, 0.0)
                if isinstance(slot, Slot):
                    self._met["left half put"] += 1
                    if self._rng.random() < 0.5:
                        plane.arena.move(slot.index, slot.generation, RESERVED, FILLING)

    def check(self) -> None:
        """No slot is lost or won."""
        for account in self._accounts.values():
            account.check()

    @property
    def left(self) -> dict[str, list[tuple[int, State]]]:
        """The slots that somebody holds, by plane: what was neither opened, withdrawn nor reclaimed."""
        return {name: account.left for name, account in self._accounts.items()}

    def _again(self, name: str, lease: Lease) -> None:
        if self._rng.random() < self._stutters:
            self._clock.call_later(self._rng.uniform(0.0, LATE_S), self._come_again, name, lease)

    def _come_again(self, name: str, lease: Lease) -> None:
        """A reference comes again, and the acknowledgement of its lease: neither may change anything."""
        self._met["credit again"] += 1
        with suppress(StaleRef):
            self._planes[name].receiver.open(lease.ref)
        lease._give_back(lease.ref)
        self._accounts[name].check()
