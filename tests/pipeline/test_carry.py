"""Tests that what lies in a plane is at hand for a step, and that each credit comes back however the step ends."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.carry import Leases, Planes, give_back, refs_of
from pipeline.chunk import AudioPart, Chunk, Prompt, Reply, Segment, Speak, Tensors, Text, TextPart, Think, Transcribe
from transport.base import Inline, Ref, Slot, inline, unpack
from transport.errors import PlaneError
from transport.inproc import InprocPlane

REPLY = Reply("s", 1)
NOWHERE = Ref("nowhere", 0, 0)


def plane(slots: int = 2) -> InprocPlane:
    return InprocPlane("p", slots=slots, slot_bytes=1000)


def put(plane: InprocPlane, number: int = 7) -> Ref:
    slot = plane.reserve(80, 0.0)
    assert isinstance(slot, Slot)
    return plane.put(slot, {"codes": np.full(10, number, np.int64)}).ref


def chunk(ref: Ref) -> Chunk:
    return Chunk(REPLY, "talker", 0, Tensors("codes", ref))


def transcribe(ref: Ref) -> Transcribe:
    return Transcribe(Segment("s", 1, 10), ref, 24_000, final=True)


def test_the_arrays_of_a_chunk_are_at_hand_until_the_step_is_over() -> None:
    p = plane()
    leases = Leases({"p": p})
    opened = leases.open(chunk(put(p)))
    assert isinstance(opened.payload, Tensors)
    assert isinstance(opened.payload.blocks, Inline)
    assert unpack(opened.payload.blocks)["codes"].tolist() == [7] * 10
    assert p.credits == 1
    leases.release()
    assert p.credits == 2
    leases.release()
    assert p.credits == 2


def test_what_rides_inside_the_message_is_left_alone() -> None:
    leases = Leases({})
    within = Chunk(REPLY, "talker", 0, Tensors("codes", inline({"codes": np.zeros(3)})))
    words = Chunk(REPLY, "thinker", 0, Text("a"))
    assert leases.open(within) is within
    assert leases.open(words) is words
    assert leases.open_job(Speak(REPLY)) == Speak(REPLY)


def test_the_sound_of_a_pass_outlives_the_step() -> None:
    p = plane()
    opened = Leases({"p": p}).open_job(transcribe(put(p)))
    assert isinstance(opened, Transcribe)
    assert isinstance(opened.audio, Inline)
    assert p.credits == 2
    assert unpack(opened.audio)["codes"].tolist() == [7] * 10


def test_a_plane_that_ends_elsewhere_is_named() -> None:
    with pytest.raises(PlaneError, match="'nowhere' does not end at this stage"):
        Leases({}).open(chunk(NOWHERE))


def test_all_that_refers_to_slots_is_known() -> None:
    heard = AudioPart("item_1", "user", NOWHERE, 24_000)
    within = AudioPart("item_2", "user", inline({}), 24_000)
    prompt = Prompt((TextPart("item_0", "system", "x"), heard, within))
    assert refs_of(Think(REPLY, prompt, 10)) == (NOWHERE,)
    assert refs_of(chunk(NOWHERE)) == (NOWHERE,)
    assert refs_of(transcribe(NOWHERE)) == (NOWHERE,)
    assert refs_of(Speak(REPLY)) == ()
    assert refs_of(Chunk(REPLY, "thinker", 0, Text("a"))) == ()


@pytest.mark.parametrize("here", ["sender", "receiver"])
def test_what_nobody_will_see_is_given_back_from_either_end(here: str) -> None:
    p = plane()
    planes = Planes(senders={"p": p}) if here == "sender" else Planes(receivers={"p": p})
    ref = put(p)
    give_back(planes, chunk(ref))
    assert p.credits == 2
    put(p)
    put(p)
    give_back(planes, chunk(ref))  # too late is no error, and takes nothing from whoever is there now
    assert p.credits == 0


def test_what_is_open_is_given_back_by_its_lease_alone() -> None:
    p = plane()
    leases = Leases({"p": p})
    ref = put(p)
    leases.open(chunk(ref))
    give_back(Planes(receivers={"p": p}), chunk(ref))
    assert p.credits == 1
    leases.release()
    assert p.credits == 2


def test_a_reference_that_can_not_be_given_back_does_not_end_the_stage(caplog: pytest.LogCaptureFixture) -> None:
    give_back(Planes(), chunk(NOWHERE))
    assert "can't be given back" in caplog.text
