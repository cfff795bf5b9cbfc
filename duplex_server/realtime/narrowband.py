"""Takes sound from the 8 kHz of telephones to 24 kHz and back, with a filter that holds back one millisecond.

A third-band filter: at 24 kHz every third sample is one of the 8 kHz, untouched, and the two between come of the 16
around them. Speech up to 3.4 kHz passes, and what would be its mirror image from 4.6 kHz on is 40 dB below it. The
sums are whole numbers in float64, which are exact in any order: the samples never depend on how the sound was cut. A
resampler for any two rates gives its samples in bursts of up to 70 ms, and what is left of them only at the end; but a
stretch of input may be committed at any time, and every millisecond that came must then be there.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from duplex_server.realtime.samples import Pcm
from duplex_server.realtime.schema import INPUT_RATE_HZ, NARROW_RATE_HZ

RATIO = INPUT_RATE_HZ // NARROW_RATE_HZ
DELAY = 24
"""How many samples at 24 kHz the filter looks ahead: one millisecond."""
_TAPS = 2 * DELAY + 1
_KAISER_BETA = 3.6
_ONE = 1 << 15


def _filter() -> NDArray[np.float64]:
    """The taps, whole numbers that add up to `_ONE` for each place among three samples: silence stays where it is."""
    at = np.arange(_TAPS) - DELAY
    taps = np.rint(_ONE * np.sinc(at / RATIO) * np.kaiser(_TAPS, _KAISER_BETA))
    for place in range(RATIO):
        ours = taps[place::RATIO]
        ours[np.argmax(ours)] += _ONE - ours.sum()
    return taps


_FILTER = _filter()


class _Stream:
    """The filter over one stream, at 24 kHz."""

    def __init__(self) -> None:
        self._past = np.zeros(_TAPS - 1)

    def push(self, samples: NDArray[np.float64], gain: int) -> Pcm:
        """As many samples as came, `DELAY` later and a `gain`th as loud as the sum of the taps makes them."""
        if not len(samples):
            return np.zeros(0, np.int16)
        stream = np.concatenate([self._past, samples])
        self._past = stream[-(_TAPS - 1) :]
        summed = np.convolve(stream, _FILTER, "valid")
        filtered: Pcm = np.clip(np.rint(summed / (gain * _ONE)), -32768, 32767).astype(np.int16)
        return filtered


class Widener:
    """One stream from 8 kHz to 24 kHz: three samples for each that comes, at once, and all `DELAY` late."""

    def __init__(self) -> None:
        self._stream = _Stream()

    def push(self, pcm: Pcm) -> Pcm:
        """The samples at 24 kHz, int16, shape (3n,), for n at 8 kHz."""
        apart = np.zeros(RATIO * len(pcm))
        apart[::RATIO] = pcm
        return self._stream.push(apart, 1)


class Narrower:
    """One stream at 24 kHz without what has no place at 8 kHz, so that every third sample of it is all that is needed.

    Nothing is shifted: the newest `DELAY` samples are held back until more comes.
    """

    def __init__(self) -> None:
        self._stream = _Stream()
        self._early = DELAY  # samples that the filter gives before the first that came

    def push(self, pcm: Pcm) -> Pcm:
        """The samples that `pcm`, int16, shape (n,), completes."""
        out = self._stream.push(pcm.astype(np.float64), RATIO)
        early = min(self._early, len(out))
        self._early -= early
        return out[early:]

    def flush(self) -> Pcm:
        """End the stream: what was held back comes out, and as many samples have come out as went in."""
        return self.push(np.zeros(DELAY, np.int16))


def widened(pcm: Pcm) -> Pcm:
    """A whole sound from 8 kHz to 24 kHz, where it was: int16, shape (3n,), for n samples."""
    return Widener().push(np.concatenate([pcm, np.zeros(DELAY // RATIO, np.int16)]))[DELAY:]


def narrowed(pcm: Pcm) -> Pcm:
    """A whole sound at 24 kHz without what has no place at 8 kHz: int16, shape (n,), as it was."""
    narrower = Narrower()
    return np.concatenate([narrower.push(pcm), narrower.flush()])
