"""Turns stretches of the user's speech into transcripts: when to ask for a pass, and which pass counts.

While somebody speaks, partial passes tell the words so far, where they are wanted. One pass starts when the speaker
falls silent; if nothing more is voiced, it is the final one and its result is there when the turn ends. If the speaker
goes on after a long stretch, what that pass heard is kept, and later passes begin behind it: so a long turn costs no
more than its newest part. A pass that was overtaken is cancelled, and its late result finds no fence.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice

from duplex_server.realtime.effects import Cancel, Effect, Recognize
from duplex_server.realtime.growing import GrowingText
from duplex_server.realtime.input_buffer import Span
from duplex_server.realtime.schema import INPUT_RATE_HZ, GivenSound, Transcription
from duplex_server.realtime.turns import QUIET_MS
from pipeline.chunk import Chunk, Failed, Segment, Transcript

PASSES = 2
"""Turns that may wait for their words: one that is being heard, and the newest."""
GIVEN_UP = Failed("overloaded", "Speech comes faster than it is recognized here: the words of this turn were given up.")
PARTIAL_EVERY = INPUT_RATE_HZ
"""New samples between partial passes: a second."""
CHECK_EVERY = INPUT_RATE_HZ * 6 // 10
"""The same while it is in doubt whose voice it is: a few words are enough to tell."""
PARTIAL_MOST = 12 * INPUT_RATE_HZ
"""A stretch without a pause gets no partial pass beyond this length: the recognizer's short window ends there."""
KEEP_FROM = 5 * INPUT_RATE_HZ
"""What was heard up to a pause is kept when it is at least this long; shorter pieces would lack context."""
KEEP_BACK = QUIET_MS * INPUT_RATE_HZ // 1000 // 2
"""What follows is heard from the middle of that pause on: a word begins softly, before a detector is sure of it."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What came of an item's speech. `growth` is the end of the transcript that no partial has told, if any was."""

    item_id: str
    samples: int
    text: str
    failure: Failed | None
    announce: bool  # the client asked for transcripts when the turn was committed
    growth: str | None = None
    given: bool = False  # its sound came with a created item, not through the input


@dataclass(frozen=True, slots=True)
class Guess:
    """What the open stretch says, if nothing more is voiced."""

    text: str


@dataclass(frozen=True, slots=True)
class Partial:
    """What the open stretch says so far; `growth` is what of it is sure by now, beyond what was before."""

    text: str
    growth: str


@dataclass(slots=True)
class _Stretch:
    """One stretch of speech; `item` is set once it is committed."""

    language: str | None
    prompt: str | None
    partials: bool
    in_doubt: bool
    fence: Segment | None = None
    result: Chunk | None = None
    partial: bool = False  # the pass under way is a partial one
    kept: str = ""  # what was heard of the samples before `from_sample`
    from_sample: int = 0
    text: GrowingText = field(default_factory=GrowingText)
    item: tuple[str, int, bool] | None = None  # id, samples, announce
    given: bool = False

    def whole(self, text: str) -> str:
        return f"{self.kept} {text.strip()}".strip()


