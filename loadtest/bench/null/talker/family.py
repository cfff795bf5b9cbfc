"""A talker that speaks a tone, as long as the words would take, one piece of text a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from loadtest.bench.null import WORD_MS
from pipeline.chunk import Audio, Caption, Chunk, End, Failed, Fence, Job, Payload, Prepare, Text
from pipeline.spec import Capabilities, Family
from pipeline.stage import Step, Work

RATE_HZ = 24_000
TONE_HZ = 200
_WORD = (8000 * np.sin(2 * np.pi * TONE_HZ * np.arange(RATE_HZ * WORD_MS // 1000) / RATE_HZ)).astype("<i2").tobytes()


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """It can't be told anything."""


@dataclass(slots=True)
class _Speech:
    """A reply under way: the text that waits, what was said."""

    texts: list[str] = field(default_factory=list)
    ended: bool = False
    characters: int = 0
    seq: int = 0

    def chunk(
        self, fence: Fence, payload: Payload, span: tuple[int, int] | None = None, *, last: bool = False
    ) -> Chunk:
        self.seq += 1
        return Chunk(fence, "talker", self.seq - 1, payload, span, exact=span is not None, last=last)


class NullTalker:
    """For each text its caption, then its sound."""

    bound_ms = 1000
    batch = 64
    threads = 1

    def __init__(self) -> None:
        self._jobs: dict[Fence, _Speech] = {}

    def load(self) -> None:
        """Nothing to load."""

    def admit(self, job: Job) -> None:
        """Begin a reply."""
        self._jobs[job.fence] = _Speech()

    def prepare(self, ahead: Prepare) -> None:
        """A talker has no prompt."""

    def step(self, work: Sequence[Work]) -> Step:
        """The next text of each reply, spoken, and the end behind the last of them."""
        chunks: list[Chunk] = []
        idle = set()
        for w in work:
            speech = self._jobs[w.fence]
            for chunk in w.inputs:
                _take(speech, chunk)
            if speech.texts:
                chunks += _say(w.fence, speech, speech.texts.pop(0))
            if speech.ended and not speech.texts:
                chunks.append(speech.chunk(w.fence, End(), last=True))
                del self._jobs[w.fence]
            elif not speech.texts:
                idle.add(w.fence)
        return Step(tuple(chunks), frozenset(idle))

    def interrupt(self) -> None:
        """A step is over at once."""

    def drop(self, fence: Fence) -> None:
        """Forget a reply."""
        self._jobs.pop(fence, None)

    def forget(self, stream: str) -> None:
        """Nothing is kept for a stream."""


def _take(speech: _Speech, chunk: Chunk) -> None:
    match chunk.payload:
        case Text(text):
            speech.texts.append(text)
        case End() | Failed():
            speech.ended = True


def _say(fence: Fence, speech: _Speech, text: str) -> list[Chunk]:
    span = (speech.characters, speech.characters + len(text))
    speech.characters += len(text)
    sound = Audio(_WORD * len(text.split()), RATE_HZ)
    return [speech.chunk(fence, Caption(text)), speech.chunk(fence, sound, span)]


def make(options: msgspec.Struct) -> NullTalker:
    """The talker."""
    return NullTalker()


def describe(options: msgspec.Struct) -> Capabilities:
    """It has one voice, at the wire's rate."""
    return Capabilities(model="null", rate_hz=RATE_HZ, voices=("tone",))


FAMILY = Family("null.talker", "talker", (), Options, make, describe)
