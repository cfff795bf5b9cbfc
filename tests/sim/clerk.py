"""Is a user of the batch lane: hands in recordings, questions and texts, one after the other, and waits."""

from __future__ import annotations

from random import Random

from pipeline.chunk import (
    Audio,
    CallDelta,
    Caption,
    Chunk,
    End,
    Failed,
    Prompt,
    Reply,
    Segment,
    Speak,
    Text,
    TextPart,
    Think,
    Transcript,
)
from tests.sim.bodies import compose
from tests.sim.cascade import Cascade
from tests.sim.clock import Clock
from tests.sim.people import WORD_S
from tests.sim.speech import RATE_HZ, Sound, Speech

PAUSE_S = 6.0
"""How long a clerk is idle on average."""
GIVES_UP = 0.1
"""How likely they leave before they have their answer."""


class Errand:
    """One stream of the batch lane, from its request to its last chunk; what comes is held against what is asked."""

    def __init__(self, rng: Random, seed: int, stream: str) -> None:
        self.stream = stream
        self.speech = Speech(0.0)
        self._rng, self._seed = rng, seed
        self._open: set[str] = set()  # roles that owe their last chunk
        self._words = ""  # what is to be heard, written or said
        self._text = self._captions = ""
        self._samples = 0
        self._cut = False
        self.failed = False

    @property
    def done(self) -> bool:
        return not self._open

    def hand_in(self, cascade: Cascade) -> None:
        match self._rng.choice(("recording", "question", "spoken question", "text")):
            case "recording":
                self._record(cascade)
            case "text":
                self._words = " ".join(f"{self.stream}.{number}," for number in range(self._rng.randint(1, 30)))
                self._open = {"talker"}
                cascade.say(Speak(Reply(self.stream, 1)), self._words)
            case kind:
                self._ask(cascade, spoken=kind == "spoken question")

    def _record(self, cascade: Cascade) -> None:
        at = 0
        for number in range(self._rng.randint(1, 40)):
            stop = at + int(self._rng.uniform(*WORD_S) * RATE_HZ)
            self.speech.add(Sound(at, stop, f"{self.stream}w{number}"))
            at = stop + self._rng.randint(0, RATE_HZ)
        self._words = self.speech.words(0, at)
        self._open = {"recognizer"}
        cascade.transcribe(Segment(self.stream, 1, at), 0, final=True)

    def _ask(self, cascade: Cascade, *, spoken: bool) -> None:
        fence = Reply(self.stream, 1)
        think = Think(fence, Prompt((TextPart("question", "user", "what " * self._rng.randint(1, 200)),)), 100)
        self._words = "".join(part.text for part in compose(self._seed, think) if isinstance(part, Text))
        self._open = {"thinker", "talker"} if spoken else {"thinker"}
        cascade.answer(think, Speak(fence) if spoken else None)

    def take(self, chunk: Chunk) -> None:
        assert chunk.role in self._open, f"{chunk} comes after the last of its kind"
        match chunk.payload:
            case Transcript(text):
                assert text == self._words, f"heard {text!r}, said was {self._words!r}"
            case Text(text):
                self._text += text
            case Caption(text):
                self._captions += text
            case Audio(pcm):
                self._samples += len(pcm) // 2
            case Failed():
                self.failed = True
            case CallDelta() | End():
                pass
            case other:
                raise AssertionError(f"{other} is not for a stream")
        if chunk.last:
            self._open.discard(chunk.role)
            if not self.failed:
                self._check(chunk)

    def _check(self, chunk: Chunk) -> None:
        if chunk.role == "thinker":
            assert self._text == self._words, f"written is {self._text!r}, should be {self._words!r}"
        if chunk.role == "talker":
            assert self._captions == self._words, f"said is {self._captions!r}, should be {self._words!r}"
            assert bool(self._samples) == bool(self._words.strip()), "words without sound, or sound without words"


class Clerk:
    """Somebody who is in no hurry."""

    def __init__(self, clock: Clock, rng: Random, seed: int, name: str, cascade: Cascade) -> None:
        self._clock, self._rng, self._seed, self._name, self._cascade = clock, rng, seed, name, cascade
        self._errand: Errand | None = None
        self._count = 0
        self._finished = False

    def start(self) -> None:
        self._clock.call_later(self._rng.expovariate(1 / PAUSE_S), self._begin)

    def finish(self) -> None:
        """Ask for nothing more."""
        self._finished = True

    @property
    def busy(self) -> bool:
        return self._errand is not None

    def _begin(self) -> None:
        if self._finished:
            return
        self._count += 1
        errand = self._errand = Errand(self._rng, self._seed, f"{self._name}n{self._count}")
        self._cascade.grow()
        self._cascade.open(errand.stream, self._take, errand.speech, "batch")
        errand.hand_in(self._cascade)
        if self._rng.random() < GIVES_UP:
            self._clock.call_later(self._rng.uniform(0.0, 2.0), self._end, errand)

    def _take(self, chunk: Chunk) -> None:
        errand = self._errand
        if errand is None or errand.stream != chunk.fence.stream:
            raise AssertionError(f"{chunk} comes after its stream was closed")
        errand.take(chunk)
        if errand.done or errand.failed:
            self._clock.call_soon(self._end, errand)

    def _end(self, errand: Errand) -> None:
        if self._errand is errand:
            self._cascade.met["errands"] += errand.done
            self._cascade.close(errand.stream)
            self._errand = None
            self.start()
