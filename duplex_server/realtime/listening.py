"""Is the listening half of a session: takes sound and voice in, makes turns of them, and says when an answer is due."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from duplex_server.realtime import history, items, wire
from duplex_server.realtime.answers import Answers
from duplex_server.realtime.config import SessionConfig
from duplex_server.realtime.conversation import Conversation, Entry, spoken_entry, to_part
from duplex_server.realtime.echo import Doubt, Said, Whose, echoes, whose
from duplex_server.realtime.effects import Effect, Keep, Send
from duplex_server.realtime.hearing import GIVEN_UP, Guess, Heard, Hearing, Partial
from duplex_server.realtime.idle import silence_note
from duplex_server.realtime.input_buffer import InputBuffer, Span, UnheardReason
from duplex_server.realtime.inputs import AudioIn, Voice
from duplex_server.realtime.orders import prepare, take_order
from duplex_server.realtime.schema import INPUT_RATE_HZ, Message, ResponseParams, Session
from duplex_server.realtime.turns import Paused, Resumed, Started, Stopped, kept_samples, policy, prefix_samples
from duplex_server.realtime.wire import AnyServerEvent, Fault
from pipeline.chunk import Chunk, Failed, Segment

MIN_COMMIT_MS = 100
MAX_PENDING_S = 30 * 60
"""The input buffer of a client that commits by hand holds this much."""


@dataclass(slots=True)
class _Turn:
    """The user's speech under way. It is `told` once the client knows of it."""

    item_id: str
    start: int
    began: float | None = None  # when its first sound came, if a detector heard it
    paused: bool = False
    told: bool = False
    words: str | None = None  # all of them, while it is paused and they are known
    growth: str = ""  # partial words that wait until the turn is told

    def go_on(self) -> None:
        """It is voiced again: what was known of it is not all."""
        self.paused, self.words = False, None


