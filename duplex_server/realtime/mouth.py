"""Holds the sound of replies between the talker and the channel, at the channel's rate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from duplex_server.realtime.samples import Samples
from duplex_server.realtime.schema import INPUT_RATE_HZ
from pipeline.audio import Resampler
from pipeline.chunk import Audio, Reply


@dataclass(frozen=True, slots=True)
class Grown:
    """A reply grew by `samples` at 24 kHz, and what was added to it will end at `upto_sample` of it."""

    samples: int
    upto_sample: int


@dataclass(slots=True)
class _Voice:
    resampler: Resampler
    samples: Samples = field(default_factory=Samples)
    taken: int = 0  # samples at the talker's rate


class Mouth:
    """The sound of each live reply that has not been sent; a session only counts it."""

    def __init__(self) -> None:
        self._voices: dict[Reply, _Voice] = {}

    def take(self, reply: Reply, audio: Audio) -> Grown:
        """Add a talker's sound. The resampler holds up to some 40 ms of it until more comes."""
        voice = self._voices.get(reply)
        if voice is None:
            voice = self._voices[reply] = _Voice(Resampler(audio.rate_hz, INPUT_RATE_HZ))
        sound = np.frombuffer(audio.pcm, np.int16)
        pcm = voice.resampler.push(sound)
        voice.samples.append(pcm)
        voice.taken += len(sound)
        return Grown(len(pcm), voice.resampler.position(voice.taken))

    def finish(self, reply: Reply) -> int:
        """The talker is done; gives the samples that the resampler still held."""
        voice = self._voices.get(reply)
        if voice is None:
            return 0
        pcm = voice.resampler.flush()
        voice.samples.append(pcm)
        return len(pcm)

    def give(self, reply: Reply, from_sample: int, upto_sample: int) -> bytes:
        """Sound that is being sent; what lies before it is let go."""
        voice = self._voices[reply]
        pcm = voice.samples.get(from_sample, upto_sample)
        voice.samples.let_go(upto_sample)
        return pcm.tobytes()

    def keep(self, wanted: Callable[[Reply], bool]) -> None:
        """Let go of the replies that are over: nothing more of them will be sent."""
        for reply in [reply for reply in self._voices if not wanted(reply)]:
            del self._voices[reply]
