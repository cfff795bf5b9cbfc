"""Tests that a stream of events is split the same however its bytes arrive."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.openai_api.sse import MAX_EVENT_BYTES, EventSplitter, EventTooLong

LINE_ENDS = st.sampled_from([b"\n", b"\r", b"\r\n"])
DATA = st.text(st.characters(blacklist_characters="\r\n", blacklist_categories=["Cs"]), max_size=12)


@given(
    st.lists(st.lists(DATA, min_size=1, max_size=3), max_size=5),
    LINE_ENDS,
    st.data(),
)
def test_events_do_not_depend_on_how_the_bytes_arrive(events: list[list[str]], end: bytes, draw: st.DataObject) -> None:
    stream = b""
    for lines in events:
        stream += b": comment" + end + b"id: 1" + end
        stream += b"".join(b"data: " + line.encode() + end for line in lines) + end
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    splitter, taken = EventSplitter(), []
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        taken += splitter.feed(stream[start:stop])
    assert taken == ["\n".join(lines).encode() for lines in events]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_an_event_of_several_lines_may_come_byte_by_byte(end: bytes) -> None:
    splitter, taken = EventSplitter(), []
    for byte in end.join([b"data: a", b"data:b", b"", b"data: c", b"", b""]):
        taken += splitter.feed(bytes([byte]))
    assert taken == [b"a\nb", b"c"]


def test_an_event_has_a_bound() -> None:
    splitter = EventSplitter()
    line = b"data: " + b"x" * (MAX_EVENT_BYTES // 2) + b"\n"
    assert splitter.feed(line) == []
    with pytest.raises(EventTooLong):
        splitter.feed(line + line)
