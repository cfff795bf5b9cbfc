"""A cascade that costs next to nothing and still streams: what is left is the cost of the server itself."""

from __future__ import annotations

DELTAS = ("I hear you well,", " and I will say", " a dozen words more", " until this ends.")
"""What the thinker writes, piece by piece, whatever it is asked."""
WORD_MS = 240
"""How long the talker speaks on each word."""
REPLY_MS = WORD_MS * len("".join(DELTAS).split())
