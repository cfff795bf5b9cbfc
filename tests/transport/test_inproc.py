"""Tests what only the plane within a process can do."""

from __future__ import annotations

import numpy as np
import pytest

from transport.base import Ref, Slot
from transport.errors import PlaneError, StaleRef
from transport.inproc import InprocPlane


@pytest.fixture
def plane() -> InprocPlane:
    return InprocPlane("test", slots=2, slot_bytes=1000)


def filled(plane: InprocPlane) -> Ref:
    slot = plane.reserve(200, 0.0)
    assert isinstance(slot, Slot)
    return plane.put(slot, {"pcm": np.arange(100, dtype=np.int16)}).ref


def test_nothing_is_copied(plane: InprocPlane) -> None:
    source = np.arange(100, dtype=np.int16)
    slot = plane.reserve(source.nbytes, 0.0)
    assert isinstance(slot, Slot)
    with plane.open(plane.put(slot, {"pcm": source}).ref) as lease:
        assert np.shares_memory(lease.arrays["pcm"], source)
    assert source.flags.writeable


def test_what_nobody_opened_is_taken_back(plane: InprocPlane) -> None:
    ref = filled(plane)
    assert plane.withdraw(ref)
    assert not plane.withdraw(ref)
    assert plane.credits == 2
    with pytest.raises(StaleRef):
        plane.open(ref)


def test_what_was_opened_is_not_taken_back(plane: InprocPlane) -> None:
    ref = filled(plane)
    with plane.open(ref) as lease:
        assert not plane.withdraw(ref)
        assert lease.arrays["pcm"][5] == 5
        assert plane.credits == 1
    assert plane.credits == 2


def test_a_reservation_is_taken_back(plane: InprocPlane) -> None:
    slot = plane.reserve(10, 0.0)
    assert isinstance(slot, Slot)
    assert plane.withdraw(slot)
    with pytest.raises(StaleRef):
        plane.put(slot, {})


def test_the_reference_of_another_plane_is_refused(plane: InprocPlane) -> None:
    ref = filled(InprocPlane("other", slots=1, slot_bytes=1000))
    with pytest.raises(PlaneError, match="'test'"):
        plane.open(ref)


def test_a_plane_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one slot"):
        InprocPlane("test", slots=0, slot_bytes=1)
