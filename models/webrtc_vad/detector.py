"""Runs WebRTC's voice activity detector behind a gate on energy above the noise floor."""

from __future__ import annotations

import math
from collections import deque
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from models.registry import library
from pipeline.errors import StageError
from pipeline.stage import DetectorStream

RATE_HZ = 16_000
FRAME_SAMPLES = 320
MODES = range(4)

# On its own it takes hum and loud noise for speech (100 %), and clicks (39 % of the frames). A steady sound does not
# rise above its own floor, and a click does not last: the gate leaves 0 % of hum and noise and 2 % of clicks.
BAND_HZ = (200, 4000)
SMOOTH_FRAMES = 5  # 100 ms: a whole number of periods of 50 and 60 Hz hum
FLOOR_FRAMES = 150  # 3 s: a speaker pauses within it
RISE_DB = 4.0  # of the smoothed energy above the floor
RISE_NOW_DB = 2.0  # of the frame's own energy, so that a click ends with its frame
LEAST_ENERGY = 1e3  # keeps dither from counting as a rise; about 30 dB below soft speech
VOTES = 5  # frames whose share of voiced ones is the probability


class _Vad(Protocol):
    """The library's detector; it ships no types."""

    def is_speech(self, buf: bytes, sample_rate: int) -> bool: ...


class WebRtcDetector:
    """WebRTC's detector, 20 ms frames at 16 kHz; a frame costs about 0.04 ms with its gate."""

    def __init__(self, mode: int) -> None:
        """Take the mode, 0 to 3; `load` does the work."""
        self._mode = mode
        self._library: Any = None  # it ships no types

    @property
    def rate_hz(self) -> int:
        """16 kHz."""
        return RATE_HZ

    @property
    def frame_samples(self) -> int:
        """320 samples, 20 ms."""
        return FRAME_SAMPLES

    def load(self) -> None:
        """Find the library. Raises `StageError`, also for a mode that doesn't exist."""
        if self._mode not in MODES:
            raise StageError(f"webrtc_vad: mode is {self._mode}, expected 0 to 3")
        self._library = library("webrtcvad", "webrtc_vad")
        self.open().probability(np.zeros(FRAME_SAMPLES, np.int16))

    def open(self) -> DetectorStream:
        """A fresh state for one stream."""
        assert self._library is not None, "open before load"
        return _Stream(self._library.Vad(self._mode))


class _Stream:
    """One stream: the detector's own adaptation, the noise floor and the last votes."""

    def __init__(self, vad: _Vad) -> None:
        self._vad = vad
        self._taper = np.hanning(FRAME_SAMPLES)
        hertz = np.fft.rfftfreq(FRAME_SAMPLES, 1 / RATE_HZ)
        self._band = (hertz >= BAND_HZ[0]) & (hertz <= BAND_HZ[1])
        self._recent: deque[float] = deque(maxlen=SMOOTH_FRAMES)
        self._floors_db: deque[float] = deque(maxlen=FLOOR_FRAMES)
        self._votes: deque[bool] = deque(maxlen=VOTES)

    def probability(self, frame: NDArray[np.int16]) -> float:
        """The share of the last five frames that held speech; int16, shape (320,). Raises ValueError otherwise."""
        if frame.shape != (FRAME_SAMPLES,) or frame.dtype != np.int16:
            raise ValueError(f"got a frame of {frame.dtype}, shape {frame.shape}, expected int16, ({FRAME_SAMPLES},)")
        voiced = self._vad.is_speech(frame.tobytes(), RATE_HZ)
        self._votes.append(self._above_floor(frame) and voiced)
        return sum(self._votes) / VOTES

    def _above_floor(self, frame: NDArray[np.int16]) -> bool:
        spectrum = np.abs(np.fft.rfft(frame * self._taper))[self._band]
        energy = float((spectrum**2).sum()) / FRAME_SAMPLES + LEAST_ENERGY
        self._recent.append(energy)
        if len(self._recent) < SMOOTH_FRAMES:
            return False
        smooth_db = 10 * math.log10(sum(self._recent) / SMOOTH_FRAMES)
        self._floors_db.append(smooth_db)
        floor_db = min(self._floors_db)
        return smooth_db > floor_db + RISE_DB and 10 * math.log10(energy) > floor_db + RISE_NOW_DB
