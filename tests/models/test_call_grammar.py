"""Texts written by the grammar of a tool's parameters: whatever is chosen, they are valid and they end."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.llama_cpp.calls import BETWEEN, HEAD, MARK, Call, Spotter, call_grammar, call_text
from models.llama_cpp.grammar import Grammar, forced, literal, over, read, string, then
from models.llama_cpp.json_schema import STRING_CHARS, arguments_grammar
from models.llama_cpp.numerals import Numeral
from models.llama_cpp.schema_parts import Unsupported
from pipeline.chunk import CallDelta, Tool
from pipeline.errors import StageError
from tests.models.tool_schemas import SCHEMAS

CASES = settings(deadline=None, max_examples=10)
Json = Any  # what a schema or a text holds


def write(grammar: Grammar, rng: Random) -> bytes:
    """A text of the grammar, each byte drawn from those that may come."""
    text = bytearray()
    while grammar.first:
        if grammar.nullable and rng.random() < 0.3:
            break
        allowed = [byte for byte in range(256) if grammar.first >> byte & 1]
        # Closing comes often enough, so that texts end soon.
        closing = [byte for byte in allowed if byte in b'"}],']
        byte = rng.choice(closing if closing and rng.random() < 0.3 else allowed)
        after = grammar.read(byte)
        assert after is not None, "`first` allows what `read` refuses"
        text.append(byte)
        grammar = after
    assert grammar.nullable, "a text that can't be ended"
    return bytes(text)


def takes(grammar: Grammar, text: str) -> bool:
    after = read(grammar, text.encode())
    return after is not None and after.nullable


def strict(schema: Json) -> Grammar:
    return arguments_grammar(json.dumps(schema), strict=True)


def of(schema: Json) -> Grammar:
    """The grammar of one required member."""
    return strict({"type": "object", "properties": {"a": schema}, "required": ["a"], "additionalProperties": False})


@pytest.mark.parametrize("name", SCHEMAS)
@given(seed=st.integers(0, 10_000))
@CASES
def test_whatever_is_chosen_the_text_is_valid(name: str, seed: int) -> None:
    value = json.loads(write(strict(SCHEMAS[name]), Random(seed)))
    assert isinstance(value, dict)
    jsonschema.validate(value, SCHEMAS[name], jsonschema.Draft202012Validator)


@given(
    a=st.integers(-(10**6), 10**6),
    b=st.integers(-(10**6), 10**6),
    decimals=st.integers(0, 4),
    step=st.integers(1, 50),
    seed=st.integers(0, 1000),
)
@settings(deadline=None, max_examples=40)
def test_a_number_is_within_its_bounds(a: int, b: int, decimals: int, step: int, seed: int) -> None:
    numeral = Numeral(min(a, b), max(a, b), decimals, step)
    multiples = max(a, b) // step * step >= min(a, b)
    assert numeral.possible == multiples
    if multiples:
        text = write(numeral, Random(seed)).decode()
        whole, _, fraction = text.partition(".")
        units = int(whole + fraction.ljust(decimals, "0"))
        assert min(a, b) <= units <= max(a, b)
        assert units % step == 0
        json.loads(text)


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "integer", "minimum": -5, "exclusiveMaximum": 120}, ["-5", "0", "119"], ["-6", "120", "01", "1.0"]),
        ({"type": "integer", "multipleOf": 15}, ["0", "-30", "45"], ["7", "-0"]),
        ({"type": "number", "minimum": 0.25}, ["0.25", "1", "3.5"], ["0", "-1", "0.2", "1.", ".5"]),
        ({"enum": ["new", "newest", 3, None]}, ['"new"', '"newest"', "3", "null"], ['"newer"', "4"]),
        ({"const": {"x": [1]}}, ['{"x": [1]}'], ["{}"]),
        ({"type": ["string", "null"], "maxLength": 2}, ["null", '"é東"', '"\\n"', '""'], ['"abc"', '"\t"', '"\\x"']),
        ({"type": "string", "minLength": 2}, ['"ab"', '"\\u00e9a"'], ['"a"', '"\\ud800a"']),
        ({"type": "boolean"}, ["true", "false"], ["1"]),
        ({"type": "array", "items": {"type": "boolean"}, "minItems": 1}, ["[true]", "[true, false]"], ["[]", "[1]"]),
        ({"type": "array", "items": {"enum": ["a", "b"]}, "uniqueItems": True}, ['["b", "a"]'], ['["a", "a"]']),
        ({"type": "array", "prefixItems": [{"const": 1}, {"const": 2}], "items": False}, ["[1, 2]"], ["[1]"]),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, ["{}", '{"k": 1}'], ['{"k": "v"}']),
        ({"type": "string", "format": "date"}, ['"2024-02-28"', '"1999-12-31"'], ['"2024-02-30"', '"tomorrow"']),
        ({"type": "string", "format": "time"}, ['"23:59:00Z"'], ['"24:00:00Z"']),
        ({"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 1}]}, ["1", '"a"'], ["true"]),
        ({"oneOf": [{"type": "integer"}, {"type": "null"}]}, ["1", "null"], ['"a"']),
        ({"allOf": [{"type": "integer"}, {"minimum": 2}]}, ["2"], ["1"]),
        (True, ["1", '{"k": [true]}'], ["", "nul"]),
    ],
)
def test_the_words_of_schemas_are_kept(schema: Json, good: list[str], bad: list[str]) -> None:
    grammar = of(schema)
    assert [text for text in good if not takes(grammar, f'{{"a": {text}}}')] == []
    assert [text for text in bad if takes(grammar, f'{{"a": {text}}}')] == []


def test_members_come_in_their_order_and_those_that_need_not_be_there_may_be_left_out() -> None:
    properties = {name: {"type": "integer"} for name in "abc"}
    grammar = strict({"type": "object", "properties": properties, "required": ["b"]})
    assert takes(grammar, '{"b": 1}')
    assert takes(grammar, '{"a": 1, "b": 1, "c": 1}')
    assert takes(grammar, '{"b": 1, "c": 1}')
    for bad in ("{}", '{"a": 1}', '{"b": 1, "a": 1}', '{"b": 1, "d": 1}', '{"b": 1,}'):
        assert not takes(grammar, bad), bad


@pytest.mark.parametrize("text", ["{}", '{"type":"object"}'])
def test_a_tool_without_parameters_takes_none(text: str) -> None:
    assert takes(arguments_grammar(text, strict=True), "{}")


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "string", "pattern": "^a+$"}, "`pattern` at a.pattern"),
        ({"type": "array", "contains": {"const": 1}}, "`contains` at a.contains"),
        ({"type": "object", "patternProperties": {"^x": {}}}, "`patternProperties`"),
        ({"not": {"type": "null"}}, "`not` at a"),
        ({"if": {}, "then": {}}, "`if` at a"),
        ({"$ref": "https://schemas.example/other.json"}, "outside of the schema"),
        ({"$ref": "#/$defs/absent"}, "which isn't there"),
        ({"$ref": "#/properties/a"}, "lead to themselves"),
        ({"type": "array", "items": {"$ref": "#/properties/a"}}, "nested more than 32 deep"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "may hold at once"),
        ({"type": "number", "multipleOf": 0.01}, "`multipleOf` of 0.01"),
        ({"type": "integer", "minimum": 3, "maximum": 2}, "leave no number"),
        ({"type": "string", "minLength": 3, "maxLength": 2}, "leave no string"),
        ({"type": "array", "minItems": 3, "maxItems": 2}, "leave no list"),
        ({"type": "array", "uniqueItems": True, "items": {"type": "string"}}, "`uniqueItems`"),
        ({"type": "gibberish"}, "the type 'gibberish'"),
        ({"type": "string", "maxLength": "many"}, '`maxLength` of "many"'),
        ({"enum": []}, "an `enum` without a value"),
        (False, "in the place of a schema"),
        ({"anyOf": []}, "an empty `anyOf`"),
        ({"type": "integer", "maximum": 1e400}, "what is no JSON"),
    ],
)
def test_what_can_not_be_kept_is_refused_by_name_and_free_where_nothing_is_promised(schema: Json, words: str) -> None:
    whole = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    tool = Tool("shop", "", json.dumps(whole))
    with pytest.raises(StageError, match="the tool 'shop'") as caught:
        call_grammar((tool,), None, strict=True)
    assert words in caught.value.message
    free = arguments_grammar(tool.parameters, strict=False)
    assert json.loads(write(free, Random(1))) is not None


@pytest.mark.parametrize("text", ['"text"', '{"type":"string"}', "{", "[" * 5000, '{"properties":[1]}', " " * 70_000])
def test_what_is_no_schema_of_arguments_is_refused(text: str) -> None:
    with pytest.raises(Unsupported):
        arguments_grammar(text, strict=True)
    assert takes(arguments_grammar(text, strict=False), "{}")


@given(st.data())
@CASES
def test_no_schema_does_more_than_be_refused(data: st.DataObject) -> None:
    words = st.sampled_from(
        ["type", "properties", "items", "enum", "required", "anyOf", "oneOf", "allOf", "$ref", "minimum", "minLength",
         "maxItems", "prefixItems", "additionalProperties", "uniqueItems", "minProperties", "const", "multipleOf"]
    )  # fmt: skip
    leaves = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["object", "array", "string", "#", "a"])
    schema = data.draw(
        st.recursive(leaves, lambda some: st.lists(some, max_size=3) | st.dictionaries(words, some, max_size=4))
    )
    text = json.dumps(schema)
    try:
        grammar = arguments_grammar(text, strict=True)
    except Unsupported:
        grammar = arguments_grammar(text, strict=False)
    assert isinstance(json.loads(write(grammar, Random(7))), dict)


def test_a_string_has_an_end() -> None:
    grammar = of({"type": "string"})
    assert takes(grammar, '{"a": "' + "x" * STRING_CHARS + '"}')
    assert not takes(grammar, '{"a": "' + "x" * (STRING_CHARS + 1) + '"}')


def test_what_must_come_is_known_to_whole_characters() -> None:
    text, rest = forced(strict({"type": "object", "properties": {"a": {"enum": ["é", "è"]}}, "required": ["a"]}))
    assert text == b'{"a": "'
    assert forced(then(literal("ab"), string(0, 1)))[0] == b'ab"'
    assert not over(rest)
    assert over(literal(""))


# ---- calls ----------------------------------------------------------------------------------------------------------

LAMP = Tool("lamp", "", '{"type":"object","properties":{"on":{"type":"boolean"}},"required":["on"]}')
DOOR = Tool("door", "", '{"type":"object","properties":{"open":{"type":"boolean"}},"required":["open"]}')


def test_name_and_arguments_belong_together() -> None:
    both = call_grammar((LAMP, DOOR), None, strict=True)
    assert takes(both, f'{HEAD}"lamp"{BETWEEN}{{"on": true}}}}')
    assert takes(both, f'{HEAD}"door"{BETWEEN}{{"open": true}}}}')
    assert not takes(both, f'{HEAD}"door"{BETWEEN}{{"on": true}}}}')
    one = call_grammar((LAMP, DOOR), "door", strict=True)
    assert not takes(one, f'{HEAD}"lamp"{BETWEEN}{{"on": true}}}}')
    assert forced(one)[0].decode() == f'{HEAD}"door"{BETWEEN}{{"open": '
    with pytest.raises(StageError, match="no tool 'window'"):
        call_grammar((LAMP,), "window", strict=True)


def test_the_grammar_of_the_same_tools_is_made_once() -> None:
    assert call_grammar((LAMP, DOOR), None, strict=True) is call_grammar((LAMP, DOOR), None, strict=True)


@given(st.lists(st.integers(1, 9)))
@CASES
def test_a_call_is_told_as_it_is_written_however_it_is_cut(cuts: list[int]) -> None:
    tool = Tool("läuten", "", "{}")
    call = Call(literal(""), "c1")
    arguments = '{"wer": "Zoë }", "on": {"x": 1}}'
    text = call_text(tool.name, arguments).removeprefix(MARK).partition("\n</tool_call>")[0].encode()
    deltas: list[CallDelta] = []
    while text:
        size = cuts.pop() if cuts else len(text)
        deltas += call.take(text[:size])
        text = text[size:]
    assert [delta.name for delta in deltas] == ["läuten", *[""] * (len(deltas) - 1)]
    assert "".join(delta.arguments for delta in deltas) == arguments
    assert {delta.call_id for delta in deltas} == {"c1"}


@pytest.mark.parametrize(
    ("text", "told", "found"),
    [
        ("It is 3 < 4, <b>.", "It is 3 < 4, <b>.", False),
        ("<tool_call>\n{}", "", True),
        ("  \n<tool_call>{}", "", True),
        ("Let me look. <tool_call>{}", "Let me look. ", True),
        ('{"name": "lamp"}', "", True),
        ('\n[{"name": 1}]', "", True),
        ("[laughs] {yes}", "[laughs] {yes}", False),
        ("Almost <tool_cal", "Almost <tool_cal", False),
        ("\n Hello", "\n Hello", False),
        ("  ", "", False),
    ],
)
@pytest.mark.parametrize("size", [1, 4, 100])
def test_the_beginning_of_a_call_is_never_told(text: str, told: str, found: bool, size: int) -> None:
    spotter = Spotter()
    seen = ""
    for start in range(0, len(text), size):
        seen += spotter.push(text[start : start + size])
        if spotter.found:
            break
    assert spotter.found == found
    assert seen + ("" if found else spotter.flush()) == told
