"""Tests the codes of telephones against the tables of the standard and another implementation of it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import pytest

from duplex_server.realtime.g711 import Law, decode, encode
from duplex_server.realtime.samples import Pcm

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    audioop: Any = pytest.importorskip("audioop")  # Python 3.13 has it no more

LAWS = get_args(Law)
BYTES = bytes(range(256))
SAMPLES = np.arange(-32768, 32768).astype(np.int16)

Coder = Callable[[bytes, int], bytes]
CODERS: dict[Law, tuple[Coder, Coder]] = {
    "mu": (audioop.lin2ulaw, audioop.ulaw2lin),
    "a": (audioop.lin2alaw, audioop.alaw2lin),
}


@pytest.mark.parametrize("law", LAWS)
def test_every_byte_stands_for_the_sample_of_the_standard(law: Law) -> None:
    assert decode(BYTES, law).tobytes() == CODERS[law][1](BYTES, 2)


@pytest.mark.parametrize(
    ("law", "code", "value"),
    [
        ("mu", 0x80, 8031 * 4),  # of table 2a, in 14 bits
        ("mu", 0xFE, 2 * 4),
        ("mu", 0xFF, 0),
        ("mu", 0x7F, 0),
        ("mu", 0x00, -8031 * 4),
        ("a", 0xAA, 4032 * 8),  # of table 1a, in 13 bits
        ("a", 0xD5, 1 * 8),
        ("a", 0x55, -1 * 8),
        ("a", 0x2A, -4032 * 8),
    ],
)
def test_the_ends_of_the_tables(law: Law, code: int, value: int) -> None:
    assert decode(bytes([code]), law).tolist() == [value]


@pytest.mark.parametrize("law", LAWS)
def test_every_sample_is_coded_as_another_implementation_does(law: Law) -> None:
    positive: Pcm = np.where(SAMPLES < 0, ~SAMPLES, SAMPLES).astype(np.int16)
    magnitudes = np.frombuffer(CODERS[law][0](positive.tobytes(), 2), np.uint8)
    expected = np.where(SAMPLES < 0, magnitudes ^ 0x80, magnitudes)
    np.testing.assert_array_equal(np.frombuffer(encode(SAMPLES, law), np.uint8), expected)


@pytest.mark.parametrize("law", LAWS)
def test_what_was_coded_once_is_coded_alike_again(law: Law) -> None:
    again = encode(decode(BYTES, law), law)
    other = [code for code in BYTES if again[code] != code]
    assert other == ([0x7F] if law == "mu" else []), "µ-law has two zeros"


@pytest.mark.parametrize("law", LAWS)
def test_a_sample_is_changed_by_less_than_its_step(law: Law) -> None:
    heard = decode(encode(SAMPLES, law), law).astype(int)
    loud = np.abs(SAMPLES.astype(int))
    assert np.all(np.abs(heard - SAMPLES) <= 16 + loud / 30)
    assert np.all(np.diff(heard) >= 0)


def test_nothing_is_nothing() -> None:
    for law in LAWS:
        assert encode(np.zeros(0, np.int16), law) == b""
        assert len(decode(b"", law)) == 0
