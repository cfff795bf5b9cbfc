"""Turns a JSON schema into the grammar of the JSON texts it accepts, or of a part of them.

Every text of the grammar is valid by the schema, and has an end: where the schema leaves lengths open, they get bounds.
Members come in the order in which the schema declares them, and none that it doesn't declare. What can't be kept is
refused by name, never ignored; annotations, an unknown `format` among them, bind nobody.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from fractions import Fraction

from models.llama_cpp.formats import FORMATS
from models.llama_cpp.grammar import (
    EMPTY,
    Choice,
    Grammar,
    Items,
    Member,
    Members,
    Picks,
    choice,
    listed,
    literal,
    string,
    then,
)
from models.llama_cpp.numerals import FRACTION_DIGITS, WHOLE_DIGITS, Numeral
from models.llama_cpp.schema_parts import Json, Schema, Unsupported, alternatives, fits, kinds, resolve

STRING_CHARS = 200
LIST_ITEMS = 12
FREE_DEPTH = 2
"""Values of no declared shape nest this deep."""
SCHEMA_BYTES = 64 * 1024
SCHEMAS = 2000
"""A schema may hold so many, each counted wherever it is used."""
DEPTH = 32

_REFUSED = {
    "string": ("pattern",),
    "array": ("contains", "unevaluatedItems", "additionalItems"),
    "object": ("patternProperties", "propertyNames", "dependentRequired", "dependentSchemas", "dependencies"),
}


def arguments_grammar(schema: str, strict: bool) -> Grammar:
    """The texts of a function's arguments, by its schema as JSON text; an empty one takes no arguments.

    Raises `Unsupported` for a schema that can't be kept, unless `strict` is false: then what can't be kept is free.
    """
    try:
        return _arguments(schema, strict)
    except Unsupported:
        if strict:
            raise
        return _free(FREE_DEPTH)[1]


def _arguments(text: str, strict: bool) -> Grammar:
    if len(text) > SCHEMA_BYTES:
        raise Unsupported("", f"more than {SCHEMA_BYTES} characters")
    try:
        root = json.loads(text)
        if root in ({}, None):
            return literal("{}")
        if not isinstance(root, dict) or "object" not in kinds(resolve(root, root, "")):
            raise Unsupported("", "arguments that are no object")
        return _Reader(root, strict).value({**root, "type": "object"} if "$ref" not in root else root, "", 0)
    except (ValueError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise Unsupported("", f"what is no JSON schema ({error})") from error


def _json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)


def _free(depth: int) -> tuple[Grammar, Grammar]:
    """Any value, and any object, that nests no deeper than that."""
    text = string(0, STRING_CHARS)
    plain = [text, _number({}, "", FRACTION_DIGITS), *map(literal, ("true", "false", "null"))]
    if depth == 0:
        return Choice(tuple(plain)), literal("{}")
    inner = _free(depth - 1)[0]
    members = _map(inner, 0, LIST_ITEMS)
    items = then(literal("["), listed(inner, 0, LIST_ITEMS), literal("]"))
    return Choice((*plain, items, members)), members


def _map(value: Grammar, least: int, most: int) -> Grammar:
    pair = then(string(1, STRING_CHARS), literal(": "), value)
    return then(literal("{"), listed(pair, least, most), literal("}"))


def _number(schema: Schema, path: str, decimals: int) -> Grammar:
    unit = 10**decimals
    bound = 10 ** (WHOLE_DIGITS + decimals) - 1
    least, most, step = -bound, bound, 1
    for name in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf"):
        given = schema.get(name)
        if given is None:
            continue
        if isinstance(given, bool) or not isinstance(given, int | float):
            raise Unsupported(f"{path}.{name}", f"`{name}` of {_json(given)}")
        units = Fraction(str(given)) * unit
        match name:
            case "minimum":
                least = max(least, math.ceil(units))
            case "exclusiveMinimum":
                least = max(least, math.floor(units) + 1)
            case "maximum":
                most = min(most, math.floor(units))
            case "exclusiveMaximum":
                most = min(most, math.ceil(units) - 1)
            case "multipleOf":
                if units.denominator != 1 or units <= 0 or units % unit:
                    raise Unsupported(f"{path}.{name}", f"`multipleOf` of {given}, which is no whole number")
                step = int(units)
    numeral = Numeral(least, most, decimals, step)
    if not numeral.possible:
        raise Unsupported(path, "bounds that leave no number")
    return numeral


def _count(schema: Schema, name: str, default: int, path: str) -> int:
    value = schema.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value) or value < 0:
        raise Unsupported(f"{path}.{name}", f"`{name}` of {_json(value)}")
    return int(value)


class _Reader:
    """Reads one schema, with the root that its references are about."""

    def __init__(self, root: Schema, strict: bool) -> None:
        self._root, self._strict = root, strict
        self._schemas = 0

    def value(self, schema: Json, path: str, depth: int) -> Grammar:
        """The texts that a schema takes; `path` is where it stands."""
        try:
            return self._value(schema, path, depth)
        except Unsupported:
            if self._strict or not path:
                raise
            return _free(FREE_DEPTH)[0]

    def _value(self, schema: Json, path: str, depth: int) -> Grammar:
        self._schemas += 1
        if self._schemas > SCHEMAS:
            raise Unsupported(path, f"more than {SCHEMAS} schemas in it")
        if depth > DEPTH:
            raise Unsupported(path, f"schemas nested more than {DEPTH} deep, or within themselves")
        if schema is True:
            return _free(FREE_DEPTH)[0]
        if not isinstance(schema, dict):
            raise Unsupported(path, f"{_json(schema)} in the place of a schema")
        whole = resolve(schema, self._root, path)
        for name in ("not", "if", "$dynamicRef", "$recursiveRef"):
            if name in whole:
                raise Unsupported(path, f"`{name}`")
        if "const" in whole:
            return literal(_json(whole["const"]))
        if "enum" in whole:
            return choice([literal(_json(value)) for value in self._named(whole, path)])
        options = alternatives(whole, self._root, path)
        if options is not None:
            return choice([self.value(one, f"{path}.{index}", depth + 1) for index, one in enumerate(options)])
        found = kinds(whole)
        if len(found) == 6 and not set(whole) & {"properties", "items", "minimum", "minLength", "required"}:
            return _free(FREE_DEPTH)[0]
        return choice([self._of(kind, whole, path, depth) for kind in sorted(found)])

    def _named(self, schema: Schema, path: str) -> list[Json]:
        """The values that an enumeration names."""
        values = schema["enum"]
        if not isinstance(values, list):
            raise Unsupported(f"{path}.enum", "an `enum` that is no list")
        allowed = kinds({key: value for key, value in schema.items() if key == "type"})
        fitting = [value for value in values if fits(value, allowed)]
        if not fitting:
            raise Unsupported(f"{path}.enum", "an `enum` without a value of its `type`")
        return fitting

    def _of(self, kind: str, schema: Schema, path: str, depth: int) -> Grammar:
        """The texts of one type."""
        for name in _REFUSED.get(kind, ()):
            if name in schema:
                raise Unsupported(f"{path}.{name}", f"`{name}`")
        match kind:
            case "object":
                return self._object(schema, path, depth)
            case "array":
                return self._array(schema, path, depth)
            case "string":
                return self._string(schema, path)
            case "number":
                return _number(schema, path, FRACTION_DIGITS)
            case "integer":
                return _number(schema, path, 0)
            case "boolean":
                return Choice((literal("true"), literal("false")))
            case _:
                return literal("null")

    def _string(self, schema: Schema, path: str) -> Grammar:
        least = _count(schema, "minLength", 0, path)
        most = _count(schema, "maxLength", max(least, STRING_CHARS), path)
        if least > most:
            raise Unsupported(path, "bounds that leave no string")
        form = FORMATS.get(str(schema.get("format")))
        if form is not None and "minLength" not in schema and "maxLength" not in schema:
            return then(literal('"'), form, literal('"'))
        return string(least, min(most, max(least, STRING_CHARS)))

    def _array(self, schema: Schema, path: str, depth: int) -> Grammar:
        first = schema.get("prefixItems", [])
        least = _count(schema, "minItems", 0, path)
        most = min(_count(schema, "maxItems", LIST_ITEMS, path), max(least, LIST_ITEMS))
        items = schema.get("items", True)
        if least > most:
            raise Unsupported(path, "bounds that leave no list")
        if schema.get("uniqueItems") and most > 1:
            return self._distinct(items, least, most, path)
        if first:
            return self._tuple(first, items, least, most, path, depth)
        if items is False or most == 0:
            return literal("[]")
        inner = self.value(items, f"{path}.items", depth + 1)
        return then(literal("["), listed(inner, least, most), literal("]"))

    def _tuple(self, first: Json, items: Json, least: int, most: int, path: str, depth: int) -> Grammar:
        if not isinstance(first, list) or len(first) > most:
            raise Unsupported(f"{path}.prefixItems", "`prefixItems` that don't fit")
        rest: Grammar = EMPTY
        if items is not False and least > len(first):
            item = self.value(items, f"{path}.items", depth + 1)
            rest = Items(item, least - len(first), most - len(first))
        elif least > len(first):
            raise Unsupported(path, "bounds that leave no list")
        heads = [self.value(one, f"{path}.{index}", depth + 1) for index, one in enumerate(first)]
        parted = [part for head in heads for part in (literal(", "), head)][1:]
        return then(literal("["), *parted, rest, literal("]"))

    def _distinct(self, items: Json, least: int, most: int, path: str) -> Grammar:
        inner = resolve(items, self._root, path) if isinstance(items, dict) else {}
        if "enum" not in inner:
            raise Unsupported(f"{path}.uniqueItems", "`uniqueItems` of items without an `enum`")
        texts = dict.fromkeys(map(_json, self._named(inner, path)))
        if least > len(texts):
            raise Unsupported(path, "bounds that leave no list")
        options = tuple(map(literal, texts))
        return then(literal("["), Picks(options, least, most), literal("]"))

    def _object(self, schema: Schema, path: str, depth: int) -> Grammar:
        properties, required = schema.get("properties", {}), schema.get("required", [])
        if not isinstance(properties, dict) or not _are_names(required):
            raise Unsupported(path, "`properties` or `required` of another form")
        additional = schema.get("additionalProperties", True)
        undeclared = [name for name in required if name not in properties]
        if undeclared and additional is False:
            raise Unsupported(f"{path}.required", f"{undeclared[0]!r} required and not allowed")
        allowed = {name: value for name, value in properties.items() if value is not False or name in required}
        declared = {**allowed, **dict.fromkeys(undeclared, additional)}
        least = _count(schema, "minProperties", 0, path)
        most = _count(schema, "maxProperties", LIST_ITEMS if not declared else len(declared), path)
        if not declared:
            return self._undeclared(additional, least, min(most, LIST_ITEMS), path, depth)
        if least > len(set(required)) or most < len(declared):
            raise Unsupported(path, "`minProperties` or `maxProperties` beside `properties`")
        members = tuple(
            Member(f"{_json(name)}: ", self.value(value, f"{path}.{name}", depth + 1), name in required)
            for name, value in declared.items()
        )
        return then(literal("{"), Members(members), literal("}"))

    def _undeclared(self, value: Json, least: int, most: int, path: str, depth: int) -> Grammar:
        if value is False or most == 0:
            if least:
                raise Unsupported(path, "bounds that leave no object")
            return literal("{}")
        if least > 1:
            raise Unsupported(f"{path}.minProperties", "`minProperties` of more than 1 without `properties`")
        inner = _free(FREE_DEPTH - 1)[0] if value is True else self.value(value, f"{path}.*", depth + 1)
        return _map(inner, least, most)


def _are_names(value: object) -> bool:  # as it came from the client
    return isinstance(value, Iterable) and all(isinstance(name, str) for name in value)
