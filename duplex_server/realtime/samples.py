"""Holds a stream's samples by position, for as long as somebody may ask for them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Pcm = NDArray[np.int16]
_TRIM_BYTES = 96_000  # letting go in strides of two seconds keeps appending cheap


class Samples:
    """Int16 mono samples at consecutive positions; the oldest are let go by position."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._first = 0

    @property
    def end(self) -> int:
        """The position after the newest sample."""
        return self._first + len(self._data) // 2

    def append(self, pcm: Pcm) -> None:
        self._data += pcm.tobytes()

    def get(self, from_sample: int, upto_sample: int) -> Pcm:
        """A copy of [from_sample, upto_sample). Asking for what is gone or not yet there is a bug."""
        assert self._first <= from_sample <= upto_sample <= self.end, (self._first, from_sample, upto_sample, self.end)
        start, stop = 2 * (from_sample - self._first), 2 * (upto_sample - self._first)
        return np.frombuffer(bytes(self._data[start:stop]), "<i2")

    def let_go(self, before_sample: int) -> None:
        """Samples before a position are not needed any more."""
        bytes_gone = 2 * (min(before_sample, self.end) - self._first)
        if bytes_gone >= _TRIM_BYTES:
            del self._data[:bytes_gone]
            self._first += bytes_gone // 2
