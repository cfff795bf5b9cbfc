"""Tests what every data plane promises; a new plane adds its factory to `PLANES`."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

from transport.base import Array, DataPlane, Full, Slot
from transport.errors import PlaneError, StaleRef
from transport.inproc import InprocPlane

SLOTS = 3
SLOT_BYTES = 4096
DEADLINE_S = 10.0

Factory = Callable[[], DataPlane]


def inproc() -> DataPlane:
    return InprocPlane("test", slots=SLOTS, slot_bytes=SLOT_BYTES)


PLANES: tuple[Factory, ...] = (inproc,)


@pytest.fixture(params=PLANES, ids=lambda factory: factory.__name__)
def plane(request: pytest.FixtureRequest) -> DataPlane:
    made: DataPlane = request.param()
    return made


def reserved(plane: DataPlane, nbytes: int = SLOT_BYTES) -> Slot:
    slot = plane.reserve(nbytes, 0.0)
    assert isinstance(slot, Slot)
    return slot


def payload(value: int = 7) -> dict[str, Array]:
    return {"pcm": np.full(100, value, np.int16), "features": np.full((3, 4), value, np.float32)}


def test_what_is_put_arrives_with_shape_and_dtype(plane: DataPlane) -> None:
    ticket = plane.put(reserved(plane), payload())
    assert plane.poll(ticket)
    with plane.open(ticket.ref) as lease:
        assert set(lease.arrays) == {"pcm", "features"}
        for name, array in payload().items():
            assert lease.arrays[name].dtype == array.dtype
            np.testing.assert_array_equal(lease.arrays[name], array)


def test_the_receiver_can_not_write(plane: DataPlane) -> None:
    with plane.open(plane.put(reserved(plane), payload()).ref) as lease, pytest.raises(ValueError, match="read-only"):
        lease.arrays["pcm"][0] = 1


def test_credits_end_and_come_back_with_the_release(plane: DataPlane) -> None:
    leases = [plane.open(plane.put(reserved(plane), payload()).ref) for _ in range(SLOTS)]
    assert isinstance(plane.reserve(10, 0.0), Full)
    leases[1].release()
    leases[1].release()  # harmless, and worth one credit only
    reserved(plane)
    assert isinstance(plane.reserve(10, 0.0), Full)


def test_a_reservation_alone_holds_a_credit(plane: DataPlane) -> None:
    for _ in range(SLOTS):
        reserved(plane)
    assert isinstance(plane.reserve(10, 0.0), Full)


def test_a_waiting_sender_gets_the_credit_of_a_release(plane: DataPlane) -> None:
    leases = [plane.open(plane.put(reserved(plane), payload()).ref) for _ in range(SLOTS)]
    outcome: list[Slot | Full] = []
    sender = threading.Thread(target=lambda: outcome.append(plane.reserve(10, DEADLINE_S)))
    sender.start()
    leases[0].release()
    sender.join(2 * DEADLINE_S)
    assert isinstance(outcome[0], Slot)


def test_a_wait_ends_at_its_deadline(plane: DataPlane) -> None:
    for _ in range(SLOTS):
        reserved(plane)
    full = plane.reserve(10, 0.01)
    assert isinstance(full, Full)
    assert full.waited_s >= 0.01


def test_a_stale_generation_is_not_opened(plane: DataPlane) -> None:
    first = plane.put(reserved(plane), payload(1)).ref
    plane.open(first).release()
    for _ in range(SLOTS):  # so that its slot is used again
        plane.put(reserved(plane), payload(2))
    with pytest.raises(StaleRef):
        plane.open(first)


def test_a_payload_is_opened_once(plane: DataPlane) -> None:
    ref = plane.put(reserved(plane), payload()).ref
    with plane.open(ref), pytest.raises(StaleRef):
        plane.open(ref)


def test_a_slot_is_filled_once(plane: DataPlane) -> None:
    slot = reserved(plane)
    plane.put(slot, payload())
    with pytest.raises(StaleRef):
        plane.put(slot, payload())


def test_a_released_lease_shows_nothing(plane: DataPlane) -> None:
    lease = plane.open(plane.put(reserved(plane), payload()).ref)
    lease.release()
    with pytest.raises(PlaneError, match="released"):
        lease.arrays  # noqa: B018  # reading it is the fault


def test_too_much_is_refused(plane: DataPlane) -> None:
    with pytest.raises(PlaneError):
        plane.reserve(SLOT_BYTES + 1, 0.0)
    with pytest.raises(PlaneError):
        plane.put(reserved(plane, 10), payload())


def test_many_threads_lose_nothing(plane: DataPlane) -> None:
    """Two senders and two receivers through three slots: every payload arrives once, every credit comes back."""
    count, refs, got = 200, list[object](), list[int]()
    ready, lock = threading.Semaphore(0), threading.Lock()

    def send(base: int) -> None:
        for n in range(count):
            slot = plane.reserve(SLOT_BYTES, DEADLINE_S)
            assert isinstance(slot, Slot)
            ticket = plane.put(slot, {"n": np.array([base + n])})
            with lock:
                refs.append(ticket.ref)
            ready.release()

    def receive() -> None:
        for _ in range(count):
            assert ready.acquire(timeout=DEADLINE_S)
            with lock:
                ref = refs.pop()
            with plane.open(ref) as lease:  # type: ignore[arg-type]  # only refs are put in
                value = int(lease.arrays["n"][0])
            with lock:
                got.append(value)

    threads = [threading.Thread(target=send, args=(base,)) for base in (0, 1000)]
    threads += [threading.Thread(target=receive) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(4 * DEADLINE_S)
    assert sorted(got) == [*range(count), *range(1000, 1000 + count)]
    for _ in range(SLOTS):
        reserved(plane)
