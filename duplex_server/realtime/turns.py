"""Decides where a user's turn begins and ends, in media time.

A policy observes voice activity and names what it means; the session decides what to do about it. Positions are input
samples at 24 kHz, so audio sent faster or slower than real time gives the same turns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

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
EAGERNESS_SILENCE_MS: dict[Eagerness, int] = {"low": 1200, "medium": 700, "auto": 700, "high": 400}
"""Without a detector of finished sentences, eagerness chooses the silence that ends a turn."""


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

    def reset(self) -> None:
        """Forget an open turn: its audio was committed or cleared by hand."""


class ManualTurns:
    """The client says where a turn ends; voice means nothing."""

    __slots__ = ()
    speaking = False

    def observe(self, voice: Voice) -> TurnEvent | None:
        return None

    def reset(self) -> None:
        return None


class VadTurns:
    """A turn begins with an onset of voice and ends after a stretch of silence."""

    __slots__ = ("_onset_sample", "_paused", "_silence", "_threshold", "_voiced", "_voiced_upto", "speaking")

    def __init__(self, threshold: float, silence_ms: int, open_upto: int | None = None) -> None:
        """`open_upto` carries a turn on that another policy began, as if its voice had lasted until there."""
        self._threshold = threshold
        self._silence = _samples(silence_ms)
        self.reset()
        if open_upto is not None:
            self.speaking, self._voiced_upto = True, open_upto

    def reset(self) -> None:
        self.speaking = False
        self._paused = False
        self._voiced = 0
        self._onset_sample = 0
        self._voiced_upto = 0

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
                self._paused = False
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
            return VadTurns(ServerVad().threshold, EAGERNESS_SILENCE_MS[detection.eagerness], open_upto)


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
