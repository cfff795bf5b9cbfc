"""Brings sound in and out of the formats in which clients send and hear it: inside, all of it is int16 at 24 kHz."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from duplex_server.realtime import g711
from duplex_server.realtime.narrowband import DELAY, RATIO, Narrower, Widener, narrowed
from duplex_server.realtime.samples import Pcm
from duplex_server.realtime.schema import FORMAT_RATES_HZ, FormatType

Bytes = bytes | bytearray | memoryview

_LAWS: Mapping[FormatType, g711.Law] = {"audio/pcmu": "mu", "audio/pcma": "a"}
"""The formats of telephones: a byte a sample, at 8 kHz."""


def size(ms: int, kind: FormatType) -> int:
    """How many bytes so much sound has."""
    return ms * FORMAT_RATES_HZ[kind] // 1000 * (1 if kind in _LAWS else 2)


def samples(size: int, kind: FormatType) -> int:
    """How many samples at 24 kHz so many bytes make; half a sample is none."""
    return size * RATIO if kind in _LAWS else size // 2


def is_whole(size: int, kind: FormatType) -> bool:
    """False if the last of so many bytes is half a sample."""
    return kind in _LAWS or size % 2 == 0


class Inlet:
    """A client's sound as it comes, whichever format is in force.

    The samples depend on the bytes alone, never on how these were cut. G.711 comes out a millisecond late.
    """

    def __init__(self) -> None:
        self._kind: FormatType = "audio/pcm"
        self._spare = b""  # half a sample
        self._widener = Widener()

    def push(self, sound: Bytes, kind: FormatType) -> Pcm:
        """The samples at 24 kHz that these bytes complete; of pcm an odd byte waits for the next."""
        if kind != self._kind:
            self.clear()
            self._kind = kind
        law = _LAWS.get(kind)
        if law is not None:
            return self._widener.push(g711.decode(sound, law))
        stream = self._spare + sound if self._spare else sound
        whole = len(stream) - len(stream) % 2
        self._spare = bytes(stream[whole:])
        return np.frombuffer(stream, "<i2", whole // 2)

    def clear(self) -> None:
        """What comes next has nothing to do with what came."""
        self._spare = b""
        self._widener = Widener()

    def flush(self) -> Pcm:
        """End the sound: what is still inside comes out. So many samples of silence had come out before its first."""
        rest = self._widener.push(np.zeros(DELAY // RATIO, np.int16)) if self._kind in _LAWS else np.zeros(0, np.int16)
        self.clear()
        return rest


def narrower(kind: FormatType) -> Narrower | None:
    """What a stream at 24 kHz must go through before it can be encoded piece by piece; None where it needs nothing."""
    return Narrower() if kind in _LAWS else None


def encode(pcm: bytes, kind: FormatType, from_sample: int = 0) -> bytes:
    """A stretch of a stream, int16 at 24 kHz, that begins at `from_sample` of it: its part of the whole in this format.

    For G.711 the stream has gone through a `Narrower`; each third sample of it, from the first on, makes a byte.
    """
    law = _LAWS.get(kind)
    return pcm if law is None else g711.encode(np.frombuffer(pcm, np.int16)[-from_sample % RATIO :: RATIO], law)


def encode_whole(pcm: bytes, kind: FormatType) -> bytes:
    """A whole sound, int16 at 24 kHz, in this format."""
    return encode(narrowed(np.frombuffer(pcm, np.int16)).tobytes() if kind in _LAWS else pcm, kind)
