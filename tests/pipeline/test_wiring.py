"""Tests which planes are laid between replicas, who holds their ends, and what becomes of what a dead one held."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from pipeline.chunk import StageRole
from pipeline.errors import ConfigError
from pipeline.graph import Graph, complete
from pipeline.spec import SESSION, EdgeSpec, PipelineSpec, Placement, Source, Transport
from pipeline.wiring import LOCAL_SLOTS, SHARED_SLOTS, Where, Wiring
from tests.pipeline.scenes import coded, load_family
from transport.base import Ref, Slot
from transport.inproc import InprocPlane
from transport.shm import ShmArena

ROLES: tuple[StageRole, ...] = ("recognizer", "thinker", "talker", "vocoder")


def graph(spec: PipelineSpec) -> Graph:
    return complete(spec, {role: load_family(stage.family) for role, stage in spec.stages.items()})


def where(placements: dict[StageRole, Placement] | None = None, count: int = 1) -> Where:
    """Replicas of each role, inline where nothing else is said."""
    given = placements or {}
    found: dict[tuple[Source, int], Placement] = {(SESSION, 0): "inline"}
    for role in ROLES:
        found |= {(role, number): given.get(role, "inline") for number in range(count)}
    return found


def codes_edge(built: Graph) -> EdgeSpec:
    return next(edge for edge in built.edges if edge.port == "codes")


def names(wiring: Wiring) -> set[str]:
    return set(wiring._planes)


def put(wiring: Wiring, plane: str) -> Ref:
    sender = wiring.sender(plane)
    slot = sender.reserve(8, 0.0)
    assert isinstance(slot, Slot)
    return sender.put(slot, {"codes": np.zeros(1)}).ref


CODES, SOUND = "talker#0.codes>vocoder#0", "session.audio>recognizer#0"


def test_words_need_no_plane_and_sound_and_codes_have_one() -> None:
    built = graph(coded())
    wiring = Wiring(built)
    wiring.lay(where())
    assert names(wiring) == {SOUND, CODES}
    assert wiring.plane(codes_edge(built), 0, 0) == CODES
    assert wiring.plane(codes_edge(built), 0, 1) is None
    (text,) = built.leaving("thinker")
    assert wiring.plane(text, 0, 0) is None
    wiring.close()


@pytest.mark.parametrize(
    ("transport", "talker", "vocoder", "kind", "slots"),
    [
        ("auto", "inline", "inline", InprocPlane, LOCAL_SLOTS),
        ("auto", "process", "inline", ShmArena, SHARED_SLOTS),
        ("auto", "inline", "process", ShmArena, SHARED_SLOTS),
        ("auto", "process", "process", ShmArena, SHARED_SLOTS),
        ("shm", "inline", "inline", ShmArena, SHARED_SLOTS),
        ("inproc", "inline", "inline", InprocPlane, LOCAL_SLOTS),
        ("inline", "process", "process", None, 0),
    ],
)
def test_a_plane_is_chosen_by_where_its_ends_are(
    transport: Transport, talker: Placement, vocoder: Placement, kind: type | None, slots: int
) -> None:
    wiring = Wiring(graph(coded(transport=transport)))
    wiring.lay(where({"talker": talker, "vocoder": vocoder}))
    plane = wiring._planes.get(CODES)
    if kind is None:
        assert plane is None
    else:
        assert plane is not None
        whole = plane.arena or plane.sender
        assert isinstance(whole, kind)
        assert isinstance(whole, InprocPlane | ShmArena)
        assert whole.credits == slots
    wiring.close()


def test_each_pair_of_replicas_has_a_plane_of_its_own() -> None:
    wiring = Wiring(graph(coded()))
    wiring.lay(where(count=2))
    pairs = {f"talker#{a}.codes>vocoder#{b}" for a in range(2) for b in range(2)}
    assert names(wiring) == pairs | {"session.audio>recognizer#0", "session.audio>recognizer#1"}
    ends = wiring.ends("talker", 1)
    assert set(ends.senders) == {f"talker#1.codes>vocoder#{b}" for b in range(2)}
    assert not ends.receivers
    assert set(wiring.ends("vocoder", 0).receivers) == {f"talker#{a}.codes>vocoder#0" for a in range(2)}
    assert set(wiring.ends("recognizer", 1).receivers) == {"session.audio>recognizer#1"}
    wiring.close()


def test_a_process_inherits_the_ends_of_its_own_planes() -> None:
    wiring = Wiring(graph(coded()))
    wiring.lay(where({"talker": "process"}, count=2))
    arenas = {name: plane.arena for name, plane in wiring._planes.items() if plane.arena is not None}
    inherited = wiring.inherited("talker", 0)
    assert {end.fd for end in inherited} == {arenas[f"talker#0.codes>vocoder#{b}"].fd for b in range(2)}
    assert all(end.sends for end in inherited)
    (first, second) = wiring.inherited("vocoder", 1)
    assert not first.sends
    assert not second.sends
    assert wiring.inherited("recognizer", 0) == ()
    wiring.close()


def test_later_planes_are_laid_beside_those_that_are_there() -> None:
    """The batch lane: what joins it to replicas that run already must have been there when those were spawned."""
    wiring = Wiring(graph(coded()))
    wiring.lay(where())
    before = dict(wiring._planes)
    mixed: Where = {
        (SESSION, 0): "inline",
        ("talker", 0): "inline",
        ("vocoder", 1): "process",
        ("recognizer", 1): "process",
    }
    wiring.lay(mixed, beside=[("talker", 0)])
    assert names(wiring) == {*before, "talker#0.codes>vocoder#1"}
    wiring.lay(mixed)
    assert names(wiring) == {*before, "talker#0.codes>vocoder#1", "session.audio>recognizer#1"}
    assert all(wiring._planes[name] is plane for name, plane in before.items())
    wiring.close()


def test_too_little_memory_is_told_by_the_edge() -> None:
    wiring = Wiring(graph(coded(transport="shm", slots=4096, slot_bytes=1 << 40)))
    with pytest.raises(ConfigError, match=r"shared memory are not to be had.*fewer slots, or smaller") as refused:
        wiring.lay(where())
    assert refused.value.path == "edges.talker.codes -> vocoder"
    wiring.close()


def test_what_was_put_can_be_taken_back_and_unknown_planes_are_none_of_ours() -> None:
    wiring = Wiring(graph(coded(slots=1)))
    wiring.lay(where())
    ref = put(wiring, CODES)
    wiring.withdraw(ref)
    wiring.withdraw(ref)
    wiring.withdraw(Ref("nowhere", 0, 0))
    again = put(wiring, CODES)
    assert again.generation == ref.generation + 1
    wiring.close()


def test_a_receiver_that_is_lost_leaves_what_was_put_for_the_next_one() -> None:
    wiring = Wiring(graph(coded("process", slots=4)))
    wiring.lay(where({"vocoder": "process"}))
    plane = wiring._planes[CODES]
    assert plane.arena is not None
    lying, read = put(wiring, CODES), put(wiring, CODES)
    lease = plane.receiver.open(read)
    give_back = wiring.lost("vocoder", 0)
    following = put(wiring, CODES)
    assert plane.arena.credits == 1
    give_back()
    assert plane.arena.credits == 3
    plane.receiver.open(following).release()
    lease.release()  # the dead one says so late
    wiring.withdraw(lying)
    assert plane.arena.credits == 4
    wiring.close()


def test_a_sender_that_is_lost_leaves_nothing() -> None:
    wiring = Wiring(graph(coded("process", slots=3)))
    wiring.lay(where({"talker": "process"}))
    plane = wiring._planes[CODES]
    assert plane.arena is not None
    put(wiring, CODES)
    assert isinstance(plane.sender.reserve(8, 0.0), Slot)
    lease = plane.receiver.open(put(wiring, CODES))
    wiring.lost("talker", 0)()
    assert plane.arena.credits == 2  # one is still read
    lease.release()
    assert plane.arena.credits == 3
    wiring.close()


def test_the_loss_of_another_replica_touches_nothing() -> None:
    wiring = Wiring(graph(coded("process", slots=2)))
    wiring.lay(where({"talker": "process", "vocoder": "process"}, count=2))
    put(wiring, CODES)
    wiring.lost("talker", 1)()
    wiring.lost("vocoder", 1)()
    plane = wiring._planes[CODES]
    assert plane.arena is not None
    assert plane.arena.credits == 1
    wiring.close()
    gc.collect()
