"""Gives the sound that checks send: speech, and what is none."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

RATE_HZ = 24_000
MS = RATE_HZ // 1000  # samples
BYTES_PER_MS = 2 * MS
SPEECH_FILE = Path(__file__).parent / "speech.flac"
"""A short sentence, "The quick brown fox jumps over the lazy dog."; its licence lies beside it."""
SHORTEST_S, LONGEST_S = 1.0, 15.0
LOUDEST = 12_000
SILENT = 0.01
"""Of the loudest sample: what is quieter at either end is no speech."""

Pcm = NDArray[np.int16]
"""Sound as it is sent: int16, shape (n,), 24 kHz mono."""


class UnusableSpeech(Exception):
    """A file of speech can't be used; the message says why."""


def load_speech(file: Path) -> Pcm:
    """Speech from its first to its last voiced sample. Raises `UnusableSpeech`."""
    try:
        samples, rate_hz = soundfile.read(str(file), dtype="float32", always_2d=True)
    except (OSError, soundfile.SoundFileError) as error:
        raise UnusableSpeech(f"{file} can't be read: {error}") from error
    mono = soxr.resample(samples.mean(axis=1), rate_hz, RATE_HZ)
    loud = np.flatnonzero(np.abs(mono) > SILENT * np.abs(mono).max(initial=0.0))
    duration_s = (loud[-1] - loud[0]) / RATE_HZ if len(loud) else 0.0
    if not SHORTEST_S <= duration_s <= LONGEST_S:
        raise UnusableSpeech(
            f"{file} holds {duration_s:.1f} s of speech; expected {SHORTEST_S:.0f} to {LONGEST_S:.0f} s"
        )
    cut = mono[loud[0] : loud[-1] + 1]
    pcm: Pcm = np.round(cut / np.abs(cut).max() * LOUDEST).astype(np.int16)
    return pcm


def silence(duration_ms: int) -> Pcm:
    """Digital silence."""
    return np.zeros(duration_ms * MS, np.int16)


def murmur(duration_ms: int) -> Pcm:
    """A faint hiss at about -50 dBFS, the same each time."""
    return np.random.default_rng(1).normal(0.0, 100.0, duration_ms * MS).astype(np.int16)


def ramp(samples: int) -> Pcm:
    """Sound in which every sample tells its place."""
    return (np.arange(samples) % 4096).astype(np.int16)


def encoded(sound: Pcm | bytes) -> str:
    """Sound as it stands in an event."""
    return base64.b64encode(sound if isinstance(sound, bytes) else sound.astype("<i2").tobytes()).decode()


def duration_ms(pcm: Pcm) -> int:
    """Whole milliseconds."""
    return len(pcm) // MS
