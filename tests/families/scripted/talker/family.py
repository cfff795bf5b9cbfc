"""A talker that speaks each word as a pure tone of the same length."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from pipeline.chunk import Audio, Caption, Chunk, End, Failed, Fence, Job, Payload, Prepare, Speak, Text
from pipeline.errors import StageError
from pipeline.spec import Capabilities, Family
from pipeline.stage import Step, Work

RATE_HZ = 24_000
VOICES = ("low", "high")
TONE_HZ = {"low": 220.0, "high": 440.0}


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`dies_at` is a word whose speaking aborts the process; `greeting` is spoken before any text comes."""

    word_ms: int = 300
    batch: int = 4
    bound_ms: int = 1000
    dies_at: str = ""
    greeting: str = ""


@dataclass(slots=True)
class Speech:
    """A reply under way: text that fills no word yet, words to speak, what was spoken."""

    order: Speak
    text: str = ""
    words: list[str] = field(default_factory=list)
    ended: bool = False
    characters: int = 0
    samples: int = 0
    seq: int = 0

    def chunk(self, payload: Payload, span: tuple[int, int] | None = None, *, last: bool = False) -> Chunk:
        self.seq += 1
        return Chunk(self.order.fence, "talker", self.seq - 1, payload, span, exact=span is not None, last=last)


class ToneTalker:
    """A word a step; its caption, then its tone at 24 kHz. The `text_span` is exact."""

    threads = 1

    def __init__(self, options: Options) -> None:
        self._options = options
        self._jobs: dict[Fence, Speech] = {}

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
        if job.voice is not None and job.voice not in VOICES:
            raise StageError(f"there is no voice {job.voice!r}; there are: {', '.join(VOICES)}")
        self._jobs[job.fence] = Speech(job, words=self._options.greeting.split())

    def prepare(self, ahead: Prepare) -> None:
        """A talker has no prompt."""

    def step(self, work: Sequence[Work]) -> Step:
        chunks: list[Chunk] = []
        idle = set()
        for w in work:
            speech = self._jobs[w.fence]
            for chunk in w.inputs:
                _take(speech, chunk)
            if speech.words:
                chunks += self._say(speech, speech.words.pop(0))
            if speech.ended and not speech.words:
                chunks.append(speech.chunk(End(), last=True))
                del self._jobs[w.fence]
            elif not speech.words:
                idle.add(w.fence)
        return Step(tuple(chunks), frozenset(idle))

    def interrupt(self) -> None:
        """A step is over at once."""

    def drop(self, fence: Fence) -> None:
        self._jobs.pop(fence, None)

    def forget(self, stream: str) -> None:
        """Nothing is kept for a stream."""

    def _say(self, speech: Speech, word: str) -> list[Chunk]:
        if word == self._options.dies_at:
            os.abort()
        count = round(RATE_HZ * self._options.word_ms / 1000 / speech.order.speed)
        if speech.order.max_samples is not None:
            count = min(count, speech.order.max_samples - speech.samples)
            speech.ended = speech.ended or count <= 0
        if count <= 0:
            speech.words.clear()
            return []
        caption = word if speech.characters == 0 else f" {word}"
        span = (speech.characters, speech.characters + len(caption))
        at = np.arange(speech.samples, speech.samples + count)
        tone = np.sin(2 * np.pi * TONE_HZ[speech.order.voice or VOICES[0]] * at / RATE_HZ)
        speech.characters += len(caption)
        speech.samples += count
        pcm = (8000 * tone).astype("<i2").tobytes()
        return [speech.chunk(Caption(caption)), speech.chunk(Audio(pcm, RATE_HZ), span)]


def _take(speech: Speech, chunk: Chunk) -> None:
    match chunk.payload:
        case Text(text):
            *words, speech.text = (speech.text + text).split(" ")
            speech.words += [word for word in words if word]
        case End() | Failed():
            speech.words += [speech.text] if speech.text else []
            speech.text, speech.ended = "", True


def make(options: msgspec.Struct) -> ToneTalker:
    assert isinstance(options, Options)
    return ToneTalker(options)


def describe(options: msgspec.Struct) -> Capabilities:
    return Capabilities(model="tone", rate_hz=RATE_HZ, voices=VOICES)


FAMILY = Family("scripted.talker", "talker", (), Options, make, describe)
