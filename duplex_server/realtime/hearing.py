"""Turns stretches of the user's speech into transcripts: when to ask for a pass, and which pass counts.

One pass starts when the speaker falls silent; if nothing more is voiced, it is the final one and its result is there
when the turn ends. A pass that was overtaken by more speech is cancelled, and its late result finds no fence.
"""

from __future__ import annotations

from dataclasses import dataclass

from duplex_server.realtime.effects import Cancel, Effect, Recognize
from duplex_server.realtime.input_buffer import Span
from duplex_server.realtime.schema import Transcription
from pipeline.chunk import Chunk, Failed, Segment, Transcript


@dataclass(frozen=True, slots=True)
class Heard:
    """What came of an item's speech."""

    item_id: str
    samples: int
    text: str
    failure: Failed | None
    announce: bool  # the client asked for transcripts when the turn was committed


@dataclass(frozen=True, slots=True)
class Guess:
    """What the open stretch says, if nothing more is voiced."""

    text: str


@dataclass(slots=True)
class _Stretch:
    """One stretch of speech; `item` is set once it is committed."""

    number: int
    language: str | None
    prompt: str | None
    fence: Segment | None = None
    result: Chunk | None = None
    item: tuple[str, int, bool] | None = None  # id, samples, announce


class Hearing:
    """The recognition passes of one stream."""

    def __init__(self, stream: str, out: list[Effect]) -> None:
        self._stream = stream
        self._out = out
        self._numbers = 0
        self._open: _Stretch | None = None
        self._committed: dict[Segment, _Stretch] = {}

    @property
    def waiting(self) -> set[str]:
        """The items whose transcripts are still to come."""
        return {stretch.item[0] for stretch in self._committed.values() if stretch.item}

    def wants(self, fence: Segment) -> bool:
        return fence in self._committed or (self._open is not None and self._open.fence == fence)

    def start(self, settings: Transcription | None) -> None:
        """Speech began."""
        self._numbers += 1
        language = settings.language if settings and isinstance(settings.language, str) else None
        prompt = settings.prompt if settings and isinstance(settings.prompt, str) else None
        self._open = _Stretch(self._numbers, language, prompt)

    def pause(self, span: Span) -> None:
        """The speaker fell silent: what is there now may be all."""
        if self._open is not None:
            self._ask(self._open, span, final=False)

    def resume(self) -> None:
        """The speaker went on: the pass on what was there is of no use."""
        if self._open is not None:
            self._withdraw(self._open)

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
        if not (paused and stretch.fence):
            self._withdraw(stretch)
            self._ask(stretch, span, final=True)
        assert stretch.fence is not None
        self._committed[stretch.fence] = stretch
        return self._settle(stretch.fence)

    def take(self, chunk: Chunk) -> Heard | Guess | None:
        """A recognizer's result came; gives what it settles, or what it lets us guess."""
        assert isinstance(chunk.fence, Segment)
        if self._open is not None and self._open.fence == chunk.fence:
            self._open.result = chunk
            return Guess(chunk.payload.text.strip()) if isinstance(chunk.payload, Transcript) else None
        stretch = self._committed.get(chunk.fence)
        if stretch is None:
            return None
        stretch.result = chunk
        return self._settle(chunk.fence)

    def _ask(self, stretch: _Stretch, span: Span, *, final: bool) -> None:
        stretch.fence = Segment(self._stream, stretch.number, span.stop)
        stretch.result = None
        self._out.append(Recognize(stretch.fence, span.start, final, stretch.language, stretch.prompt))

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
                return Heard(item_id, samples, text.strip(), None, announce)
            case Failed() as failed:
                return Heard(item_id, samples, "", failed, announce)
            case payload:
                raise AssertionError(f"a recognizer ended {fence} with {type(payload).__name__}")
