"""Tests what only the plane within a process can do."""

from __future__ import annotations

import numpy as np
import pytest

from tests.transport.planes import SLOT_BYTES, SLOTS, reserved
from transport.inproc import InprocPlane


def test_nothing_is_copied() -> None:
    plane = InprocPlane("test", slots=SLOTS, slot_bytes=SLOT_BYTES)
    source = np.arange(100, dtype=np.int16)
    with plane.open(plane.put(reserved(plane), {"pcm": source}).ref) as lease:
        assert np.shares_memory(lease.arrays["pcm"], source)
    assert source.flags.writeable


def test_a_plane_without_room_is_refused() -> None:
    for slots, slot_bytes in ((0, 1), (1, 0)):
        with pytest.raises(ValueError, match="at least one slot"):
            InprocPlane("test", slots=slots, slot_bytes=slot_bytes)
