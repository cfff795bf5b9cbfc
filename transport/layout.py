"""Lays arrays out in a run of bytes, and finds them again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from transport.errors import PlaneError

Array = NDArray[Any]  # any dtype: a plane carries audio, features, token ids and hidden states alike

ALIGN_BYTES = 64  # each array begins on a cache line, whatever lies before it
MAX_ARRAYS = 64  # in one payload
MAX_DTYPES = 256  # dtype names that are kept parsed

# Dtypes that numpy does not know travel as their bits: the name on the wire, and what they arrive as. A further one is
# a line here.
BITS: Mapping[str, np.dtype[Any]] = MappingProxyType(
    {"bfloat16": np.dtype("<u2"), "float8_e4m3fn": np.dtype("u1"), "float8_e5m2": np.dtype("u1")}
)


@dataclass(frozen=True, slots=True)
class Bits:
    """An array of a dtype that numpy does not know, as its bits.

    For a torch tensor: `Bits("bfloat16", tensor.view(torch.uint16).numpy())`. What arrives is the array of bits; its
    entry in the layout (or its block) names the dtype to view it as. `dtype` is a key of `BITS`.
    """

    dtype: str
    array: Array


class Layout(msgspec.Struct, frozen=True, array_like=True):
    """Where one array lies in its slot: `offset` in bytes; `dtype` is numpy's string, or a key of `BITS`."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int

    @property
    def nbytes(self) -> int:
        """How many bytes the array has."""
        return math.prod(self.shape) * np.dtype(BITS.get(self.dtype, self.dtype)).itemsize


def bare(value: Array | Bits) -> tuple[str, Array]:
    """The dtype's name on the wire, and the array that is copied. Raises `PlaneError` for what can't travel."""
    if isinstance(value, Bits):
        if BITS.get(value.dtype) != value.array.dtype:
            raise PlaneError(
                f"bits of {value.dtype!r} in an array of {value.array.dtype}: it takes one of {dict(BITS)}"
            )
        return value.dtype, value.array
    return name_of(value.dtype), value


def lay_out(arrays: Mapping[str, Array | Bits]) -> tuple[tuple[Layout, ...], list[Array], int]:
    """The layout of a payload, its arrays in that order, and the sum of their sizes in bytes.

    Raises `PlaneError` for what can't travel.
    """
    if len(arrays) > MAX_ARRAYS:
        raise PlaneError(f"{len(arrays)} arrays in one payload: at most {MAX_ARRAYS}")
    places: list[Layout] = []
    sources: list[Array] = []
    offset = total = 0
    for name, value in arrays.items():
        dtype, array = bare(value)
        places.append(Layout(name, dtype, array.shape, offset))
        sources.append(array)
        total += array.nbytes
        offset += -(-array.nbytes // ALIGN_BYTES) * ALIGN_BYTES
    return tuple(places), sources, total


def room(nbytes: int) -> int:
    """The bytes that a payload of `nbytes` bytes may take when it is laid out."""
    return nbytes + MAX_ARRAYS * ALIGN_BYTES


def view(region: NDArray[np.uint8], place: Layout) -> Array:
    """The array at its place in `region` (1-D). Raises `PlaneError` for a place that is not in it."""
    dtype = numpy_dtype(place.dtype)
    if place.offset < 0 or min(place.shape, default=0) < 0:  # numpy would not mind
        raise PlaneError(f"{place} does not lie within {len(region)} bytes")
    try:
        return np.ndarray(place.shape, dtype, region, place.offset)
    except (TypeError, ValueError) as error:
        raise PlaneError(f"{place} does not lie within {len(region)} bytes: {error}") from error


@lru_cache(MAX_DTYPES)
def name_of(dtype: np.dtype[Any]) -> str:
    """The name of a dtype on the wire. Raises `PlaneError` for one that can't travel."""
    if dtype.hasobject or dtype.kind == "V" or dtype.itemsize == 0:
        raise PlaneError(
            f"an array of {dtype} can't travel: send plain numbers, each field for itself; "
            "a dtype that numpy does not know goes as Bits"
        )
    return dtype.str


@lru_cache(MAX_DTYPES)
def numpy_dtype(name: str) -> np.dtype[Any]:
    """What an array whose dtype has this name on the wire arrives as. Raises `PlaneError`."""
    if (bits := BITS.get(name)) is not None:
        return bits
    try:
        dtype = np.dtype(name)
    except TypeError as error:
        raise PlaneError(f"an unknown dtype: {name!r}") from error
    name_of(dtype)
    return dtype
