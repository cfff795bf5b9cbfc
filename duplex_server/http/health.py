"""Answers whether the process lives and whether it can take a call."""

from __future__ import annotations

from http import HTTPStatus

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from duplex_server.errors import error_response
from pipeline.engine import Engine
from pipeline.spec import FamilyRole


class _Ready(msgspec.Struct, frozen=True):
    status: str
    models: dict[FamilyRole, str]  # for people to read


def routes(engine: Engine) -> list[Route]:
    """`/healthz` answers while the process lives, `/readyz` once all models are warm."""

    async def healthz(_: Request) -> Response:
        return Response("ok\n", media_type="text/plain")

    async def readyz(_: Request) -> Response:
        if not engine.ready:
            return error_response(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "The models are still loading, or one of them is being restarted.",
                code="not_ready",
                headers={"Retry-After": "2"},
            )
        models = {role: can.model for role, can in engine.capabilities.items()}
        return Response(msgspec.json.encode(_Ready("ready", models)), media_type="application/json")

    return [Route("/healthz", healthz), Route("/readyz", readyz)]
