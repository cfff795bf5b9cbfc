"""Makes the payloads that are carried in the measurements, and tells whether one has arrived."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

NAME = "hidden"
PAGE_BYTES = 4096  # what a receiver reads of each payload, whatever carried it
WORD_BYTES = 8


def blank(nbytes: int) -> NDArray[np.int64]:
    """A payload of so many bytes (a multiple of 8), all ones."""
    return np.ones(nbytes // WORD_BYTES, np.int64)


def arrived(number: int, got: NDArray[np.int64]) -> bool:
    """Read one page of a payload: is it the one whose first word was set to `number`?"""
    page = got[: PAGE_BYTES // WORD_BYTES]
    return int(page[0]) == number and int(page.sum()) == number + len(page) - 1
