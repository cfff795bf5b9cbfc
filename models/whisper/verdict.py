"""Decides what a decoded window is worth: words, silence, or another and costlier look."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Attempt(Enum):
    """How a window is decoded; each is costlier than the one before it, and more careful."""

    SHORT = "short"  # through the short window
    FULL = "full"  # through the model's own 30 s
    STRICT = "strict"  # through 30 s, repetition forbidden


class Verdict(Enum):
    """What to do with a decoded window."""

    WORDS = "words"
    SILENCE = "silence"
    AGAIN = "again"


@dataclass(frozen=True, slots=True)
class Heard:
    """One decoding. `capped`: it ran into its token limit. `repetition`: length of its text over the zipped length."""

    text: str
    language: str | None
    no_speech: float
    log_probability: float
    repetition: float
    capped: bool


# Measured with tiny.en int8. Speech, words alone and sentences, down to 10 dB over noise: no_speech 0.01 to 0.78 with
# a log probability above -0.92. Silence, noise, hum, clicks and breath, 0.5 to 8 s: no_speech 0.61 to 0.96, and the
# lower it is the poorer the log probability (0.61: -1.57, 0.83: -0.93, 0.95: -0.43). So a line parts them.
SURELY_SILENT = 0.85
MAYBE_SILENT = 0.5
LINE_AT_MAYBE = -1.3
LINE_SLOPE = 1.67

MIN_SHORT_LOG_PROBABILITY = -0.35  # of the short window; poorer ones gain from the full one
MAX_REPETITION = 2.4  # as in Whisper's own decoder


def judge(heard: Heard, attempt: Attempt) -> Verdict:
    """What one decoding is worth. A `STRICT` one is never looked at again."""
    if heard.no_speech > SURELY_SILENT:
        return Verdict.SILENCE
    loops = heard.capped or heard.repetition > MAX_REPETITION
    match attempt:
        case Attempt.SHORT:
            doubtful = heard.no_speech > MAYBE_SILENT or heard.log_probability < MIN_SHORT_LOG_PROBABILITY
            return Verdict.AGAIN if loops or doubtful else _worded(heard)
        case Attempt.FULL:
            return Verdict.AGAIN if loops else _worded(heard)
        case Attempt.STRICT:
            return Verdict.SILENCE if heard.repetition > MAX_REPETITION else _worded(heard)


def _worded(heard: Heard) -> Verdict:
    line = LINE_AT_MAYBE + LINE_SLOPE * (heard.no_speech - MAYBE_SILENT)
    silent = heard.no_speech > MAYBE_SILENT and heard.log_probability < line
    return Verdict.SILENCE if silent or not any(map(str.isalnum, heard.text)) else Verdict.WORDS


def next_attempt(attempt: Attempt) -> Attempt:
    """The attempt that follows one that was judged `AGAIN`."""
    return Attempt.FULL if attempt is Attempt.SHORT else Attempt.STRICT
