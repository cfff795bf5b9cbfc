"""Says which web pages may use the server, by the `Origin` that a browser sends for them."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

ANY = "*"
OPAQUE = "null"
"""What a browser sends for a page without an origin of its own: from a file, or in a sandbox."""
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
OWN_NAMES = (".local", ".localhost")
"""Ends of names that nobody can register."""

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#\s@]+")


def check_origins(setting: str, origins: Iterable[str]) -> None:
    """Raise `ValueError` for what no browser sends as an origin; `setting` is where it stands."""
    for origin in origins:
        if origin not in (ANY, OPAQUE) and not _ORIGIN.fullmatch(origin.lower()):
            raise ValueError(f"{setting}: expected {ANY!r} or an origin such as 'https://example.org', got {origin!r}")


@dataclass(frozen=True, slots=True)
class Origins:
    """The pages that may use the server: those of this list, and its own. `anyone` lets in all others.

    `keyless` is a server that asks for no key. Its address is all that protects it, and any page may try to reach it:
    there only pages of this machine come in unlisted.
    """

    listed: frozenset[str]
    anyone: bool
    keyless: bool

    @staticmethod
    def of(listed: Iterable[str], *, keyless: bool) -> Origins:
        """With nothing listed, a key is enough."""
        names = frozenset(name.lower() for name in listed)
        return Origins(names - {ANY}, ANY in names or not (names or keyless), keyless)

    @staticmethod
    def only(listed: Iterable[str]) -> Origins:
        """The pages of the list, and its own."""
        names = frozenset(name.lower() for name in listed)
        return Origins(names - {ANY}, ANY in names, keyless=False)

    def admits(self, headers: Mapping[str, str]) -> bool:
        """Whether a request with these headers may be served: it comes from no page, or from one that may."""
        origin = headers.get("origin", "").lower()
        if not origin or self.anyone or origin in self.listed:
            return True
        try:
            page = urlsplit(origin)
        except ValueError:
            return False
        if not page.netloc:
            return False
        if self.keyless and page.hostname in LOOPBACK_NAMES:
            return True
        return page.netloc == headers.get("host", "").lower() and not (self.keyless and _rebindable(page.hostname))

    def readers(self, headers: Mapping[str, str]) -> str | None:
        """The value of `Access-Control-Allow-Origin`, when the page that asks may read the answer."""
        if self.anyone:
            return ANY
        origin = headers.get("origin")
        return origin if origin and self.admits(headers) else None


def _rebindable(host: str | None) -> bool:
    """Whether whoever owns the name can make it lead here, so that a page of theirs would pass for our own."""
    if host is None or "." not in host or host.endswith(OWN_NAMES):
        return False
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return True
    return False


def refusal(headers: Mapping[str, str]) -> str:
    """What a page that may not use the server is told."""
    origin = headers.get("origin", "")[:200]
    return f"Pages of {origin} may not use this server. Its operator may name them in server.allowed_origins."
