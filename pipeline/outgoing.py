"""Puts what a stage gives into the planes of its edges, and keeps what finds no room there until it does."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from pipeline.carry import INLINE_BYTES
from pipeline.chunk import Audio, Chunk, Fence, Tensors
from transport.base import Array, Full, Inline, Ref, Sender, unpack
from transport.errors import PlaneError

RETRY_S = 0.002
"""How often a job looks for room in the next stage's plane: a credit comes back without a word."""
PATIENCE_S = 0.02
"""How long it looks. Then its arrays ride inside a message after all: else a reply would wait for others, whose slots
may be held until their playout, or the gate, lets them go on."""
INSIDE_BYTES = 4 << 20
"""What is larger than this can't, and goes on looking."""
ROOM_S = 60.0
"""For so long; then it is given up."""


@dataclass(slots=True)
class Gave:
    """What becomes of what a stage gave."""

    chunks: list[Chunk] = field(default_factory=list)
    """They can go out now."""
    free: set[Fence] = field(default_factory=set)
    """Jobs of which nothing is kept any more."""
    refused: dict[Fence, str] = field(default_factory=dict)
    """Jobs that gave what can't be carried, and why."""


@dataclass(slots=True)
class _Kept:
    """The chunks of a job from the first on that found no room, in order."""

    chunks: deque[Chunk]
    since: float
    """When something of it went out last."""


class Outgoing:
    """What a stage gave, on its way out. `route` names the plane for what a job gives on a port, if there is one.

    Without a plane, arrays and sound ride inside the messages: `most_bytes` of them in one step, where those go to
    another process.
    """

    def __init__(
        self,
        senders: Mapping[str, Sender],
        route: Callable[[Fence, str], str | None],
        *,
        most_bytes: int | None = None,
    ) -> None:
        self._senders = senders
        self._route = route
        self._most_bytes = most_bytes
        self._kept: dict[Fence, _Kept] = {}
        self._inside_bytes = 0  # of this step's messages

    @property
    def kept(self) -> frozenset[Fence]:
        """The jobs of which something waits for room; they are not to go on."""
        return frozenset(self._kept)

    def give(self, chunks: Iterable[Chunk], now: float) -> Gave:
        """Take what a step gave."""
        self._inside_bytes = 0
        gave = Gave()
        for chunk in chunks:
            if chunk.fence in gave.refused:
                continue
            if (kept := self._kept.get(chunk.fence)) is not None:
                kept.chunks.append(chunk)
                continue
            try:
                carried = self._carried(chunk)
            except PlaneError as error:
                gave.refused[chunk.fence] = str(error)
                continue
            if carried is None:
                self._kept[chunk.fence] = _Kept(deque([chunk]), now)
            else:
                gave.chunks.append(carried)
        return gave

    def retry(self, wanted: Callable[[Fence], bool], now: float) -> Gave:
        """Look for room again, for the jobs that somebody waits for; the others are let go of."""
        self._inside_bytes = 0
        gave = Gave()
        for fence, kept in list(self._kept.items()):
            if wanted(fence):
                try:
                    self._put(kept, gave, now)
                except PlaneError as error:
                    gave.refused[fence] = str(error)
            if not wanted(fence) or not kept.chunks or fence in gave.refused:
                del self._kept[fence]
                gave.free.add(fence)
        return gave

    def _put(self, kept: _Kept, gave: Gave, now: float) -> None:
        while kept.chunks:
            carried = self._carried(kept.chunks[0], patient=now - kept.since < PATIENCE_S)
            if carried is None:
                if now - kept.since >= ROOM_S:
                    raise PlaneError(f"nothing came free on its way to the next stage within {ROOM_S:g} s")
                return
            kept.chunks.popleft()
            if isinstance(carried.payload, Tensors) and isinstance(carried.payload.blocks, Ref):
                kept.since = now
            gave.chunks.append(carried)

    def _carried(self, chunk: Chunk, *, patient: bool = True) -> Chunk | None:
        """The chunk as it travels; None while there is no room for it. Raises `PlaneError` when there never will be."""
        match chunk.payload:
            case Audio(pcm):
                self._fit(len(pcm))
            case Tensors(port, Inline() as blocks):
                arrays = unpack(blocks)
                nbytes = sum(array.nbytes for array in arrays.values())
                plane = self._route(chunk.fence, port)
                if plane is not None and nbytes > INLINE_BYTES:
                    laid = self._laid(chunk, port, plane, arrays, nbytes)
                    if laid is not None or patient or nbytes > INSIDE_BYTES:
                        return laid
                self._fit(nbytes)
        return chunk

    def _laid(self, chunk: Chunk, port: str, plane: str, arrays: Mapping[str, Array], nbytes: int) -> Chunk | None:
        sender = self._senders[plane]
        try:
            slot = sender.reserve(nbytes, 0.0)
        except PlaneError as error:
            raise PlaneError(f"{error}: give its edge larger slots (slot_bytes)") from error
        if isinstance(slot, Full):
            return None
        return msgspec.structs.replace(chunk, payload=Tensors(port, sender.put(slot, arrays).ref))

    def _fit(self, nbytes: int) -> None:
        self._inside_bytes += nbytes
        if self._most_bytes is not None and self._inside_bytes > self._most_bytes:
            raise PlaneError(
                f"{self._inside_bytes} bytes of one step are too much to ride inside messages, which take "
                f"{self._most_bytes}: give less in a step, or let its edge have a plane (transport)"
            )
