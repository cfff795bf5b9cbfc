"""A vocoder that makes a square wave of the scripted coder's codes, and looks whether they came whole."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from pipeline.chunk import Audio, Chunk, End, Failed, Fence, Job, Payload, Prepare, Speak, Tensors
from pipeline.spec import Capabilities, Family
from pipeline.stage import Step, Work
from transport.base import Inline, unpack

RATE_HZ = 24_000
LEVEL = 8000


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`hold` is a FIFO of which each step reads a byte before it does anything.

    At the chunk `dies_at` of a reply it aborts its process; after `ends_after` chunks it has said enough.
    """

    batch: int = 4
    bound_ms: int = 60_000
    hold: str = ""
    dies_at: int = -1
    ends_after: int = -1


@dataclass(slots=True)
class _Speech:
    """A reply under way."""

    fence: Fence
    seq: int = 0
    over: bool = False

    def chunk(self, payload: Payload, span: tuple[int, int] | None = None) -> Chunk:
        self.seq += 1
        self.over = isinstance(payload, End)
        return Chunk(self.fence, "vocoder", self.seq - 1, payload, span, exact=span is not None, last=self.over)


class SquareVocoder:
    """It makes all of what it is given at once."""

    threads = 1

    def __init__(self, options: Options) -> None:
        self._options = options
        self._jobs: dict[Fence, _Speech] = {}

    @property
    def bound_ms(self) -> int:
        return self._options.bound_ms

    @property
    def batch(self) -> int:
        return self._options.batch

    def load(self) -> None:
        """Nothing to load."""

    def admit(self, job: Job) -> None:
        assert isinstance(job, Speak)
        self._jobs[job.fence] = _Speech(job.fence)

    def prepare(self, ahead: Prepare) -> None:
        """A vocoder has no prompt."""

    def step(self, work: Sequence[Work]) -> Step:
        if self._options.hold:
            with open(self._options.hold, "rb", buffering=0) as hold:
                hold.read(1)
        chunks: list[Chunk] = []
        idle = set()
        for w in work:
            speech = self._jobs[w.fence]
            chunks += self._say(speech, w.inputs)
            if speech.over:
                del self._jobs[w.fence]
            else:
                idle.add(w.fence)
        return Step(tuple(chunks), frozenset(idle))

    def interrupt(self) -> None:
        """A step is over at once, or held."""

    def drop(self, fence: Fence) -> None:
        self._jobs.pop(fence, None)

    def forget(self, stream: str) -> None:
        """Nothing is kept for a stream."""

    def _say(self, speech: _Speech, inputs: Sequence[Chunk]) -> Iterator[Chunk]:
        for chunk in inputs:
            if isinstance(chunk.payload, End | Failed) or speech.seq == self._options.ends_after:
                yield speech.chunk(End("stop" if isinstance(chunk.payload, End | Failed) else "length"))
                return
            if speech.seq == self._options.dies_at:
                os.abort()
            assert isinstance(chunk.payload, Tensors), f"{chunk.payload} came to a vocoder"
            yield self._made(speech, chunk.payload)

    def _made(self, speech: _Speech, given: Tensors) -> Chunk:
        assert isinstance(given.blocks, Inline), "its arrays are not at hand"
        arrays = unpack(given.blocks)
        codes = arrays["codes"]
        if len(codes) and (codes != codes[0]).any():
            raise ValueError(f"codes of {len(codes)} bytes did not come whole")
        samples, start, stop = (int(number) for number in arrays["order"])
        wave = np.tile(np.array([LEVEL, -LEVEL], "<i2"), (samples + 1) // 2)[:samples]
        return speech.chunk(Audio(wave.tobytes(), RATE_HZ), (start, stop))


def _make(options: msgspec.Struct) -> SquareVocoder:
    assert isinstance(options, Options)
    return SquareVocoder(options)


def _describe(options: msgspec.Struct) -> Capabilities:
    return Capabilities(model="square", rate_hz=RATE_HZ)


FAMILY = Family("scripted.vocoder", "vocoder", (), Options, _make, _describe)
