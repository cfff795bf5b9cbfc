"""Knows who waits for the first sound of an answer, whatever the pipeline makes of it."""

from __future__ import annotations

from pipeline.chunk import Audio, Chunk, Failed, Fence, Transcript
from pipeline.gate import DECIDE_S, WINDOW_S

MOMENT_S = 1e-6


class Waits:
    """The live turns that are over, and answers that are due; each by when it began."""

    def __init__(self) -> None:
        self._since: dict[Fence, float] = {}
        self._spoken: set[Fence] = set()
        self._understood: dict[str, float] = {}  # streams whose words were told, by when

    def begin(self, fence: Fence, now: float, *, spoken: bool) -> None:
        """Somebody waits; for a reply that is `spoken`, words are not enough."""
        self._since.setdefault(fence, now)
        self._understood.pop(fence.stream, None)
        if spoken:
            self._spoken.add(fence)

    def told(self, chunk: Chunk, now: float) -> None:
        """A stream was told something. Once it knows the words of a turn, its answer comes soon, if one does."""
        since = self._since.get(chunk.fence)
        waited = since is not None and now - since < WINDOW_S - MOMENT_S
        if isinstance(chunk.payload, Transcript) and chunk.payload.text and waited:
            self._understood[chunk.fence.stream] = now
        words = chunk.fence not in self._spoken and chunk.role in ("thinker", "recognizer")
        if words or isinstance(chunk.payload, Audio | Failed) or (chunk.last and chunk.role == "talker"):
            self.end(chunk.fence)

    def end(self, fence: Fence) -> None:
        """Nobody waits for this any more."""
        self._since.pop(fence, None)
        self._spoken.discard(fence)

    def forget(self, stream: str) -> None:
        """Somebody has left."""
        for fence in [fence for fence in self._since if fence.stream == stream]:
            self.end(fence)
        self._understood.pop(stream, None)

    @property
    def left(self) -> list[Fence]:
        """Who waits, for however long."""
        return list(self._since)

    def any(self, now: float) -> bool:
        """Whether somebody waits, and not yet for so long that it counts as a trouble of its own."""
        return any(
            MOMENT_S < now - since < most_s - MOMENT_S
            for waits, most_s in ((self._since, WINDOW_S), (self._understood, DECIDE_S))
            for since in waits.values()
        )
