"""Describes the WebRTC voice activity detector: its parts, its options and its faults."""

from __future__ import annotations

import msgspec

from pipeline.spec import Capabilities, Family, Part
from pipeline.stage import Detector


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the detector can be told: `mode` 0 (takes more for speech) to 3 (takes less)."""

    mode: int = 2


def make(options: msgspec.Struct) -> Detector:
    """The detector, not loaded yet."""
    from models.webrtc_vad.detector import WebRtcDetector

    assert isinstance(options, Options)
    return WebRtcDetector(options.mode)


def describe(options: msgspec.Struct) -> Capabilities:
    """What the detector is good for, and what not."""
    return Capabilities(
        model="webrtc-vad",
        note="Needs no model file. Gated by energy, so steady hum and noise stay silent, but it still takes breath "
        "for speech and misses a third of the speech at 10 dB over noise; silero is the better detector.",
    )


FAMILY = Family(
    name="webrtc_vad",
    role="detector",
    parts=(Part("webrtcvad-wheels", "MIT", "https://github.com/daanzu/py-webrtcvad-wheels", "WebRTC's own is BSD"),),
    options=Options,
    make=make,
    describe=describe,
)
