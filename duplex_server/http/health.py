"""Answers whether the process lives and whether it can take a call."""

from __future__ import annotations

import time
from collections.abc import Callable
from http import HTTPStatus

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from duplex_server.errors import error_response
from duplex_server.readiness import Pipeline, Readiness, Stage, Status, look
from pipeline.spec import FamilyRole

RETRY_S = 2
"""A load takes seconds, a restart less."""
RETRY_LONG_S = 10
"""A broken stage is tried again this often; a server that stops is not coming back."""
TOLD: dict[Status, str] = {
    "loading": "The models are still loading",
    "restarting": "A stage is being restarted",
    "broken": "A stage is broken and needs its operator",
    "stopping": "The server is stopping",
}


class _Ready(msgspec.Struct, frozen=True):
    status: Status
    models: dict[FamilyRole, str]  # for people to read
    stages: dict[FamilyRole, Stage]


def routes(pipeline: Pipeline, stopping: Callable[[], bool]) -> list[Route]:
    """`/healthz` answers while the process lives, `/readyz` with 200 while calls can be taken.

    `/readyz` says how each stage is, and with 503 also what is wrong, in the envelope of all errors.
    """

    async def healthz(_: Request) -> Response:
        return Response("ok\n", media_type="text/plain")

    async def readyz(_: Request) -> Response:
        found = look(pipeline, time.monotonic(), stopping=stopping())
        if found.status != "ready":
            return _not_ready(found)
        models = {role: can.model for role, can in pipeline.capabilities.items()}
        body = msgspec.json.encode(_Ready(found.status, models, found.stages))
        return Response(body, media_type="application/json")

    return [Route("/healthz", healthz), Route("/readyz", readyz)]


def _not_ready(found: Readiness) -> Response:
    waiting = ", ".join(role for role, stage in found.stages.items() if stage.state != "ready")
    after_s = RETRY_S if found.status in ("loading", "restarting") else RETRY_LONG_S
    return error_response(
        HTTPStatus.SERVICE_UNAVAILABLE,
        f"{TOLD[found.status]}{waiting and f': {waiting}'}.",
        code="not_ready",
        headers={"Retry-After": str(after_s)},
        beside=found,
    )
