"""Waits for what only a look can tell, with a deadline: spinning shortly, then sleeping longer and longer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

SPINS = 10  # looks without a sleep, some 10 µs; more would take the core from those who are waited for
FIRST_PAUSE_S = 20e-6
MOST_PAUSE_S = 1e-3  # what a wait may add to the moment it waits for

Found = TypeVar("Found")


def until(look: Callable[[], Found | None], timeout_s: float) -> Found | None:
    """What `look` returns once it is not None; None when it still was after `timeout_s` seconds.

    It looks once at least.
    """
    deadline = time.monotonic() + timeout_s
    looks, pause_s = 0, FIRST_PAUSE_S
    while (found := look()) is None:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return None
        looks += 1
        if looks > SPINS:
            time.sleep(min(pause_s, left_s))
            pause_s = min(2 * pause_s, MOST_PAUSE_S)
    return found
