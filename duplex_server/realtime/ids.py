"""Makes ids that can't be guessed, and that come out the same again when a journal is replayed."""

from __future__ import annotations

import hashlib

ID_HEX_DIGITS = 24


class Ids:
    """A sequence of ids from a seed.

    The n-th call gives the n-th id, whatever the prefix, so equal inputs give equal ids.
    """

    __slots__ = ("_count", "_key")

    def __init__(self, seed: str) -> None:
        self._key = seed.encode()[:64]
        self._count = 0

    def __call__(self, prefix: str) -> str:
        self._count += 1
        digest = hashlib.blake2b(self._count.to_bytes(8, "big"), key=self._key, digest_size=ID_HEX_DIGITS // 2)
        return f"{prefix}_{digest.hexdigest()}"
