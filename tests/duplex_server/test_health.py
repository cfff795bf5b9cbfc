"""Tests what `/readyz` says, to probes and to people."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from duplex_server.http import health
from duplex_server.readiness import Stage, look
from pipeline.engine import Engine
from pipeline.host import Phase, StageState
from pipeline.spec import Capabilities, FamilyRole
from tests.pipeline import scenes

NOW = 100.0
LAST = StageState("ready", 90.0)


@dataclass(slots=True)
class Pipeline:
    """Stages in any state."""

    states: dict[FamilyRole, tuple[StageState, ...]]
    ready: bool = False
    capabilities: dict[FamilyRole, Capabilities] = field(default_factory=dict)


def readyz(pipeline: Pipeline, *, stopping: bool = False) -> httpx.Response:
    async def fetch() -> httpx.Response:
        app = Starlette(routes=health.routes(pipeline, lambda: stopping))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://server") as client:
            assert (await client.get("/healthz")).text == "ok\n"
            return await client.get("/readyz")

    return asyncio.run(fetch())


def test_each_stage_says_how_it_is_since_when_and_why() -> None:
    pipeline = Pipeline(
        {
            "detector": (StageState("ready", 99.0),),
            "recognizer": (StageState("loading", 96.75, progress="its process starts"),),
            "thinker": (StageState("broken", 40.0, "its file is missing"),),
        },
        capabilities={"thinker": Capabilities("tiny")},
    )
    found = look(pipeline, NOW)
    assert found.status == "broken", "the worst"
    assert found.stages == {
        "detector": Stage("ready", 1.0, None, None),
        "recognizer": Stage("loading", 3.2, None, None, "its process starts"),
        "thinker": Stage("broken", 60.0, "tiny", "its file is missing"),
    }


@pytest.mark.parametrize(
    ("phases", "best"),
    [
        (("broken", "ready", "restarting"), "ready"),
        (("broken", "restarting"), "restarting"),
        (("broken", "loading"), "loading"),
        (("broken", "broken"), "broken"),
    ],
)
def test_a_set_of_replicas_is_as_well_as_its_best_one(phases: tuple[Phase, ...], best: Phase) -> None:
    states = tuple(StageState(phase, 0.0) for phase in phases)
    found = look(Pipeline({"thinker": states, "talker": (LAST,)}, ready=best == "ready"), NOW)
    assert found.status == found.stages["thinker"].state == best
    replicas = found.stages["thinker"].replicas
    assert replicas is not None
    assert (replicas.ready, replicas.of) == (phases.count("ready"), len(phases))
    assert found.stages["talker"].replicas is None


def test_a_replica_that_is_not_up_for_the_first_time_leaves_the_whole_loading() -> None:
    states = (StageState("ready", 0.0), StageState("loading", 0.0))
    assert look(Pipeline({"thinker": states}), NOW).status == "loading"
    assert look(Pipeline({}), NOW).status == "loading"


def test_ready_is_200_with_models_and_stages() -> None:
    answer = readyz(Pipeline({"talker": (LAST,)}, ready=True, capabilities={"talker": Capabilities("tone")}))
    assert answer.status_code == 200
    body = answer.json()
    assert (body["status"], body["models"]) == ("ready", {"talker": "tone"})
    assert body["stages"]["talker"]["state"] == "ready"
    assert body["stages"]["talker"]["since_s"] == pytest.approx(time.monotonic() - 90.0, abs=5)
    assert "error" not in body


@pytest.mark.parametrize("phase", ["loading", "restarting", "broken"])
def test_not_ready_is_503_with_the_envelope_of_all_errors(phase: Phase) -> None:
    answer = readyz(Pipeline({"talker": (LAST,), "thinker": (StageState(phase, 0.0, "it fell"),)}))
    assert answer.status_code == 503
    assert int(answer.headers["Retry-After"]) > 0
    body = answer.json()
    assert body["status"] == phase
    assert body["stages"]["thinker"]["cause"] == "it fell"
    assert body["error"].keys() == {"message", "type", "param", "code"}
    assert (body["error"]["type"], body["error"]["code"]) == ("server_error", "not_ready")
    assert body["error"]["message"].endswith(": thinker."), "it names those that are waited for, and no others"


def test_a_server_that_stops_takes_no_more_calls() -> None:
    answer = readyz(Pipeline({"talker": (LAST,)}, ready=True), stopping=True)
    assert answer.status_code == 503
    assert answer.json()["status"] == "stopping"
    assert answer.json()["error"]["message"] == "The server is stopping."


def test_a_real_pipeline_tells_from_its_first_moment_until_it_is_up() -> None:
    async def scene() -> None:
        engine = Engine(scenes.cascade("inline"), scenes.load_family, cores=2)
        seen: list[dict[str, Any]] = []

        def note(told: str) -> None:
            if "is loading" in told:  # another one may not have begun
                return
            found = look(engine, time.monotonic())
            seen.append({role: stage.state for role, stage in found.stages.items()} | {"status": found.status})
            assert all(0 <= stage.since_s < scenes.DEADLINE_S for stage in found.stages.values()), found

        note("before the start")
        await engine.start(note)
        try:
            note("after it")
        finally:
            await engine.stop()
        assert [one["status"] for one in seen[:-1]] == ["loading"] * (len(seen) - 1)
        assert seen[-1] == dict.fromkeys(("detector", "recognizer", "thinker", "talker", "status"), "ready")

    scenes.play(scene)
