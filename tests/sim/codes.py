"""Does what a talker that gives codes, and the vocoder behind it, do."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from pipeline.carry import INLINE_BYTES
from pipeline.chunk import Chunk, End, Failed, Fence, Job, Payload, Prepare, Speak, StageRole, Tensors
from pipeline.stage import Step, Work
from tests.sim.bodies import PIECE, VOICE_FACTOR, Did, Talker, sound
from tests.sim.speech import RATE_HZ
from transport.base import Inline, inline, unpack

CODES = "codes"
FRAMES, FRAMES_S = 2, 0.01
"""Pieces of codes that a step gives, and what one takes that goes on with a clause."""
PASS_S = 0.01
"""What a step of the vocoder takes, beside its speech."""
_LARGE = INLINE_BYTES // np.dtype(np.int64).itemsize + 3


class Coder(Talker):
    """A talker whose speech is codes: which reply they are of, where in it they begin, and how much they say.

    A clause takes it many steps.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._left: dict[Fence, deque[Chunk]] = {}

    def step(self, work: Sequence[Work]) -> Did:
        (item,) = work
        left = self._left.get(item.fence)
        if left is None:
            step, seconds = super().step(work)
            left, idle = deque(step.chunks), item.fence in step.idle
        else:
            seconds, idle = FRAMES_S, False
            if (saying := self._jobs.get(item.fence)) is not None:
                for chunk in item.inputs:
                    saying.take(chunk.payload)
                idle = not (saying.clauses or saying.over)
        chunks = _next(left)
        if left:
            self._left[item.fence] = left
        else:
            self._left.pop(item.fence, None)
        return Step(chunks, frozenset((item.fence,)) if idle and not left else frozenset()), seconds

    def _piece(self, job: Speak, start: int, samples: int) -> Payload:
        codes = np.zeros(_LARGE if samples == PIECE else 3, np.int64)  # whole pieces are too large for a message
        codes[:3] = job.fence.epoch, start, samples
        return Tensors(CODES, inline({CODES: codes}))

    def drop(self, fence: Fence) -> None:
        super().drop(fence)
        self._left.pop(fence, None)

    def forget(self, stream: str) -> None:
        super().forget(stream)
        self._left = {fence: left for fence, left in self._left.items() if fence.stream != stream}

    def holds(self, stream: str) -> bool:
        return super().holds(stream) or any(fence.stream == stream for fence in self._left)


def _next(left: deque[Chunk]) -> tuple[Chunk, ...]:
    """What a step gives: a few frames, with what stands before and after them."""
    chunks, frames = [], 0
    while left and (frames < FRAMES or not isinstance(left[0].payload, Tensors)):
        frames += isinstance(left[0].payload, Tensors)
        chunks.append(left.popleft())
    return tuple(chunks)


class Vocoder:
    """Says all codes that have come; where `gaps` may be, some have been dropped before it."""

    role: StageRole = "vocoder"
    batch = 2

    def __init__(self, *, gaps: bool = False) -> None:
        self._gaps = gaps
        self._said: dict[Fence, int] = {}
        self._seq: dict[Fence, int] = {}

    def admit(self, job: Job) -> None:
        assert isinstance(job, Speak)
        self._said[job.fence] = self._seq[job.fence] = 0

    def prepare(self, ahead: Prepare) -> None:
        raise AssertionError("a vocoder has no prompt")

    def step(self, work: Sequence[Work]) -> Did:
        chunks: list[Chunk] = []
        samples = 0
        for item in work:
            before = self._said[item.fence]
            chunks += [self._say(chunk) for chunk in item.inputs]
            samples += self._said[item.fence] - before
        over = {chunk.fence for chunk in chunks if chunk.last}
        for fence in over:
            self.drop(fence)
        idle = frozenset(item.fence for item in work if item.fence not in over)
        return Step(tuple(chunks), idle), PASS_S + VOICE_FACTOR * samples / RATE_HZ

    def _say(self, chunk: Chunk) -> Chunk:
        fence = chunk.fence
        assert chunk.seq == self._seq[fence], f"codes {chunk.seq} of {fence} came, next were {self._seq[fence]}"
        self._seq[fence] += 1
        match chunk.payload:
            case Tensors(blocks=Inline() as blocks):
                epoch, start, samples = (int(code) for code in unpack(blocks)[CODES][:3])
                assert epoch == getattr(fence, "epoch", None), "codes of another reply"
                before = self._said[fence]
                assert start == before or (self._gaps and start > before), f"codes from {start} on after {before}"
                self._said[fence] = start + samples
                return Chunk(fence, "vocoder", chunk.seq, sound(samples), chunk.text_span, chunk.exact)
            case End() | Failed():
                finish = chunk.payload.finish if isinstance(chunk.payload, End) else "stop"
                return Chunk(fence, "vocoder", chunk.seq, End(finish), last=True)
        raise AssertionError(f"{chunk} is nothing for a vocoder")

    def drop(self, fence: Fence) -> None:
        self._said.pop(fence, None)
        self._seq.pop(fence, None)

    def forget(self, stream: str) -> None:
        for fence in [fence for fence in self._said if fence.stream == stream]:
            self.drop(fence)

    def holds(self, stream: str) -> bool:
        return any(fence.stream == stream for fence in self._said)
