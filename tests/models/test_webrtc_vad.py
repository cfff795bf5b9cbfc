"""Tests the WebRTC detector and what its gate keeps out."""

from __future__ import annotations

import numpy as np
import pytest
import webrtcvad

from loadtest import speech
from loadtest.speech import Pcm
from models.webrtc_vad.detector import FRAME_SAMPLES, WebRtcDetector
from pipeline.errors import StageError

RATE_HZ = 16_000


@pytest.fixture(scope="module")
def detector() -> WebRtcDetector:
    made = WebRtcDetector(2)
    made.load()
    return made


def frames(pcm: Pcm) -> list[Pcm]:
    return [pcm[at : at + FRAME_SAMPLES] for at in range(0, len(pcm) - FRAME_SAMPLES + 1, FRAME_SAMPLES)]


def voiced_share(detector: WebRtcDetector, pcm: Pcm) -> float:
    stream = detector.open()
    return float(np.mean([stream.probability(frame) > 0.5 for frame in frames(pcm)]))


def test_speech_is_heard(detector: WebRtcDetector) -> None:
    pcm, _ = speech.speech("best_of_times", RATE_HZ)
    room = speech.noise(1, RATE_HZ, 30)
    stream = detector.open()
    before = [stream.probability(frame) for frame in frames(room)]
    during = [stream.probability(frame) for frame in frames(pcm)]
    after = [stream.probability(frame) for frame in frames(room)]
    assert max(before) == 0
    assert np.mean(np.array(during) > 0.5) > 0.7
    assert max(after[25:]) == 0


@pytest.mark.parametrize(
    ("sound", "ungated", "gated"),
    [
        pytest.param(speech.hum(5, RATE_HZ), 0.95, 0.0, id="50 Hz hum"),
        pytest.param(speech.hum(5, RATE_HZ, 3000, 60), 0.95, 0.0, id="60 Hz hum"),
        pytest.param(speech.noise(5, RATE_HZ, 2000), 0.95, 0.0, id="noise"),
        pytest.param(speech.clicks(5, RATE_HZ), 0.3, 0.05, id="clicks"),
    ],
)
def test_the_gate_keeps_out_what_the_library_takes_for_speech(
    detector: WebRtcDetector, sound: Pcm, ungated: float, gated: float
) -> None:
    vad = webrtcvad.Vad(2)
    assert np.mean([vad.is_speech(frame.tobytes(), RATE_HZ) for frame in frames(sound)]) >= ungated
    assert voiced_share(detector, sound) <= gated


def test_a_frame_of_another_length_is_refused(detector: WebRtcDetector) -> None:
    with pytest.raises(ValueError, match=r"expected int16, \(320,\)"):
        detector.open().probability(np.zeros(160, np.int16))


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(StageError, match="mode is 4, expected 0 to 3"):
        WebRtcDetector(4).load()
