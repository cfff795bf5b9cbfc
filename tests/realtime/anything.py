"""Draws objects and events of the protocol at random, by their declared types."""

from __future__ import annotations

import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from hypothesis import strategies as st
from msgspec import UNSET, UnsetType

PLAIN: dict[object, st.SearchStrategy[Any]] = {
    str: st.text('ab {}"', max_size=4),
    int: st.integers(0, 5000),
    float: st.floats(0, 2),
    bool: st.booleans(),
    types.NoneType: st.none(),
    UnsetType: st.just(UNSET),
    msgspec.Raw: st.just(msgspec.Raw(b"{}")),
}


def of(kind: Any) -> st.SearchStrategy[Any]:  # noqa: ANN401 (a type form, and what it stands for)
    """Values of an annotation: a struct, with all that it is made of, or anything that its fields are made of."""
    if kind in PLAIN:
        return PLAIN[kind]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return st.builds(kind, **{field.name: of(field.type) for field in msgspec.structs.fields(kind)})
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is Annotated:
        return of(arguments[0])
    if origin in (Union, types.UnionType):
        return st.one_of(*map(of, arguments))
    if origin is tuple:
        return st.lists(of(arguments[0]), max_size=2).map(tuple)
    if origin is dict:
        return st.dictionaries(of(arguments[0]), of(arguments[1]), max_size=2)
    raise AssertionError(f"no values are known for {kind!r}")