class Listening:
    """Sound, voice and transcripts in; turns, items and due answers out."""

    def __init__(
        self,
        config: SessionConfig,
        settings: Session,
        conversation: Conversation,
        answers: Answers,
        new_id: Callable[[str], str],
        out: list[Effect],
    ) -> None:
        self._config, self._settings, self._conversation, self._answers = config, settings, conversation, answers
        self._new_id, self._out = new_id, out
        self.input = InputBuffer()
        self._hearing = Hearing(config.stream, out)
        self._turns = policy(settings.audio.input.turn_detection)
        self._turn: _Turn | None = None
        self._doubt = Doubt(config.echo_guard)
        self._over: dict[str, Said] = {}  # item: what of ours may have been heard in it
        self._committed_by_turn = 0  # input position up to which turn detection has committed
        self._due: dict[str, Failed | None] = {}  # committed items to be answered; why the words of one are not known
        self._owed = False  # an answer was cut, and is due again if no words follow
        self._overflowing = False
        self._told_upto = 0  # the last place in the input where the client was told of speech
        self.speech_began = 0.0  # when the newest onset came in
        self.dropped_turns = 0  # turns whose words were given up, because too many waited

    # ---- what the session asks ------------------------------------------------------------------------------------

    def wants(self, fence: Segment) -> bool:
        return self._hearing.wants(fence)

    @property
    def waiting(self) -> set[str]:
        """The items whose words are still to come."""
        return self._hearing.waiting

    @property
    def waiting_samples(self) -> int:
        """How many samples those items have."""
        return self._hearing.waiting_samples

    @property
    def answer_due(self) -> bool:
        """True when an answer is due, nobody speaks and every word is known."""
        return (bool(self._due) or self._owed) and self._turn is None and not self._hearing.waiting

    @property
    def quiet(self) -> bool:
        """True while nobody speaks and every word is known."""
        return self._turn is None and not self._hearing.waiting

    def answered(self) -> Failed | None:
        """A response of the conversation is created: nothing is due any more. Gives why it can't be made, if so.

        It can't when the newest words are not known; those before them may be missing.
        """
        unheard = next(reversed(self._due.values()), None)
        self._due.clear()
        self._owed = False
        return unheard

    def configure(self, settings: Session) -> None:
        """The settings changed."""
        before, self._settings = self._settings, settings
        if settings.audio.input.turn_detection != before.audio.input.turn_detection:
            self._turns = policy(
                settings.audio.input.turn_detection, self.input.appended if self._turn is not None else None
            )
            if self._turn is not None:
                self._turn.go_on()  # the new policy takes an open turn as voiced until now
            self._hearing.resume()
            self._answers.discard()

    def leave(self) -> None:
        """The peer is gone."""
        self._hearing.drop()

    # ---- the input buffer -----------------------------------------------------------------------------------------

    def audio(self, audio: AudioIn) -> Fault | None:
        """Sound arrived; gives the fault of a client that never commits it."""
        assert audio.at_sample == self.input.appended, (audio, self.input.appended)
        self.input.append(audio.samples)
        if audio.late and self._turn is None:
            self.input.discard(audio.at_sample, "silence")
            self.input.discard(self.input.appended, "late")
        floor = self.input.appended - MAX_PENDING_S * INPUT_RATE_HZ
        overflows, told = self.input.start < floor, self._overflowing
        self.input.discard(floor, "overflow")
        self._overflowing = overflows
        if not overflows or told:
            return None
        message = f"The input audio buffer holds {MAX_PENDING_S // 60} minutes; what is older is lost."
        return Fault(code="invalid_value", message=f"{message} Commit or clear it.", param="audio")

    def commit(self, now: float) -> history.Told:
        """The client says that the turn is over."""
        pending_ms = self.input.pending * 1000 // INPUT_RATE_HZ
        detects = self._settings.audio.input.turn_detection is not None
        by_turn = self._turn is None and detects and self._committed_by_turn > 0
        if pending_ms < MIN_COMMIT_MS or by_turn:
            return Fault(
                code="input_audio_buffer_commit_empty",
                message=(
                    f"The input audio buffer has {pending_ms} ms to commit; expected at least {MIN_COMMIT_MS} ms"
                    f"{' of speech that no detected turn has committed' if by_turn else ''}. Append more audio first."
                ),
            )
        turn = self._turn or _Turn(self._new_id("item"), self.input.start)
        self._turns.reset()
        self._commit(turn, self.input.appended, now, paused=False, answer=False)
        return ()

    def clear(self) -> history.Told:
        """The client lets go of what it has not committed."""
        if self._turn is not None and self._turn.told:
            self._send(self._stopped(self._turn, self.input.appended))
        self.input.discard(self.input.appended, "cleared")
        self._forget_turn()
        self._owed = False
        return (wire.Cleared(event_id=self._new_id("event")),)

    def _forget_turn(self) -> None:
        self._turns.reset()
        self._turn = None
        self._hearing.drop()
        self._answers.discard()

    def _commit(self, turn: _Turn, upto_sample: int, now: float, *, paused: bool, answer: bool) -> None:
        span = self.input.commit(upto_sample)
        self._turn = None
        if (said := self._said(turn, now)) is not None:
            self._over[turn.item_id] = said
        previous = self._conversation.last_id
        self._out.append(Keep(turn.item_id, span.start, span.stop))
        self._send(wire.Committed(event_id=self._new_id("event"), item_id=turn.item_id, previous_item_id=previous))
        self._send(*history.add(self._conversation, spoken_entry(turn.item_id, span), None, self._new_id))
        if answer:
            self._due[turn.item_id] = None
        else:
            self._owed = False
            self._answers.discard()
        settings = self._settings.audio.input.transcription
        heard = self._hearing.commit(turn.item_id, span, settings, paused=paused)
        if heard is not None:
            self._on_heard(heard, now)
        elif (given_up := self._hearing.give_up()) is not None:
            self._give_up(given_up, now)

    def bring(self, entry: Entry, now: float) -> None:
        """An item came with its sound, which is recognized like a turn's unless the client gave its words too.

        One that is in no conversation is only heard.
        """
        sound, item = entry.given, entry.item
        if sound is None:
            return
        there = self._conversation.get(item.id) is entry
        if there:
            self._out.append(Keep(item.id, 0, sound.samples, sound.number))
        if items.lacks_words(item):
            settings = self._settings.audio.input.transcription
            self._hearing.bring(item.id, sound, settings, announce=there and settings is not None)
            if (given_up := self._hearing.give_up()) is not None:
                self._give_up(given_up, now)

    def time_out(self, silent_s: float) -> None:
        """The user has said nothing for so long: their silence becomes an item, and an answer is due to it.

        The item holds no sound. Silence is let go as it comes, and the last of it may be the onset of speech.
        """
        detection = self._settings.audio.input.turn_detection
        end = self.input.appended
        silent = end - round(silent_s * INPUT_RATE_HZ)
        began = min(end, max(silent, self.input.committed_upto, self._told_upto))
        entry = spoken_entry(self._new_id("item"), self.input.commit(self.input.start))
        entry.note = silence_note(silent_s)
        item, previous = entry.item, self._conversation.last_id
        self._send(
            wire.TimeoutTriggered(
                event_id=self._new_id("event"), item_id=item.id, audio_start_ms=_ms(began), audio_end_ms=_ms(end)
            ),
            wire.Committed(event_id=self._new_id("event"), item_id=item.id, previous_item_id=previous),
            *history.add(self._conversation, entry, None, self._new_id),
        )
        assert isinstance(item, Message)
        self._conversation.replace(items.with_transcript(item, ""))
        if self._settings.audio.input.transcription is not None:
            heard = Heard(item.id, 0, "", None, announce=True)
            self._send(items.transcription_end(heard, self._new_id("event")))
        if detection is not None and detection.create_response:
            self._due[item.id] = None

    # ---- turns ----------------------------------------------------------------------------------------------------

    def voice(self, voice: Voice, now: float) -> None:
        """The detector has judged a frame."""
        detection = self._settings.audio.input.turn_detection
        event, turn = self._turns.observe(voice), self._turn
        match event:
            case Started(onset_sample=onset):
                self.speech_began = now - (voice.upto_sample - onset) / INPUT_RATE_HZ
                self._on_onset(onset, now)
            case Paused(at_sample=at) if turn is not None:
                turn.paused = True
                self._hearing.pause(Span(self.input.start, at))
            case Resumed() if turn is not None:
                turn.go_on()
                self._hearing.resume()
                self._answers.discard()
            case Stopped(end_sample=end) if turn is not None:
                self._on_stop(turn, end, now)
            case None if turn is not None and not turn.paused:
                self._hearing.speak(Span(self.input.start, voice.upto_sample))
                if not turn.told and not self._answers.audible(now):
                    self._tell(turn, now)
            case None if turn is None and detection is not None:
                self.input.discard(voice.upto_sample - kept_samples(detection), "silence")

    def _on_onset(self, onset_sample: int, now: float) -> None:
        start = max(onset_sample - prefix_samples(self._settings.audio.input.turn_detection), self.input.start)
        self.input.discard(start, "silence")
        began = now - (self.input.appended - onset_sample) / INPUT_RATE_HZ
        turn = self._turn = _Turn(self._new_id("item"), start, began)
        in_doubt = self._doubt.holds(now) and self._answers.audible(now)
        settings = self._settings.audio.input.transcription
        early = settings is not None and (isinstance(settings.delay, str) or self._settings.type == "transcription")
        self._hearing.start(settings, partials=early, in_doubt=in_doubt)
        if not in_doubt:
            self._tell(turn, now)

    def _on_stop(self, turn: _Turn, end: int, now: float) -> None:
        if not turn.told:
            if turn.words == "":
                self._dismiss(now, by_words=False)
                return
            self._tell(turn, now)
        self._send(self._stopped(turn, end))
        self._committed_by_turn = end
        detection = self._settings.audio.input.turn_detection
        answers = detection is not None and detection.create_response
        self._commit(turn, end, now, paused=turn.paused, answer=answers)

    def _stopped(self, turn: _Turn, end: int) -> AnyServerEvent:
        self._told_upto = end
        return wire.SpeechStopped(event_id=self._new_id("event"), item_id=turn.item_id, audio_end_ms=_ms(end))

    def _tell(self, turn: _Turn, now: float) -> None:
        """The user has the floor: what we say is cut, and the client learns why."""
        turn.told = True
        self._told_upto = turn.start
        self._hearing.believe()
        detection = self._settings.audio.input.turn_detection
        at = len(self._out)
        cut = self._answers.interrupt(now) if detection is not None and detection.interrupt_response else None
        if cut is not None:
            self._owed |= cut.unheard or (cut.lost and self._config.answer_on)
        # Silence and cancels come first, and what the peer is told of them after the event that explains it.
        told = next((i for i in range(at, len(self._out)) if isinstance(self._out[i], Send)), len(self._out))
        started = wire.SpeechStarted(
            event_id=self._new_id("event"), item_id=turn.item_id, audio_start_ms=_ms(turn.start)
        )
        self._out.insert(told, Send(started))
        self._tell_growth(turn)
        if self._settings.type == "realtime":
            self._out.append(prepare(self._settings, self._conversation))

    def _dismiss(self, now: float, *, by_words: bool) -> None:
        """It was our own voice, or a noise: nobody took the floor."""
        self._doubt.fooled(now, by_words=by_words)
        self._forget_turn()
        self.input.discard(self.input.appended - kept_samples(self._settings.audio.input.turn_detection), "echo")

    # ---- transcripts ----------------------------------------------------------------------------------------------

    def recognized(self, chunk: Chunk, now: float) -> None:
        """A recognizer's pass is over."""
        result, turn = self._hearing.take(chunk), self._turn
        match result:
            case Heard():
                self._on_heard(result, now)
            case Guess(text=text) | Partial(text=text) if turn is not None:
                if isinstance(result, Guess):
                    turn.words = text
                    self._turns.hear(text)
                if not turn.told and text:
                    match self._whose(turn, result, now):
                        case "ours":
                            self._dismiss(now, by_words=True)
                            return
                        case "theirs":
                            self._tell(turn, now)
                if isinstance(result, Partial):
                    turn.growth += result.growth
                    self._tell_growth(turn)
                elif text and self._may_speculate(turn) and not self._is_echo(turn, text, now):
                    self._speculate(turn, text)

    def _said(self, turn: _Turn, now: float) -> Said | None:
        """What of ours may be heard in a turn, if anything."""
        if turn.began is None or not self._config.echo_guard:
            return None
        said = self._answers.said(turn.began, now, wary=self._doubt.holds(now))
        return said if said.words else None

    def _is_echo(self, turn: _Turn, text: str, now: float) -> bool:
        said = self._said(turn, now)
        return said is not None and echoes(text, said)

    def _whose(self, turn: _Turn, result: Guess | Partial, now: float) -> Whose:
        """Whose voice it is; only what may go on leaves it open."""
        if isinstance(result, Guess):
            return "ours" if self._is_echo(turn, result.text, now) else "theirs"
        said = self._said(turn, now)
        return whose(result.text, said) if said is not None else "theirs"

    def _tell_growth(self, turn: _Turn) -> None:
        if turn.told and turn.growth:
            self._send(items.transcription_delta(turn.item_id, turn.growth, self._new_id("event")))
            turn.growth = ""

    def _may_speculate(self, turn: _Turn) -> bool:
        """True when the turn under way will be answered by itself, and nothing else is being answered."""
        detection = self._settings.audio.input.turn_detection
        answers = detection is not None and detection.create_response
        busy = self._hearing.waiting or self._answers.active_id
        return self._config.speculate and answers and turn.paused and not busy

    def _speculate(self, turn: _Turn, text: str) -> None:
        """Begin the answer that will be due if the user says nothing more."""
        order = take_order(ResponseParams(), self._settings, self._conversation, self._config.voices, self._new_id)
        if isinstance(order, Fault):
            return  # it is told when the answer is due
        part = to_part(spoken_entry(turn.item_id, Span(turn.start, self.input.appended), text))
        assert part is not None
        self._answers.speculate(order, part)

    def _on_heard(self, heard: Heard, now: float) -> None:
        if not heard.given:
            self.input.settle(heard.samples, _unheard(heard.failure))
        entry = self._conversation.get(heard.item_id)
        said = self._over.pop(heard.item_id, None)
        if entry is not None and isinstance(entry.item, Message) and heard.failure is None:
            self._conversation.replace(items.with_transcript(entry.item, heard.text))
        if heard.announce:
            if heard.growth:
                self._send(items.transcription_delta(heard.item_id, heard.growth, self._new_id("event")))
            self._send(items.transcription_end(heard, self._new_id("event")))
        elif heard.given and entry is not None and heard.failure not in (None, GIVEN_UP):
            self._send(items.words_given_up(heard, self._new_id("event")))
        echo = said is not None and echoes(heard.text, said)
        if heard.failure is None and (echo or not heard.text):
            if echo or (said is not None and said.over):
                self._doubt.fooled(now, by_words=echo)
            if entry is not None:
                entry.ours = echo
            if echo or not self._config.answer_empty:
                self._due.pop(heard.item_id, None)
                self._answers.discard()  # an answer may have been begun on what was taken for the user's words
        if heard.item_id in self._due:
            self._due[heard.item_id] = heard.failure
        self._answers.resolve(heard, now)

    def _give_up(self, heard: Heard, now: float) -> None:
        """Too many turns wait for their words; this one will not get any, and the client learns of it."""
        self.dropped_turns += 1
        self._on_heard(heard, now)
        if not heard.announce:
            self._send(items.words_given_up(heard, self._new_id("event")))

    def _send(self, *events: AnyServerEvent) -> None:
        self._out.extend(map(Send, events))


def _unheard(failure: Failed | None) -> UnheardReason | None:
    if failure is None:
        return None
    return "overloaded" if failure == GIVEN_UP else "failed"


def _ms(samples: int) -> int:
    return samples * 1000 // INPUT_RATE_HZ
