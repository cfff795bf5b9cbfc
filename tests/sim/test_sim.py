"""Lives through seeded conversations; a seed that fails is run again with `python -m tests.sim --seed N --trace`."""

from __future__ import annotations

import pytest

from duplex_server.realtime.effects import Effect
from duplex_server.realtime.inputs import Input
from duplex_server.realtime.journal import check
from tests.sim.world import run

SLICE = 60
LONG = 2000


@pytest.mark.parametrize("seed", range(SLICE))
def test_a_conversation_keeps_its_promises(seed: int) -> None:
    report = run(seed)
    assert report.lived_s > 0


def test_a_seed_runs_again_exactly() -> None:
    first, again = _record(3), _record(3)
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
