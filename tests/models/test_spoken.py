"""Clauses from text deltas: what is shown, what is said, and that the cutting into deltas makes no difference."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.runtime.clauses import CLAUSE_CHARS, WORD_CHARS
from models.runtime.english import english, read_english
from models.runtime.markup import PlainText
from models.runtime.numbers import cardinal, decimal, ordinal, year
from models.runtime.spoken import Clause, SpokenText
from models.runtime.traced import Traced, heard_chars

MARKED = st.text("ab1.,!? \n*_`~#->|[]()<&;\\:/\U0001f600\u2014$%", max_size=80)
WORDS = st.sampled_from(
    [
        "Hello",
        "world",
        "and",
        "but",
        "the",
        "a",
        "12",
        "3.50",
        "$4",
        "10:30",
        "Dr.",
        "e.g.",
        "etc.",
        "U.S.",
        "1.",
        "ok.",
        "yes!",
        "no?",
        "wait,",
        "so;",
        "this:",
        "https://a.io/x",
        "a_b",
        "AT&T",
        "it's",
        "(aside)",
        "end)",
        "“quoted.”",
        "—",
        "5",
        "km",
        "1,000",
    ]
)
PLAIN = st.lists(st.tuples(WORDS, st.sampled_from([" ", " ", "  ", "\n", "\n\n"])), max_size=60).map(
    lambda pairs: "".join(word + gap for word, gap in pairs)
)


def in_pieces(text: str, cuts: list[int]) -> list[Clause]:
    spoken = SpokenText()
    clauses: list[Clause] = []
    edges = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    for start, end in pairwise(edges):
        clauses += spoken.push(text[start:end])
    return clauses + spoken.finish()


def whole(text: str) -> list[Clause]:
    return in_pieces(text, [])


@given(st.one_of(MARKED, PLAIN), st.lists(st.integers(0, 1000), max_size=40))
@settings(max_examples=400, deadline=None)
def test_deltas_make_no_difference(text: str, cuts: list[int]) -> None:
    assert in_pieces(text, cuts) == whole(text)


@given(st.one_of(MARKED, PLAIN))
@settings(max_examples=200, deadline=None)
def test_one_character_at_a_time_makes_no_difference(text: str) -> None:
    assert in_pieces(text, list(range(len(text)))) == whole(text)


@given(PLAIN)
@settings(max_examples=300, deadline=None)
def test_captions_of_plain_text_are_the_text(text: str) -> None:
    captions = "".join(clause.caption for clause in whole(text))
    assert text.startswith(captions)
    assert not any(char.isalnum() for char in text[len(captions) :])


@given(st.one_of(MARKED, PLAIN))
@settings(max_examples=200, deadline=None)
def test_every_clause_can_be_said(text: str) -> None:
    for clause in whole(text):
        assert any(char.isalpha() for char in clause.spoken)
        assert clause.spoken[-1] in ".,;:!?"
        assert not any(char.isdigit() for char in clause.spoken)


@given(PLAIN)
@settings(max_examples=300, deadline=None)
def test_no_word_number_or_address_is_split(text: str) -> None:
    shown = " ".join(clause.caption for clause in whole(text)).split()
    assert shown[: len(_said_words(text))] == _said_words(text)
    assert shown == text.split()[: len(shown)]


def _said_words(text: str) -> list[str]:
    """The words up to the last one with a letter or digit: signs alone at the end are not said."""
    words = text.split()
    while words and not any(char.isalnum() for char in words[-1]):
        words.pop()
    return words


@pytest.mark.parametrize("unit", ["word ", "x", "\n", " ", "*", "1", ".", "[", "<a", "`", "|", "- ", "\U0001f600"])
def test_text_without_a_boundary_is_held_back_only_within_a_bound(unit: str) -> None:
    spoken, pushed, shown = SpokenText(), 0, 0
    held = 0
    for _ in range(4000):
        pushed += len(unit)
        shown += sum(len(clause.caption) for clause in spoken.push(unit))
        held = max(held, len(spoken._plain._raw) + len(spoken._splitter._text) + len(spoken._silent))
    assert pushed >= 4000
    assert held <= 2000 + CLAUSE_CHARS + 2 * WORD_CHARS
    if unit.strip().isalnum():
        assert shown >= pushed - CLAUSE_CHARS - 2 * WORD_CHARS


def test_the_first_clause_is_short_and_later_ones_are_sentences() -> None:
    text = (
        "The oldest bridge in the whole city was built by hand and it still stands today. "
        "Its seven arches carry trams, buses, and walkers over the wide river every single day. It is loved."
    )
    assert [clause.caption for clause in whole(text)] == [
        "The oldest bridge in the whole city was",
        " built by hand and it still stands today.",
        " Its seven arches carry trams, buses, and walkers over the wide river every single day.",
        " It is loved.",
    ]
    assert [clause.pause for clause in whole(text)] == ["none", "sentence", "sentence", "sentence"]


def test_the_first_clause_ends_at_a_comma_or_before_a_conjunction() -> None:
    assert whole("Well of course, I can do that for you.")[0].caption == "Well of course,"
    assert whole("I like apples and pears but not grapes at all.")[0].caption == "I like apples and pears"


@pytest.mark.parametrize(
    ("text", "clauses"),
    [
        ("Ask Dr. Smith now. He knows.", ["Ask Dr. Smith now.", " He knows."]),
        ("Use fruit, e.g. pears. Good.", ["Use fruit, e.g. pears.", " Good."]),
        ("In the U.S. it rains. Bye.", ["In the U.S. it rains.", " Bye."]),
        ("Bread, milk, etc. Then home.", ["Bread, milk, etc.", " Then home."]),
        ("It is 3.50 now. Ok.", ["It is 3.50 now.", " Ok."]),
        ("1. Wash it. 2. Dry it.", ["1. Wash it.", " 2. Dry it."]),
        ('He said "No!" and left. Yes.', ['He said "No!" and left.', " Yes."]),
        ("One\nTwo", ["One", "\nTwo"]),
    ],
)
def test_where_sentences_end(text: str, clauses: list[str]) -> None:
    assert [clause.caption for clause in whole(text)] == clauses


@pytest.mark.parametrize(
    ("marked", "plain"),
    [
        ("**bold** and *soft* and __more__", "bold and soft and more"),
        ("# Title\ntext", "Title\ntext"),
        ("- one\n* two\n+ three", "one\ntwo\nthree"),
        ("see [the page](http://a.b/c_(d)) now", "see the page) now"),
        ("![a cat](cat.png) sits", "a cat sits"),
        ("`code` and\n```py\nx = 1\n```\nend", "code and\nx = 1\nend"),
        ("| a | b |\n|---|:-:|\n| 1 | 2 |", "a, b\n\n1, 2"),
        ("> quoted\n---\nafter", "quoted\n\nafter"),
        ("~~old~~ new ~5", "old new ~5"),
        ("2 * 3, 2*3, snake_case, a & b, x < y", "2 * 3, 2*3, snake_case, a & b, x < y"),
        ("R&amp;D &lt;3 <b>x</b><br>y", "R&D <3 xy"),
        ("\\*kept\\*", "*kept*"),
        ("Hi \U0001f600 you \U0001f44d\U0001f3fd!", "Hi you!"),
        ("\U0001f1e9\U0001f1ea flag", "flag"),
        ("It costs $3.50 - ok", "It costs $3.50 - ok"),
    ],
)
def test_markup_and_emoji_go(marked: str, plain: str) -> None:
    text = PlainText()
    assert text.push(marked) + text.finish() == plain


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("$3.50", "three dollars fifty"),
        ("$1", "one dollar"),
        ("$0.99", "ninety-nine cents"),
        ("\u20ac1,200", "one thousand two hundred euros"),
        ("$2.5 million", "two point five million dollars"),
        ("10:30", "ten thirty"),
        ("9:05 a.m.", "nine oh five A M"),
        ("7pm", "seven P M"),
        ("12:00", "twelve o'clock"),
        ("May 3, 1999", "May third, nineteen ninety-nine"),
        ("2024-05-03", "May third, twenty twenty-four"),
        ("the 1990s", "the nineteen nineties"),
        ("1990-1995", "nineteen ninety to nineteen ninety-five"),
        ("10\u201320 km", "ten to twenty kilometers"),
        ("25%", "twenty-five percent"),
        ("1st, 22nd", "first, twenty-second"),
        ("3.14", "three point one four"),
        ("1,234", "one thousand two hundred thirty-four"),
        ("007", "zero zero seven"),
        ("-5\u00b0C", "minus five degrees Celsius"),
        ("5kg", "five kilograms"),
        ("3/4", "three quarters"),
        ("555-1234", "five five five, one two three four"),
        ("www.example.com/docs", "example dot com slash docs"),
        ("me@a-b.org", "me at a dash b dot org"),
        ("Dr. Who vs. Mr. X, i.e. us", "Doctor Who versus Mister X, that is us"),
        ("Main St. near St. Paul", "Main Street near Saint Paul"),
        ("R&D @home #1", "R and D at home number one"),
        ("2 + 2 = 4", "two plus two equals four"),
        ("wait \u2014 what\u2026 \u201cyes\u201d", "wait, what, yes"),
        ("v1.2.3", "v one point two point three"),
        ("\U0001f600 \u2014 !", ""),
    ],
)
def test_how_signs_are_said(written: str, said: str) -> None:
    assert english(written) == said


def test_captions_keep_the_figures_that_are_said_in_words() -> None:
    assert whole("It costs **$3.50** \U0001f600.") == [
        Clause("It costs $3.50.", "It costs three dollars fifty.", "sentence", (2, 8, 8, 8, 15))
    ]


@given(st.one_of(MARKED, PLAIN))
@settings(max_examples=300, deadline=None)
def test_what_each_spoken_word_says_covers_the_caption(text: str) -> None:
    for clause in whole(text):
        assert len(clause.heard) == len(clause.spoken.split())
        assert list(clause.heard) == sorted(clause.heard)
        assert clause.heard[-1] == len(clause.caption)
        for chars in clause.heard:
            left, right = clause.caption[:chars], clause.caption[chars:]
            assert not left or not right or left[-1].isspace() or right[0].isspace(), "a word was cut in two"


@pytest.mark.parametrize(
    ("text", "heard"),
    [
        ("It was 1995.", "It|was||1995."),
        ("I pay $3.50 - or $2.5 million.", "I|pay|||$3.50|- or|||$2.5||million."),
        ("On December 25, 1995 it rained.", "On|December||25,|1995|it|rained."),
        ("At 10:30 a.m. he left.", "At||10:30||a.m.|he|left."),
        ("Ask Dr. Smith, i.e. the twenty-first.", "Ask|Dr.|Smith,||i.e.|the|twenty-first."),
        ("See https://a.io/x now.", "See|||||https://a.io/x|now."),
        ("Don't use R&D.", "Don't|use|||R&D."),
        ("(Yes) \u2014 \u201cit's\u201d 50% off\u2026", "(Yes)|\u2014 \u201cit's\u201d||50%|off\u2026"),
        ("word -", "word|-"),
    ],
)
def test_which_written_words_each_spoken_word_completes(text: str, heard: str) -> None:
    edges = (0, *heard_chars(text, read_english(Traced.of(text))))
    assert "|".join(text[start:stop].strip() for start, stop in pairwise(edges)) == heard


def test_nothing_to_say_gives_no_clause() -> None:
    assert whole("\U0001f600\U0001f389 **  ** \n") == []


def test_another_language_keeps_its_numbers() -> None:
    spoken = SpokenText("de")
    assert spoken.push("Das kostet 3,50 **Euro**.") + spoken.finish() == [
        Clause("Das kostet 3,50 Euro.", "Das kostet 3,50 Euro.", "sentence", (3, 10, 15, 21))
    ]


def test_numbers_in_words() -> None:
    assert cardinal(0) == "zero"
    assert cardinal(-1_000_042) == "minus one million forty-two"
    assert ordinal(40) == "fortieth"
    assert ordinal(101) == "one hundred first"
    assert year(2005) == "two thousand five"
    assert year(1905) == "nineteen oh five"
    assert decimal("0.05") == "zero point zero five"


@given(st.integers(0, 10**18))
def test_every_number_has_words(number: int) -> None:
    assert cardinal(number).replace("-", " ").replace(" ", "").isalpha()
    assert ordinal(number)[-2:] in {"st", "nd", "rd", "th"}
