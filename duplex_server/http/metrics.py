"""Serves the metrics at `/metrics`."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from duplex_server import auth
from duplex_server.config import ServerSettings
from duplex_server.errors import error_response
from duplex_server.http.keys import CHALLENGE
from duplex_server.metrics import Metrics, Snapshot


def routes(metrics: Metrics, look: Callable[[], Snapshot], settings: ServerSettings) -> list[Route]:
    """`/metrics`, for whoever has a key, or for everybody with `server.metrics_open`."""
    keys = () if settings.metrics_open else settings.api_keys

    async def show(request: Request) -> Response:
        if not auth.allowed(auth.header_key(request.headers), keys):
            return error_response(
                HTTPStatus.UNAUTHORIZED,
                "Metrics need one of the server's keys as Authorization: Bearer, or server.metrics_open.",
                code="invalid_api_key",
                headers=CHALLENGE,
            )
        body, content_type = await metrics.render(request.headers.get("accept", ""), look())
        return Response(body, headers={"Content-Type": content_type})

    return [Route("/metrics", show)]
