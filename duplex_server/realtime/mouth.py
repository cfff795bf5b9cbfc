"""Holds the sound of replies between the talker and the channel, at 24 kHz and ready for the channel's format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from duplex_server.realtime import formats
from duplex_server.realtime.narrowband import Narrower
from duplex_server.realtime.playout import LEAST
from duplex_server.realtime.samples import Pcm, Samples
from duplex_server.realtime.schema import INPUT_RATE_HZ, FormatType
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
    narrower: Narrower | None
    samples: Samples = field(default_factory=Samples)
    taken: int = 0  # samples at the talker's rate
    told: int = 0  # samples of which the session knows

    def add(self, pcm: Pcm) -> None:
        self.samples.append(pcm if self.narrower is None else self.narrower.push(pcm))


class Mouth:
    """The sound of each live reply that has not been sent; a session only counts it.

    The session learns of no less than `LEAST` samples at once, and as many are kept for the end, so that what is sent
    is never shorter. Only a whole reply may be.
    """

    def __init__(self) -> None:
        self._formats: dict[Reply, FormatType] = {}
        self._voices: dict[Reply, _Voice] = {}

    def begin(self, reply: Reply, kind: FormatType) -> None:
        """Sound of a reply may come, which will be heard in this format."""
        self._formats[reply] = kind

    def take(self, reply: Reply, audio: Audio) -> Grown:
        """Add a talker's sound. Up to some 60 ms of it are held until more comes."""
        voice = self._voices.get(reply)
        if voice is None:
            narrower = formats.narrower(self._formats[reply])
            voice = self._voices[reply] = _Voice(Resampler(audio.rate_hz, INPUT_RATE_HZ), narrower)
        sound = np.frombuffer(audio.pcm, np.int16)
        voice.add(voice.resampler.push(sound))
        voice.taken += len(sound)
        grown = voice.samples.end - LEAST - voice.told
        if grown < LEAST:
            grown = 0
        voice.told += grown
        return Grown(grown, voice.resampler.position(voice.taken))

    def finish(self, reply: Reply) -> int:
        """The talker is done; gives the samples that were still held."""
        voice = self._voices.get(reply)
        if voice is None:
            return 0
        voice.add(voice.resampler.flush())
        if voice.narrower is not None:
            voice.samples.append(voice.narrower.flush())
        rest = voice.samples.end - voice.told
        voice.told += rest
        return rest

    def give(self, reply: Reply, from_sample: int, upto_sample: int) -> bytes:
        """Sound that is being sent; what lies before it is let go."""
        voice = self._voices[reply]
        pcm = voice.samples.get(from_sample, upto_sample)
        voice.samples.let_go(upto_sample)
        return pcm.tobytes()

    def keep(self, wanted: Callable[[Reply], bool]) -> None:
        """Let go of the replies that are over: nothing more of them will be sent."""
        for reply in [reply for reply in self._formats if not wanted(reply)]:
            del self._formats[reply]
            self._voices.pop(reply, None)
