"""Reads the bodies of requests: no larger than they may be, and as the objects they should hold."""

from __future__ import annotations

from http import HTTPStatus
from typing import NoReturn, TypeVar

import msgspec
from starlette.requests import Request

from duplex_server.errors import HttpError
from duplex_server.realtime import wire
from duplex_server.realtime.wire import Fault

T = TypeVar("T")


async def read(request: Request, most_bytes: int) -> bytes:
    """The whole body. Raises `HttpError` (413) as soon as it is known to be larger than `most_bytes`."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > most_bytes:
        _too_large(most_bytes)
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > most_bytes:
            _too_large(most_bytes)
    return bytes(body)


def parse(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """A JSON body; an empty one counts as an object without fields. Raises `HttpError` (400) that names the field."""
    found = wire.read(body if body.strip() else b"{}", decoder)
    if isinstance(found, Fault):
        if found.code == "invalid_json":
            message = "The body is not a JSON object in UTF-8 that can be read. Send one, or nothing."
            raise HttpError(HTTPStatus.BAD_REQUEST, message, code=found.code)
        blame(found)
    return found


def blame(fault: Fault) -> NoReturn:
    """Raises a peer's mistake as the answer it gets, an `HttpError` (400)."""
    raise HttpError(HTTPStatus.BAD_REQUEST, fault.message, code=fault.code, param=fault.param)


def _too_large(most_bytes: int) -> NoReturn:
    message = f"Expected a body of at most {most_bytes} bytes. Send a smaller one."
    raise HttpError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message, code="request_too_large")
