"""Runs the engine's tests with stages in threads and in processes."""

from __future__ import annotations

import pytest

from pipeline.spec import Placement
from tests.pipeline.scenes import PLACEMENTS


@pytest.fixture(params=PLACEMENTS)
def placement(request: pytest.FixtureRequest) -> Placement:
    chosen: Placement = request.param
    return chosen
