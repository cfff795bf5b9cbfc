"""Tests how what a stage gives goes out: small arrays inside, large ones by a plane, as soon as that has room."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.carry import INLINE_BYTES
from pipeline.chunk import Audio, Chunk, End, Payload, Reply, Tensors, Text
from pipeline.outgoing import INSIDE_BYTES, PATIENCE_S, ROOM_S, Outgoing
from transport.base import Inline, Ref, Slot, inline
from transport.inproc import InprocPlane

A, B = Reply("s", 1), Reply("t", 1)
LARGE = INLINE_BYTES + 1


def plane(slots: int = 1, slot_bytes: int = 1 << 20) -> InprocPlane:
    return InprocPlane("p", slots=slots, slot_bytes=slot_bytes)


def outgoing(p: InprocPlane, most_bytes: int | None = None) -> Outgoing:
    return Outgoing({"p": p}, lambda fence, port: "p" if port == "codes" else None, most_bytes=most_bytes)


def tensors(nbytes: int, fence: Reply = A, port: str = "codes") -> Chunk:
    return Chunk(fence, "talker", 0, Tensors(port, inline({"codes": np.zeros(nbytes, np.uint8)})))


def ends(fence: Reply = A) -> Chunk:
    return Chunk(fence, "talker", 1, End(), last=True)


def where(chunk: Chunk) -> type:
    assert isinstance(chunk.payload, Tensors)
    return type(chunk.payload.blocks)


def take(p: InprocPlane, chunk: Chunk) -> None:
    assert isinstance(chunk.payload, Tensors)
    assert isinstance(chunk.payload.blocks, Ref)
    p.open(chunk.payload.blocks).release()


def test_large_arrays_go_by_the_plane_and_small_ones_inside() -> None:
    p = plane()
    gave = outgoing(p).give([tensors(LARGE), tensors(INLINE_BYTES), tensors(LARGE, port="pitch"), ends()], 0.0)
    assert [where(chunk) for chunk in gave.chunks[:3]] == [Ref, Inline, Inline]
    assert gave.chunks[3] == ends()
    assert p.credits == 0
    assert not gave.refused


def test_what_finds_no_room_is_kept_in_order_until_it_does() -> None:
    p = plane()
    out = outgoing(p)
    gave = out.give([tensors(LARGE), tensors(LARGE), tensors(8), ends()], 0.0)
    assert len(gave.chunks) == 1
    assert out.kept == {A}
    assert out.retry(lambda fence: True, PATIENCE_S / 2).chunks == []
    take(p, gave.chunks[0])
    later = out.retry(lambda fence: True, PATIENCE_S / 2)
    assert [type(chunk.payload) for chunk in later.chunks] == [Tensors, Tensors, End]
    assert later.free == {A}
    assert out.kept == set()


def test_one_job_without_room_does_not_hold_up_the_others() -> None:
    p = plane()
    out = outgoing(p)
    first = out.give([tensors(LARGE)], 0.0)
    gave = out.give([tensors(LARGE), tensors(8, B), ends(B)], 0.0)
    assert [chunk.fence for chunk in gave.chunks] == [B, B]
    assert out.kept == {A}
    take(p, first.chunks[0])
    assert len(out.retry(lambda fence: True, 0.0).chunks) == 1


def test_what_nobody_waits_for_any_more_is_let_go_of() -> None:
    p = plane()
    out = outgoing(p)
    out.give([tensors(LARGE), tensors(LARGE)], 0.0)
    gave = out.retry(lambda fence: False, 0.0)
    assert gave.chunks == []
    assert gave.free == {A}
    assert out.kept == set()
    assert p.credits == 0  # the one that went out is not ours any more


def test_a_reply_does_not_wait_long_for_the_slots_of_others() -> None:
    p = plane()
    out = outgoing(p)
    out.give([tensors(LARGE, B)], 0.0)
    out.give([tensors(LARGE), tensors(LARGE), ends()], 0.0)
    gave = out.retry(lambda fence: True, PATIENCE_S)
    assert [where(chunk) for chunk in gave.chunks[:2]] == [Inline, Inline]
    assert gave.free == {A}


def test_what_is_too_large_for_a_message_waits_on_and_not_for_ever() -> None:
    huge = INSIDE_BYTES + 1
    p = plane(slot_bytes=huge)
    out = outgoing(p)
    first, *_ = out.give([tensors(huge), tensors(huge), tensors(huge)], 0.0).chunks
    assert not out.retry(lambda fence: True, ROOM_S - 0.1).refused
    take(p, first)
    assert len(out.retry(lambda fence: True, ROOM_S - 0.1).chunks) == 1
    assert not out.retry(lambda fence: True, ROOM_S + 1.0).refused  # it came on since
    gave = out.retry(lambda fence: True, 2 * ROOM_S)
    assert "nothing came free on its way to the next stage" in gave.refused[A]
    assert out.kept == set()


def test_arrays_too_large_for_a_slot_end_their_job_alone() -> None:
    p = plane(slots=3, slot_bytes=20_000)
    gave = outgoing(p).give([tensors(8), tensors(30_000), tensors(8), tensors(18_000, B)], 0.0)
    assert "30000 bytes asked, a slot takes 0 to 20000: give its edge larger slots (slot_bytes)" in gave.refused[A]
    assert [chunk.fence for chunk in gave.chunks] == [A, B]
    assert p.credits == 2


@pytest.mark.parametrize(
    "payload", [Audio(bytes(900), 24_000), Tensors("pitch", inline({"x": np.zeros(900, np.uint8)}))]
)
def test_what_rides_inside_messages_to_another_process_is_bounded_by_the_step(payload: Payload) -> None:
    out = outgoing(plane(), most_bytes=2000)
    chunks = [Chunk(fence, "talker", 0, payload) for fence in (A, A, B)]
    gave = out.give(chunks, 0.0)
    assert [chunk.fence for chunk in gave.chunks] == [A, A]
    assert "2700 bytes of one step are too much to ride inside messages, which take 2000" in gave.refused[B]
    assert not out.give(chunks[:2], 0.0).refused  # the next step begins anew
    assert not outgoing(plane()).give(chunks, 0.0).refused  # threads hand on references


def test_a_slot_that_is_reserved_by_somebody_else_is_no_error() -> None:
    p = plane()
    slot = p.reserve(10, 0.0)
    assert isinstance(slot, Slot)
    out = outgoing(p)
    assert out.give([Chunk(A, "talker", 0, Text("a")), tensors(LARGE)], 0.0).chunks == [
        Chunk(A, "talker", 0, Text("a"))
    ]
    assert p.withdraw(slot)
    assert len(out.retry(lambda fence: True, 0.0).chunks) == 1
