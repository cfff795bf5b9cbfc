"""Watches that each word of a user is kept, and that each turn with words is answered and none without."""

from __future__ import annotations

from duplex_server.realtime import wire
from duplex_server.realtime.answers import MUCH
from duplex_server.realtime.config import SessionConfig
from duplex_server.realtime.echo import WORDS_AFTER
from duplex_server.realtime.effects import Begin, Effect, Recognize, Send
from duplex_server.realtime.input_buffer import Span
from duplex_server.realtime.inputs import AudioIn, Event, Input, Produced, Voice
from duplex_server.realtime.schema import ResponseObject
from duplex_server.realtime.session import Session
from pipeline.chunk import Failed, Prompt, Segment
from tests.sim.replies import Replies
from tests.sim.speech import RATE_HZ, Sound, Speech

LATE = RATE_HZ // 5
"""A detector may notice the beginning of a word this late, when the turn before has just been committed."""
SILENCE = 5 * RATE_HZ // 2
"""So much of what has come holds no word when a silence is over, whatever the network did to it."""
TAIL = 2 * RATE_HZ
"""What was said this shortly before the end may not have been committed."""


class Turns:
    """The user's side of one session."""

    def __init__(self, session: Session, speech: Speech, replies: Replies, config: SessionConfig) -> None:
        self._session, self._speech, self._replies = session, speech, replies
        self._spans: list[Span] = []
        self._excused: list[Span] = []
        self._began: dict[Segment, int] = {}  # passes, by where they begin
        self._failed: set[int] = set()  # where passes began that failed
        self._span: dict[str, Span] = {}
        self._words: dict[str, str] = {}
        self._known: dict[str, tuple[str, ...]] = {}  # what had been said when a response was created
        self._growing: dict[str, str] = {}  # the deltas of a transcript
        self._due: dict[str, Span] = {}  # turns that are to be answered
        self._silent: str | None = None  # an item in which nobody has spoken
        self._silence_due = False
        self._answer_on, self._guarded = config.answer_on, config.echo_guard
        self._owed = self._may_owe = False
        self._floor = self._floor_before = 0
        self._policy = session.settings.audio.input.turn_detection
        self.answered = self.given_up = 0

    # ---- what goes in ---------------------------------------------------------------------------------------------

    def given(self, given: Input) -> None:
        self._floor_before, self._floor = self._floor, self._session.input.start
        match given:
            case AudioIn(at_sample=at, samples=samples) if not self._session.detects:
                self._excuse(at, at + samples)
            case Produced(chunk=chunk) if isinstance(chunk.payload, Failed) and isinstance(chunk.fence, Segment):
                self._failed.add(self._began[chunk.fence])
        appended = self._session.input.appended
        if self._floor > self._floor_before and self._echoes(Span(self._floor_before, appended)):
            self._excuse(self._floor_before, appended)  # who speaks into an echo may be taken for it
        policy = self._session.settings.audio.input.turn_detection
        if policy != self._policy:
            self._excuse(appended - LATE, appended)
            self._policy = policy

    def _excuse(self, start: int, stop: int) -> None:
        if self._excused and self._excused[-1].stop >= start:
            last = self._excused[-1]
            self._excused[-1] = Span(min(start, last.start), max(stop, last.stop))
        else:
            self._excused.append(Span(start, stop))

    # ---- what comes out -------------------------------------------------------------------------------------------

    def check(self, given: Input, now: float, effects: tuple[Effect, ...]) -> None:
        if any(isinstance(effect, Send) and isinstance(effect.event, wire.SpeechStarted) for effect in effects):
            self._cut_short(effects, now)
        for effect in effects:
            match effect:
                case Recognize():
                    self._began[effect.segment] = effect.from_sample
                case Begin(think=think) if not self._replies.parts_given:
                    asked = self._replies.asked(think.fence)
                    self._told(think.prompt, self._known[asked] if asked else tuple(self._words))
                case Send(event=wire.TimeoutTriggered(item_id=item_id)):
                    self._timed_out(item_id)
                case Send(event=wire.Committed(item_id=item_id)):
                    self._committed(item_id, given)
                case Send(event=wire.Cleared()):
                    self._excuse(self._floor_before, self._session.input.appended)
                    self._owed = self._may_owe = False
                case Send(event=wire.TranscriptionFailed(item_id=item_id, error=error)) if error.code == "overloaded":
                    self._given_up(item_id)
                case Send(event=wire.Error(error=error)) if error.code == "overloaded":
                    self._given_up(error.message.split(":")[0])
                case Send(event=wire.TranscriptionDelta(item_id=item_id, delta=delta)):
                    self._growing[item_id] = self._growing.get(item_id, "") + delta
                case Send(event=wire.TranscriptionCompleted(item_id=item_id, transcript=words)):
                    said = self._words[item_id]
                    assert self._speech.own(words) == self._speech.own(said), f"heard {words!r}, said was {said!r}"
                    assert self._growing.get(item_id, words) == words, f"told {self._growing[item_id]!r} of {words!r}"
                case Send(event=wire.ResponseCreated(response=response)):
                    self._known[response.id] = tuple(self._words)
                    if response.conversation_id:
                        self._answered(given)
                case Send(event=wire.ResponseDone(response=response)) if response.conversation_id:
                    self._done(response, now)
                case _:
                    pass

    def _timed_out(self, item_id: str) -> None:
        """Nobody has spoken for long: no word of the user's is under way or waits to be answered."""
        detection = self._session.settings.audio.input.turn_detection
        appended = self._session.input.appended
        said = [
            sound.word
            for sound in self._speech.sounds
            if sound.word and not sound.ours and appended - SILENCE < sound.start < appended - LATE
        ]
        assert not said, f"{said} were said, and the user counts as silent"
        waits = [self._words[item] for item, span in self._due.items() if self._words[item] and not self._echoes(span)]
        assert not waits, f"{waits} wait for an answer, and the user is asked"
        self._silent, self._silence_due = item_id, detection is not None and detection.create_response

    def _committed(self, item_id: str, given: Input) -> None:
        entry = self._session.conversation.get(item_id)
        assert entry is not None
        span = entry.input_span
        assert span is not None
        assert not self._spans or span.start >= self._spans[-1].stop, "a sample in two items"
        self._spans.append(span)
        assert sum(map(len, self._spans)) == self._session.input.committed
        self._span[item_id] = span
        self._words[item_id] = self._speech.words(span.start, span.stop)
        detection = self._session.settings.audio.input.turn_detection
        if item_id == self._silent:
            assert not span, "a silence that took sound from the next turn"
            return
        if isinstance(given, Voice) and detection is not None and detection.create_response:
            self._due[item_id] = span
        else:
            self._owed = self._may_owe = False
        if not isinstance(given, Voice):
            self._excuse(span.stop - LATE, span.stop + LATE)

    def _given_up(self, item_id: str) -> None:
        """The recognizer is too slow; never to be given up are the newest words, which an answer is due to."""
        assert item_id != next(reversed(self._span)), "the newest turn is given up"
        self._failed.add(self._span[item_id].start)
        self.given_up += 1

    def _answered(self, given: Input) -> None:
        asked = isinstance(given, Event) and isinstance(given.event, wire.CreateResponse)
        wanted = any(self._wants_answer(item, span) for item, span in self._due.items())
        assert asked or wanted or self._may_owe or self._silence_due, "an answer to nothing"
        self._due.clear()
        self._owed = self._may_owe = self._silence_due = False
        self.answered += 1

    def _failed_in(self, span: Span) -> bool:
        """Whether a pass over a stretch, or over the last piece of a long one, failed: its words are lost."""
        return any(span.start <= at < span.stop for at in self._failed)

    def _wants_answer(self, item_id: str, span: Span) -> bool:
        """Whether a user may have said it. One or two words of ours are not known for an echo with certainty."""
        words = self._words[item_id]
        surely_ours = self._guarded and not self._speech.own(words) and len(words.split()) >= WORDS_AFTER
        return self._failed_in(span) or bool(words and not surely_ours)

    def _echoes(self, span: Span) -> bool:
        return self._speech.echoed(span.start, span.stop)

    def _told(self, prompt: Prompt, known: tuple[str, ...]) -> None:
        """A model that answers is told all that the user had said when the answer was asked for, in its order."""
        texts = {part.id: getattr(part, "text", "") for part in prompt.parts}
        for item_id in known:
            words = self._words[item_id]
            entry = self._session.conversation.get(item_id)
            if not words or entry is None or entry.input_span is None:
                continue
            assert not entry.ours or not self._speech.two_in_a_row(words), f"{words!r} passes for an echo"
            if not self._failed_in(entry.input_span) and not entry.ours:
                told = texts.get(item_id, "")
                assert self._speech.own(told) == self._speech.own(words), (
                    f"the model is told {told!r}, said was {words!r}"
                )
        order = [entry.item.id for entry in self._session.conversation if entry.item.id in texts]
        in_order = [part.id for part in prompt.parts if part.id in order]
        assert in_order == order, "the model is told what was said in another order"

    def _done(self, response: ResponseObject, now: float) -> None:
        details = response.status_details
        if details is None or details.reason != "turn_detected":
            return
        reply = self._replies.of(response.id)
        if response.output_modalities == ("text",):
            self._owe(self._answer_on, True)  # what was read of it nobody knows
        elif reply is None:
            self._owe(True, True)
        else:
            surely, perhaps = self._replies.unheard(reply, now)
            self._owe(surely or self._answer_on, perhaps or self._answer_on)

    def _cut_short(self, effects: tuple[Effect, ...], now: float) -> None:
        """A reply that was generated and sent may be cut as well, before much of it, or any, was heard."""
        for reply in self._replies.cut_by(effects):
            surely, perhaps = self._replies.unheard(reply, now)
            left = self._replies.left(reply, now) if self._answer_on else 0.0
            self._owe(surely or left > 1.2 * MUCH, perhaps or left > 0.8 * MUCH)

    def _owe(self, surely: bool, perhaps: bool) -> None:
        """An answer is due again if no words follow."""
        self._owed, self._may_owe = self._owed or surely, self._may_owe or perhaps

    # ---- the end --------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Nothing more will be said."""
        unanswered = [
            self._words[item] for item, span in self._due.items() if self._words[item] and not self._echoes(span)
        ]
        assert not unanswered, f"never answered: {unanswered}"
        assert not self._owed, "an answer that nobody heard was not given again"
        for sound in self._speech.sounds:
            if sound.word and not sound.ours and sound.stop < self._session.input.appended - TAIL:
                assert self._kept(sound), f"{sound.word!r} at {sound.start} is in no item"

    def _kept(self, sound: Sound) -> bool:
        start, stop = sound.start, sound.stop
        if any(span.start < stop and start < span.stop for span in self._excused):
            return True
        if any(start < span.stop < start + LATE for span in self._spans):
            return True  # it began while the turn before was being ended
        return any(sound.word in self._speech.words(span.start, span.stop).split() for span in self._spans)
