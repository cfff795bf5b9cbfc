"""Tests what every data plane promises; a new plane adds its factory to `PLANES`."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from tests.transport.planes import PLANES, SLOT_BYTES, SLOTS, Plane, payload, reserved, sent
from transport.base import Array, Bits, Full, Ref, Slot, completed
from transport.errors import PlaneError, StaleRef
from transport.layout import MAX_ARRAYS

DEADLINE_S = 10.0


@pytest.fixture(scope="module", params=PLANES, ids=lambda make: make.__name__)
def kept(request: pytest.FixtureRequest) -> Iterator[Plane]:
    with request.param() as made:
        yield made


@pytest.fixture
def plane(kept: Plane) -> Plane:
    """A plane of each kind with all its credits; it may have been used before."""
    kept.reset()
    return kept


# ---- what is put arrives ----

ODD: dict[str, Array] = {
    "pcm": np.arange(-50, 50, dtype=np.int16),
    "features": np.arange(12, dtype=np.float32).reshape(3, 4),
    "one": np.array(3.5),
    "nothing": np.zeros((0, 7), np.float64),
    "strided": np.arange(20, dtype=np.int32)[::-3],
    "turned": np.arange(6, dtype=np.int64).reshape(2, 3).T,
    "big_endian": np.arange(5, dtype=">u2"),
    "flags": np.array([True, False]),
    "complex": np.array([1 + 2j], np.complex64),
    "words": np.array(["ab", "c"]),
    "": np.array([1], np.uint8),
}


def test_what_is_put_arrives_with_name_shape_and_dtype(plane: Plane) -> None:
    ticket = plane.sender.put(reserved(plane.sender), ODD)
    assert completed(plane.sender, ticket, DEADLINE_S)
    with plane.receiver.open(ticket.ref) as lease:
        assert list(lease.arrays) == list(ODD)
        for name, array in ODD.items():
            assert lease.arrays[name].dtype == array.dtype
            np.testing.assert_array_equal(lease.arrays[name], array, strict=True)


def test_the_reference_tells_what_lies_where(plane: Plane) -> None:
    ref = sent(plane.sender)
    assert [(place.name, place.dtype, place.shape) for place in ref.layout] == [
        ("pcm", "<i2", (100,)),
        ("features", "<f4", (3, 4)),
    ]
    assert ref.layout[0].offset + 200 <= ref.layout[1].offset


def test_a_payload_may_be_empty(plane: Plane) -> None:
    with plane.receiver.open(plane.sender.put(reserved(plane.sender, 0), {}).ref) as lease:
        assert dict(lease.arrays) == {}


def test_a_slot_takes_as_much_as_it_was_made_for_in_however_many_arrays(plane: Plane) -> None:
    arrays: dict[str, Array] = {str(n): np.full(1, n, np.uint8) for n in range(MAX_ARRAYS - 1)}
    arrays["rest"] = np.full(SLOT_BYTES - len(arrays), len(arrays), np.uint8)
    with plane.receiver.open(plane.sender.put(reserved(plane.sender), arrays).ref) as lease:
        assert [int(array.min()) for array in lease.arrays.values()] == list(range(MAX_ARRAYS))


def test_a_dtype_that_numpy_does_not_know_travels_as_its_bits(plane: Plane) -> None:
    halves = np.array([[0x3F80, 0xC000]], np.uint16)  # 1.0 and -2.0
    ref = plane.sender.put(reserved(plane.sender), {"hidden": Bits("bfloat16", halves)}).ref
    assert ref.layout[0].dtype == "bfloat16"
    with plane.receiver.open(ref) as lease:
        np.testing.assert_array_equal(lease.arrays["hidden"], halves, strict=True)


def test_the_receiver_can_not_write(plane: Plane) -> None:
    with plane.receiver.open(sent(plane.sender)) as lease, pytest.raises(ValueError, match="read-only"):
        lease.arrays["pcm"][0] = 1


def test_a_payload_stays_as_it_is_until_its_lease_is_released(plane: Plane) -> None:
    leases = [plane.receiver.open(sent(plane.sender, value)) for value in range(SLOTS)]
    leases.pop(1).release()
    fresh = plane.receiver.open(sent(plane.sender, 9))
    assert [int(lease.arrays["pcm"][99]) for lease in (*leases, fresh)] == [0, 2, 9]


# ---- what is refused ----


def test_too_much_is_refused(plane: Plane) -> None:
    for nbytes in (SLOT_BYTES + 1, -1):
        with pytest.raises(PlaneError, match="a slot takes 0 to 4096"):
            plane.sender.reserve(nbytes, 0.0)
    slot = reserved(plane.sender, 10)
    with pytest.raises(PlaneError, match="248 bytes put into a slot reserved for 10"):
        plane.sender.put(slot, payload())
    plane.sender.put(slot, {"pcm": np.zeros(5, np.int16)})  # the reservation stands


@pytest.mark.parametrize(
    "value",
    [
        np.array([object()]),
        np.zeros(2, [("a", "i4"), ("b", "f4")]),
        np.zeros(2, "V2"),
        Bits("bfloat16", np.zeros(2, np.float32)),
        Bits("float3", np.zeros(2, np.uint8)),
    ],
    ids=["objects", "records", "raw", "bits of another size", "bits of an unknown dtype"],
)
def test_what_can_not_travel_is_refused(plane: Plane, value: Array | Bits) -> None:
    slot = reserved(plane.sender)
    with pytest.raises(PlaneError):
        plane.sender.put(slot, {"it": value})
    plane.sender.put(slot, payload())


def test_too_many_arrays_are_refused(plane: Plane) -> None:
    with pytest.raises(PlaneError, match="at most 64"):
        plane.sender.put(reserved(plane.sender), {str(n): np.zeros(1) for n in range(MAX_ARRAYS + 1)})


def test_a_slot_that_is_not_there_is_refused(plane: Plane) -> None:
    for index in (-1, SLOTS):
        with pytest.raises(PlaneError, match="no slot"):
            plane.receiver.open(Ref("test", index, 0))
        with pytest.raises(PlaneError, match="no slot"):
            plane.sender.put(Slot(index, 0, 100), {})
        with pytest.raises(PlaneError, match="no slot"):
            plane.sender.withdraw(Slot(index, 0, 100))


def test_the_reference_of_another_plane_is_refused(plane: Plane) -> None:
    with pytest.raises(PlaneError, match="hand it to the plane it names"):
        plane.receiver.open(Ref("other", 0, 0))


# ---- credits ----


def test_credits_end_and_come_back_with_the_release(plane: Plane) -> None:
    leases = [plane.receiver.open(sent(plane.sender)) for _ in range(SLOTS)]
    assert isinstance(plane.sender.reserve(10, 0.0), Full)
    leases[1].release()
    leases[1].release()  # harmless, and worth one credit only
    assert plane.credits() == 1
    reserved(plane.sender)
    assert isinstance(plane.sender.reserve(10, 0.0), Full)


def test_a_reservation_alone_holds_a_credit(plane: Plane) -> None:
    for _ in range(SLOTS):
        reserved(plane.sender)
    assert isinstance(plane.sender.reserve(10, 0.0), Full)


def test_a_wait_ends_at_its_deadline(plane: Plane) -> None:
    for _ in range(SLOTS):
        reserved(plane.sender)
    full = plane.sender.reserve(10, 0.01)
    assert isinstance(full, Full)
    assert full.waited_s >= 0.01


def test_a_waiting_sender_gets_the_credit_of_a_release(plane: Plane) -> None:
    leases = [plane.receiver.open(sent(plane.sender)) for _ in range(SLOTS)]
    outcome: list[Slot | Full] = []
    sender = threading.Thread(target=lambda: outcome.append(plane.sender.reserve(10, DEADLINE_S)))
    sender.start()
    leases[0].release()
    sender.join(2 * DEADLINE_S)
    assert isinstance(outcome[0], Slot)


def test_a_released_lease_shows_nothing(plane: Plane) -> None:
    lease = plane.receiver.open(sent(plane.sender))
    lease.release()
    with pytest.raises(PlaneError, match="released"):
        lease.arrays  # noqa: B018  # reading it is the fault


def test_a_late_second_release_does_not_free_the_next_payload(plane: Plane) -> None:
    lease = plane.receiver.open(sent(plane.sender))
    again = copy.copy(lease)  # as two threads see it that release at once
    lease.release()
    leases = [plane.receiver.open(sent(plane.sender)) for _ in range(SLOTS)]
    again.release()
    assert plane.credits() == 0
    for lease in leases:
        lease.release()
    assert plane.credits() == SLOTS


# ---- generations ----


def test_a_stale_reference_is_not_opened(plane: Plane) -> None:
    first = sent(plane.sender, 1)
    plane.receiver.open(first).release()
    for _ in range(SLOTS):  # so that its slot is used again
        sent(plane.sender, 2)
    with pytest.raises(StaleRef, match=f"slot {first.slot} generation {first.generation} should be filled"):
        plane.receiver.open(first)


def test_what_was_never_put_is_not_opened(plane: Plane) -> None:
    slot = reserved(plane.sender)
    with pytest.raises(StaleRef, match="reserved"):
        plane.receiver.open(Ref("test", slot.index, slot.generation))
    plane.sender.put(slot, payload())


def test_a_payload_is_opened_once(plane: Plane) -> None:
    ref = sent(plane.sender)
    with plane.receiver.open(ref), pytest.raises(StaleRef):
        plane.receiver.open(ref)


def test_a_slot_is_filled_once(plane: Plane) -> None:
    slot = reserved(plane.sender)
    plane.sender.put(slot, payload())
    with pytest.raises(StaleRef):
        plane.sender.put(slot, payload())


def test_a_slot_of_a_generation_that_is_over_is_not_filled(plane: Plane) -> None:
    slot = reserved(plane.sender)
    plane.receiver.open(plane.sender.put(slot, payload()).ref).release()
    for _ in range(SLOTS):
        reserved(plane.sender)
    with pytest.raises(StaleRef):
        plane.sender.put(slot, payload())


# ---- taking back ----


def test_f22_what_nobody_opened_is_taken_back(plane: Plane) -> None:
    """A reference that is lost on its way, and nobody acknowledges anything: the plane goes on with all its credits."""
    for _ in range(5):
        refs = [sent(plane.sender) for _ in range(SLOTS)]
        assert isinstance(plane.sender.reserve(10, 0.0), Full)
        assert [plane.sender.withdraw(ref) for ref in refs] == [True] * SLOTS
        assert plane.credits() == SLOTS
        for ref in refs:
            assert not plane.sender.withdraw(ref)
            with pytest.raises(StaleRef):
                plane.receiver.open(ref)
    with plane.receiver.open(sent(plane.sender, 5)) as lease:
        assert lease.arrays["pcm"][5] == 5


def test_a_reservation_is_taken_back(plane: Plane) -> None:
    slot = reserved(plane.sender)
    assert plane.sender.withdraw(slot)
    assert plane.credits() == SLOTS
    with pytest.raises(StaleRef):
        plane.sender.put(slot, payload())


def test_what_was_opened_is_not_taken_back(plane: Plane) -> None:
    ref = sent(plane.sender)
    with plane.receiver.open(ref) as lease:
        assert not plane.sender.withdraw(ref)
        assert lease.arrays["pcm"][5] == 7
        assert plane.credits() == SLOTS - 1
    assert plane.credits() == SLOTS
    assert not plane.sender.withdraw(ref)


def test_a_ticket_that_was_taken_back_is_stale(plane: Plane) -> None:
    ticket = plane.sender.put(reserved(plane.sender), payload())
    plane.sender.withdraw(ticket.ref)
    with pytest.raises(StaleRef):
        plane.sender.poll(ticket)


def test_one_of_opening_and_taking_back_wins(plane: Plane) -> None:
    opened: list[bool] = []

    def open_all(refs: list[Ref]) -> None:
        for ref in refs:
            try:
                plane.receiver.open(ref).release()
                opened.append(True)
            except StaleRef:
                opened.append(False)

    for _ in range(30):
        refs = [sent(plane.sender) for _ in range(SLOTS)]
        opened.clear()
        receiver = threading.Thread(target=open_all, args=(refs,))
        receiver.start()
        withdrawn = [plane.sender.withdraw(ref) for ref in reversed(refs)][::-1]
        receiver.join(DEADLINE_S)
        assert [not it for it in opened] == withdrawn
        assert plane.credits() == SLOTS


# ---- threads ----


def test_many_threads_lose_nothing(plane: Plane) -> None:
    """Two senders and two receivers through three slots: every payload arrives once, every credit comes back."""
    count, refs, got = 100, list[Ref](), list[int]()
    ready, lock = threading.Semaphore(0), threading.Lock()

    def send(base: int) -> None:
        for n in range(count):
            while not isinstance(slot := plane.sender.reserve(SLOT_BYTES, 0.001), Slot):
                pass
            ticket = plane.sender.put(slot, {"n": np.full(500, base + n)})
            with lock:
                refs.append(ticket.ref)
            ready.release()

    def receive() -> None:
        for _ in range(count):
            assert ready.acquire(timeout=DEADLINE_S)
            with lock:
                ref = refs.pop()
            with plane.receiver.open(ref) as lease:
                low, high = int(lease.arrays["n"].min()), int(lease.arrays["n"].max())
            with lock:
                got.append(low if low == high else -1)

    threads = [threading.Thread(target=send, args=(base,)) for base in (0, 1000)]
    threads += [threading.Thread(target=receive) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(4 * DEADLINE_S)
    assert sorted(got) == [*range(count), *range(1000, 1000 + count)]
    assert plane.credits() == SLOTS
