"""Makes a plane of each kind, in one process and between two, for the tests that all of them pass."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from tests.transport.far import Far
from transport.base import Array, Receiver, Ref, Sender, Slot
from transport.inproc import InprocPlane
from transport.shm import ShmArena, ShmReceiver, ShmSender

SLOTS = 3
SLOT_BYTES = 4096


@dataclass(slots=True)
class Plane:
    """Both ends of a plane, wherever they live."""

    sender: Sender
    receiver: Receiver
    credits: Callable[[], int]  # how many slots are free
    reset: Callable[[], object]  # ends what is under way


@contextlib.contextmanager
def inproc() -> Iterator[Plane]:
    plane = InprocPlane("test", slots=SLOTS, slot_bytes=SLOT_BYTES)
    kept = Plane(plane, plane, lambda: plane.credits, lambda: None)

    def renew() -> None:
        nonlocal plane
        plane = kept.sender = kept.receiver = InprocPlane("test", slots=SLOTS, slot_bytes=SLOT_BYTES)

    kept.reset = renew
    yield kept


@contextlib.contextmanager
def shm() -> Iterator[Plane]:
    """Both sides in this process."""
    with arena() as made:
        yield over(made, ShmSender(made), ShmReceiver(made))


@contextlib.contextmanager
def shm_file() -> Iterator[Plane]:
    """In a file that has no name, as on a system without memory files."""
    memfd_create = os.memfd_create
    del os.memfd_create
    try:
        made = ShmArena.create("test", SLOTS, SLOT_BYTES)
    finally:
        os.memfd_create = memfd_create
    with contextlib.closing(made):
        yield over(made, ShmSender(made), ShmReceiver(made))


@contextlib.contextmanager
def shm_from_far() -> Iterator[Plane]:
    """The sender in another process."""
    with arena() as made, Far(made) as far:
        yield over(made, far, ShmReceiver(made))
        assert far.end() == 0


@contextlib.contextmanager
def shm_to_far() -> Iterator[Plane]:
    """The receiver in another process."""
    with arena() as made, Far(made) as far:
        yield over(made, ShmSender(made), far)
        assert far.end() == 0


def over(made: ShmArena, sender: Sender, receiver: Receiver) -> Plane:
    def reset() -> None:
        made.reclaim("sender")
        made.reclaim("receiver")

    return Plane(sender, receiver, lambda: made.credits, reset)


PLANES = (inproc, shm, shm_file, shm_from_far, shm_to_far)


def arena(slots: int = SLOTS, slot_bytes: int = SLOT_BYTES) -> contextlib.closing[ShmArena]:
    return contextlib.closing(ShmArena.create("test", slots, slot_bytes))


def reserved(sender: Sender, nbytes: int = SLOT_BYTES) -> Slot:
    slot = sender.reserve(nbytes, 0.0)
    assert isinstance(slot, Slot)
    return slot


def payload(value: int = 7) -> dict[str, Array]:
    return {"pcm": np.full(100, value, np.int16), "features": np.full((3, 4), value, np.float32)}


def sent(sender: Sender, value: int = 7) -> Ref:
    """The reference of a payload that was put, ready to be opened."""
    ticket = sender.put(reserved(sender), payload(value))
    assert sender.poll(ticket)
    return ticket.ref
