"""Answers every request, come what may: each answer has an id, and what fails is told in the envelope of all errors."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from http import HTTPStatus

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, ExceptionHandler, Message, Receive, Scope, Send

from duplex_server.errors import HttpError, error_response

log = logging.getLogger(__name__)

REQUEST_ID = "x-request-id"
CODES: Mapping[int, str] = {404: "not_found", 405: "method_not_allowed"}
ANSWERS = ("http.response.start", "websocket.http.response.start", "websocket.accept")
"""The messages of an application that carry the headers of its answer."""


class Guard:
    """Middleware around the whole application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        request_id = f"req_{secrets.token_hex(16)}"
        begun = False

        async def tell(message: Message) -> None:
            nonlocal begun
            if message["type"] == "websocket.close" and not begun:
                await _nothing_here(scope)(scope, receive, tell)  # a handshake for which there is no route
                return
            if message["type"] in ANSWERS:
                begun = True
                message.setdefault("headers", [])
                MutableHeaders(scope=message)[REQUEST_ID] = request_id
            await send(message)

        try:
            await self._app(scope, receive, tell)
        except ClientDisconnect:
            log.debug("the client of %s left before it had said all", request_id)
        except Exception:
            if begun:
                raise  # whoever runs us cuts the connection and logs why
            log.exception("%s %s failed (%s)", scope.get("method", "WebSocket"), scope["path"], request_id)
            message = f"The server has failed. Its log says why, beside the id of this request, {request_id}."
            failed = error_response(HTTPStatus.INTERNAL_SERVER_ERROR, message, code="server_error")
            await failed(scope, receive, tell)


def _nothing_here(scope: Scope) -> Response:
    message = f"There is no WebSocket at {scope['path'][:200]}."
    return error_response(HTTPStatus.NOT_FOUND, message, code="not_found")


async def _refused(request: Request, error: Exception) -> Response:
    """What the framework itself refuses: no such route, or not with that method."""
    assert isinstance(error, HTTPException)
    path = request.url.path[:200]
    match error.status_code:
        case HTTPStatus.NOT_FOUND:
            message = f"There is nothing at {path}."
        case HTTPStatus.METHOD_NOT_ALLOWED:
            message = f"{path} does not take {request.method}."
        case _:
            message = error.detail
    status = HTTPStatus(error.status_code)
    return error_response(status, message, code=CODES.get(error.status_code), headers=error.headers)


async def _told(request: Request, error: Exception) -> Response:
    assert isinstance(error, HttpError)
    return error.response()


HANDLERS: Mapping[int | type[Exception], ExceptionHandler] = {HTTPException: _refused, HttpError: _told}
"""For the application: what is told when a route raises."""
