"""Steps Whisper over recognition jobs, one pass over one window at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from models.registry import library
from models.whisper.engine import RATE_HZ, Ask, Engine
from models.whisper.family import Options
from models.whisper.verdict import Attempt, Heard, Verdict, judge, next_attempt
from models.whisper.windows import FULL_WINDOW_S, window_end
from pipeline.chunk import Chunk, Failed, Fence, Job, Prepare, Segment, Transcribe, Transcript
from pipeline.errors import StageError
from pipeline.stage import Step, Work
from transport.base import Inline, unpack

MIN_AUDIO_MS = 100  # less can't hold a word
SPARE_MS = 200  # of silence behind the speech in the short window; without it the last word is lost
MIN_WINDOW_S = 10


@dataclass(slots=True)
class _Pass:
    """A job under way: `start` is the first sample not heard yet, `end` that of the window being heard."""

    job: Transcribe
    pcm: NDArray[np.int16]
    language: str | None
    start: int
    end: int
    attempt: Attempt
    voiced: bool = False  # the window has passed the gate
    texts: list[str] = field(default_factory=list)


class Recognizer:
    """A stepped recognizer. A step hears one window once; a doubtful one is heard again in the next step."""

    def __init__(self, options: Options) -> None:
        """Take the options; `load` does the work."""
        self._options = options
        self._engine: Engine | None = None
        self._passes: dict[Fence, _Pass] = {}

    @property
    def bound_ms(self) -> int:
        """The longest a step may take; its native calls can't be cut short."""
        return self._options.bound_ms

    @property
    def batch(self) -> int:
        """One job a step: on a CPU a batch of windows costs their sum."""
        return 1

    @property
    def threads(self) -> int:
        """How many cores a step keeps busy."""
        return self._options.threads

    def load(self) -> None:
        """Load the model and warm both windows. Raises `StageError`."""
        window_s = self._options.window_s
        if not MIN_WINDOW_S <= window_s <= FULL_WINDOW_S:
            raise StageError(
                f"window_s is {window_s}, expected {MIN_WINDOW_S} to {FULL_WINDOW_S}: Whisper loops on less than 10 s"
            )
        library("soxr", "whisper")
        engine = Engine(self._options)
        for warm_s in {window_s, FULL_WINDOW_S}:
            engine.decode(np.zeros(RATE_HZ, np.float32), Ask(warm_s))
        self._engine = engine

    def admit(self, job: Job) -> None:
        """Take a job in. Raises `StageError` for another kind of job, an unknown language or too much audio."""
        if not isinstance(job, Transcribe):
            raise StageError(f"a recognizer got a {type(job).__name__} job; it takes Transcribe")
        language = self._language(job.language)
        pcm = _samples(job)
        if len(pcm) > self._options.max_audio_s * job.rate_hz:
            raise StageError(
                f"got {len(pcm) / job.rate_hz:.0f} s of audio, at most {self._options.max_audio_s} s are taken; "
                f"split it, or raise max_audio_s"
            )
        end = window_end(pcm, 0, job.rate_hz)
        self._passes[job.fence] = _Pass(job, pcm, language, 0, end, self._first(end, job.rate_hz))

    def prepare(self, ahead: Prepare) -> None:
        """Nothing to prefill."""

    def step(self, work: Sequence[Work]) -> Step:
        """Hear one window of each job; the last window's chunk is the job's only one."""
        chunks = [chunk for item in work if (chunk := self._advance(item.fence)) is not None]
        return Step(tuple(chunks))

    def interrupt(self) -> None:
        """Nothing to end: a native call can't be cancelled, the step is over within a pass."""

    def drop(self, fence: Fence) -> None:
        """Forget a job."""
        self._passes.pop(fence, None)

    def forget(self, stream: str) -> None:
        """Forget the jobs of a stream; nothing else is kept for it."""
        for fence in [fence for fence in self._passes if fence.stream == stream]:
            del self._passes[fence]

    # ---- one pass -------------------------------------------------------------------------------------------------

    def _advance(self, fence: Fence) -> Chunk | None:
        current = self._passes[fence]
        rate_hz = current.job.rate_hz
        if (current.end - current.start) * 1000 >= MIN_AUDIO_MS * rate_hz:
            try:
                heard = self._hear(current)
            except RuntimeError as error:  # what CTranslate2 raises, for lack of memory among others
                del self._passes[fence]
                return _last(current.job.fence, Failed("stage_failed", f"Whisper failed on this audio: {error}"))
            match Verdict.SILENCE if heard is None else judge(heard, current.attempt):
                case Verdict.AGAIN:
                    current.attempt = next_attempt(current.attempt)
                    return None
                case Verdict.WORDS:
                    assert heard is not None
                    current.texts.append(heard.text)
                    current.language = current.language or heard.language
                case Verdict.SILENCE:
                    pass
        if current.end < len(current.pcm):
            current.start, current.end = current.end, window_end(current.pcm, current.end, rate_hz)
            current.attempt, current.voiced = self._first(current.end - current.start, rate_hz), False
            return None
        del self._passes[fence]
        return _last(current.job.fence, Transcript("".join(current.texts).strip(), current.language))

    def _hear(self, current: _Pass) -> Heard | None:
        """The window's decoding; None when nobody speaks in it."""
        assert self._engine is not None, "step before load"
        import soxr  # ships no types

        piece = current.pcm[current.start : current.end].astype(np.float32) / 32768
        samples: NDArray[np.float32] = soxr.resample(piece, current.job.rate_hz, RATE_HZ)
        current.voiced = current.voiced or self._engine.voice(samples) >= self._options.speech_gate
        if not current.voiced:
            return None
        window_s = self._options.window_s if current.attempt is Attempt.SHORT else FULL_WINDOW_S
        ask = Ask(window_s, current.language, current.job.prompt, current.attempt is Attempt.STRICT)
        return self._engine.decode(samples[: window_s * RATE_HZ], ask)

    def _first(self, samples: int, rate_hz: int) -> Attempt:
        window_s = self._options.window_s
        fits = samples * 1000 + SPARE_MS * rate_hz <= window_s * 1000 * rate_hz
        return Attempt.SHORT if fits and window_s < FULL_WINDOW_S else Attempt.FULL

    def _language(self, asked: str | None) -> str | None:
        assert self._engine is not None, "admit before load"
        if asked is None:
            return None if self._engine.multilingual else "en"
        code = asked.lower().replace("_", "-").partition("-")[0]
        if code not in self._engine.languages:
            understood = ", ".join(self._engine.languages)
            raise StageError(f"this Whisper model doesn't understand the language {asked!r}; it takes {understood}")
        return code


def _samples(job: Transcribe) -> NDArray[np.int16]:
    """The job's audio, int16, shape (n,). Raises `StageError`."""
    if not isinstance(job.audio, Inline):
        raise StageError("the recognizer got audio by reference; the worker has to open it before it admits the job")
    pcm = unpack(job.audio).get("pcm")
    if pcm is None or pcm.dtype != np.int16 or pcm.ndim != 1 or job.rate_hz <= 0:
        got = "no block 'pcm'" if pcm is None else f"{pcm.dtype} of shape {pcm.shape} at {job.rate_hz} Hz"
        raise StageError(f"the recognizer got {got}; expected one int16 block 'pcm' of shape (n,) and its rate")
    return pcm


def _last(fence: Segment, payload: Transcript | Failed) -> Chunk:
    return Chunk(fence, "recognizer", 0, payload, last=True)
