"""Writes errors for HTTP peers: one envelope, with the class of the fault in its status."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

import msgspec
from starlette.responses import Response


class _Body(msgspec.Struct, frozen=True):
    message: str
    type: str
    param: str | None
    code: str | None


class _Envelope(msgspec.Struct, frozen=True):
    error: _Body


def error_response(
    status: HTTPStatus,
    message: str,
    *,
    code: str | None = None,
    param: str | None = None,
    headers: Mapping[str, str] | None = None,
    beside: msgspec.Struct | None = None,
) -> Response:
    """An error in the envelope of the OpenAI API; the fields of `beside` stand next to it."""
    kind = "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
    envelope = msgspec.to_builtins(_Envelope(_Body(message, kind, param, code)))
    body = msgspec.json.encode(envelope | msgspec.to_builtins(beside) if beside is not None else envelope)
    return Response(body, status, headers, media_type="application/json")


class HttpError(Exception):
    """What a request is answered with instead of what it asked for; the application makes an envelope of it."""

    def __init__(
        self,
        status: HTTPStatus,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.param, self.headers = status, message, code, param, headers

    def response(self) -> Response:
        return error_response(self.status, self.message, code=self.code, param=self.param, headers=self.headers)
