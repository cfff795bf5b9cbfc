"""Tests one edge: in order, bounded, and nothing lost unless it is told to drop."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.chunk import Audio, CallDelta, Caption, Chunk, End, Payload, Reply, StageRole, Tensors, Text
from pipeline.edge import Edge, EdgeFull
from pipeline.spec import EdgeSpec, Policy
from transport.base import inline

REPLY = Reply("s", 1)


def words(bound: int, **bounds: int) -> Edge:
    return Edge(EdgeSpec(source="thinker", port="text", target="talker", bound=bound), **bounds)


def codes(bound: int, policy: Policy = "block", **bounds: int) -> Edge:
    return Edge(EdgeSpec(source="talker", port="codes", target="vocoder", bound=bound, policy=policy), **bounds)


def text(text: str) -> Chunk:
    return Chunk(REPLY, "thinker", 0, Text(text))


def code(number: int) -> Chunk:
    return Chunk(REPLY, "talker", number, Tensors("codes", inline({"codes": np.array([number])})))


def texts(chunks: tuple[Chunk, ...]) -> list[str]:
    return [c.payload.text for c in chunks if isinstance(c.payload, Text)]


def numbers(chunks: tuple[Chunk, ...]) -> list[int]:
    return [c.seq for c in chunks]


def test_text_passes_while_there_is_room_and_is_joined_beyond() -> None:
    edge = words(2)
    assert texts(edge.push(text("a"))) == ["a"]
    assert texts(edge.push(text("b"))) == ["b"]
    assert edge.push(text("c")) == ()
    assert edge.push(text("d")) == ()
    assert edge.waits
    assert texts(edge.taken(1)) == ["cd"]
    assert not edge.waits


def test_the_writer_of_text_never_waits() -> None:
    edge = words(1)
    for word in "abcdefgh":
        edge.push(text(word))
    assert not edge.stalled


def test_other_chunks_wait_one_by_one_and_stall_their_source() -> None:
    edge = codes(2)
    assert [numbers(edge.push(code(n))) for n in range(4)] == [[0], [1], [], []]
    assert edge.stalled
    assert numbers(edge.taken(1)) == [2]
    assert edge.stalled
    assert numbers(edge.taken(3)) == [3]
    assert not edge.stalled


def test_sound_and_its_captions_stall_too() -> None:
    edge = Edge(EdgeSpec(source="talker", port="audio", target="vocoder", bound=1))
    edge.push(Chunk(REPLY, "talker", 0, Caption("a")))
    edge.push(Chunk(REPLY, "talker", 1, Audio(b"\0\0", 24_000)))
    assert edge.stalled


@pytest.mark.parametrize(
    ("source", "payload", "carried"),
    [
        ("talker", Tensors("codes", inline({})), True),
        ("talker", Tensors("pitch", inline({})), False),
        ("thinker", Tensors("codes", inline({})), False),
        ("talker", CallDelta("call_1", "f", "{}"), False),
        ("talker", End(), False),
    ],
)
def test_an_edge_carries_what_leaves_its_source_by_its_port(source: StageRole, payload: Payload, carried: bool) -> None:
    assert codes(1).carries(Chunk(REPLY, source, 0, payload)) == carried


def test_text_that_waits_is_bounded() -> None:
    edge = words(1, characters=10)
    edge.push(text("a"))
    edge.push(text("x" * 10))
    with pytest.raises(EdgeFull, match="11 characters wait for the talker, the bound is 10"):
        edge.push(text("y"))


def test_a_source_that_does_not_wait_when_it_is_told_to_loses_the_job() -> None:
    edge = codes(1, overshoot=2)
    for number in range(4):
        edge.push(code(number))
    with pytest.raises(EdgeFull, match="4 chunks wait for the vocoder, the bound is 3"):
        edge.push(code(4))
    assert numbers(edge.close()) == [1, 2, 3, 4]  # also the one that was too much


def test_the_oldest_of_those_that_wait_makes_room() -> None:
    edge = codes(2, "drop_oldest")
    passed = [numbers(edge.push(code(n))) for n in range(6)]
    assert passed == [[0], [1], [], [], [], []]
    assert numbers(edge.dropped()) == [2, 3]
    assert edge.dropped() == ()
    assert not edge.stalled  # nobody waits where chunks may be lost
    assert numbers(edge.taken(2)) == [4, 5]


def test_what_waits_when_it_is_closed_goes_nowhere() -> None:
    edge = codes(1)
    edge.push(code(0))
    edge.push(code(1))
    assert numbers(edge.close()) == [1]
    assert not edge.waits
    assert not edge.stalled
    assert edge.close() == ()


@given(st.lists(st.one_of(st.text("ab", min_size=1, max_size=3), st.integers(1, 3))), st.integers(1, 4))
def test_the_talker_reads_what_was_written(script: list[str | int], bound: int) -> None:
    edge = words(bound)
    fed: list[Chunk] = []
    taken = 0
    for line in script:
        if isinstance(line, str):
            fed += edge.push(text(line))
        else:
            count = min(line, len(fed) - taken)
            taken += count
            fed += edge.taken(count)
        assert len(fed) - taken <= bound
    fed += edge.taken(len(fed) - taken)
    assert "".join(texts(tuple(fed))) == "".join(line for line in script if isinstance(line, str))
