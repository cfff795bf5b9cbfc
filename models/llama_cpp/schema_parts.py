"""Puts the parts of a JSON schema together: what it refers to, what it is joined of, which alternatives it has."""

from __future__ import annotations

import json
from itertools import combinations
from typing import Any

Json = Any  # what a client wrote, as JSON
Schema = dict[str, Any]

KINDS = frozenset(("array", "boolean", "null", "number", "object", "string"))
"""The types of JSON. `integer` stands for numbers of one kind."""
REFERENCES = 32
"""A reference that leads to another does so at most this often."""
ANNOTATIONS = frozenset(
    (
        "title", "description", "default", "examples", "example", "format", "deprecated", "readOnly", "writeOnly",
        "$schema", "$id", "$comment", "$defs", "definitions", "contentEncoding", "contentMediaType",
    )
)  # fmt: skip


class Unsupported(Exception):
    """A schema that can't be kept: `path` is where, from its root, `feature` what."""

    def __init__(self, path: str, feature: str) -> None:
        super().__init__(f"{feature} at {path.lstrip('.') or 'its root'}")
        self.path, self.feature = path, feature


def resolve(schema: Schema, root: Schema, path: str) -> Schema:
    """The schema with what it refers to, and what it is joined of, in its own words. Raises `Unsupported`."""
    for _ in range(REFERENCES):
        if "$ref" in schema:
            rest = {key: value for key, value in schema.items() if key != "$ref"}
            schema = _joined(rest, _referred(schema["$ref"], root, path), path)
        elif "allOf" in schema:
            parts = schema["allOf"]
            if not isinstance(parts, list):
                raise Unsupported(f"{path}.allOf", "an `allOf` that is no list")
            schema = {key: value for key, value in schema.items() if key != "allOf"}
            for part in parts:
                schema = _joined(schema, resolve(_is_schema(part, path), root, path), path)
        else:
            return schema
    raise Unsupported(path, "references that lead to themselves")


def _is_schema(value: Json, path: str) -> Schema:
    if not isinstance(value, dict):
        raise Unsupported(path, f"{json.dumps(value)} in the place of a schema")
    return value


def _referred(reference: Json, root: Schema, path: str) -> Schema:
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        raise Unsupported(f"{path}.$ref", f"a reference to {reference!r}, outside of the schema")
    found: Json = root
    for step in reference.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and name in found:
            found = found[name]
        elif isinstance(found, list) and name.isdigit() and int(name) < len(found):
            found = found[int(name)]
        else:
            raise Unsupported(f"{path}.$ref", f"a reference to {reference!r}, which isn't there")
    return _is_schema(found, path)


def _joined(one: Schema, other: Schema, path: str) -> Schema:
    """What both demand."""
    for closed, beside in ((one, other), (other, one)):
        strange = set(beside.get("properties", {})) - set(closed.get("properties", {}))
        if strange and closed.get("additionalProperties", True) is not True:
            raise Unsupported(path, "`additionalProperties` beside properties that are declared elsewhere")
    joined = {**one, **other}
    for key in (one.keys() & other.keys()) - ANNOTATIONS:
        a, b = one[key], other[key]
        match key:
            case "required":
                joined[key] = [*a, *(name for name in b if name not in a)]
            case "properties":
                joined[key] = {**a, **{name: _joined(a[name], b[name], path) if name in a else b[name] for name in b}}
            case _ if a != b:
                raise Unsupported(f"{path}.{key}", f"two demands on `{key}`")
    return joined


def kinds(schema: Schema) -> frozenset[str]:
    """The types that a resolved schema may take; all of them if it doesn't say.

    `integer` is in it only where other numbers aren't.
    """
    if "const" in schema or "enum" in schema:
        values = [schema["const"]] if "const" in schema else schema["enum"]
        return frozenset(map(_kind, values))
    given = schema.get("type")
    if given is None:
        for kind, words in _TELLING.items():
            if not words.isdisjoint(schema):
                return frozenset((kind,))
        return KINDS
    names = frozenset([given] if isinstance(given, str) else given)
    if not names or names - KINDS - {"integer"}:
        raise Unsupported("", f"the type {given!r}")
    return names - {"integer"} if "number" in names else names


_TELLING = {
    "object": frozenset(("properties", "required", "additionalProperties")),
    "array": frozenset(("items", "prefixItems")),
}


def _kind(value: Json) -> str:
    match value:
        case bool():
            return "boolean"
        case None:
            return "null"
        case int() | float():
            return "integer" if value == int(value) else "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"


def fits(value: Json, allowed: frozenset[str]) -> bool:
    """Whether a value is of one of the types."""
    kind = _kind(value)
    return kind in allowed or (kind == "integer" and "number" in allowed)


def alternatives(schema: Schema, root: Schema, path: str) -> list[Schema] | None:
    """The schemas of which one holds; None when there is no such choice. Raises `Unsupported`."""
    words = [word for word in ("anyOf", "oneOf") if word in schema]
    if not words:
        return None
    given = schema[words[0]]
    if len(words) > 1 or not isinstance(given, list) or not given:
        raise Unsupported(path, "both `anyOf` and `oneOf`" if len(words) > 1 else f"an empty `{words[0]}`")
    rest = {key: value for key, value in schema.items() if key != words[0]}
    options = [_joined(rest, resolve(_is_schema(one, path), root, path), path) for one in given]
    if words == ["oneOf"] and not all(_apart(a, b, root) for a, b in combinations(options, 2)):
        raise Unsupported(f"{path}.oneOf", "a `oneOf` whose alternatives may hold at once (use `anyOf`)")
    return options


def _apart(one: Schema, other: Schema, root: Schema) -> bool:
    """Whether no value is taken by both."""
    a, b = (_numbers(kinds(schema)) for schema in (one, other))
    if not a & b:
        return True
    values = [_values(schema) for schema in (one, other)]
    if values[0] is not None and values[1] is not None:
        return not values[0] & values[1]
    if a & b != {"object"}:
        return False
    shared = set(one.get("required", ())) & set(other.get("required", ()))
    return any(
        _apart(resolve(one["properties"][name], root, ""), resolve(other["properties"][name], root, ""), root)
        for name in shared
        if all(isinstance(schema.get("properties", {}).get(name), dict) for schema in (one, other))
    )


def _numbers(found: frozenset[str]) -> frozenset[str]:
    return frozenset("number" if kind == "integer" else kind for kind in found)


def _values(schema: Schema) -> frozenset[str] | None:
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    return None if values is None else frozenset(json.dumps(value, sort_keys=True) for value in values)
