"""Answers what browsers ask before and after a page of another host may use a route."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from duplex_server.errors import error_response
from duplex_server.origins import ANY, Origins, refusal

METHODS = "GET, POST, OPTIONS, DELETE"
HEADERS = (
    "authorization, api-key, content-type, openai-beta, openai-organization, openai-project, "
    "openai-safety-identifier, x-openai-agents-sdk"
)
EXPOSED = "location, x-request-id"
REMEMBERED_S = 600
"""How long a browser need not ask again."""


class Cors:
    """Middleware for the HTTP routes at or below `roots`.

    `users` are the pages that may use them; `readers` those that may read the answers. A page that may do neither is
    refused as such, for a browser sends simple requests without asking first.
    """

    def __init__(self, app: ASGIApp, roots: Iterable[str], users: Origins, readers: Origins) -> None:
        self._app, self._roots, self._users, self._readers = app, tuple(roots), users, readers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not self._below(scope["path"]):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if not self._users.admits(headers):
            denied = error_response(HTTPStatus.FORBIDDEN, refusal(headers), code="foreign_origin")
            await denied(scope, receive, send)
            return
        reader = self._readers.readers(headers)

        async def tell(message: Message) -> None:
            if message["type"] == "http.response.start":
                told = MutableHeaders(scope=message)
                told["Access-Control-Expose-Headers"] = EXPOSED
                if reader is not None:
                    told["Access-Control-Allow-Origin"] = reader
                if reader != ANY:
                    told.add_vary_header("Origin")
            await send(message)

        if scope["method"] == "OPTIONS":
            await _preflight()(scope, receive, tell)
        else:
            await self._app(scope, receive, tell)

    def _below(self, path: str) -> bool:
        return any(path == root or path.startswith(f"{root}/") for root in self._roots)


def _preflight() -> Response:
    headers = {
        "Access-Control-Allow-Methods": METHODS,
        "Access-Control-Allow-Headers": HEADERS,
        "Access-Control-Max-Age": str(REMEMBERED_S),
    }
    return Response(status_code=HTTPStatus.NO_CONTENT, headers=headers)
