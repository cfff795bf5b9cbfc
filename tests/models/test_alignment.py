"""Finds where words end in a synthesised sound: in the model's graph, in phonemes, and in rewritten text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import accumulate

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from models.piper.alignment import SpokenWord, spoken_words, word_ends
from models.piper.graph import Parts, take_apart
from models.runtime.traced import Traced, heard_chars

SOUNDS = {"in": ["ɪn"], "the": ["ðə"], "hour": ["aʊɚ"], "a.m.": ["eɪ", "ɛm"], "-": [], "I": ["aɪ"], "am": ["æm"]}


def alone(word: str) -> list[tuple[str, ...]]:
    return [tuple(part) for part in SOUNDS[word]]


def said(*words: str) -> list[SpokenWord]:
    """Words whose every sound lasts 10 samples, with 100 between words."""
    spoken, at = [], 0
    for word in words:
        ends = tuple(at + 10 * number for number in range(1, len(word) + 1))
        spoken.append(SpokenWord(tuple(word), ends))
        at = ends[-1] + 100
    return spoken


# ---- phonemes ------------------------------------------------------------------------------------------------------


def test_stress_and_signs_are_no_sounds_and_take_no_part() -> None:
    phonemes = ["ˈ", "a", "ɪ", ",", " ", "t", "ə", ".", " "]
    ends = list(range(10, 100, 10))
    assert spoken_words(phonemes, ends) == [SpokenWord(("a", "ɪ"), (20, 30)), SpokenWord(("t", "ə"), (60, 70))]


@pytest.mark.parametrize(
    ("words", "spoken", "ends"),
    [
        ("in the hour", ("ɪn", "ðə", "aʊɚ"), [20, 140, 270]),
        ("in the hour", ("ɪnðə", "aʊɚ"), [20, 40, 170]),
        ("I am in the hour", ("aɪɐm", "ɪnðɪ", "aʊɚ"), [20, 40, 160, 180, 310]),
        ("the a.m. hour", ("ðə", "eɪ", "ɛm", "aʊɚ"), [20, 260, 390]),
        ("in - the", ("ɪn", "ðə"), [20, 20, 140]),
        ("the the the", ("ðə", "ðɪ", "ðə"), [20, 140, 260]),
        ("the in the the", ("ðə", "ɪnðə", "ðɪ"), [20, 140, 160, 280]),
        ("the in the", ("ðə", "ɪ", "n", "ðə"), [20, 240, 360]),
    ],
)
def test_words_end_where_their_sounds_do(words: str, spoken: Sequence[str], ends: list[int]) -> None:
    assert word_ends(words.split(), alone, said(*spoken)) == ends


def test_nothing_said_ends_at_once() -> None:
    assert word_ends(["in", "-"], alone, []) == [0, 0]


@given(st.lists(st.sampled_from(sorted(SOUNDS)), min_size=1, max_size=12), st.data())
def test_whatever_is_said_word_ends_never_fall_and_lie_at_ends_of_sounds(words: list[str], data: st.DataObject) -> None:
    spoken = said(*data.draw(st.lists(st.text("aɪəmnðʊ", min_size=1, max_size=6), max_size=12)))
    ends = word_ends(words, alone, spoken)
    assert len(ends) == len(words)
    assert ends == sorted(ends)
    assert set(ends) <= {0, *(end for word in spoken for end in word.ends)}


# ---- the graph -----------------------------------------------------------------------------------------------------


def field(number: int, content: bytes) -> bytes:
    assert len(content) < 128
    return bytes([number << 3 | 2, len(content)]) + content


def node(op: bytes, output: bytes) -> bytes:
    return field(1, field(1, b"input") + field(2, output) + field(4, op))


def model(*nodes: bytes) -> bytes:
    """A model with a version, an opaque 32-bit and 64-bit field, and a graph of these nodes."""
    return bytes([1 << 3, 0x88, 0x01]) + b"\x25\1\2\3\4" + b"\x29\1\2\3\4\5\6\7\x08" + field(7, b"".join(nodes))


def test_the_rounded_lengths_become_an_output() -> None:
    plain = model(node(b"Exp", b"x"), node(b"Ceil", b"lengths"), node(b"Mul", b"y"))
    assert take_apart(plain) == Parts(plain + field(7, field(12, field(1, b"lengths"))))


@pytest.mark.parametrize("nodes", [(), (node(b"Exp", b"x"),), (node(b"Ceil", b"x"), node(b"Ceil", b"y"))])
def test_a_model_whose_lengths_are_not_certain_stays_as_it_is(nodes: tuple[bytes, ...]) -> None:
    assert take_apart(model(*nodes)) is None


@pytest.mark.parametrize("wrong", [b"no model", b"\x3b", b"\x08\xff"])
def test_what_is_no_model_is_an_error(wrong: bytes) -> None:
    with pytest.raises((ValueError, IndexError)):
        take_apart(wrong)


# ---- rewritten text ------------------------------------------------------------------------------------------------

REWRITES = st.lists(
    st.tuples(
        st.sampled_from(["a", "b+", " ", "a b", "^", "$", "(?<=a)b"]), st.sampled_from(["", "x", "a y", " ", "bb"])
    ),
    max_size=5,
)


def constant(new: str) -> Callable[[re.Match[str]], str]:
    return lambda _: new


@given(st.text("ab c", max_size=20), REWRITES)
@example(" ", [(" ", "a y"), ("a", "a y")])
def test_tracing_changes_nothing_and_origins_never_fall(text: str, rewrites: list[tuple[str, str]]) -> None:
    plain, traced = text, Traced.of(text)
    for pattern, new in rewrites:
        plain = re.sub(pattern, new, plain)
        traced = traced.rewrite(re.compile(pattern), constant(new))
    assert traced.text == plain
    assert len(traced.origins) == len(plain)
    for bounds in zip(*traced.origins, strict=True):
        assert list(bounds) == list(accumulate(bounds, max))
        assert all(0 <= at <= len(text) for at in bounds)
    heard = heard_chars(text, traced)
    assert list(heard) == sorted(heard)
    assert len(heard) == len(plain.split())
    assert not heard or heard[-1] == len(text)


def test_what_stays_keeps_its_origin_and_what_is_new_comes_from_all_it_stands_for() -> None:
    traced = Traced.of("On May 3rd at 4").rewrite(re.compile(r"May 3rd"), lambda _: "May third")
    assert traced.text == "On May third at 4"
    assert traced.word_origins() == [(0, 2), (3, 6), (7, 10), (11, 13), (14, 15)]
