"""Tests the edge from a thinker to a talker: in order, nothing lost, bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.chunk import CallDelta, Chunk, End, Failed, Payload, Reply, Text
from pipeline.edge import Edge, EdgeFull

REPLY = Reply("s", 1)


def chunk(payload: Payload) -> Chunk:
    return Chunk(REPLY, "thinker", 0, payload, last=isinstance(payload, End | Failed))


def texts(chunks: tuple[Chunk, ...]) -> list[str]:
    return [c.payload.text for c in chunks if isinstance(c.payload, Text)]


def test_text_passes_while_there_is_room_and_is_joined_beyond() -> None:
    edge = Edge(REPLY, window=2)
    assert texts(edge.push(chunk(Text("a")))) == ["a"]
    assert texts(edge.push(chunk(Text("b")))) == ["b"]
    assert edge.push(chunk(Text("c"))) == ()
    assert edge.push(chunk(Text("d"))) == ()
    assert texts(edge.taken(1)) == ["cd"]


def test_the_end_comes_after_all_text() -> None:
    edge = Edge(REPLY, window=1)
    edge.push(chunk(Text("a")))
    edge.push(chunk(Text("b")))
    assert edge.push(chunk(End())) == ()
    assert [c.payload for c in edge.taken(1)] == [Text("b"), End()]


def test_what_is_not_for_speaking_is_passed_over() -> None:
    assert Edge(REPLY).push(chunk(CallDelta("call_1", "f", "{}"))) == ()


def test_it_is_bounded() -> None:
    edge = Edge(REPLY, window=1, characters=10)
    edge.push(chunk(Text("a")))
    edge.push(chunk(Text("x" * 10)))
    with pytest.raises(EdgeFull, match="bound is 10"):
        edge.push(chunk(Text("y")))


@given(st.lists(st.one_of(st.text("ab", min_size=1, max_size=3), st.integers(1, 3))), st.integers(1, 4))
def test_the_talker_reads_what_was_written(script: list[str | int], window: int) -> None:
    edge = Edge(REPLY, window=window)
    fed: list[Chunk] = []
    taken = 0
    for line in script:
        if isinstance(line, str):
            fed += edge.push(chunk(Text(line)))
        else:
            count = min(line, len(fed) - taken)
            taken += count
            fed += edge.taken(count)
        assert len(fed) - taken <= window
    fed += edge.push(chunk(End()))
    fed += edge.taken(len(fed) - taken)
    assert "".join(texts(tuple(fed))) == "".join(line for line in script if isinstance(line, str))
    assert [c.last for c in fed] == [False] * (len(fed) - 1) + [True]
    assert [c.seq for c in fed] == list(range(len(fed)))
