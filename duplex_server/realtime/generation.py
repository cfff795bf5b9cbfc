"""Holds what the thinker and the talker are making for one reply, until both have ended."""

from __future__ import annotations

from dataclasses import dataclass, field

from pipeline.chunk import Chunk, End, Failed, Reply, StageRole, Usage


@dataclass(slots=True)
class Generation:
    """One reply in the making.

    `waits_for` are the user's items whose transcripts the prompt needs; nothing is begun before they are there.
    """

    reply: Reply
    spoken: bool
    waits_for: set[str] = field(default_factory=set)
    begun: bool = False
    usage: Usage | None = None
    failure: Failed | None = None
    cut_by_length: bool = False
    thinker_cut: bool = False  # by a bound on what it writes, not on what is spoken
    _ended: set[StageRole] = field(default_factory=set)

    def end(self, chunk: Chunk) -> None:
        """Take in the last chunk of a stage, which by contract is an `End` or a `Failed`."""
        match chunk.payload:
            case End(finish=finish, usage=usage):
                self.usage = usage or self.usage
                self.cut_by_length |= finish == "length"
                self.thinker_cut |= finish == "length" and chunk.role == "thinker"
            case Failed() as failed:
                self.failure = self.failure or failed
            case payload:
                raise AssertionError(f"the {chunk.role} ended {chunk.fence} with {type(payload).__name__}")
        self._ended.add(chunk.role)

    @property
    def written(self) -> bool:
        """True when the thinker will write no more."""
        return self.failure is not None or "thinker" in self._ended

    @property
    def ended(self) -> bool:
        """True when nothing more will come."""
        return self.failure is not None or self._ended >= ({"thinker", "talker"} if self.spoken else {"thinker"})
