"""Plants faults and lets the simulator find them: it must be worth its time."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count, islice

import pytest

from tests.sim.faults import FAULTS
from tests.sim.scenario import drawn
from tests.sim.stage_faults import STAGE_FAULTS
from tests.sim.works import PLAIN
from tests.sim.world import run

WITHIN = 40
"""Seeds in which each fault must be found; most are found in the first."""


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    FAULTS[name](monkeypatch)
    assert _found(range(WITHIN)), f"{name} was not found within {WITHIN} seeds"


RARE = frozenset(("reclaim_takes_what_is_for_the_next",))
"""Faults that show in one run of a hundred; they are looked for by `make test-full`."""


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(RARE))
def test_a_fault_that_is_rare_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    STAGE_FAULTS[name](monkeypatch)
    assert _found(seed for seed in range(10 * WITHIN) if drawn(seed).works is not PLAIN), f"{name} was not found"


@pytest.mark.parametrize("name", sorted(STAGE_FAULTS.keys() - RARE))
def test_a_fault_behind_the_sessions_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In runs that have more behind them than a plain pipeline."""
    STAGE_FAULTS[name](monkeypatch)
    seeds = (seed for seed in count() if drawn(seed).works is not PLAIN)
    assert _found(islice(seeds, WITHIN)), f"{name} was not found within {WITHIN} seeds"


def _found(seeds: Iterable[int]) -> bool:
    return any(_fails(seed) for seed in seeds)


def _fails(seed: int) -> bool:
    try:
        run(seed)
    except (AssertionError, LookupError):  # a core that is broken may trip over itself before it is caught
        return True
    return False
