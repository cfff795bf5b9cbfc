"""Gives recorded speech with its words, sounds that are not speech, and the word error rate."""

from __future__ import annotations

import re
from functools import cache

import jiwer
import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from models.sources import resolve

Pcm = NDArray[np.int16]

BASE_HZ = 16_000
PEAK = 12_000  # every utterance is scaled to this peak, so that thresholds mean the same for all of them
VOICED = 300  # after scaling: a louder sample is speech, a quieter one is the room

_READER = "package:moonshine-voice/assets/two_cities.wav"
_PLAY = "package:moonshine-voice/assets/endgame_nagg_nell.wav"
_ACTOR = "package:moonshine-voice/assets/beckett.wav"
_SAMPLES = "package:pytest-audioeval/samples/audio"

# name: recording, start and end in seconds, the words. Cut points lie in pauses of the recording.
UTTERANCES: dict[str, tuple[str, float, float, str]] = {
    "best_of_times": (_READER, 1.1, 4.46, "It was the best of times, it was the worst of times."),
    "everything": (_READER, 21.1, 24.15, "We had everything before us, we had nothing before us."),
    "season": (_READER, 13.4, 16.9, "It was the season of light, it was the season of darkness."),
    "direct_way": (_READER, 26.4, 28.7, "We were all going direct the other way."),
    "quick_fox": (f"{_SAMPLES}/en/quick_brown_fox.wav", 0, 99, "The quick brown fox jumps over the lazy dog."),
    "counting": (f"{_SAMPLES}/en/counting.wav", 0, 99, "One two three four five six seven eight nine ten."),
    "hello_world": (f"{_SAMPLES}/en/hello_world.wav", 0, 99, "Hello world."),
    "wisdom": (_READER, 4.8, 8.2, "It was the age of wisdom, it was the age of foolishness."),
    "belief": (_READER, 8.55, 12.85, "It was the epoch of belief, it was the epoch of incredulity."),
    "hope": (_READER, 17.1, 20.5, "It was the spring of hope, it was the winter of despair."),
    "heaven": (_READER, 24.4, 26.2, "We were all going direct to heaven."),
    "period": (_READER, 28.8, 32.2, "In short, the period was so far like the present period"),
    "ages": (
        _READER,
        1.1,
        8.2,
        "It was the best of times, it was the worst of times. It was the age of wisdom, it was the age of foolishness.",
    ),
    "seasons": (
        _READER,
        13.4,
        20.5,
        "It was the season of light, it was the season of darkness. "
        "It was the spring of hope, it was the winter of despair.",
    ),
    "authorities": (
        _READER,
        32.3,
        41.6,
        "that some of its noisiest authorities insisted on its being received, "
        "for good or for evil, in the superlative degree of comparison only.",
    ),
    "opening": (  # longer than a 30 s window
        _READER,
        1.1,
        41.6,
        "It was the best of times, it was the worst of times. "
        "It was the age of wisdom, it was the age of foolishness. "
        "It was the epoch of belief, it was the epoch of incredulity. "
        "It was the season of light, it was the season of darkness. "
        "It was the spring of hope, it was the winter of despair. "
        "We had everything before us, we had nothing before us. "
        "We were all going direct to heaven, we were all going direct the other way. "
        "In short, the period was so far like the present period that some of its noisiest authorities insisted "
        "on its being received, for good or for evil, in the superlative degree of comparison only.",
    ),
    "resource": (_PLAY, 4.3, 7.95, "We laugh less heartily, so we have still that resource."),
    "story": (_PLAY, 14.2, 15.7, "Ah, that's a good story."),
    "talking": (_PLAY, 17.2, 19.0, "What are you talking about?"),
    "ditch": (_PLAY, 23.4, 27.25, "Do you remember the day I went and fetched you from that ditch?"),
    "fail_better": (_ACTOR, 0, 99, "Ever tried, ever failed, no matter, try again, fail again, fail better."),
    "hola_mundo": (f"{_SAMPLES}/es/hola_mundo.wav", 0, 99, "Hola mundo."),
}

_NUMERALS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


@cache
def _recording(source: str) -> NDArray[np.float64]:
    """A whole recording as mono samples at 16 kHz, shape (n,)."""
    samples, rate_hz = soundfile.read(resolve(source), dtype="float64", always_2d=True)
    return np.asarray(soxr.resample(samples.mean(axis=1), rate_hz, BASE_HZ))


