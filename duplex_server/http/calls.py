"""Answers the routes of calls: there are none yet, and it says so."""

from __future__ import annotations

from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from duplex_server.auth import Door
from duplex_server.errors import error_response
from duplex_server.http.keys import ask

ACTIONS = ("accept", "hangup", "refer", "reject")


def routes(door: Door, root: str) -> list[Route]:
    """`root`/calls and what is done to a call, for whoever has a key.

    A call that can't be made is told by 404, not by 501: stock clients repeat what was answered by 5xx.
    """

    async def offer(request: Request) -> Response:
        ask(request, door)
        message = "This server takes no WebRTC calls. Open a WebSocket at the same address without /calls."
        return error_response(HTTPStatus.NOT_FOUND, message, code="unsupported_operation")

    async def act(request: Request) -> Response:
        ask(request, door)
        call_id = request.path_params["call_id"][:200]
        message = f"There is no call {call_id!r} here."
        return error_response(HTTPStatus.NOT_FOUND, message, code="call_not_found", param="call_id")

    acts = [Route(f"{root}/calls/{{call_id}}/{action}", act, methods=["POST"]) for action in ACTIONS]
    return [Route(f"{root}/calls", offer, methods=["POST"]), *acts]
