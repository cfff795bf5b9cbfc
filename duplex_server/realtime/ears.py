"""Runs the voice activity detector over a session's input, in order, and says where in the input each frame lies."""

from __future__ import annotations

from collections.abc import Iterator

from duplex_server.realtime.inputs import Voice
from duplex_server.realtime.samples import Pcm
from duplex_server.realtime.schema import INPUT_RATE_HZ
from pipeline.audio import Framer, Resampler
from pipeline.stage import Detector


class Ears:
    """One stretch of listening, from `start_sample` of the input on."""

    def __init__(self, detector: Detector, start_sample: int) -> None:
        self._detector = detector
        self._stream = detector.open()
        self._resampler = Resampler(INPUT_RATE_HZ, detector.rate_hz)
        self._framer = Framer(detector.frame_samples)
        self._start = self._upto = start_sample
        self._frames = 0

    def hear(self, pcm: Pcm) -> Iterator[Voice]:
        """The frames that `pcm` (int16 at 24 kHz) completes; each costs one run of the detector when it is taken."""
        for frame in self._framer.push(self._resampler.push(pcm)):
            probability = self._stream.probability(frame)
            self._frames += 1
            from_sample, self._upto = self._upto, self._position()
            yield Voice(from_sample, self._upto, round(probability, 4))

    def _position(self) -> int:
        samples = self._frames * self._detector.frame_samples
        return self._start + samples * INPUT_RATE_HZ // self._detector.rate_hz
