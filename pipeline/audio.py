"""Re-rates and re-cuts streams of 16-bit mono samples."""

from __future__ import annotations

import numpy as np
import soxr
from numpy.typing import NDArray

Pcm = NDArray[np.int16]
_NOTHING: Pcm = np.zeros(0, np.int16)


class Resampler:
    """Changes the sample rate of one stream of int16 mono samples, keeping state from push to push.

    Accounting: the output is a function of the samples alone, never of how they were cut. After n samples and a
    flush, exactly floor(n * to_hz / from_hz + 1/2) samples have come out, so that a position in one rate maps to the
    other by that factor. Before the flush fewer are out: the filter needs to see ahead. Equal rates pass through
    unchanged and without delay.
    """

    def __init__(self, from_hz: int, to_hz: int) -> None:
        if from_hz <= 0 or to_hz <= 0:
            raise ValueError(f"sample rates are positive, not {from_hz} and {to_hz}")
        self.from_hz, self.to_hz = from_hz, to_hz
        # In float: soxr dithers 16-bit output, and the dither depends on how the input was cut.
        self._soxr = None if from_hz == to_hz else soxr.ResampleStream(from_hz, to_hz, 1, dtype="float32")

    def push(self, pcm: Pcm, *, last: bool = False) -> Pcm:
        """The output that `pcm` (int16, shape (n,)) completes, int16, shape (m,).

        `last` ends the stream: the rest comes out and the next push begins a fresh stream. Raises `TypeError` for
        anything that is not one-dimensional int16.
        """
        _check(pcm)
        if self._soxr is None:
            return pcm
        out = self._soxr.resample_chunk(pcm.astype(np.float32), last=last)
        if last:
            self._soxr.clear()
        whole: Pcm = np.clip(np.rint(out), -32768, 32767).astype(np.int16)
        return whole

    def position(self, samples: int) -> int:
        """Where in the output the first `samples` of the input end."""
        return (2 * samples * self.to_hz + self.from_hz) // (2 * self.from_hz)

    def flush(self) -> Pcm:
        """End the stream: what is still inside comes out and the next push begins a fresh stream."""
        return self.push(_NOTHING, last=True)


class Framer:
    """Re-cuts a stream of int16 samples into frames of exactly `samples`; it keeps less than one frame."""

    def __init__(self, samples: int) -> None:
        if samples < 1:
            raise ValueError(f"a frame holds at least one sample, not {samples}")
        self.samples = samples
        self._rest = bytearray()

    def push(self, pcm: Pcm) -> list[Pcm]:
        """The frames that `pcm` (int16, shape (n,)) completes, in order. Raises `TypeError` for other arrays."""
        _check(pcm)
        self._rest += pcm.tobytes()
        size = 2 * self.samples
        whole = len(self._rest) - len(self._rest) % size
        stream = bytes(self._rest[:whole])
        del self._rest[:whole]
        return [np.frombuffer(stream, np.int16, self.samples, at) for at in range(0, whole, size)]

    def flush(self) -> Pcm:
        """The samples that fill no frame, shape (n < samples,); the next push begins a fresh stream."""
        rest = np.frombuffer(bytes(self._rest), np.int16)
        self._rest.clear()
        return rest


def _check(pcm: Pcm) -> None:
    if pcm.dtype != np.int16 or pcm.ndim != 1:
        raise TypeError(f"int16 samples of shape (n,) are expected, not {pcm.dtype} of shape {pcm.shape}")
