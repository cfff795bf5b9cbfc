"""Measures where the time goes between the end of a turn and the first sound of its answer, for the log."""

from __future__ import annotations

from dataclasses import dataclass

from duplex_server.realtime.effects import Begin, Effect, PlayAudio, Send
from duplex_server.realtime.inputs import Input, Produced
from duplex_server.realtime.wire import ResponseCreated, SpeechStopped
from pipeline.chunk import Reply, Text


@dataclass(frozen=True, slots=True)
class Split:
    """Milliseconds, one after the other: from the end of the turn to the making, to the first word, to the first sound.

    The last holds the rest of the first clause as well as its synthesis. What was done while we still waited to be sure
    of the end of the turn counts as nothing.
    """

    recognizer_ms: int
    thinker_ms: int
    talker_ms: int

    def __str__(self) -> str:
        return f"recognizer {self.recognizer_ms} ms, thinker {self.thinker_ms} ms, talker {self.talker_ms} ms"


class TurnClock:
    """Follows the newest answer of one session; typed turns count from their `response.created`."""

    def __init__(self) -> None:
        self._stopped: float | None = None
        self._begun: tuple[Reply, float] | None = None
        self._worded: float | None = None

    def note(self, now: float, given: Input, effects: tuple[Effect, ...]) -> Split | None:
        """Take in what a session was fed and did; gives the split when an answer's first sound goes out."""
        if isinstance(given, Produced) and isinstance(given.chunk.payload, Text) and self._worded is None:
            self._worded = now if self._begun and given.chunk.fence == self._begun[0] else None
        split = None
        for effect in effects:
            match effect:
                case Send(event=SpeechStopped()):
                    self._stopped = now
                case Send(event=ResponseCreated()):
                    self._stopped = self._stopped if self._stopped is not None else now
                case Begin(think=think):
                    self._begun, self._worded = (think.fence, now), None
                case PlayAudio(reply=reply) if self._begun and reply == self._begun[0]:
                    split = self._split(now)
        return split

    def _split(self, now: float) -> Split | None:
        begun, stopped, worded = self._begun, self._stopped, self._worded
        self._begun = self._stopped = None
        if begun is None or stopped is None:
            return None
        making = max(stopped, begun[1])
        writing = max(making, worded if worded is not None else now)
        return Split(*(round(1000 * span) for span in (making - stopped, writing - making, now - writing)))
