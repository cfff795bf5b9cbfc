"""Decides where a user's turn begins and ends, in media time.

A policy observes voice activity and names what it means; the session decides what to do about it. Positions are input
samples at 24 kHz, so audio sent faster or slower than real time gives the same turns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from duplex_server.realtime.inputs import Voice
from duplex_server.realtime.schema import INPUT_RATE_HZ, Eagerness, SemanticVad, ServerVad, TurnDetection

ONSET_MS = 90
"""Voiced sound that makes an onset: longer than a click or a key, shorter than the shortest word."""
ONSET_GAP_MS = 40
"""An unvoiced stretch this long starts the count of an onset anew."""
ONSET_WINDOW_MS = 250
"""An onset is noticed at most this long after it began; that much audio is kept besides the prefix."""
HYSTERESIS = 0.15
"""Speech goes on at a probability this much below the one that began it."""
QUIET_MS = 200
"""Silence after which the end of the turn is probable enough to start on its transcript."""
Ending = Literal["finished", "unsure", "unfinished"]
"""How a stretch of speech ends, by its words."""
_MEDIUM: Mapping[Ending, int] = {"finished": 500, "unsure": 700, "unfinished": 4000}
EAGERNESS_SILENCE_MS: Mapping[Eagerness, Mapping[Ending, int]] = {
    "low": {"finished": 900, "unsure": 1200, "unfinished": 8000},
    "medium": _MEDIUM,
    "auto": _MEDIUM,
    "high": {"finished": 300, "unsure": 400, "unfinished": 2000},
}
"""The silence that ends a turn: the one in the middle until its words are known, and where they leave it open."""
FULL_STOPS, QUESTIONS, COMMAS = ".。", "?!？！؟", ("...", "…", ",", ";", ":", "-", "–", "—")
LEFT_OPEN = frozenset(("a", "an", "and", "because", "but", "my", "or", "the", "uh", "your"))
"""Words that end no sentence, even where a recognizer puts a full stop."""


@dataclass(frozen=True, slots=True)
class Started:
    """Speech began at `onset_sample`."""

    onset_sample: int


@dataclass(frozen=True, slots=True)
class Paused:
    """The speaker has fallen silent, perhaps for good; the silence was noticed at `at_sample`."""

    at_sample: int


@dataclass(frozen=True, slots=True)
class Resumed:
    """The speaker went on after a pause."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """The turn is over; its audio ends at `end_sample`, the silence included."""

    end_sample: int


TurnEvent = Started | Paused | Resumed | Stopped


class Turns(Protocol):
    """A policy of turn-taking."""

    @property
    def speaking(self) -> bool:
        """True between `Started` and `Stopped`."""

    def observe(self, voice: Voice) -> TurnEvent | None: ...

    def hear(self, words: str) -> None:
        """What was said up to the pause is known by now."""

    def reset(self) -> None:
        """Forget an open turn: its audio was committed or cleared by hand."""


class ManualTurns:
    """The client says where a turn ends; voice means nothing."""

    __slots__ = ()
    speaking = False

    def observe(self, voice: Voice) -> TurnEvent | None:
        return None

    def hear(self, words: str) -> None:
        return None

    def reset(self) -> None:
        return None


class VadTurns:
    """A turn begins with an onset of voice and ends after a stretch of silence."""

    __slots__ = (
        "_endings",
        "_onset_sample",
        "_paused",
        "_silence",
        "_silence_ms",
        "_threshold",
        "_voiced",
        "_voiced_upto",
        "speaking",
    )

    def __init__(
        self,
        threshold: float,
        silence_ms: int,
        open_upto: int | None = None,
        endings: Mapping[Ending, int] | None = None,
    ) -> None:
        """`open_upto` carries a turn on that another policy began, as if its voice had lasted until there.

        `endings` are other silences, for speech whose end is known by its words.
        """
        self._threshold, self._silence_ms, self._endings = threshold, silence_ms, endings
        self.reset()
        if open_upto is not None:
            self.speaking, self._voiced_upto = True, open_upto

    def reset(self) -> None:
        self.speaking = False
        self._paused = False
        self._voiced = 0
        self._onset_sample = 0
        self._voiced_upto = 0
        self._silence = _samples(self._silence_ms)

    def hear(self, words: str) -> None:
        if self._endings is not None and self._paused:
            self._silence = _samples(self._endings[ending(words)])

    def observe(self, voice: Voice) -> TurnEvent | None:
        return self._during(voice) if self.speaking else self._before(voice)

    def _before(self, voice: Voice) -> TurnEvent | None:
        if voice.probability < self._threshold:
            if voice.upto_sample - self._voiced_upto >= _samples(ONSET_GAP_MS):
                self._voiced = 0
            return None
        if self._voiced == 0:
            self._onset_sample = voice.from_sample
        self._voiced += voice.upto_sample - voice.from_sample
        self._voiced_upto = voice.upto_sample
        if self._voiced < _samples(ONSET_MS):
            return None
        self.speaking, self._paused = True, False
        return Started(self._onset_sample)

    def _during(self, voice: Voice) -> TurnEvent | None:
        if voice.probability >= max(self._threshold - HYSTERESIS, HYSTERESIS / 10):
            self._voiced_upto = voice.upto_sample
            if self._paused:
                self._paused, self._silence = False, _samples(self._silence_ms)
                return Resumed()
            return None
        silence = voice.upto_sample - self._voiced_upto
        if silence >= self._silence:
            self.reset()
            return Stopped(voice.upto_sample)
        if silence >= _samples(QUIET_MS) and not self._paused:
            self._paused = True
            return Paused(voice.upto_sample)
        return None


def policy(detection: TurnDetection | None, open_upto: int | None = None) -> Turns:
    """The policy that a session's `turn_detection` asks for; a turn that is open stays open."""
    match detection:
        case None:
            return ManualTurns()
        case ServerVad():
            return VadTurns(detection.threshold, detection.silence_duration_ms, open_upto)
        case SemanticVad():
            endings = EAGERNESS_SILENCE_MS[detection.eagerness]
            return VadTurns(ServerVad().threshold, endings["unsure"], open_upto, endings)


def ending(words: str) -> Ending:
    """Whether a stretch of speech sounds finished by its words, as a recognizer wrote them."""
    text = words.rstrip().rstrip("\"'”’)")
    bare = text.rstrip(FULL_STOPS).split()
    if not bare:
        return "unsure"
    if text.endswith(COMMAS) or (text[-1] not in QUESTIONS and bare[-1].lower() in LEFT_OPEN):
        return "unfinished"
    return "finished" if text[-1] in FULL_STOPS + QUESTIONS else "unsure"


def prefix_samples(detection: TurnDetection | None) -> int:
    """How much audio before an onset belongs to the turn."""
    return _samples(_prefix_ms(detection))


def kept_samples(detection: TurnDetection | None) -> int:
    """How much of the audio before now a turn that begins now may need."""
    return _samples(_prefix_ms(detection) + ONSET_WINDOW_MS)


def _prefix_ms(detection: TurnDetection | None) -> int:
    return detection.prefix_padding_ms if isinstance(detection, ServerVad) else ServerVad().prefix_padding_ms


def _samples(ms: int) -> int:
    return ms * INPUT_RATE_HZ // 1000
