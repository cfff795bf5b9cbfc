"""Finds the addresses of a server from the one that the user gave."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

LOOPBACK = ("localhost", "127.0.0.1", "::1")
SCHEMES = {"ws": "http", "http": "http", "wss": "https", "https": "https"}
ALIASES = ("/realtime", "/v1/realtime", "/openai/v1/realtime")
MODEL = "gpt-realtime"


class UnusableUrl(Exception):
    """The address leads to no Realtime server; the message says what one looks like."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a server is: `host` with its port, and `base`, the path below which its routes are."""

    secure: bool
    host: str
    base: str
    local: bool
    key: str | None

    @property
    def headers(self) -> dict[str, str]:
        """What tells the server who we are."""
        return {} if self.key is None else {"Authorization": f"Bearer {self.key}"}

    def socket(self, query: str | None = None, path: str | None = None) -> str:
        """The address of a WebSocket."""
        query = f"model={MODEL}" if query is None else query
        return urlunsplit(("wss" if self.secure else "ws", self.host, path or f"{self.base}/realtime", query, ""))

    def route(self, path: str) -> str:
        """The address of an HTTP route below the base path."""
        return urlunsplit(("https" if self.secure else "http", self.host, f"{self.base}{path}", "", ""))


def find(url: str, key: str | None) -> Target:
    """Take ws://host:port/v1/realtime, http://host:port/v1, or either with TLS. Raises `UnusableUrl`."""
    try:
        parts = urlsplit(url)
        name, port = parts.hostname, parts.port
    except ValueError:
        name, port = None, None  # no number where the port should be
    if not name or parts.scheme not in SCHEMES or port == 0:
        raise UnusableUrl(
            f"{url!r} is no address of a server; expected ws://host:port/v1/realtime or http://host:port/v1"
        )
    base = parts.path.rstrip("/").removesuffix("/realtime")
    if not base and not parts.path.rstrip("/"):
        base = "/v1"
    host = parts.netloc.rpartition("@")[2]
    return Target(SCHEMES[parts.scheme] == "https", host, base, name in LOOPBACK, key)