@cache
def _utterance(name: str, rate_hz: int) -> Pcm:
    source, start_s, end_s, _ = UTTERANCES[name]
    whole = _recording(source)
    cut = whole[int(start_s * BASE_HZ) : int(min(end_s * BASE_HZ, len(whole)))]
    cut = cut * (PEAK / np.abs(cut).max())
    loud = np.flatnonzero(np.abs(cut) > VOICED)
    pcm = _pcm(soxr.resample(cut[loud[0] : loud[-1] + 1], BASE_HZ, rate_hz))
    pcm.setflags(write=False)
    return pcm


def _pcm(samples: NDArray[np.float64]) -> Pcm:
    return np.clip(np.round(samples), -32768, 32767).astype(np.int16)


def speech(name: str, rate_hz: int = 24_000) -> tuple[Pcm, str]:
    """A named utterance and its words.

    int16, shape (n,), mono at `rate_hz`, peak about 12000; the first and the last sample are speech. Raises KeyError
    for an unknown name.
    """
    return _utterance(name, rate_hz), UTTERANCES[name][3]


def silence(duration_s: float, rate_hz: int = 24_000) -> Pcm:
    """Digital silence, int16, shape (n,)."""
    return np.zeros(int(duration_s * rate_hz), np.int16)


def noise(duration_s: float, rate_hz: int = 24_000, level: float = 300.0, seed: int = 0) -> Pcm:
    """White noise with a root mean square of `level`, int16, shape (n,)."""
    samples = np.random.default_rng(seed).normal(0.0, level, int(duration_s * rate_hz))
    return _pcm(samples)


def hum(duration_s: float, rate_hz: int = 24_000, level: float = 1000.0, mains_hz: float = 50.0) -> Pcm:
    """Mains hum: `mains_hz` and its first harmonics, root mean square `level`, int16, shape (n,)."""
    at_s = np.arange(int(duration_s * rate_hz)) / rate_hz
    wave = sum((np.sin(2 * np.pi * mains_hz * k * at_s) / k for k in range(1, 7)), np.zeros_like(at_s))
    return _pcm(wave * (level / np.sqrt(np.mean(wave**2))))


def clicks(duration_s: float, rate_hz: int = 24_000, peak: float = 12_000.0, seed: int = 0) -> Pcm:
    """About six keyboard-like clicks a second, 4 ms each, over a faint room; int16, shape (n,)."""
    rng = np.random.default_rng(seed)
    samples = rng.normal(0.0, 20.0, int(duration_s * rate_hz))
    length = int(0.004 * rate_hz)
    decay = np.exp(-np.arange(length) / (length / 5))
    for start in rng.integers(0, max(1, len(samples) - length), int(6 * duration_s)):
        burst = rng.normal(0.0, 1.0, length) * decay
        samples[start : start + length] += burst * (peak / np.abs(burst).max())
    return _pcm(samples)


def breath(duration_s: float, rate_hz: int = 24_000, level: float = 400.0, seed: int = 0) -> Pcm:
    """Breathing: noise between 300 and 3000 Hz that swells once in 1.6 s; int16, shape (n,)."""
    count = int(duration_s * rate_hz)
    spectrum = np.fft.rfft(np.random.default_rng(seed).normal(0.0, 1.0, count))
    hertz = np.fft.rfftfreq(count, 1 / rate_hz)
    spectrum[(hertz < 300) | (hertz > 3000)] = 0
    swell = np.clip(np.sin(2 * np.pi * np.arange(count) / (1.6 * rate_hz)), 0, None)
    wave = np.fft.irfft(spectrum, count) * swell
    return _pcm(wave * (level / np.sqrt(np.mean(wave**2))))


def add_noise(pcm: Pcm, snr_db: float, seed: int = 0) -> Pcm:
    """`pcm` with white noise under it, `snr_db` below its root mean square; int16, same shape."""
    samples = pcm.astype(np.float64)
    level = np.sqrt(np.mean(samples**2)) / 10 ** (snr_db / 20)
    noisy = samples + np.random.default_rng(seed).normal(0.0, level, len(samples))
    return _pcm(noisy)


def words(text: str) -> str:
    """`text` as a judge of words sees it: lower case, no punctuation, numerals up to ten in words."""
    plain = re.sub(r"[^\w\s']", " ", text.lower())
    return " ".join(_NUMERALS[int(w)] if w.isdecimal() and int(w) <= 10 else w for w in plain.split())


def word_error_rate(reference: str, heard: str) -> float:
    """Substituted, deleted and inserted words over the words of `reference`; 0 is perfect, it may exceed 1."""
    return float(jiwer.wer(words(reference), words(heard)))
