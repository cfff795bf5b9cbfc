"""Walks the annotated models of the openai package over a parsed event, and reports each deviation by its path."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable
from functools import cache
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel

Json = Any  # a parsed JSON value: checking what it is, is the task
Annotation = Any  # a type annotation, which has no common class
Model = type[BaseModel]


class Finding(NamedTuple):
    """One deviation: its kind, the path to it, and what is wrong."""

    kind: str
    path: str
    message: str


def index(union: Annotation) -> dict[str, Model]:
    """The models of a union by the value of their `type`."""
    return {str(tag): model for model in members(union) for tag in literal_values(model, "type") or ()}


@cache
def members(annotation: Annotation) -> tuple[Annotation, ...]:
    """The alternatives of an annotation, unions inside unions laid flat."""
    bare = _bare(annotation)
    if _origin(bare) in (Union, types.UnionType):
        return tuple(member for argument in get_args(bare) for member in members(argument))
    return (bare,)


@cache
def literal_values(model: Model, field: str) -> frozenset[object] | None:
    """The values a field of literals may have; None when it may have others."""
    declared = model.model_fields.get(field)
    if declared is None:
        return None
    values: set[object] = set()
    annotation: Annotation = declared.annotation
    for member in members(annotation):
        if _origin(member) is Literal:
            values |= set(get_args(member))
        elif member is not types.NoneType:
            return None
    return frozenset(values) or None


def json_type(value: Json) -> str:
    """What JSON calls the type of a value."""
    names = {
        types.NoneType: "null",
        bool: "boolean",
        int: "integer",
        float: "number",
        str: "string",
        list: "array",
        dict: "object",
    }
    return names.get(type(value), type(value).__name__)


class Schema:
    """Checks values against annotations and collects the findings."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    def model(self, value: dict[str, Json], model: Model, path: str) -> None:
        """Every declared field, and every other that is there."""
        known = set()
        for name, field in model.model_fields.items():
            key = field.alias or name
            known.add(key)
            below = f"{path}.{key}" if path else key
            if key in value:
                self.value(value[key], field.annotation, below)
            elif field.is_required():
                self._add("missing", below, "required field absent")
        for key in value:
            if key not in known:
                self._add("extra", f"{path}.{key}" if path else key, f"field not declared by {model.__name__}")

    def value(self, value: Json, annotation: Annotation, path: str) -> None:
        """A value of any type against all alternatives of an annotation."""
        options = list(members(annotation))
        if Any in options or object in options:
            return
        if value is None:
            if types.NoneType not in options:
                self._add("wrong_type", path, "null not allowed")
            return
        options = [option for option in options if option is not types.NoneType]
        if isinstance(value, dict) and self._object(value, options, path):
            return
        if isinstance(value, list):
            self._array(value, options, path)
        else:
            self._scalar(value, options, path)

    def _object(self, value: dict[str, Json], options: list[Annotation], path: str) -> bool:
        models = [option for option in options if isinstance(option, type) and issubclass(option, BaseModel)]
        if models:
            self._pick(value, models, path)
            return True
        mapping = next((option for option in options if _origin(option) is dict), None)
        if mapping is None:
            return False
        for key, item in value.items():
            self.value(item, get_args(mapping)[1], f"{path}.{key}")
        return True

    def _array(self, value: list[Json], options: list[Annotation], path: str) -> None:
        array = next((option for option in options if _origin(option) is list), None)
        if array is None:
            self._add("wrong_type", path, f"array not allowed, expected {_names(options)}")
            return
        for number, item in enumerate(value):
            self.value(item, get_args(array)[0], f"{path}[{number}]")

    def _scalar(self, value: Json, options: list[Annotation], path: str) -> None:
        literals = [literal for option in options if _origin(option) is Literal for literal in get_args(option)]
        if any(literal == value and isinstance(literal, bool) == isinstance(value, bool) for literal in literals):
            return
        plain = {option for option in options if isinstance(option, type)}
        takes: dict[type, set[type]] = {bool: {bool}, int: {int, float}, float: {float}, str: {str}}
        if takes.get(type(value), set()) & plain:
            return
        if literals and isinstance(value, type(literals[0])):
            self._add("bad_value", path, f"{value!r} not one of {sorted(map(str, literals))}")
        else:
            self._add("wrong_type", path, f"{json_type(value)} not allowed, expected {_names(options)}")

    def _pick(self, value: dict[str, Json], models: list[Model], path: str) -> None:
        """Choose the model by its literal `type`, then `role`; among what is left, the one with the fewest findings."""
        for field in ("type", "role") if len(models) > 1 else ():
            got = value.get(field)
            keyed = [(model, literal_values(model, field)) for model in models]
            if got is None or any(values is None for _, values in keyed):
                continue
            hits = [model for model, values in keyed if isinstance(got, str | int) and got in (values or ())]
            if hits:
                models = hits
            elif field == "type":
                allowed = sorted(str(known) for _, values in keyed for known in values or ())
                self._add("bad_value", f"{path}.{field}", f"{got!r} not one of {allowed}")
                return
        self.findings += fewest(value, models, path)

    def _add(self, kind: str, path: str, message: str) -> None:
        self.findings.append(Finding(kind, path or "$", message))


def fewest(value: dict[str, Json], models: Iterable[Model], path: str) -> list[Finding]:
    """The findings against the model that fits best."""
    trials = []
    for model in models:
        trial = Schema()
        trial.model(value, model, path)
        trials.append(trial.findings)
    return min(trials, key=len, default=[])


def _origin(annotation: Annotation) -> object:
    return get_origin(annotation)


def _bare(annotation: Annotation) -> Annotation:
    while _origin(annotation) is typing.Annotated:
        annotation = get_args(annotation)[0]
    return _bare(annotation.__value__) if hasattr(annotation, "__value__") else annotation


def _names(options: list[Annotation]) -> str:
    return "|".join(sorted({getattr(option, "__name__", str(option)).replace("typing.", "") for option in options}))
