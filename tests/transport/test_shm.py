"""Tests shared memory beyond the contract: it survives deaths, leaves nothing behind, refuses what is no arena."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.transport.far import Far, LockFor, Open, PutAndDie
from tests.transport.planes import SLOT_BYTES, SLOTS, arena, payload, reserved, sent
from transport import memory
from transport.base import Full, Layout, Ref, Slot
from transport.errors import PlaneError, StaleRef
from transport.shm import ShmArena, ShmReceiver, ShmSender, _at


@pytest.fixture
def made() -> Iterator[ShmArena]:
    with arena() as it:
        yield it


def usable(made: ShmArena) -> bool:
    """Whether every credit is there, and a payload passes through each slot."""
    sender, receiver = ShmSender(made), ShmReceiver(made)
    leases = [receiver.open(sent(sender, value)) for value in range(made.slots)]
    right = [int(lease.arrays["pcm"][3]) for lease in leases] == list(range(made.slots))
    for lease in leases:
        lease.release()
    return right and made.credits == made.slots


# ---- deaths ----


def test_f22_a_receiver_that_dies_with_leases_leaves_all_credits(made: ShmArena) -> None:
    sender = ShmSender(made)
    refs = [sent(sender) for _ in range(SLOTS)]
    with Far(made) as receiver:
        for ref in refs[:2]:
            receiver.open(ref)
        receiver.kill()
    assert isinstance(sender.reserve(10, 0.0), Full)
    assert made.reclaim("receiver") == SLOTS  # what it held, and what was on its way
    assert usable(made)
    with Far(made) as successor:
        for ref in refs:
            with pytest.raises(StaleRef):
                successor.open(ref)
        successor.open(sent(sender)).release()
    assert usable(made)


def test_a_receiver_that_dies_takes_no_reservation_with_it(made: ShmArena) -> None:
    sender = ShmSender(made)
    slot = reserved(sender)
    assert made.reclaim("receiver") == 0
    with ShmReceiver(made).open(sender.put(slot, payload(4)).ref) as lease:
        assert lease.arrays["pcm"][0] == 4


def test_a_sender_that_dies_in_the_middle_of_a_put_leaves_all_credits(made: ShmArena) -> None:
    with Far(made) as sender:
        slot, whole = reserved(sender), sent(sender)
        reserved(sender)
        with pytest.raises(EOFError):
            sender.ask(PutAndDie(slot))
        assert sender.end() == -signal.SIGKILL
    assert made.credits == 0
    assert made.reclaim("sender") == SLOTS
    for ref in (whole, Ref("test", slot.index, slot.generation)):
        with pytest.raises(StaleRef):
            ShmReceiver(made).open(ref)
    with pytest.raises(StaleRef):
        ShmSender(made).put(slot, payload())
    assert usable(made)


def test_a_sender_that_dies_takes_no_lease_with_it(made: ShmArena) -> None:
    receiver = ShmReceiver(made)
    with Far(made) as sender:
        lease = receiver.open(sent(sender, 6))
        sender.kill()
    assert made.reclaim("sender") == 0
    assert lease.arrays["pcm"][99] == 6
    assert made.credits == SLOTS - 1
    lease.release()
    assert usable(made)


def test_sides_may_die_again_and_again(made: ShmArena) -> None:
    for _ in range(3):
        with Far(made) as far:
            ref = sent(far)
            far.open(ref)
            reserved(far)
            far.kill()
        assert made.reclaim("sender") == 1
        assert made.reclaim("receiver") == 1
    assert usable(made)


def test_a_lock_of_a_dead_process_is_no_lock(made: ShmArena) -> None:
    """The kernel drops it: a peer that is killed between two instructions can't stop the other side."""
    script = f"import fcntl, os; fcntl.lockf({made.fd}, fcntl.LOCK_EX); os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", script], pass_fds=(made.fd,)).returncode == -signal.SIGKILL
    assert usable(made)


# ---- races between processes ----


def test_one_of_opening_here_and_taking_back_there_wins() -> None:
    with arena(slots=32) as made, Far(made) as receiver:
        sender = ShmSender(made)
        for _ in range(20):
            refs = [sent(sender) for _ in range(made.slots)]
            receiver.tell(Open(refs))
            withdrawn = [sender.withdraw(ref) for ref in reversed(refs)][::-1]
            opened = [it is not None for it in receiver.hear().opened]
            assert [not it for it in opened] == withdrawn
            assert made.reclaim("receiver") == sum(opened)