class Hearing:
    """The recognition passes of one stream."""

    def __init__(self, stream: str, out: list[Effect]) -> None:
        self._stream = stream
        self._out = out
        self._passes = 0
        self._open: _Stretch | None = None
        self._committed: dict[Segment, _Stretch] = {}

    @property
    def waiting(self) -> set[str]:
        """The items whose transcripts are still to come."""
        return {stretch.item[0] for stretch in self._committed.values() if stretch.item}

    @property
    def waiting_samples(self) -> int:
        """How long those of them are that came through the input."""
        return sum(stretch.item[1] for stretch in self._committed.values() if stretch.item and not stretch.given)

    def wants(self, fence: Segment) -> bool:
        return fence in self._committed or (self._open is not None and self._open.fence == fence)

    def start(self, settings: Transcription | None, *, partials: bool = False, in_doubt: bool = False) -> None:
        """Speech began, or, in doubt, perhaps an echo. `partials` asks for its words while they are spoken."""
        language, prompt = _hints(settings)
        self._open = _Stretch(language, prompt, partials, in_doubt)

    def believe(self) -> None:
        """It is no echo: no more passes are needed to find that out."""
        if self._open is not None:
            self._open.in_doubt = False

    def speak(self, span: Span) -> None:
        """The speaker goes on: time for a partial pass, perhaps."""
        stretch = self._open
        if stretch is None or (stretch.fence is not None and stretch.result is None):
            return
        # While a turn waits for its words, no pass is spent on words that will be heard again.
        if not (stretch.in_doubt or (stretch.partials and not self._committed)):
            return
        every = CHECK_EVERY if stretch.in_doubt else PARTIAL_EVERY
        heard_upto = stretch.fence.upto_sample if stretch.fence else max(span.start, stretch.from_sample)
        length = span.stop - max(span.start, stretch.from_sample)
        if span.stop - heard_upto >= every and length <= PARTIAL_MOST:
            self._ask(stretch, span, final=False)
            stretch.partial = True

    def pause(self, span: Span) -> None:
        """The speaker fell silent: what is there now may be all."""
        if self._open is not None:
            self._withdraw(self._open)
            self._ask(self._open, span, final=False)

    def resume(self) -> None:
        """The speaker went on: the pass on what was there is of no use, unless it was long enough to be kept."""
        stretch = self._open
        if stretch is None or stretch.fence is None:
            return
        result = stretch.result.payload if stretch.result is not None and not stretch.partial else None
        if isinstance(result, Transcript) and stretch.fence.upto_sample - stretch.from_sample >= KEEP_FROM:
            stretch.kept = stretch.whole(result.text)
            stretch.from_sample = stretch.fence.upto_sample - KEEP_BACK
        self._withdraw(stretch)

    def drop(self) -> None:
        """The open stretch was cleared."""
        if self._open is not None:
            self._withdraw(self._open)
        self._open = None

    def commit(self, item_id: str, span: Span, settings: Transcription | None, *, paused: bool) -> Heard | None:
        """The stretch became an item. Gives its transcript if a pass has already covered all that was voiced."""
        if self._open is None:
            self.start(settings)
        stretch, self._open = self._open, None
        assert stretch is not None
        stretch.item = (item_id, len(span), settings is not None)
        if stretch.fence is None or stretch.partial or not paused:
            self._withdraw(stretch)
            self._ask(stretch, span, final=True)
        assert stretch.fence is not None
        self._committed[stretch.fence] = stretch
        return self._settle(stretch.fence)

    def bring(self, item_id: str, sound: GivenSound, settings: Transcription | None, *, announce: bool) -> None:
        """An item came with its sound: it waits for its words like a turn."""
        language, prompt = _hints(settings)
        stretch = _Stretch(language, prompt, partials=False, in_doubt=False, given=True)
        stretch.item = (item_id, sound.samples, announce)
        self._passes += 1
        stretch.fence = Segment(self._stream, self._passes, sound.samples)
        self._committed[stretch.fence] = stretch
        self._out.append(Recognize(stretch.fence, 0, final=True, language=language, prompt=prompt, given=sound.number))

    def give_up(self) -> Heard | None:
        """When more turns wait than may: gives the one that is let go.

        It is neither the oldest, whose pass is under way and would be wasted, nor the newest, which an answer is due
        to. So under a load that lasts a turn is heard whenever one can be, and none long after it was said.
        """
        if len(self._committed) <= PASSES:
            return None
        fence, stretch = next(islice(self._committed.items(), 1, None))
        del self._committed[fence]
        self._out.append(Cancel(fence))
        assert stretch.item is not None
        item_id, samples, announce = stretch.item
        return Heard(item_id, samples, "", GIVEN_UP, announce, given=stretch.given)

    def take(self, chunk: Chunk) -> Heard | Guess | Partial | None:
        """A recognizer's result came; gives what it settles, or what it tells of an open stretch."""
        assert isinstance(chunk.fence, Segment)
        if self._open is not None and self._open.fence == chunk.fence:
            self._open.result = chunk
            return self._told(self._open, chunk)
        stretch = self._committed.get(chunk.fence)
        if stretch is None:
            return None
        stretch.result = chunk
        return self._settle(chunk.fence)

    def _told(self, stretch: _Stretch, chunk: Chunk) -> Guess | Partial | None:
        if not isinstance(chunk.payload, Transcript):
            return None
        whole = stretch.whole(chunk.payload.text)
        if not stretch.partial:
            return Guess(whole)
        return Partial(whole, stretch.text.hear(whole) if stretch.partials else "")

    def _ask(self, stretch: _Stretch, span: Span, *, final: bool) -> None:
        # A turn may outgrow the input buffer: what it no longer holds can't be heard.
        stretch.from_sample = max(stretch.from_sample, span.start)
        self._passes += 1  # so that no pass, cancelled or not, shares its fence with a later one over the same stretch
        stretch.fence = Segment(self._stream, self._passes, span.stop)
        stretch.result, stretch.partial = None, False
        self._out.append(Recognize(stretch.fence, stretch.from_sample, final, stretch.language, stretch.prompt))

    def _withdraw(self, stretch: _Stretch) -> None:
        if stretch.fence is not None and stretch.result is None:
            self._out.append(Cancel(stretch.fence))
        stretch.fence = stretch.result = None

    def _settle(self, fence: Segment) -> Heard | None:
        stretch = self._committed[fence]
        if stretch.result is None or stretch.item is None:
            return None
        del self._committed[fence]
        item_id, samples, announce = stretch.item
        match stretch.result.payload:
            case Transcript(text=text):
                whole, growth = stretch.text.finish(stretch.whole(text))
                told = growth if stretch.partials else None
                return Heard(item_id, samples, whole, None, announce, told, stretch.given)
            case Failed() as failed:
                return Heard(item_id, samples, "", failed, announce, given=stretch.given)
            case payload:
                raise AssertionError(f"a recognizer ended {fence} with {type(payload).__name__}")


def _hints(settings: Transcription | None) -> tuple[str | None, str | None]:
    """What a client tells of the speech to come: its language, if it is sure, and a text like it."""
    if settings is None:
        return None, None
    language = settings.language if isinstance(settings.language, str) else None
    if language is None and isinstance(settings.languages, tuple) and len(settings.languages) == 1:
        language = settings.languages[0]
    prompt = settings.prompt if isinstance(settings.prompt, str) else ""
    keywords = ", ".join(settings.keywords) if isinstance(settings.keywords, tuple) else ""
    return language, " ".join(filter(None, (prompt, keywords))) or None
