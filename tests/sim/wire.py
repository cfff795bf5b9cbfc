"""Is the connection between a host and its stage: messages by reference, or the real protocol on a slow wire."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from random import Random
from typing import Generic, Protocol, TypeVar

import msgspec

from pipeline.message import Emitted, FromWorker, Report, ToWorker, from_worker, to_worker
from pipeline.scheduler import Fed, Request
from tests.sim.clock import Clock, Timer
from tests.sim.network import Line
from tests.sim.scenario import Network
from tests.sim.works import Manners
from transport import line as protocol
from transport.line import CONTROL, DATA

PIPE = Network(0.0002, 0.0002, 0.0, 0.0)
HIGH_WATER = 256
"""Frames that a socket takes over and the other end has not read."""
NOTICE_S = 0.002
"""The end of a process is seen within so long; what is still on the wire then is lost."""

In = TypeVar("In")
Take = Callable[[ToWorker], None]
Told = Callable[[FromWorker], None]


class Wire(Protocol):
    """What lies between the host of a stage and one life of the stage."""

    @property
    def room(self) -> bool:
        """Whether a step may begin: the host reads what the stage says."""

    def ask(self, request: Request) -> bool:
        """From the host to the stage; false when the stage leaves too much unread."""

    def tell(self, report: Report) -> bool:
        """From the stage to the host; false when the host leaves too much unread."""

    def reads(self, reads: bool) -> None:
        """Whether the stage can read what comes."""

    def end(self, then: Callable[[], None]) -> None:
        """The stage is dead; `then` is called where the host sees it, after the last that it hears."""

    def check(self) -> None:
        """What is bounded is within its bound."""


class Direct:
    """Two threads of one process: nothing is encoded, bounded or lost."""

    room = True

    def __init__(self, clock: Clock, rng: Random, take: Take, told: Told) -> None:
        self._told = told
        self._in: Line[Request] = Line(clock, rng, PIPE, take)
        self._out: Line[Report | Callable[[], None]] = Line(clock, rng, PIPE, self._arrive)

    def ask(self, request: Request) -> bool:
        self._in.send(request)
        return True

    def tell(self, report: Report) -> bool:
        self._out.send(report)
        return True

    def reads(self, reads: bool) -> None:
        """It always can."""

    def end(self, then: Callable[[], None]) -> None:
        self._in.cut()
        self._out.send(then)

    def check(self) -> None:
        """It has no bounds."""

    def _arrive(self, told: Report | Callable[[], None]) -> None:
        if callable(told):
            told()
        else:
            self._told(told)


class _Peer(Protocol):
    """The other end, as far as an end must know it."""

    def arrive(self, frame: bytes) -> None: ...
    def taken(self, frame: bytes) -> msgspec.Struct | None: ...


class _End(Generic[In]):
    """One end of a connection: the real protocol, and a reader who may be busy."""

    peer: _Peer

    def __init__(
        self,
        clock: Clock,
        rng: Random,
        manners: Manners,
        decoder: msgspec.msgpack.Decoder[In],
        take: Callable[[In], None],
        met: Counter[str],
    ) -> None:
        self._clock, self._rng, self._manners, self._take, self._met = clock, rng, manners, take, met
        self.line = protocol.Line(decoder, window=manners.window, most_bytes=manners.most_bytes)
        self._wire: Line[bytes] = Line(clock, rng, Network(manners.delay_s, manners.jitter_s, 0, 0), self._hand_over)
        self._sent: dict[int, deque[msgspec.Struct]] = {CONTROL: deque(), DATA: deque()}  # and not taken by the peer
        self._waiting = {CONTROL: 0, DATA: 0}
        self._on_wire = 0
        self._inbox: deque[bytes] = deque()
        self._busy: Timer | None = None
        self._reads = self._lives = True

    def push(self, message: msgspec.Struct, *, data: bool) -> bool:
        if not self.line.push(message, data=data):
            self._met["left unread"] += 1
            return False
        lane = DATA if data else CONTROL
        self._sent[lane].append(message)
        self._waiting[lane] += 1
        self.flush()
        return True

    def flush(self) -> None:
        """Put onto the wire what may go there."""
        while self._lives and self._on_wire < HIGH_WATER and (frame := self.line.head()) is not None:
            lane = frame[0]
            if lane in self._waiting:
                self._waiting[lane] -= 1
                assert lane == CONTROL or not self._waiting[CONTROL], "data goes out while control waits"
            self.line.sent()
            self._on_wire += 1
            self._wire.send(bytes(frame))
        if self._waiting[DATA]:
            self._met["out of credits"] += 1

    def reads(self, reads: bool) -> None:
        """Whether it can read."""
        self._reads = reads
        if reads and self._busy is None:
            self.read()

    def die(self) -> None:
        """It says and takes nothing any more; what it said last is on its way."""
        self._lives = self._reads = False
        if self._busy is not None:
            self._busy.cancel()

    def close(self) -> None:
        """Nothing of it arrives any more."""
        self._wire.cut()

    def read(self) -> None:
        """Take all that has come."""
        self._busy = None
        while self._inbox and self._reads:
            frame = self._inbox.popleft()
            message = self.line.received(frame)
            expected = self.peer.taken(frame)
            self.flush()
            if message is not None:
                _same(message, expected)
                self._take(message)

    # ---- for the peer ---------------------------------------------------------------------------------------------

    def arrive(self, frame: bytes) -> None:
        self._inbox.append(frame)
        if self._busy is None and self._reads:
            if self._manners.busy and self._rng.random() < self._manners.busy:
                self._busy = self._clock.call_later(self._rng.uniform(0, self._manners.busy_s), self.read)
            else:
                self.read()

    def taken(self, frame: bytes) -> msgspec.Struct | None:
        """The peer took a frame off the wire; gives the message that should be in it."""
        self._on_wire -= 1
        if self._on_wire == HIGH_WATER - 1:
            self.flush()
        lane = self._sent.get(frame[0])
        return lane.popleft() if lane is not None else None

    def _hand_over(self, frame: bytes) -> None:
        self.peer.arrive(frame)

    def check(self) -> None:
        assert self.line.unread_bytes <= self._manners.most_bytes, "more is unread than the bound"
        on_wire = len(self._sent[DATA]) - self._waiting[DATA]
        assert on_wire <= self._manners.window, f"{on_wire} data messages are on the wire"


def _same(message: object, expected: object) -> None:
    assert message == expected, f"{message} came, next in its lane was {expected}"


class Connection:
    """The host's end, the stage's end, and the wire between them. `roomy` is called when a step may begin again."""

    def __init__(
        self,
        clock: Clock,
        rng: Random,
        manners: Manners,
        take: Take,
        told: Told,
        roomy: Callable[[], None],
        met: Counter[str],
    ) -> None:
        self._clock, self._rng, self._roomy = clock, rng, roomy
        self._room_bytes, self._locks = manners.room_bytes, manners.locks
        self._host = _End(clock, rng, manners, from_worker, told, met)
        self._stage = _End(clock, rng, manners, to_worker, take, met)
        self._host.peer, self._stage.peer = self._stage, self
        self._host.flush()
        self._stage.flush()

    @property
    def room(self) -> bool:
        return self._stage.line.unread_bytes <= self._room_bytes

    def ask(self, request: Request) -> bool:
        return self._host.push(request, data=isinstance(request, Fed))

    def tell(self, report: Report) -> bool:
        return self._stage.push(report, data=isinstance(report, Emitted))

    def reads(self, reads: bool) -> None:
        if self._locks:
            self._stage.reads(reads)

    def end(self, then: Callable[[], None]) -> None:
        self._stage.die()
        self._clock.call_later(self._rng.uniform(0.0, NOTICE_S), self._noticed, then)

    def _noticed(self, then: Callable[[], None]) -> None:
        """The host reads what has come, and no more."""
        self._stage.close()
        self._host.reads(True)
        self._host.read()
        self._host.die()
        self._host.close()
        then()

    # ---- the host's end, as the stage's end sees it ---------------------------------------------------------------

    def arrive(self, frame: bytes) -> None:
        self._host.arrive(frame)

    def taken(self, frame: bytes) -> msgspec.Struct | None:
        """The stage read something; when that says that the host has read, there is room again."""
        expected = self._host.taken(frame)
        if expected is None and self.room:
            self._roomy()
        return expected

    def check(self) -> None:
        self._host.check()
        self._stage.check()
