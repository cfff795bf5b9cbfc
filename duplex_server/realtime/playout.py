"""Knows, for one spoken reply, what was made, what was sent, what was heard, and which words that is.

Over a text channel the far side plays by itself: what was heard is estimated as real-time playing from the first send,
less the client's buffer. A paced channel reports what it played, and the estimate gives way to that.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from dataclasses import dataclass

from duplex_server.realtime.schema import INPUT_RATE_HZ

PIECE_MS, LEAST_MS = 200, 20
"""The longest audio that is sent at once, and the shortest unless less was made at once; clients expect 20 to 250."""
ECHO_S = 0.5
"""A loudspeaker's sound comes back through the microphone, the far side's buffers and the network within this time."""
_PIECE = PIECE_MS * INPUT_RATE_HZ // 1000
LEAST = LEAST_MS * INPUT_RATE_HZ // 1000
SLACK_MS = 5
"""A word counts as heard when at most this much of it was missed: clients count in whole ms and in frames."""
_SLACK = SLACK_MS * INPUT_RATE_HZ // 1000


@dataclass(frozen=True, slots=True)
class Mark:
    """Audio from the mark before up to `upto_sample` speaks the caption up to `stop`; if `exact`, what ends in it."""

    upto_sample: int
    stop: int
    exact: bool = True


_NOTHING = Mark(0, 0)


class Track:
    """The alignment of a reply's audio with its caption; it outlives the playout, for late truncations."""

    __slots__ = ("_marks", "samples")

    def __init__(self) -> None:
        self.samples = 0
        self._marks: list[Mark] = []

    def grow(
        self,
        samples: int,
        text_span: tuple[int, int] | None,
        exact: bool = False,
        upto_sample: int | None = None,
    ) -> None:
        """Audio was added; without a span it speaks nothing new (a pause).

        What is spoken ends at `upto_sample`, which may lie beyond what is there so far.
        """
        self.samples += samples
        last = self._marks[-1] if self._marks else _NOTHING
        upto = max(last.upto_sample, self.samples if upto_sample is None else upto_sample)
        if text_span is None:
            self._marks.append(Mark(upto, last.stop, last.exact))
        else:
            self._marks.append(Mark(upto, text_span[1], exact))

    def cut(self, samples: int) -> None:
        """Only the first `samples` were ever sent."""
        self.samples = min(self.samples, samples)

    def heard_text(self, caption: str, samples: int) -> str:
        """The part of `caption` that the first `samples` speak, up to the last whole word.

        That is the last word whose sound had ended, where this is known; an estimate is cut back to a whole word. A
        caption precedes its audio, so the last words of one may not have been spoken at all.
        """
        if samples <= 0:
            return ""
        index = bisect_left(self._marks, samples, key=lambda mark: mark.upto_sample)
        if index < len(self._marks) and not self._marks[index].exact:
            mark, before = self._marks[index], self._marks[index - 1] if index else _NOTHING
            share = (samples - before.upto_sample) / max(1, mark.upto_sample - before.upto_sample)
            return _whole_words(caption, before.stop + int(share * (mark.stop - before.stop)))
        over = bisect_right(self._marks, samples + _SLACK, key=lambda mark: mark.upto_sample)
        ended = self._marks[over - 1] if over else _NOTHING
        if ended.exact and ended.stop < len(caption):
            return caption[: ended.stop].rstrip()
        return _whole_words(caption, ended.stop)


def _whole_words(text: str, length: int) -> str:
    if length >= len(text):
        return text
    if not text[length].isspace():
        while length and not text[length - 1].isspace():
            length -= 1
    return text[:length].rstrip()


@dataclass(frozen=True, slots=True)
class Piece:
    """The next thing to send: text that is about to be heard, or the audio [from_sample, upto_sample)."""

    caption: str = ""
    from_sample: int = 0
    upto_sample: int = 0


class Playout:
    """The way of one reply's audio to the ear of the user."""

    __slots__ = ("_buffer_s", "_heard", "_played", "_queue", "_run_ahead_s", "free_at", "sent", "track", "underruns")

    def __init__(self, run_ahead_ms: int, client_buffer_ms: int) -> None:
        self._run_ahead_s = run_ahead_ms / 1000
        self._buffer_s = client_buffer_ms / 1000
        self._queue: deque[Piece] = deque()
        self.free_at = 0.0  # when the far side will have played all that was sent
        self._played: int | None = None
        self._heard = 0  # of the estimate: what was surely heard when audio last went out
        self.sent = 0
        self.underruns = 0  # times the far side had played all that was sent before more of the reply came
        self.track = Track()

    def caption(self, text: str) -> None:
        self._queue.append(Piece(caption=text))

    def audio(
        self,
        samples: int,
        text_span: tuple[int, int] | None,
        exact: bool = False,
        upto_sample: int | None = None,
    ) -> None:
        start = self.track.samples
        self.track.grow(samples, text_span, exact, upto_sample)
        if samples:
            self._queue.append(Piece(from_sample=start, upto_sample=start + samples))

    @property
    def drained(self) -> bool:
        """Everything made so far was sent."""
        return not self._queue

    def take(self, now: float) -> Piece | None:
        """The next piece that may go now, if any; it counts as sent."""
        if not self._queue:
            return None
        piece = self._queue[0]
        if piece.caption:
            return self._queue.popleft()
        if now < self.free_at - self._run_ahead_s:
            return None
        if piece.upto_sample - piece.from_sample > _PIECE:
            cut = min(piece.from_sample + _PIECE, piece.upto_sample - LEAST)
            self._queue[0] = Piece(from_sample=cut, upto_sample=piece.upto_sample)
            piece = Piece(from_sample=piece.from_sample, upto_sample=cut)
        else:
            self._queue.popleft()
        self._heard = self.heard(now)
        self.underruns += self.sent > 0 and now > self.free_at
        self.sent = piece.upto_sample
        length_s = (piece.upto_sample - piece.from_sample) / INPUT_RATE_HZ
        self.free_at = max(self.free_at, now + self._buffer_s) + length_s
        return piece

    def deadline(self) -> float | None:
        """When `take` will have something again, as far as that is known now."""
        return self.free_at - self._run_ahead_s if self._queue else None

    def played(self, samples: int) -> None:
        """A paced channel says how far it is."""
        self._played = max(self._played or 0, min(samples, self.sent))

    def heard(self, now: float) -> int:
        """How many samples have been heard, as far as we know."""
        if self._played is not None:
            return self._played
        ahead = max(0.0, self.free_at - now) * INPUT_RATE_HZ  # all of it lies after the reply before this one
        return max(self._heard, self.sent - round(ahead))

    def heard_at(self, at: float, now: float) -> int:
        """How many samples had been heard at a time before now, if it has played without a gap since."""
        played_s = max(0.0, min(now, self.free_at) - at)
        return max(0, self.heard(now) - round(played_s * INPUT_RATE_HZ))

    def playing(self, now: float) -> bool:
        """True while the user hears this reply, or is about to."""
        return self.heard(now) < self.sent

    def lingers(self, now: float) -> bool:
        """True while the user hears this reply, or its echo may still be on its way back to us."""
        return self.sent > 0 and now < self.free_at + ECHO_S

    def plays_until(self, now: float) -> float:
        """When everything made so far will have been heard, if it is sent in time."""
        unsent_s = (self.track.samples - self.sent) / INPUT_RATE_HZ
        return max(self.free_at, now) + unsent_s

    def silence(self) -> None:
        """Drop what was not sent."""
        self._queue.clear()
        self.track.cut(self.sent)
