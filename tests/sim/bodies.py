"""Does what a recognizer, a thinker and a talker do, in words and samples, and says how long a machine would take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random
from typing import Protocol

from pipeline.chunk import (
    Audio,
    CallDelta,
    Caption,
    Chunk,
    End,
    Failed,
    Fence,
    Job,
    Payload,
    Prepare,
    Prompt,
    Speak,
    StageRole,
    Text,
    TextPart,
    Think,
    Transcribe,
    Transcript,
    Usage,
)
from pipeline.stage import Step, Work
from tests.sim.speech import RATE_HZ

PIECE = RATE_HZ // 5
PREFILL_TOKENS, PREFILL_S = 64, 0.055
"""A micro-batch of prompt and what it takes."""
TOKEN_S, BESIDE_S = 0.010, 0.004
"""A decode step, and what each further reply in it adds."""
CLAUSE_S, VOICE_FACTOR = 0.035, 0.07
"""A clause's fixed cost, and seconds of work per second of speech."""
PASS_S, PASS_FACTOR = 0.14, 0.012
LONGEST_CLAUSE_S = 4.1
"""No clause of these thinkers takes longer to say."""

Did = tuple[Step, float]
"""What a step made, and how many seconds it took."""
Listen = Callable[[Transcribe], tuple[str, float]]
"""What is said in the sound of a pass, and how many seconds the sound lasts."""


class Body(Protocol):
    """A stage's work without its machine; `pipeline.stage.Stepped`, but for the time."""

    role: StageRole
    batch: int

    def admit(self, job: Job) -> None: ...
    def prepare(self, ahead: Prepare) -> None: ...
    def step(self, work: Sequence[Work]) -> Did: ...
    def drop(self, fence: Fence) -> None: ...
    def forget(self, stream: str) -> None: ...
    def holds(self, stream: str) -> bool:
        """Whether anything of a stream's jobs is left."""


class Recognizer:
    """Hears the words that are there."""

    role: StageRole = "recognizer"
    batch = 1

    def __init__(self, listen: Listen) -> None:
        self._listen = listen
        self._jobs: dict[Fence, Transcribe] = {}

    def admit(self, job: Job) -> None:
        assert isinstance(job, Transcribe)
        self._jobs[job.fence] = job

    def prepare(self, ahead: Prepare) -> None:
        raise AssertionError("a recognizer has no prompt")

    def step(self, work: Sequence[Work]) -> Did:
        (item,) = work
        words, seconds = self._listen(self._jobs.pop(item.fence))
        return Step((Chunk(item.fence, "recognizer", 0, Transcript(words), last=True),)), PASS_S + PASS_FACTOR * seconds

    def drop(self, fence: Fence) -> None:
        self._jobs.pop(fence, None)

    def forget(self, stream: str) -> None:
        self._jobs = {fence: job for fence, job in self._jobs.items() if fence.stream != stream}

    def holds(self, stream: str) -> bool:
        return any(fence.stream == stream for fence in self._jobs)


@dataclass(slots=True)
class _Writing:
    job: Think
    unread: int
    payloads: list[Payload]
    seq: int = 0


class Thinker:
    """Writes replies whose every word tells which reply it belongs to."""

    role: StageRole = "thinker"
    batch = 4

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._jobs: dict[Fence, _Writing] = {}
        self._cache: dict[str, tuple[tuple[str, int], ...]] = {}
        self._ahead: dict[str, int] = {}

    def admit(self, job: Job) -> None:
        assert isinstance(job, Think)
        self._ahead.pop(job.fence.stream, None)
        unread = self._read(job.fence.stream, job.prompt)
        self._jobs[job.fence] = _Writing(job, unread, compose(self._seed, job))

    def prepare(self, ahead: Prepare) -> None:
        self._ahead[ahead.stream] = self._read(ahead.stream, ahead.prompt)

    def _read(self, stream: str, prompt: Prompt) -> int:
        """How many tokens of a prompt the cache does not hold; it holds them from now on."""
        known, cache = 0, self._cache.get(stream, ())
        parts = tuple((part.id, part.revision) for part in prompt.parts)
        while known < min(len(cache), len(parts)) and cache[known] == parts[known]:
            known += 1
        self._cache[stream] = parts
        return sum(len(part.text.split()) + 4 for part in prompt.parts[known:] if isinstance(part, TextPart))

    def step(self, work: Sequence[Work]) -> Did:
        if not work:
            for stream in list(self._ahead)[:1]:
                self._ahead[stream] -= PREFILL_TOKENS
                if self._ahead[stream] <= 0:
                    del self._ahead[stream]
            return Step(more=bool(self._ahead)), PREFILL_S
        chunks: list[Chunk] = []
        seconds = TOKEN_S - BESIDE_S
        for item in work:
            writing = self._jobs[item.fence]
            if writing.unread > 0:
                writing.unread -= PREFILL_TOKENS
                seconds += PREFILL_S
                continue
            seconds += BESIDE_S
            payload = writing.payloads[writing.seq]
            last = isinstance(payload, End)
            chunks.append(Chunk(item.fence, "thinker", writing.seq, payload, last=last))
            writing.seq += 1
            if last:
                del self._jobs[item.fence]
        return Step(tuple(chunks)), seconds

    def drop(self, fence: Fence) -> None:
        self._jobs.pop(fence, None)

    def forget(self, stream: str) -> None:
        self._jobs = {fence: job for fence, job in self._jobs.items() if fence.stream != stream}
        self._cache.pop(stream, None)
        self._ahead.pop(stream, None)

    def holds(self, stream: str) -> bool:
        return stream in self._cache or stream in self._ahead or any(fence.stream == stream for fence in self._jobs)


