"""Asks whoever calls an HTTP route for a key."""

from __future__ import annotations

from http import HTTPStatus

from starlette.requests import Request

from duplex_server import auth
from duplex_server.auth import Door
from duplex_server.ephemeral import Grant
from duplex_server.errors import HttpError

WRONG_KEY = "Incorrect API key provided. Set Authorization: Bearer to one of the server's keys."
CHALLENGE = {"WWW-Authenticate": "Bearer"}


def ask(request: Request, door: Door) -> Grant:
    """What the caller's key opens. Raises `HttpError` (401) for a wrong one."""
    grant = door.admit(auth.header_key(request.headers))
    if grant is None:
        raise HttpError(HTTPStatus.UNAUTHORIZED, WRONG_KEY, code="invalid_api_key", headers=CHALLENGE)
    return grant


def ask_issuer(request: Request, door: Door) -> None:
    """Raises `HttpError` for a caller who may make no ephemeral keys: 401 for a wrong key, 403 for an ephemeral one."""
    ask(request, door)
    if not door.may_issue(auth.header_key(request.headers)):
        message = "An ephemeral key can't make further ones. Take one of the server's keys."
        raise HttpError(HTTPStatus.FORBIDDEN, message, code="insufficient_permissions")
