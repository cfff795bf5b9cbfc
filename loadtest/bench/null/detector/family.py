"""A voice activity detector that hears by the loudest sample; it takes sound at the wire's rate, a frame at a time."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from pipeline.spec import Capabilities, Family

LEVEL = 1000
"""A sample beyond this is speech."""


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """It can't be told anything."""


class LoudStream:
    """It has no state: each frame is judged alone."""

    def probability(self, frame: NDArray[np.int16]) -> float:
        """1 for a frame (int16, shape (480,)) with a loud sample, else 0."""
        return 1.0 if frame[frame.argmax()] > LEVEL else 0.0


class LoudDetector:
    """Frames of 20 ms at 24 kHz, which need no resampling."""

    rate_hz = 24_000
    frame_samples = 480

    def load(self) -> None:
        """Nothing to load."""

    def open(self) -> LoudStream:
        """A stream like any other."""
        return LoudStream()


def make(options: msgspec.Struct) -> LoudDetector:
    """The detector."""
    return LoudDetector()


def describe(options: msgspec.Struct) -> Capabilities:
    """Nothing to choose from."""
    return Capabilities(model="loudness")


FAMILY = Family("null.detector", "detector", (), Options, make, describe)