def compose(seed: int, think: Think) -> list[Payload]:
    """What a thinker writes: short and long replies, an empty one now and then, a function call where it may."""
    fence = think.fence
    rng = Random(f"{seed} {fence.stream} {fence.epoch}")
    kind = rng.random()
    count = 0 if kind < 0.03 else rng.randint(1, 3) if kind < 0.2 else rng.randint(4, 16) if kind < 0.75 else 60
    most = min(count, think.max_tokens)
    payloads: list[Payload] = []
    clause = 0
    for number in range(most):
        clause += 1
        ends = number == count - 1 or clause >= 8 or (clause > 2 and rng.random() < 0.3)
        payloads.append(Text(f"{word(fence)}.{number}{',' if ends else ''} "))
        clause = 0 if ends else clause
    if think.prompt.tools and rng.random() < 0.3:
        payloads.append(CallDelta(f"call_{fence.stream}_{fence.epoch}", think.prompt.tools[0].name, "{}"))
    payloads.append(End("length" if most < count else "stop", Usage(10, 0, most)))
    return payloads


def word(fence: Fence) -> str:
    """What every word of a reply begins with."""
    return f"{fence.stream}e{getattr(fence, 'epoch', 0)}"


@dataclass(slots=True)
class _Saying:
    job: Speak
    sample_per_word: int
    exact: bool
    text: str = ""
    clauses: list[str] = field(default_factory=list)
    over: bool = False
    chars: int = 0
    samples: int = 0
    seq: int = 0

    def chunk(self, payload: Payload, span: tuple[int, int] | None = None) -> Chunk:
        self.seq += 1
        last = isinstance(payload, End)
        return Chunk(self.job.fence, "talker", self.seq - 1, payload, span, self.exact and span is not None, last)

    def take(self, payload: Payload) -> None:
        match payload:
            case Text(text):
                self.text += text
                if "," in text:
                    self.clauses.append(self.text)
                    self.text = ""
            case End():
                self.clauses += [self.text] if self.text else []
                self.over = True
            case Failed():
                self.clauses.clear()
                self.over = True


class Talker:
    """Says a clause a step, the sound in equal measure to its characters."""

    role: StageRole = "talker"
    batch = 1

    def __init__(self, seed: int) -> None:
        self._rng = Random(f"{seed} voice")
        self._jobs: dict[Fence, _Saying] = {}

    def admit(self, job: Job) -> None:
        assert isinstance(job, Speak)
        self._jobs[job.fence] = _Saying(job, self._rng.randint(5_000, 12_000), self._rng.random() < 0.5)

    def prepare(self, ahead: Prepare) -> None:
        raise AssertionError("a talker has no prompt")

    def step(self, work: Sequence[Work]) -> Did:
        (item,) = work
        saying = self._jobs[item.fence]
        for chunk in item.inputs:
            saying.take(chunk.payload)
        chunks: list[Chunk] = []
        seconds = 0.001
        cut = False
        if saying.clauses:
            said, cut = self._say(saying, saying.clauses.pop(0))
            chunks += said
            seconds = CLAUSE_S + VOICE_FACTOR * sum(_samples(chunk) for chunk in said) / RATE_HZ
        if cut or (saying.over and not saying.clauses):
            chunks.append(saying.chunk(End("length" if cut else "stop")))
            del self._jobs[item.fence]
        idle = frozenset((item.fence,)) if not saying.clauses else frozenset[Fence]()
        return Step(tuple(chunks), idle), seconds

    def _say(self, saying: _Saying, clause: str) -> tuple[list[Chunk], bool]:
        length = len(clause.split()) * saying.sample_per_word
        bound = saying.job.max_samples
        kept = length if bound is None else min(length, bound - saying.samples)
        chunks = [saying.chunk(Caption(clause))]
        for start in range(0, kept, PIECE):
            stop = min(start + PIECE, kept)
            at = saying.chars
            span = (at + _said(clause, start, length, saying.exact), at + _said(clause, stop, length, saying.exact))
            chunks.append(saying.chunk(self._piece(saying.job, saying.samples + start, stop - start), span))
        saying.chars += len(clause)
        saying.samples += kept
        return chunks, kept < length

    def _piece(self, job: Speak, start: int, samples: int) -> Payload:
        """A stretch of speech as the next one gets it."""
        return sound(samples)

    def drop(self, fence: Fence) -> None:
        self._jobs.pop(fence, None)

    def forget(self, stream: str) -> None:
        self._jobs = {fence: job for fence, job in self._jobs.items() if fence.stream != stream}

    def holds(self, stream: str) -> bool:
        return any(fence.stream == stream for fence in self._jobs)


def _said(clause: str, samples: int, length: int, exact: bool) -> int:
    """How many characters of a clause its first samples say: in equal measure, or the words that have ended."""
    at = len(clause) * samples // length
    return at if not exact or samples == length else clause.rfind(" ", 0, at) + 1


@lru_cache(maxsize=64)
def sound(samples: int) -> Audio:
    return Audio(bytes(2 * samples), RATE_HZ)


def _samples(chunk: Chunk) -> int:
    return len(chunk.payload.pcm) // 2 if isinstance(chunk.payload, Audio) else 0
