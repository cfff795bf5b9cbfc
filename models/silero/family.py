"""Describes the Silero voice activity detector: its parts and its options."""

from __future__ import annotations

import msgspec

from pipeline.spec import Capabilities, Family, Part
from pipeline.stage import Detector


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the detector can be told: where its ONNX file lies."""

    source: str = "package:faster-whisper/assets/silero_vad_v6.onnx"


def make(options: msgspec.Struct) -> Detector:
    """The detector, not loaded yet."""
    from models.silero.detector import SileroDetector

    assert isinstance(options, Options)
    return SileroDetector(options.source)


def describe(options: msgspec.Struct) -> Capabilities:
    """What the detector is."""
    return Capabilities(model="silero-vad-v6", note="32 ms frames; stays quiet on noise, hum, clicks and breath.")


FAMILY = Family(
    name="silero",
    role="detector",
    parts=(
        Part("Silero VAD v6", "MIT", "https://github.com/snakers4/silero-vad", "as shipped inside faster-whisper"),
        Part("onnxruntime", "MIT", "https://github.com/microsoft/onnxruntime"),
    ),
    options=Options,
    make=make,
    describe=describe,
)
