"""Routes chunks along the edges of all replies under way; a pure core."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from pipeline.chunk import Chunk, End, Failed, Fence, StageRole, Tensors
from pipeline.edge import Edge, EdgeFull
from pipeline.spec import EdgeSpec, Source


@dataclass(slots=True)
class Moves:
    """What follows from something that happened on the edges, in the order of the fields."""

    feed: list[tuple[StageRole, Chunk]] = field(default_factory=list)
    unseen: list[Chunk] = field(default_factory=list)
    """Chunks that go nowhere: what they refer to can be given back."""
    dropped: list[tuple[EdgeSpec, Fence]] = field(default_factory=list)
    """One entry for each chunk that had to make room."""
    stall: list[tuple[Source, Fence, bool]] = field(default_factory=list)
    """Sources that are to wait, or need not wait any longer."""
    full: list[tuple[StageRole, Fence, str]] = field(default_factory=list)
    """Targets whose job is lost, and why."""


@dataclass(slots=True)
class _Target:
    """A job that is fed by edges.

    `fed` has the edge of each chunk that it has not taken yet, None for an end: that needs no credit. `ends` are those
    of sources of which something still waits, `given` counts what it was fed of each source.
    """

    edges: list[Edge]
    fed: deque[Edge | None] = field(default_factory=deque)
    ends: dict[Source, Chunk] = field(default_factory=dict)
    given: Counter[Source] = field(default_factory=Counter)

    def hears(self, source: Source) -> bool:
        return any(edge.spec.source == source for edge in self.edges)

    def waits_for(self, source: Source) -> bool:
        return any(edge.waits for edge in self.edges if edge.spec.source == source)


class Flows:
    """The edges into every job that is fed by others. A fence that is not known is ignored.

    The end of a source's job follows once, when nothing of that source waits any more.
    """

    def __init__(self) -> None:
        self._targets: dict[Fence, dict[StageRole, _Target]] = {}
        self._stalled: set[tuple[Source, Fence]] = set()

    @property
    def idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._targets

    def knows(self, fence: Fence) -> bool:
        """Whether a job of this fence is fed by edges."""
        return fence in self._targets

    def begin(self, fence: Fence, target: StageRole, edges: Iterable[EdgeSpec]) -> None:
        """Let a job be fed by these edges."""
        self._targets.setdefault(fence, {})[target] = _Target([Edge(spec) for spec in edges])

    def push(self, chunk: Chunk) -> Moves:
        """Pass on what a stage gave."""
        moves = Moves()
        carried = False
        for role, target in self._targets.get(chunk.fence, {}).items():
            if isinstance(chunk.payload, End | Failed):
                if target.hears(chunk.role):
                    target.ends[chunk.role] = chunk
                    self._finish(moves, role, target)
                continue
            for edge in target.edges:
                if edge.carries(chunk):
                    carried = True
                    self._through(moves, role, target, edge, chunk)
        if isinstance(chunk.payload, Tensors) and not carried:  # its target has ended before it
            moves.unseen.append(chunk)
        self._look(moves, chunk.fence)
        return moves

    def taken(self, role: StageRole, fence: Fence, count: int) -> Moves:
        """Pass on what waited, now that a job took so many chunks."""
        moves = Moves()
        target = self._targets.get(fence, {}).get(role)
        if target is None:
            return moves
        took = [target.fed.popleft() for _ in range(min(count, len(target.fed)))]
        for edge in target.edges:
            self._feed(moves, role, target, edge, edge.taken(took.count(edge)))
        self._finish(moves, role, target)
        self._look(moves, fence)
        return moves

    def end(self, role: StageRole, fence: Fence) -> Moves:
        """A job takes nothing any more."""
        moves = Moves()
        targets = self._targets.get(fence, {})
        target = targets.pop(role, None)
        if target is not None:
            moves.unseen += [chunk for edge in target.edges for chunk in edge.close()]
        if not targets:
            self._targets.pop(fence, None)
        self._look(moves, fence)
        return moves

    def forget(self, fence: Fence) -> Moves:
        """Nobody wants anything of a reply any more; its sources have been told, and are not told to go on."""
        moves = Moves()
        for role in list(self._targets.get(fence, {})):
            moves.unseen += self.end(role, fence).unseen
        return moves

    def of(self, stream: str) -> tuple[Fence, ...]:
        """The replies of a stream that are under way."""
        return tuple(fence for fence in self._targets if fence.stream == stream)

    def _through(self, moves: Moves, role: StageRole, target: _Target, edge: Edge, chunk: Chunk) -> None:
        try:
            passed = edge.push(chunk)
        except EdgeFull as error:
            moves.full.append((role, chunk.fence, str(error)))
            return
        self._feed(moves, role, target, edge, passed)
        for lost in edge.dropped():
            moves.unseen.append(lost)
            moves.dropped.append((edge.spec, chunk.fence))

    def _finish(self, moves: Moves, role: StageRole, target: _Target) -> None:
        """Pass on the ends before which nothing waits."""
        for source in [source for source in target.ends if not target.waits_for(source)]:
            self._feed(moves, role, target, None, (target.ends.pop(source),))

    def _feed(
        self, moves: Moves, role: StageRole, target: _Target, edge: Edge | None, chunks: tuple[Chunk, ...]
    ) -> None:
        for chunk in chunks:
            target.fed.append(edge)
            moves.feed.append((role, msgspec.structs.replace(chunk, seq=target.given[chunk.role])))
            target.given[chunk.role] += 1

    def _look(self, moves: Moves, fence: Fence) -> None:
        """Tell each source once when it is to wait, and once when it need not wait any more."""
        edges = [edge for target in self._targets.get(fence, {}).values() for edge in target.edges]
        waiting = {(edge.spec.source, fence) for edge in edges if edge.stalled}
        before = {one for one in self._stalled if one[1] == fence}
        moves.stall += [(*one, True) for one in sorted(waiting - before, key=str)]
        moves.stall += [(*one, False) for one in sorted(before - waiting, key=str)]
        self._stalled = (self._stalled - before) | waiting
