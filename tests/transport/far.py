"""Puts one side of a plane into another process: `python -P -m tests.transport.far FD`, and its stand-in here."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, BinaryIO, Self

import msgspec
import numpy as np

from transport import shm
from transport.base import Array, Bits, Full, Inline, Lease, Ref, Slot, Ticket, inline, unpack
from transport.errors import PlaneError, StaleRef
from transport.layout import BITS
from transport.shm import ShmArena, ShmReceiver, ShmSender

_LENGTH = struct.Struct(">I")


class Reserve(msgspec.Struct, tag=True):
    nbytes: int
    timeout_s: float


class Put(msgspec.Struct, tag=True):
    slot: Slot
    payload: Inline


class PutAndDie(msgspec.Struct, tag=True):
    """Be killed in the middle of a put: one array is copied, the next is not."""

    slot: Slot


class Poll(msgspec.Struct, tag=True):
    ticket: Ticket


class Withdraw(msgspec.Struct, tag=True):
    slot: Slot | None
    ref: Ref | None


class Open(msgspec.Struct, tag=True):
    refs: list[Ref]


class Release(msgspec.Struct, tag=True):
    ref: Ref


class LockFor(msgspec.Struct, tag=True):
    """Set how long a slot's lock is waited for."""

    seconds: float


Command = Reserve | Put | PutAndDie | Poll | Withdraw | Open | Release | LockFor


class Answer(msgspec.Struct):
    """What a command gave: the one that fits it, or the error that it raised."""

    slot: Slot | None = None
    full: Full | None = None
    ticket: Ticket | None = None
    yes: bool = False
    opened: list[Inline | None] = []
    error: str = ""
    message: str = ""


_COMMANDS = msgspec.msgpack.Decoder(Command)
_ANSWERS = msgspec.msgpack.Decoder(Answer)


def write(file: BinaryIO, message: Command | Answer) -> None:
    data = msgspec.msgpack.encode(message)
    file.write(_LENGTH.pack(len(data)) + data)
    file.flush()


def read(file: BinaryIO) -> bytes:
    """The next message; nothing when there is none any more."""
    head = file.read(_LENGTH.size)
    return file.read(_LENGTH.unpack(head)[0]) if len(head) == _LENGTH.size else b""


class Deadly(np.ndarray[tuple[int, ...], np.dtype[np.int16]]):
    """An array whose copying kills the process."""

    def __array_function__(
        self,
        func: Callable[..., object],
        types: Iterable[type],
        args: Iterable[Any],  # as numpy declares it
        kwargs: Mapping[str, object],
    ) -> object:
        os.kill(os.getpid(), signal.SIGKILL)
        return NotImplemented


class Side:
    """What the other process does: both sides of its arena, of which a test uses one."""

    def __init__(self, arena: ShmArena) -> None:
        self._sender, self._receiver = ShmSender(arena), ShmReceiver(arena)
        self._leases: dict[Ref, Lease] = {}

    def do(self, command: Command) -> Answer:
        match command:
            case Reserve(nbytes, timeout_s):
                slot = self._sender.reserve(nbytes, timeout_s)
                return Answer(full=slot) if isinstance(slot, Full) else Answer(slot=slot)
            case Put(slot, payload):
                values: dict[str, Array | Bits] = {}
                for block, array in zip(payload.blocks, unpack(payload).values(), strict=True):
                    values[block.name] = Bits(block.dtype, array) if block.dtype in BITS else array
                return Answer(ticket=self._sender.put(slot, values))
            case PutAndDie(slot):
                ones = np.ones(100, np.int16)
                self._sender.put(slot, {"whole": ones, "half": ones.view(Deadly)})
            case Poll(ticket):
                return Answer(yes=self._sender.poll(ticket))
            case Withdraw(slot, ref):
                what = slot or ref
                assert what is not None
                return Answer(yes=self._sender.withdraw(what))
            case Open(refs):
                return self._open(refs)
            case Release(ref):
                if ref in self._leases:
                    self._leases.pop(ref).release()
            case LockFor(seconds):
                shm.LOCK_S = seconds
        return Answer()

    def _open(self, refs: list[Ref]) -> Answer:
        """One reference may raise; several tell which could be opened."""
        if len(refs) == 1:
            lease = self._leases[refs[0]] = self._receiver.open(refs[0])
            return Answer(opened=[inline(lease.arrays)])
        opened: list[Inline | None] = []
        for ref in refs:
            try:
                self._leases[ref] = self._receiver.open(ref)
                opened.append(Inline(()))
            except StaleRef:
                opened.append(None)
        return Answer(opened=opened)


def main() -> None:
    side = Side(ShmArena.attach(int(sys.argv[1])))
    while data := read(sys.stdin.buffer):
        try:
            answer = side.do(_COMMANDS.decode(data))
        except (PlaneError, ValueError) as error:
            answer = Answer(error=type(error).__name__, message=str(error))
        write(sys.stdout.buffer, answer)


class Far:
    """The stand-in for both sides of an arena in another process: see `Sender` and `Receiver`."""

    def __init__(self, arena: ShmArena) -> None:
        self.name, self.slot_bytes = arena.name, arena.slot_bytes
        command = [sys.executable, "-P", "-m", "tests.transport.far", str(arena.fd)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=(arena.fd,), env=environment
        )
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill() if self.process.poll() is None else None

    def reserve(self, nbytes: int, timeout_s: float) -> Slot | Full:
        answer = self.ask(Reserve(nbytes, timeout_s))
        got = answer.slot or answer.full
        assert got is not None
        return got

    def put(self, slot: Slot, arrays: Mapping[str, Array | Bits]) -> Ticket:
        ticket = self.ask(Put(slot, inline(arrays))).ticket
        assert ticket is not None
        return ticket

    def poll(self, ticket: Ticket) -> bool:
        return self.ask(Poll(ticket)).yes

    def withdraw(self, what: Slot | Ref) -> bool:
        is_slot = isinstance(what, Slot)
        return self.ask(Withdraw(what, None) if is_slot else Withdraw(None, what)).yes  # type: ignore[arg-type]  # by is_slot

    def open(self, ref: Ref) -> Lease:
        (payload,) = self.ask(Open([ref])).opened
        assert payload is not None
        return Lease(ref, unpack(payload), lambda ref: self.ask(Release(ref)))

    def ask(self, command: Command) -> Answer:
        """Raises what the command raised there, and `EOFError` when the process died of it."""
        with self._lock:
            self.tell(command)
            return self.hear()

    def tell(self, command: Command) -> None:
        assert self.process.stdin is not None
        write(self.process.stdin, command)  # type: ignore[arg-type]  # a binary file

    def hear(self) -> Answer:
        assert self.process.stdout is not None
        if not (data := read(self.process.stdout)):  # type: ignore[arg-type]  # a binary file
            raise EOFError("the other process is gone")
        answer = _ANSWERS.decode(data)
        if answer.error:
            errors = {"StaleRef": StaleRef, "PlaneError": PlaneError, "ValueError": ValueError}
            raise errors[answer.error](answer.message)
        return answer

    def end(self) -> int:
        """Let the process end by itself: its exit status."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        return self.process.wait()

    def kill(self) -> None:
        self.process.kill()
        self.end()


if __name__ == "__main__":
    main()
