"""Turns a growing list of tokens into text deltas that never cut a character."""

from __future__ import annotations

from collections.abc import Callable, Sequence

# A character is at most four bytes, and a token at least one. Tokens may end one character and begin the next, so a
# few more may hang together; beyond this the model writes bytes that are no text.
MAX_PENDING_TOKENS = 16
BROKEN = "\ufffd"


class TextStream:
    """The text of one reply. `decode` gives the text of tokens, with U+FFFD for bytes that are no whole character."""

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._pending: list[int] = []
        self._told = 0  # characters of the pending tokens that went out already

    def clear(self) -> None:
        """Begin anew: what was pushed does not count."""
        self._pending.clear()
        self._told = 0

    def push(self, token: int) -> str:
        """The characters that `token` completes; empty while it ends inside one."""
        self._pending.append(token)
        text = self._decode(self._pending)
        whole = text.removesuffix(BROKEN)  # a character that is cut decodes to exactly one replacement
        delta = whole[self._told :]
        if len(whole) == len(text) or len(self._pending) >= MAX_PENDING_TOKENS:
            self._pending.clear()
            self._told = 0
        else:
            self._told = len(whole)
        # What is still broken inside is no text in any encoding; it can be neither shown nor said.
        return delta.replace(BROKEN, "")
