"""A voice activity detector that hears by energy."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from pipeline.spec import Capabilities, Family


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`level` is the root mean square above which sound counts as speech."""

    level: float = 500.0


class EnergyStream:
    """It has no state: each frame is judged alone."""

    def __init__(self, level: float) -> None:
        self._level = level

    def probability(self, frame: NDArray[np.int16]) -> float:
        loudness = float(np.sqrt(np.mean(np.square(frame.astype(np.float64)))))
        return 1.0 if loudness > self._level else 0.0


class EnergyDetector:
    """Frames of 32 ms at 16 kHz."""

    rate_hz = 16_000
    frame_samples = 512

    def __init__(self, options: Options) -> None:
        self._options = options

    def load(self) -> None:
        """Nothing to load."""

    def open(self) -> EnergyStream:
        return EnergyStream(self._options.level)


def _make(options: msgspec.Struct) -> EnergyDetector:
    assert isinstance(options, Options)
    return EnergyDetector(options)


def _describe(options: msgspec.Struct) -> Capabilities:
    return Capabilities(model="energy")


FAMILY = Family("scripted.detector", "detector", (), Options, _make, _describe)
