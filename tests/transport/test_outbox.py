"""Tests the order in which messages leave, and the protocol over it, without a socket."""

from __future__ import annotations

from collections import deque
from typing import Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transport import line
from transport.errors import ControlError
from transport.line import CONTROL, DATA, OWN, Beat, Hello, Line, Taken, frame
from transport.outbox import MESSAGE_BYTES, Outbox, weight

WINDOW = 3
MOST_BYTES = 20 * (MESSAGE_BYTES + 10)

Op = Literal["control", "data", "send", "take"]


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    number: int


class Blob(msgspec.Struct, frozen=True, tag="blob"):
    data: bytes


Message = Ping | Blob
decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


class Run:
    """An outbox, a wire and a receiver, with everything that was pushed in `pushed`: its lane by its number."""

    def __init__(self) -> None:
        self.outbox = Outbox(window=WINDOW, most_bytes=MOST_BYTES)
        self.pushed: list[bool] = []
        self.wire: deque[int] = deque()
        self.waiting: set[int] = set()
        self.arrived: list[int] = []

    def push(self, data: bool) -> None:
        number = len(self.pushed)
        content = b"%d" % number
        room = MOST_BYTES - self.outbox.unread_bytes
        assert self.outbox.push(content, data=data) == (weight(content) <= room)
        if weight(content) <= room:
            self.pushed.append(data)
            self.waiting.add(number)

    def send(self) -> bool:
        head = self.outbox.head()
        if head is None:
            return False
        self.outbox.sent()
        number = int(head)
        if self.pushed[number]:
            assert all(self.pushed[other] for other in self.waiting), "data went out while control waited"
        self.waiting.remove(number)
        self.wire.append(number)
        assert sum(self.pushed[one] for one in self.wire) <= WINDOW, "more data on the wire than credits"
        return True

    def take(self) -> bool:
        if not self.wire:
            return False
        number = self.wire.popleft()
        self.arrived.append(number)
        self.outbox.taken(int(self.pushed[number]), weight(b"%d" % number))
        return True


@given(st.lists(st.sampled_from(("control", "data", "data", "send", "take"))))
def test_lanes_keep_their_order_and_their_bounds_and_lose_nothing(ops: list[Op]) -> None:
    run = Run()
    for op in ops:
        match op:
            case "control" | "data":
                run.push(op == "data")
            case "send":
                run.send()
            case "take":
                run.take()
    while run.send() or run.take():
        pass
    assert sorted(run.arrived) == list(range(len(run.pushed))), "something was lost, or came twice"
    for lane in (True, False):
        of_lane = [one for one in run.arrived if run.pushed[one] == lane]
        assert of_lane == sorted(of_lane)
    place = {number: at for at, number in enumerate(run.arrived)}
    for control in (one for one in run.arrived if not run.pushed[one]):
        assert all(place[control] < place[later] for later in range(control + 1, len(run.pushed)))
    assert run.outbox.unread_bytes == 0


def test_control_overtakes_all_data_that_is_not_on_the_wire() -> None:
    outbox = Outbox(window=2)
    for number in range(5):
        outbox.push(b"%d" % number, data=True)
    for _ in range(2):
        outbox.sent()
    assert outbox.head() is None, "it sends data without a credit"
    outbox.push(b"stop", data=False)
    assert outbox.head() == b"stop"
    outbox.sent()
    assert outbox.head() is None
    outbox.taken(1, weight(b"0"))
    assert outbox.head() == b"2"


@pytest.mark.parametrize(("data", "nbytes"), [(2, 0), (0, 10_000), (-1, 0), (0, -1)])
def test_credits_that_were_never_out_are_refused(data: int, nbytes: int) -> None:
    outbox = Outbox()
    outbox.push(b"one", data=True)
    outbox.sent()
    with pytest.raises(ControlError, match=r"off the wire, where there were 1 and"):
        outbox.taken(data, nbytes)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("left", "right", "go")),
            st.booleans(),
            st.one_of(st.just(1), st.integers(1, MOST_BYTES // 3)),
        )
    )
)
def test_two_ends_never_come_to_a_standstill(ops: list[tuple[str, bool, int]]) -> None:
    """Whatever was sent arrives, and once all is read there is room again for the largest message."""
    ends = {side: Line(decoder, window=WINDOW, most_bytes=MOST_BYTES) for side in ("left", "right")}
    sent: dict[str, list[Message]] = {"left": [], "right": []}
    got: dict[str, list[Message]] = {"left": [], "right": []}

    def pass_one(side: str, other: str) -> bool:
        head = ends[side].head()
        if head is None:
            return False
        ends[side].sent()
        message = ends[other].received(bytes(head))
        if message is not None:
            got[other].append(message)
        return True

    def settle() -> None:
        while pass_one("left", "right") or pass_one("right", "left"):
            pass

    for side, data, size in ops:
        if side == "go":
            settle()
        elif ends[side].push(Blob(bytes(size)), data=data):
            sent[side].append(Blob(bytes(size)))
    settle()
    for side, other in (("left", "right"), ("right", "left")):
        assert sorted(got[other], key=lambda one: len(one.data)) == sorted(sent[side], key=lambda one: len(one.data))  # type: ignore[union-attr]  # only blobs were sent
        assert ends[side].push(Blob(bytes(MOST_BYTES // 2)), data=True)
        settle()
        assert len(got[other]) == len(sent[side]) + 1


def greeted() -> Line[Message]:
    end = Line(decoder)
    end.received(bytes(frame(OWN, Hello(line.VERSION))))
    return end


def test_the_greeting_comes_first_and_tells_the_version() -> None:
    end = Line(decoder)
    end.push(Ping(1), data=False)
    assert end.head() == frame(OWN, Hello(line.VERSION))
    with pytest.raises(ControlError, match=rf"version 99.*{line.VERSION}: install the same release"):
        end.received(bytes(frame(OWN, Hello(99))))


@pytest.mark.parametrize(
    ("arrived", "why"),
    [
        (b"", "of 0 bytes came"),
        (b"\x09", "of kind 9"),
        (bytes((CONTROL,)) + b"\xc1", "is no message of this connection"),
        (bytes((OWN,)) + b"\xc1", "is no message of this connection"),
        (bytes(frame(DATA, Taken(1, 1))), "is no message of this connection"),
        (bytes(frame(OWN, Hello(line.VERSION))), "expected one Hello, and that first"),
        (bytes(frame(OWN, Taken(1, 300))), "off the wire"),
    ],
)
def test_what_is_no_message_is_refused(arrived: bytes, why: str) -> None:
    with pytest.raises(ControlError, match=why):
        greeted().received(arrived)


@pytest.mark.parametrize("early", [frame(CONTROL, Ping(1)), frame(OWN, Beat()), frame(OWN, Taken(0, 0))])
def test_nothing_is_taken_before_the_greeting(early: bytearray) -> None:
    with pytest.raises(ControlError, match="first"):
        Line(decoder).received(bytes(early))


def test_a_message_over_the_bound_is_refused_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "MAX_MESSAGE_BYTES", 100)
    with pytest.raises(ControlError, match=r"a Blob of \d+ bytes is over the bound of 100"):
        Line(decoder).push(Blob(bytes(101)), data=True)
    with pytest.raises(ControlError, match="a frame of 102 bytes came; expected 1 to 101"):
        greeted().received(bytes(102))


def test_beats_do_not_pile_up() -> None:
    end = greeted()
    end.sent()
    for _ in range(5):
        end.beat()
    assert end.head() == frame(OWN, Beat())
    end.sent()
    assert end.head() is None
