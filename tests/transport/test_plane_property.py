"""Tests planes against a model of them, over random orders of what both sides may do."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.transport.planes import SLOTS, Plane, arena, inproc, over, payload
from transport.base import Full, Lease, Ref, Slot
from transport.errors import PlaneError, StaleRef
from transport.shm import ShmArena, ShmReceiver, ShmSender


class PlaneMachine(RuleBasedStateMachine):
    """What is reserved, filled and leased, by hand, beside the plane."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = contextlib.ExitStack()
        self.arena: ShmArena | None = None
        self.plane = self.make()
        self.number = 0
        self.reserved: list[Slot] = []
        self.filled: dict[Ref, int] = {}
        self.leased: list[tuple[Lease, int]] = []
        self.over: list[Slot | Ref] = []  # what must be stale for ever
        self.released: list[Lease] = []

    def make(self) -> Plane:
        return self.stack.enter_context(inproc())

    def teardown(self) -> None:
        self.stack.close()

    def in_use(self) -> list[int]:
        refs = [*self.filled, *(lease.ref for lease, _ in self.leased)]
        return [slot.index for slot in self.reserved] + [ref.slot for ref in refs]

    @rule()
    def reserve(self) -> None:
        slot = self.plane.sender.reserve(1000, 0.0)
        if len(self.in_use()) == SLOTS:
            assert isinstance(slot, Full)
            return
        assert isinstance(slot, Slot)
        assert slot.index not in self.in_use(), "a slot was handed out twice"
        assert (slot.index, slot.generation) not in [generation(it) for it in self.over]
        self.reserved.append(slot)

    @precondition(lambda self: self.reserved)
    @rule(data=st.data())
    def put(self, data: st.DataObject) -> None:
        slot = self.reserved.pop(data.draw(st.integers(0, len(self.reserved) - 1)))
        self.number += 1
        ticket = self.plane.sender.put(slot, payload(self.number % 30_000))
        assert self.plane.sender.poll(ticket)
        self.filled[ticket.ref] = self.number % 30_000

    @precondition(lambda self: self.filled)
    @rule(data=st.data())
    def open(self, data: st.DataObject) -> None:
        ref = data.draw(st.sampled_from(list(self.filled)))
        self.leased.append((self.plane.receiver.open(ref), self.filled.pop(ref)))

    @precondition(lambda self: self.leased)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        lease, _ = self.leased.pop(data.draw(st.integers(0, len(self.leased) - 1)))
        lease.release()
        self.released.append(lease)
        self.over.append(lease.ref)

    @precondition(lambda self: self.released)
    @rule(data=st.data())
    def release_again(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(self.released))
        lease.release()
        with pytest.raises(PlaneError):
            lease.arrays  # noqa: B018  # reading it is the fault

    @precondition(lambda self: self.reserved)
    @rule(data=st.data())
    def withdraw_a_reservation(self, data: st.DataObject) -> None:
        slot = self.reserved.pop(data.draw(st.integers(0, len(self.reserved) - 1)))
        assert self.plane.sender.withdraw(slot)
        self.over.append(slot)

    @precondition(lambda self: self.filled)
    @rule(data=st.data())
    def withdraw_a_payload(self, data: st.DataObject) -> None:
        ref = data.draw(st.sampled_from(list(self.filled)))
        del self.filled[ref]
        assert self.plane.sender.withdraw(ref)
        self.over.append(ref)

    @precondition(lambda self: self.leased)
    @rule(data=st.data())
    def withdraw_too_late(self, data: st.DataObject) -> None:
        lease, _ = data.draw(st.sampled_from(self.leased))
        assert not self.plane.sender.withdraw(lease.ref)
        with pytest.raises(StaleRef):
            self.plane.receiver.open(lease.ref)

    @precondition(lambda self: self.over)
    @rule(data=st.data())
    def use_what_is_over(self, data: st.DataObject) -> None:
        stale = data.draw(st.sampled_from(self.over))
        assert not self.plane.sender.withdraw(stale)
        with pytest.raises(StaleRef):
            self.plane.sender.put(stale, {}) if isinstance(stale, Slot) else self.plane.receiver.open(stale)

    @invariant()
    def no_credit_is_lost_or_won(self) -> None:
        assert self.plane.credits() == SLOTS - len(self.in_use())

    @invariant()
    def what_is_leased_stays_as_it_was_put(self) -> None:
        for lease, value in self.leased:
            assert np.all(lease.arrays["pcm"] == value)
            assert np.all(lease.arrays["features"] == value)


class ShmMachine(PlaneMachine):
    """The same over shared memory, where a side may die too."""

    def make(self) -> Plane:
        made = self.arena = self.stack.enter_context(arena())
        return over(made, ShmSender(made), ShmReceiver(made))

    @rule()
    def sender_dies(self) -> None:
        assert self.arena is not None
        assert self.arena.reclaim("sender") == len(self.reserved) + len(self.filled)
        self.over += [*self.reserved, *self.filled]
        self.reserved, self.filled = [], {}

    @rule()
    def receiver_dies(self) -> None:
        assert self.arena is not None
        assert self.arena.reclaim("receiver") == len(self.leased) + len(self.filled)
        self.over += [*self.filled, *(lease.ref for lease, _ in self.leased)]
        for lease, _ in self.leased:  # a late release of the dead is nothing
            lease.release()
        self.leased, self.filled = [], {}


def generation(it: Slot | Ref) -> tuple[int, int]:
    return (it.index if isinstance(it, Slot) else it.slot), it.generation


@pytest.mark.parametrize("machine", [PlaneMachine, ShmMachine])
def test_no_order_of_doings_loses_a_credit_or_shares_a_slot(machine: type[PlaneMachine]) -> None:
    bounds = settings(max_examples=60, stateful_step_count=40, deadline=None)
    run_state_machine_as_test(machine, settings=bounds)  # its assertions are in the machine
    assert machine().plane.credits() == SLOTS
