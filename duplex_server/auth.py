"""Says who may use the server: keys from a header or a WebSocket subprotocol, compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping

from duplex_server.ephemeral import PREFIX, EphemeralKeys, Grant

SUBPROTOCOL = "realtime"
KEY_PROTOCOL = "openai-insecure-api-key."
ANYTHING = Grant()
"""What a key of the server's, and in a server without keys everybody, may open: sessions of any kind."""


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


def allowed(key: str | None, keys: tuple[str, ...]) -> bool:
    """True when the key is one of the server's, or the server has none."""
    if not keys:
        return True
    given = _digest(key or "")
    # Every key is compared, and as a digest, so that the time taken tells neither a key nor its length.
    return sum(hmac.compare_digest(given, _digest(known)) for known in keys) > 0


def check_keys(keys: Iterable[str]) -> None:
    """Raise `ValueError` for what can't be a key of the server; the message does not tell it."""
    for number, key in enumerate(keys, 1):
        if not key or not key.isascii() or not key.isprintable() or " " in key or "," in key:
            raise ValueError(f"api_keys: key {number} is empty, or has characters in it that no header carries")
        if key.startswith(PREFIX):
            raise ValueError(f"api_keys: key {number} begins with {PREFIX!r}, as ephemeral keys do: choose another one")


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


class Door:
    """Lets in whoever has a key: one of the server's, or an ephemeral one that has not expired."""

    def __init__(self, keys: tuple[str, ...], ephemeral: EphemeralKeys) -> None:
        self._keys, self.ephemeral = keys, ephemeral

    def admit(self, key: str | None) -> Grant | None:
        """What sessions the key may open; None when it opens nothing."""
        if key is not None and key.startswith(PREFIX):
            return self.ephemeral.find(key)
        return ANYTHING if allowed(key, self._keys) else None

    def may_issue(self, key: str | None) -> bool:
        """Whether an admitted key may make further ephemeral keys: an ephemeral one may not, where there are others."""
        return not self._keys or allowed(key, self._keys)
