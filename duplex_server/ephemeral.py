"""Keeps the ephemeral keys that were handed out, as digests, each with what a session opened by it begins with."""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from duplex_server.realtime.schema import SessionKind, SessionPatch

log = logging.getLogger(__name__)

PREFIX = "ek_"
ENTROPY_BYTES = 32
MOST_KEYS = 4096
MOST_BYTES = 64 * 1024 * 1024
"""What the settings behind all keys may take together, as they were sent."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What a key was made for. None leaves a choice to whoever opens a session with it."""

    kind: SessionKind | None = None
    model: str | None = None
    start: SessionPatch | None = None


@dataclass(frozen=True, slots=True)
class _Kept:
    digest: bytes
    grant: Grant
    expires_at: int
    size_bytes: int


class EphemeralKeys:
    """The keys that have not expired. Each may open any number of sessions until then.

    There is room for `MOST_KEYS`, and for `MOST_BYTES` of settings. When it is full, the oldest keys end early.
    `now` gives Unix seconds.
    """

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._kept: dict[bytes, _Kept] = {}  # the oldest first
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def issue(self, grant: Grant, lasts_s: int, size_bytes: int) -> tuple[str, int]:
        """A new key and the Unix second at which it expires; `size_bytes` is what its settings take."""
        now = int(self._now())
        self._make_room(now, size_bytes)
        key = PREFIX + secrets.token_urlsafe(ENTROPY_BYTES)
        digest = _digest(key)
        self._kept[digest] = _Kept(digest, grant, now + lasts_s, size_bytes)
        self._bytes += size_bytes
        return key, now + lasts_s

    def find(self, key: str) -> Grant | None:
        """What the key was made for; None for one that is not known or has expired."""
        digest = _digest(key)
        kept = self._kept.get(digest)
        if kept is None or not hmac.compare_digest(kept.digest, digest):
            return None
        if self._now() >= kept.expires_at:
            self._drop(kept)
            return None
        return kept.grant

    def _make_room(self, now: int, size_bytes: int) -> None:
        if not self._full(size_bytes):
            return
        for kept in [one for one in self._kept.values() if one.expires_at <= now]:
            self._drop(kept)
        ended = 0
        while self._kept and self._full(size_bytes):
            self._drop(next(iter(self._kept.values())))
            ended += 1
        if ended:
            log.warning("there is no room for more ephemeral keys: the oldest ended early (%d)", ended)

    def _full(self, more_bytes: int) -> bool:
        return len(self._kept) >= MOST_KEYS or self._bytes + more_bytes > MOST_BYTES

    def _drop(self, kept: _Kept) -> None:
        del self._kept[kept.digest]
        self._bytes -= kept.size_bytes


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