def test_opening_waits_for_who_takes_back_with_a_deadline(made: ShmArena) -> None:
    ref = sent(ShmSender(made))
    with Far(made) as receiver:
        receiver.ask(LockFor(0.02))
        fcntl.lockf(made.fd, fcntl.LOCK_EX, 1, _at(ref.slot))
        with pytest.raises(PlaneError, match=r"was locked for 0.02 s"):
            receiver.open(ref)
        fcntl.lockf(made.fd, fcntl.LOCK_UN, 1, _at(ref.slot))
        receiver.open(ref)


def test_a_slot_that_is_being_filled_is_not_taken_back(made: ShmArena) -> None:
    sender = ShmSender(made)
    slot = reserved(sender)
    taken_back: list[bool] = []

    class Watched(np.ndarray[tuple[int, ...], np.dtype[np.int16]]):
        def __array_function__(
            self,
            func: Callable[..., object],
            types: Iterable[type],
            args: Iterable[Any],  # as numpy declares it
            kwargs: Mapping[str, object],
        ) -> object:
            taken_back.append(sender.withdraw(slot))
            target, source = args
            return func(target, source.view(np.ndarray))

    ref = sender.put(slot, {"pcm": np.ones(3, np.int16).view(Watched)}).ref
    assert taken_back == [False]
    with ShmReceiver(made).open(ref) as lease:
        assert lease.arrays["pcm"].sum() == 3


def test_a_put_that_fails_leaves_the_reservation(made: ShmArena) -> None:
    sender = ShmSender(made)
    slot = reserved(sender)

    class Broken(np.ndarray[tuple[int, ...], np.dtype[np.int16]]):
        def __array_function__(
            self,
            func: Callable[..., object],
            types: Iterable[type],
            args: Iterable[Any],  # as numpy declares it
            kwargs: Mapping[str, object],
        ) -> object:
            raise OSError("the source is gone")

    with pytest.raises(OSError, match="source is gone"):
        sender.put(slot, {"pcm": np.ones(3, np.int16).view(Broken)})
    with ShmReceiver(made).open(sender.put(slot, payload(8)).ref) as lease:
        assert lease.arrays["pcm"][0] == 8


# ---- what is left behind ----


def descriptors() -> list[str]:
    return sorted(os.listdir("/proc/self/fd"))


def test_a_clean_end_leaves_no_descriptor_and_no_name() -> None:
    descriptors_before, names_before = descriptors(), os.listdir("/dev/shm")
    with arena() as made, Far(made) as far:
        far.open(sent(ShmSender(made))).release()
        assert os.listdir("/dev/shm") == names_before
        assert far.end() == 0
    made.close()  # harmless
    assert descriptors() == descriptors_before


SERVER = """
import subprocess, sys
from transport.shm import ShmArena, ShmSender
from tests.transport.planes import sent
arena = ShmArena.create(sys.argv[1], 2, 100_000)
sent(ShmSender(arena))
command = [sys.executable, "-P", "-m", "tests.transport.far", str(arena.fd)]
worker = subprocess.Popen(command, pass_fds=(arena.fd,), stdin=subprocess.PIPE)
print(worker.pid, flush=True)
worker.wait()
"""


def holders(label: str) -> list[str]:
    """The processes that hold the memory file of this name."""
    found = []
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if os.readlink(link).startswith(f"/memfd:duplex-{label}"):
                found.append(link.parts[2])
    return found


def test_f24_killing_all_at_once_leaves_nothing() -> None:
    names_before, label = os.listdir("/dev/shm"), f"killed-{os.getpid()}"
    command = [sys.executable, "-P", "-c", SERVER, label]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, start_new_session=True) as server:
        assert server.stdout is not None
        worker = server.stdout.readline().decode().strip()
        assert {str(server.pid), worker} <= set(holders(label))
        assert os.listdir("/dev/shm") == names_before
        os.killpg(server.pid, signal.SIGKILL)
        assert server.stdout.read() == b""  # both have ended: each held the other end
    assert holders(label) == []
    assert os.listdir("/dev/shm") == names_before


def test_a_lease_outlives_the_arena(made: ShmArena) -> None:
    lease = ShmReceiver(made).open(sent(ShmSender(made), 5))
    made.close()
    assert lease.arrays["pcm"][99] == 5
    lease.release()


def test_a_closed_arena_says_so(made: ShmArena) -> None:
    sender, receiver = ShmSender(made), ShmReceiver(made)
    slot, ref = reserved(sender), sent(sender)
    made.close()
    for use in (
        lambda: sender.reserve(1, 0.0),
        lambda: sender.put(slot, {}),
        lambda: receiver.open(ref),
        lambda: made.credits,
    ):
        with pytest.raises(PlaneError, match="closed"):
            use()


