"""Codes int16 samples as the bytes of telephones, µ-law and A-law, and back, by tables.

Source: ITU-T G.711, tables 1 and 2. Its values have 14 bits (µ-law) and 13 (A-law); here they fill 16, so that nothing
is lost when an int16 sample is held against a decision value. One that lies on it goes to the higher step; a negative
one is coded as its ones' complement, as in the software of ITU-T G.191.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from duplex_server.realtime.samples import Pcm

Law = Literal["mu", "a"]
Steps = NDArray[np.int32]  # one for each of the 128 magnitudes, the smallest first

_SEGMENTS = np.arange(8)
_FLIPPED_MU, _FLIPPED_A = 0x7F, 0x55
"""Bits that are inverted on the line: all those of a magnitude in µ-law, every other one in A-law."""


def _mu() -> tuple[Steps, Steps]:
    """Where each step of µ-law begins, and the value it stands for."""
    scale = 4  # 14 bits in 16
    widths = np.repeat(2 << _SEGMENTS, 16)
    begins = np.concatenate([[0], np.cumsum(widths)[:-1] - 1])  # the first step is half as wide, around zero
    values = begins + widths // 2
    values[0] = 0
    return scale * begins, scale * values


def _a() -> tuple[Steps, Steps]:
    """Where each step of A-law begins, and the value it stands for."""
    scale = 8  # 13 bits in 16
    widths = np.repeat(2 << np.maximum(_SEGMENTS - 1, 0), 16)
    begins = np.cumsum(widths) - widths
    return scale * begins, scale * begins + scale * widths // 2


def _tables(begins: Steps, values: Steps, flipped: int) -> tuple[NDArray[np.uint8], Pcm]:
    """The byte of each sample, by its bits as a uint16, and the sample of each byte."""
    samples = np.arange(1 << 16, dtype=np.uint16).view(np.int16).astype(np.int32)
    magnitudes = np.where(samples < 0, ~samples, samples)
    steps = np.searchsorted(begins, magnitudes, side="right") - 1
    positive = np.where(samples < 0, 0, 0x80)
    to_byte = ((positive | steps) ^ flipped).astype(np.uint8)
    codes = np.arange(256) ^ flipped
    step = values[codes & 0x7F]
    return to_byte, np.where(codes & 0x80, step, -step).astype(np.int16)


_TABLES = {"mu": _tables(*_mu(), _FLIPPED_MU), "a": _tables(*_a(), _FLIPPED_A)}


def encode(pcm: Pcm, law: Law) -> bytes:
    """Samples, int16 of shape (n,), as n bytes."""
    return _TABLES[law][0][pcm.view(np.uint16)].tobytes()


def decode(sound: bytes | bytearray | memoryview, law: Law) -> Pcm:
    """The samples of n bytes, int16 of shape (n,)."""
    return _TABLES[law][1][np.frombuffer(sound, np.uint8)]
