"""Lives through seeded conversations; a seed that fails is run again with `python -m tests.sim --seed N --trace`."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

import pytest

from duplex_server.realtime.effects import Effect
from duplex_server.realtime.inputs import Input
from duplex_server.realtime.journal import check
from tests.sim.scenario import drawn
from tests.sim.works import PLAIN
from tests.sim.world import Report, run

SLICE = 60
LONG = 2000
RARE = (
    "acknowledged twice",
    "batch steps",
    "broken",
    "credit again",
    "died",
    "errands",
    "full",
    "leased by the dead",
    "left half put",
    "not acknowledged",
    "out of credits",
    "put",
    "stale",
    "waits for a slot",
    "withdrawn",
    "withdrawn too late",
)
"""A slice that has met with none of these proves little."""


@pytest.mark.parametrize("seed", range(SLICE))
def test_a_conversation_keeps_its_promises(seed: int) -> None:
    assert _lived(seed).lived_s > 0


def test_the_slice_meets_with_what_is_rare() -> None:
    met = sum((_lived(seed).met for seed in range(SLICE)), Counter[str]())
    assert not [what for what in RARE if not met[what]], met


@lru_cache(maxsize=SLICE)
def _lived(seed: int) -> Report:
    return run(seed)


@pytest.mark.parametrize("plain", [True, False])
def test_a_seed_runs_again_exactly(plain: bool) -> None:
    seed = next(seed for seed in range(3, SLICE) if (drawn(seed).works is PLAIN) == plain)
    first, again = _record(seed), _record(seed)
    assert first == again
    assert len(first) > 1000


def _record(seed: int) -> list[tuple[float, str, int]]:
    lines: list[tuple[float, str, int]] = []

    def watch(now: float, stream: str, given: Input, effects: tuple[Effect, ...]) -> None:
        lines.append((now, stream, check(effects)))

    run(seed, watch)
    return lines


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_conversations_keep_their_promises() -> None:
    failed = []
    for seed in range(SLICE, SLICE + LONG):
        try:
            run(seed)
        except AssertionError as error:
            failed.append((seed, str(error)))
    assert not failed, f"see one with `python -m tests.sim --seed N --trace`: {failed[:10]}"
