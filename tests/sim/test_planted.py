"""Plants faults and lets the simulator find them: it must be worth its time."""

from __future__ import annotations

import pytest

from tests.sim.faults import FAULTS
from tests.sim.world import run

WITHIN = 40
"""Seeds in which each fault must be found; most are found in the first."""


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    FAULTS[name](monkeypatch)
    assert any(_fails(seed) for seed in range(WITHIN)), f"{name} was not found within {WITHIN} seeds"


def _fails(seed: int) -> bool:
    try:
        run(seed)
    except (AssertionError, LookupError):  # a core that is broken may trip over itself before it is caught
        return True
    return False