# ---- memory ----


def test_the_first_put_waits_for_no_page() -> None:
    pages = 512
    with arena(slots=1, slot_bytes=pages * mmap.PAGESIZE) as made:
        sender, source = ShmSender(made), np.ones(pages * mmap.PAGESIZE, np.uint8)
        slot = reserved(sender, source.nbytes)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        sender.put(slot, {"x": source})
        assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < pages // 8


def test_all_of_it_is_there_from_the_start() -> None:
    nbytes = 64 * mmap.PAGESIZE
    fd = memory.create("test", nbytes)
    assert os.fstat(fd).st_blocks * 512 == nbytes
    os.close(fd)


def test_more_than_the_machine_has_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: 1 << 20)  # never all of what there is, should this fail
    with pytest.raises(PlaneError, match=r"not to be had \(1 MiB are free\)"):
        ShmArena.create("test", 2, 1 << 20)


def test_a_file_that_can_not_grow_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody tells what is free, asking for it does."""
    monkeypatch.setattr(memory, "available_bytes", lambda: None)
    with pytest.raises(PlaneError, match="not to be had"):
        ShmArena.create("test", 1 << 20, 1 << 50)


def test_nobody_cuts_it_off_under_a_mapping(made: ShmArena) -> None:
    for nbytes in (0, 1 << 30):
        with pytest.raises(PermissionError):
            os.ftruncate(made.fd, nbytes)


def test_the_memory_that_is_free_is_known() -> None:
    free = memory.available_bytes()
    assert free is not None
    assert 0 < free < 1 << 50


# ---- what is no arena ----


def test_a_descriptor_that_is_no_arena_is_refused(made: ShmArena) -> None:
    with tempfile.TemporaryFile() as file:
        for content in (b"", b"x" * 5000, os.pread(made.fd, 1000, 0)):  # nothing, another file, one that was cut off
            file.seek(0)
            file.truncate()
            file.write(content)
            file.flush()
            with pytest.raises(PlaneError, match="no arena"):
                ShmArena.attach(file.fileno())


def test_a_descriptor_that_is_closed_is_refused() -> None:
    with pytest.raises(PlaneError, match="no arena"):
        ShmArena.attach(10_000)


def test_an_arena_without_room_or_with_too_long_a_name_is_refused() -> None:
    for slots, slot_bytes in ((0, 1), (1, 0)):
        with pytest.raises(ValueError, match="at least one slot"):
            ShmArena.create("test", slots, slot_bytes)
    with pytest.raises(ValueError, match="200 bytes"):
        ShmArena.create("n" * 201, 1, 1)


def test_an_attached_arena_is_as_it_was_made(made: ShmArena) -> None:
    with contextlib.closing(ShmArena.attach(os.dup(made.fd))) as same:
        assert (same.name, same.slots, same.slot_bytes) == ("test", SLOTS, SLOT_BYTES)
        with ShmReceiver(same).open(sent(ShmSender(made), 3)) as lease:
            assert lease.arrays["features"][2, 3] == 3


def test_a_worker_hands_its_arena_to_no_child(made: ShmArena) -> None:
    fd = os.dup(made.fd)
    os.set_inheritable(fd, True)  # as it comes from the server
    with contextlib.closing(ShmArena.attach(fd)):
        assert not os.get_inheritable(fd)


@pytest.mark.parametrize("offset", [-64, 1 << 40])
def test_a_reference_that_leads_out_of_its_slot_is_refused(made: ShmArena, offset: int) -> None:
    ref = sent(ShmSender(made))
    wrong = Ref(ref.plane, ref.slot, ref.generation, (Layout("x", "<i2", (4,), offset),))
    with pytest.raises(PlaneError, match="does not lie within"):
        ShmReceiver(made).open(wrong)
    ShmReceiver(made).open(ref).release()  # which harms nothing


def test_no_array_of_a_lease_can_be_made_writable(made: ShmArena) -> None:
    with ShmReceiver(made).open(sent(ShmSender(made))) as lease, pytest.raises(ValueError, match="WRITEABLE"):
        lease.arrays["pcm"].flags.writeable = True


def test_slots_are_used_in_turn(made: ShmArena) -> None:
    sender, receiver = ShmSender(made), ShmReceiver(made)
    used = []
    for _ in range(2 * SLOTS):
        ref = sent(sender)
        receiver.open(ref).release()
        used.append(ref.slot)
    assert used == [*range(SLOTS), *range(SLOTS)]


def test_a_reservation_is_a_slot(made: ShmArena) -> None:
    assert reserved(ShmSender(made), 5) == Slot(0, 0, 5)
