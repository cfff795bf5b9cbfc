"""Loads the real models once for all tests of the families."""

from __future__ import annotations

import pytest

from models.silero.detector import SileroDetector
from models.silero.family import Options as SileroOptions
from models.whisper.family import Options as WhisperOptions
from models.whisper.recognizer import Recognizer


@pytest.fixture(scope="session")
def silero() -> SileroDetector:
    """The loaded Silero detector."""
    detector = SileroDetector(SileroOptions().source)
    detector.load()
    return detector


@pytest.fixture(scope="session")
def whisper() -> Recognizer:
    """The loaded default recognizer; tests leave no job in it."""
    recognizer = Recognizer(WhisperOptions())
    recognizer.load()
    return recognizer
