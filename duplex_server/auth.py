"""Says who may use the server: keys from a header or a WebSocket subprotocol, compared in constant time."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

SUBPROTOCOL = "realtime"
LOOPBACK = ("localhost", "127.0.0.1", "::1")
KEY_PROTOCOL = "openai-insecure-api-key."


def header_key(headers: Mapping[str, str]) -> str | None:
    """The key in `Authorization: Bearer` or `api-key`, if there is one."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and key.strip():
        return key.strip()
    return headers.get("api-key")


def offered_protocols(headers: Mapping[str, str]) -> list[str]:
    """The subprotocols that a WebSocket peer offers."""
    return [name.strip() for name in headers.get("sec-websocket-protocol", "").split(",") if name.strip()]


def protocol_key(offered: Iterable[str]) -> str | None:
    """The key that a browser, which can set no headers, puts into a subprotocol."""
    return next((name[len(KEY_PROTOCOL) :] for name in offered if name.startswith(KEY_PROTOCOL)), None)


def foreign(headers: Mapping[str, str]) -> bool:
    """True when a browser sends this for a page that another host has served.

    Without keys the address is all that protects a server on this machine, and any page may open a socket to it.
    """
    origin = urlsplit(headers.get("origin", ""))
    if not origin.netloc:
        return False
    return origin.netloc != headers.get("host") and origin.hostname not in LOOPBACK


def allowed(key: str | None, keys: tuple[str, ...]) -> bool:
    """True when the key is one of the server's, or the server has none."""
    if not keys:
        return True
    given = (key or "").encode()
    # Every key is compared, so that the time taken tells nothing.
    return sum(hmac.compare_digest(given, known.encode()) for known in keys) > 0
