"""A recognizer that hears the same words in whatever is said, at once."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pipeline.chunk import Chunk, Fence, Job, Prepare, Transcript
from pipeline.spec import Capabilities, Family
from pipeline.stage import Step, Work

WORDS = "Tell me something, please."


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """It can't be told anything."""


class NullRecognizer:
    """Every pass is over after one step, in which as many others may take part as wait."""

    bound_ms = 1000
    batch = 64
    threads = 1

    def load(self) -> None:
        """Nothing to load."""

    def admit(self, job: Job) -> None:
        """Nothing to keep: the words are known."""

    def prepare(self, ahead: Prepare) -> None:
        """A recognizer has no prompt."""

    def step(self, work: Sequence[Work]) -> Step:
        """The transcript of each pass."""
        return Step(tuple(Chunk(w.fence, "recognizer", 0, Transcript(WORDS, "en"), last=True) for w in work))

    def interrupt(self) -> None:
        """A step is over at once."""

    def drop(self, fence: Fence) -> None:
        """Nothing is kept for a job."""

    def forget(self, stream: str) -> None:
        """Nothing is kept for a stream."""


def make(options: msgspec.Struct) -> NullRecognizer:
    """The recognizer."""
    return NullRecognizer()


def describe(options: msgspec.Struct) -> Capabilities:
    """It understands everything, after its manner."""
    return Capabilities(model="null")


FAMILY = Family("null.recognizer", "recognizer", (), Options, make, describe)
