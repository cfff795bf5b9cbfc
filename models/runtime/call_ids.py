"""Makes ids of function calls that clients can carry."""

from __future__ import annotations

from uuid import uuid4

MOST_CHARS = 32
"""The hosted API's bound. LiveKit hashes a longer one on its way back, and the result then belongs to no call."""


def call_id(given: str | None = None) -> str:
    """An id for a call: the one that its maker gave, if a client can carry it, else a new one."""
    if given and len(given) <= MOST_CHARS:
        return given
    return f"call_{uuid4().hex[:24]}"
