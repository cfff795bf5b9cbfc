"""Says how far a pipeline is, stage by stage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

import msgspec

from pipeline.host import Phase, StageState
from pipeline.spec import Capabilities, FamilyRole

Status = Literal["ready", "loading", "restarting", "broken", "stopping"]
PHASES: tuple[Phase, ...] = ("ready", "loading", "restarting", "broken")
"""The better first."""


class Pipeline(Protocol):
    """What readiness asks of a pipeline."""

    @property
    def ready(self) -> bool:
        """Whether every stage is up and answers."""

    @property
    def capabilities(self) -> Mapping[FamilyRole, Capabilities]:
        """What each stage can do."""

    @property
    def states(self) -> Mapping[FamilyRole, tuple[StageState, ...]]:
        """How each stage is: one state for each of its live replicas."""


class Replicas(msgspec.Struct, frozen=True):
    """How many of a stage's replicas are ready."""

    ready: int
    of: int


class Stage(msgspec.Struct, frozen=True, omit_defaults=True):
    """One stage, as well as the best of its replicas: one that is ready suffices."""

    state: Phase
    since_s: float
    model: str | None
    cause: str | None
    progress: str = ""
    replicas: Replicas | None = None  # of a stage that has several


class Readiness(msgspec.Struct, frozen=True):
    """The status of the whole, which is that of its worst stage, and the stages."""

    status: Status
    stages: dict[FamilyRole, Stage]


def look(pipeline: Pipeline, now: float, *, stopping: bool = False) -> Readiness:
    """How far a pipeline is at `now`, in monotonic seconds."""
    stages = {role: _stage(role, states, pipeline, now) for role, states in pipeline.states.items()}
    status: Status = "ready"
    if stopping:
        status = "stopping"
    elif not pipeline.ready:
        phases: list[Phase] = [stage.state for stage in stages.values() if stage.state != "ready"]
        # With none, some replica of a stage is not up for the first time.
        status = max(phases, key=PHASES.index, default="loading")
    return Readiness(status, stages)


def _stage(role: FamilyRole, states: tuple[StageState, ...], pipeline: Pipeline, now: float) -> Stage:
    best = min(states, key=lambda state: PHASES.index(state.phase))
    can = pipeline.capabilities.get(role)
    ready = sum(state.phase == "ready" for state in states)
    return Stage(
        state=best.phase,
        since_s=round(now - best.since, 1),
        model=can.model if can is not None else None,
        cause=best.cause or None,
        progress=best.progress,
        replicas=Replicas(ready, len(states)) if len(states) > 1 else None,
    )
