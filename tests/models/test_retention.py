"""Tests what of a prompt that is too long is kept: instructions, the newest, and no half of a call."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.openai_api.window import AGAIN_SHARE, PART_TOKENS, Window
from models.runtime.retention import fit
from pipeline.chunk import CallPart, Part, Prompt, Reply, ResultPart, Retention, TextPart, Think

HALF = Retention(0.5)


def turns(count: int) -> list[Part]:
    """Instructions, and so many messages."""
    said = [TextPart(str(n), "user" if n % 2 else "assistant", "x" * 30) for n in range(count)]
    return [TextPart("instructions", "system", "Be brief."), *said]


def test_f31_what_fits_is_kept_whole() -> None:
    assert fit(turns(9), [10] * 10, 100, HALF) == list(range(10))


def test_f31_the_oldest_go_until_the_ratio_is_kept_and_the_instructions_stay() -> None:
    assert fit(turns(10), [10] * 11, 100, HALF) == [0, 7, 8, 9, 10]


def test_f31_the_cut_stays_where_it_is_until_the_room_is_full_again() -> None:
    cuts = [fit(turns(count), [10] * (count + 1), 100, HALF)[1] for count in range(10, 24)]
    assert cuts == sorted(cuts)
    assert len(set(cuts)) <= 3, "a cache is of use in between"
    every = [fit(turns(count), [10] * (count + 1), 100, Retention(1.0))[1] for count in range(10, 24)]
    assert len(set(every)) == 14, "a ratio of 1 drops as little as it can, each time"


def test_f31_the_tokens_after_the_instructions_may_have_a_bound_of_their_own() -> None:
    assert fit(turns(9), [10] * 10, 1000, Retention(0.5, most_tokens=40)) == [0, 7, 8, 9]
    assert fit(turns(9), [1000, *[10] * 9], 2000, Retention(1.0, most_tokens=40)) == [0, 6, 7, 8, 9]


def test_f31_the_last_part_stays_even_without_room() -> None:
    assert fit(turns(3), [10, 10, 10, 500], 100, HALF) == [0, 3]


def test_f31_a_call_goes_with_its_result_and_stays_with_the_last_one() -> None:
    parts = [*turns(1), CallPart("c", "call_1", "clock", "{}"), TextPart("t", "user", "well?"), *turns(6)[1:]]
    parts[4] = ResultPart("r", "call_1", "noon")
    kept = fit(parts, [10] * len(parts), 70, HALF)
    assert {2, 4}.isdisjoint(kept)
    parts.append(ResultPart("r2", "call_2", "one"))
    parts[1] = CallPart("c2", "call_2", "clock", "{}")
    kept = fit(parts, [10] * len(parts), 70, HALF)
    assert {1, len(parts) - 1} <= set(kept), "the answer needs both"


drawn = st.lists(st.tuples(st.sampled_from("uatr"), st.integers(1, 40), st.integers(0, 3)), max_size=30)


@given(drawn, st.integers(20, 200), st.floats(0, 1))
def test_f31_whatever_the_conversation_the_newest_stays_and_pairs_are_whole(
    drawn_parts: list[tuple[str, int, int]], room: int, ratio: float
) -> None:
    parts: list[Part] = [TextPart("instructions", "system", "")]
    for number, (kind, _, call) in enumerate(drawn_parts):
        name = str(number)
        if kind == "t":
            parts.append(CallPart(name, f"c{call}", "f", "{}"))
        elif kind == "r":
            parts.append(ResultPart(name, f"c{call}", ""))
        else:
            parts.append(TextPart(name, "user" if kind == "u" else "assistant", ""))
    sizes = [5, *(size for _, size, _ in drawn_parts)]
    kept = fit(parts, sizes, room, Retention(ratio))
    assert kept == sorted(set(kept))
    assert {0, len(parts) - 1} <= set(kept)
    for one in parts:
        if isinstance(one, CallPart | ResultPart):
            whole = [
                index
                for index, other in enumerate(parts)
                if isinstance(other, CallPart | ResultPart) and other.call_id == one.call_id
            ]
            assert len(set(whole) & set(kept)) in (0, len(whole))
    last = parts[-1]
    plain = not any(isinstance(part, CallPart | ResultPart) for part in parts)
    if plain and last is not parts[0]:
        assert sum(sizes[index] for index in kept) <= max(room, 5 + sizes[-1])


def job(count: int, retention: Retention | None = HALF) -> Think:
    return Think(Reply("s", 1), Prompt(tuple(turns(count))), 100, retention=retention)


def test_f31_a_service_of_unknown_size_is_sent_all_and_less_once_it_refused() -> None:
    window = Window(0)
    whole = window.cut(job(50))
    assert len(whole.prompt.parts) == 51
    window.refused(whole)
    again = window.cut(job(50))
    assert 20 <= len(again.prompt.parts) <= AGAIN_SHARE * 51
    assert again.prompt.parts[0].id == "instructions"
    assert len(window.cut(job(10)).prompt.parts) == 11, "what is short stays whole"


@pytest.mark.parametrize("context", [300, 1000])
def test_f31_a_service_of_known_size_is_sent_what_it_can_read(context: int) -> None:
    cut = Window(context).cut(job(100))
    assert (len(cut.prompt.parts) - 1) * (PART_TOKENS + 10) <= context - 100
    assert len(Window(context).cut(job(100, None)).prompt.parts) == 101, "disabled: the service says that it is full"
