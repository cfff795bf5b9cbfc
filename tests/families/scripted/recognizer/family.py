"""A recognizer that hears one word in each half second of sound."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from pipeline.chunk import Chunk, Fence, Job, Prepare, Transcribe, Transcript
from pipeline.errors import StageError
from pipeline.spec import Capabilities, Family
from pipeline.stage import Step, Work
from transport.base import Inline, unpack

WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`level` is the root mean square above which a half second counts as a word; `fails_to_load` is for its name."""

    level: float = 500.0
    bound_ms: int = 1000
    fails_to_load: bool = False


class CountingRecognizer:
    """The transcript counts: three half seconds of sound are "one two three", silence is nothing."""

    batch = 1
    threads = 1

    def __init__(self, options: Options) -> None:
        self._options = options
        self._jobs: dict[Fence, str] = {}

    @property
    def bound_ms(self) -> int:
        return self._options.bound_ms

    def load(self) -> None:
        if self._options.fails_to_load:
            raise StageError("the model file is missing: the test asked for it")

    def admit(self, job: Job) -> None:
        assert isinstance(job, Transcribe)
        assert isinstance(job.audio, Inline)
        pcm = unpack(job.audio)["pcm"].astype(np.float64)
        half = job.rate_hz // 2
        blocks = [pcm[at : at + half] for at in range(0, len(pcm), half)]
        heard = sum(1 for block in blocks if np.sqrt(np.mean(np.square(block))) > self._options.level)
        self._jobs[job.fence] = " ".join(WORDS[n % len(WORDS)] for n in range(heard))

    def prepare(self, ahead: Prepare) -> None:
        """A recognizer has no prompt."""

    def step(self, work: Sequence[Work]) -> Step:
        return Step(
            tuple(
                Chunk(w.fence, "recognizer", 0, Transcript(self._jobs.pop(w.fence), language="en"), last=True)
                for w in work
            )
        )

    def interrupt(self) -> None:
        """A step is over at once."""

    def drop(self, fence: Fence) -> None:
        self._jobs.pop(fence, None)

    def forget(self, stream: str) -> None:
        """Nothing is kept for a stream."""


def _make(options: msgspec.Struct) -> CountingRecognizer:
    assert isinstance(options, Options)
    return CountingRecognizer(options)


def _describe(options: msgspec.Struct) -> Capabilities:
    return Capabilities(model="counting", languages=("en",))


FAMILY = Family("scripted.recognizer", "recognizer", (), Options, _make, _describe)
