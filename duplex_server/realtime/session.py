"""Is one realtime conversation: takes inputs with the time they came, and returns what is to be done.

It reads no clock, starts no task and touches no sound, so the same session is driven by a socket, a test or a replay.
"""

from __future__ import annotations

from typing import assert_never

from duplex_server.realtime import history, items, wire
from duplex_server.realtime.answers import Answers
from duplex_server.realtime.config import SessionConfig
from duplex_server.realtime.conversation import Conversation, spoken_entry, to_part
from duplex_server.realtime.effects import Close, Effect, Prepare, Send
from duplex_server.realtime.hearing import Guess, Heard, Hearing, Partial
from duplex_server.realtime.ids import Ids
from duplex_server.realtime.input_buffer import InputBuffer, Span
from duplex_server.realtime.inputs import (
    AudioIn,
    Event,
    Input,
    Opened,
    PeerLost,
    Played,
    Produced,
    Rejected,
    Spoke,
    Tick,
    Voice,
)
from duplex_server.realtime.live import make_prompt
from duplex_server.realtime.orders import Order, order_tools, take_order
from duplex_server.realtime.schema import (
    INPUT_RATE_HZ,
    AudioOutput,
    Message,
    ResponseParams,
    SessionAudio,
)
from duplex_server.realtime.schema import (
    Session as Settings,
)
from duplex_server.realtime.settings import merge
from duplex_server.realtime.turns import Paused, Resumed, Started, Stopped, kept_samples, policy, prefix_samples
from duplex_server.realtime.wire import AnyClientEvent, AnyServerEvent, Fault
from pipeline.chunk import Failed, Fence, Segment

MIN_COMMIT_MS = 100
MAX_PENDING_S = 30 * 60
"""The input buffer of a client that commits by hand holds this much."""
CREATE_GRACE_S = 0.05
"""After a cancel the client may create a response of its own before the automatic one that is due."""
CLOSE_EXPIRED = 1001


class Session:
    """The state of one conversation."""

    def __init__(self, config: SessionConfig) -> None:
        self._config = config
        self._out: list[Effect] = []
        self._new_id = Ids(config.id_seed)
        self.settings = Settings(
            id=self._new_id("sess"),
            model=config.model,
            expires_at=config.expires_at,
            instructions=config.instructions,
            audio=SessionAudio(output=AudioOutput(voice=config.voice)),
        )
        self.conversation = Conversation(self._new_id("conv"))
        self.input = InputBuffer()
        self._hearing = Hearing(config.stream, self._out)
        self._answers = Answers(config.stream, config, self.conversation, self._new_id, self._out)
        self._turns = policy(self.settings.audio.input.turn_detection)
        self._turn_item: str | None = None  # the id announced for the speech under way
        self._paused = False  # that speech has fallen silent
        self._committed_by_turn = 0  # input position up to which turn detection has committed
        self._due: set[str] = set()  # the committed items that an automatic answer is due to
        self._owed = False  # an answer was cut before any of it was heard: it is due again if no words follow
        self._unheard: Failed | None = None  # why the words that an answer is due to are not known
        self._not_before = 0.0  # no automatic answer begins before this
        self._overflowing = False
        self._expires: float | None = None
        self._over = False

    # ---- what the driver asks -------------------------------------------------------------------------------------

    @property
    def detects(self) -> bool:
        """True while voice activity decides about turns."""
        return self.settings.audio.input.turn_detection is not None

    @property
    def input_floor(self) -> int:
        """Input before this sample will not be asked for any more."""
        return self.input.start

    def wants(self, fence: Fence) -> bool:
        """True while a chunk under this fence is of use; others are stale and vanish at the door."""
        return self._hearing.wants(fence) if isinstance(fence, Segment) else self._answers.wants(fence)

    def deadline(self) -> float | None:
        """When a `Tick` is due, if nothing else comes."""
        answer_at = self._not_before if self._may_answer() else None
        times = [at for at in (self._answers.deadline(), answer_at, self._expires) if at is not None]
        return None if self._over else min(times, default=None)

    def feed(self, given: Input, now: float) -> tuple[Effect, ...]:
        """Take one input in; the effects are to be carried out in their order."""
        if not self._over:
            self._take(given, now)
            if self._expires is not None and now >= self._expires:
                self._expire()
        effects = tuple(self._out)
        self._out.clear()
        return effects

    def _take(self, given: Input, now: float) -> None:
        match given:
            case Opened():
                self._expires = now + self._config.lifetime_s
                self._send(wire.SessionCreated(event_id=self._new_id("event"), session=self.settings))
                self._prepare()
            case Event(event=event):
                self._on_event(event, now)
            case Rejected(fault=fault):
                self._refuse(fault)
            case AudioIn():
                self._on_audio(given)
            case Voice():
                self._on_voice(given, now)
            case Spoke():
                self._answers.spoke(given, now)
                self._answer_if_due(now)
            case Produced(chunk=chunk):
                if isinstance(chunk.fence, Segment):
                    self._on_recognized(self._hearing.take(chunk), now)
                else:
                    self._answers.take(chunk, now)
                    self._answer_if_due(now)
            case Played():
                self._answers.played(given.reply, given.samples)
            case PeerLost():
                self._over = True
                self._hearing.drop()
                self._answers.abandon()
            case Tick():
                self._answers.advance(now)
                self._answer_if_due(now)
            case _:
                assert_never(given)

    def _expire(self) -> None:
        self._over = True
        minutes = round(self._config.lifetime_s / 60)
        message = f"Your session hit the maximum duration of {minutes} minutes. Open a new one."
        self._refuse(Fault(code="session_expired", message=message))
        self._answers.abandon()
        self._out.append(Close(CLOSE_EXPIRED, message))

    # ---- events ---------------------------------------------------------------------------------------------------

    def _on_event(self, event: AnyClientEvent, now: float) -> None:
        told: history.Told
        match event:
            case wire.SessionUpdate():
                told = self._update(event)
            case wire.Commit():
                told = self._commit_by_hand(now)
            case wire.Clear():
                told = self._clear(now)
            case wire.CreateItem():
                told = history.create(self.conversation, event, self._new_id)
            case wire.RetrieveItem():
                told = history.retrieve(self.conversation, event, self._new_id)
            case wire.TruncateItem():
                told = history.truncate(self.conversation, event, self._new_id)
            case wire.DeleteItem():
                told = history.delete(self.conversation, event, self._new_id)
            case wire.CreateResponse():
                told = self._create_response(event.response or ResponseParams(), now)
            case wire.CancelResponse():
                told = self._cancel(event, now)
            case wire.ClearOutput() | wire.Append():
                told = ()  # over a text channel the peer plays by itself; sound comes as AudioIn
            case _:
                assert_never(event)
        if isinstance(told, Fault):
            self._refuse(told, event.event_id)
        else:
            self._send(*told)

    def _update(self, event: wire.SessionUpdate) -> history.Told:
        merged = merge(self.settings, event.session, voices=self._config.voices, voice_fixed=self._answers.has_spoken)
        if isinstance(merged, Fault):
            return merged
        before = self.settings
        self.settings = merged
        if merged.audio.input.turn_detection != before.audio.input.turn_detection:
            open_upto = self.input.appended if self._turn_item is not None else None
            self._turns = policy(merged.audio.input.turn_detection, open_upto)
            self._paused = False  # the new policy takes an open turn as voiced until now
            self._hearing.resume()
            self._answers.discard()
        if merged.instructions != before.instructions or merged.tools != before.tools:
            self._prepare()
        return (wire.SessionUpdated(event_id=self._new_id("event"), session=merged),)

    # ---- the input buffer -----------------------------------------------------------------------------------------

    def _on_audio(self, audio: AudioIn) -> None:
        assert audio.at_sample == self.input.appended, (audio, self.input.appended)
        self.input.append(audio.samples)
        floor = self.input.appended - MAX_PENDING_S * INPUT_RATE_HZ
        overflows = self.input.start < floor
        self.input.discard(floor, "overflow")
        if overflows and not self._overflowing:
            message = f"The input audio buffer holds {MAX_PENDING_S // 60} minutes; what is older is lost."
            self._refuse(Fault(code="invalid_value", message=f"{message} Commit or clear it.", param="audio"))
        self._overflowing = overflows

    def _commit_by_hand(self, now: float) -> history.Told:
        pending_ms = self.input.pending * 1000 // INPUT_RATE_HZ
        by_turn = self._turn_item is None and self.detects and self._committed_by_turn > 0
        if pending_ms < MIN_COMMIT_MS or by_turn:
            return Fault(
                code="input_audio_buffer_commit_empty",
                message=(
                    f"The input audio buffer has {pending_ms} ms to commit; expected at least {MIN_COMMIT_MS} ms"
                    f"{' of speech that no detected turn has committed' if by_turn else ''}. Append more audio first."
                ),
            )
        item_id = self._turn_item or self._new_id("item")
        self._turns.reset()
        self._commit(item_id, self.input.appended, now, paused=False, answer=False)
        return ()

    def _clear(self, now: float) -> history.Told:
        self.input.discard(self.input.appended, "cleared")
        self._turns.reset()
        self._turn_item, self._paused = None, False
        self._hearing.drop()
        self._answers.discard()
        self._owed = False
        self._send(wire.Cleared(event_id=self._new_id("event")))
        self._answer_if_due(now)  # a turn before this one may have waited for its end
        return ()

    def _commit(self, item_id: str, upto_sample: int, now: float, *, paused: bool, answer: bool) -> None:
        span = self.input.commit(upto_sample)
        self._turn_item, self._paused = None, False
        previous = self.conversation.last_id
        self._send(wire.Committed(event_id=self._new_id("event"), item_id=item_id, previous_item_id=previous))
        self._send(*history.add(self.conversation, spoken_entry(item_id, span), None, self._new_id))
        if answer:
            self._due.add(item_id)
        else:
            self._owed = False
            self._answers.discard()
        self._on_recognized(self._hear(item_id, span, paused=paused), now)

    def _hear(self, item_id: str, span: Span, *, paused: bool) -> Heard | None:
        return self._hearing.commit(item_id, span, self.settings.audio.input.transcription, paused=paused)

    # ---- turns ----------------------------------------------------------------------------------------------------

    def _on_voice(self, voice: Voice, now: float) -> None:
        detection = self.settings.audio.input.turn_detection
        match self._turns.observe(voice):
            case Started(onset_sample=onset):
                self._on_onset(onset, now)
            case Paused(at_sample=at):
                self._paused = True
                self._hearing.pause(Span(self.input.start, at))
            case Resumed():
                self._paused = False
                self._hearing.resume()
                self._answers.discard()
            case Stopped(end_sample=end):
                assert self._turn_item is not None
                self._send(
                    wire.SpeechStopped(event_id=self._new_id("event"), item_id=self._turn_item, audio_end_ms=_ms(end))
                )
                self._committed_by_turn = end
                answers = detection is not None and detection.create_response
                self._commit(self._turn_item, end, now, paused=self._paused, answer=answers)
            case None if self._turns.speaking and not self._paused:
                self._hearing.speak(Span(self.input.start, voice.upto_sample))
            case None if not self._turns.speaking and self.detects:
                self.input.discard(voice.upto_sample - kept_samples(detection), "silence")

    def _on_onset(self, onset_sample: int, now: float) -> None:
        detection = self.settings.audio.input.turn_detection
        start = max(onset_sample - prefix_samples(detection), self.input.start)
        self.input.discard(start, "silence")
        self._turn_item, self._paused = self._new_id("item"), False
        self._hearing.start(self.settings.audio.input.transcription)
        started = wire.SpeechStarted(event_id=self._new_id("event"), item_id=self._turn_item, audio_start_ms=_ms(start))
        at = len(self._out)
        if detection is not None and detection.interrupt_response and self._answers.interrupt(now):
            self._owed = True
        self._announce(started, at)
        self._prepare()

    def _announce(self, event: AnyServerEvent, at: int) -> None:
        """Silence and cancels come first, and what the peer is told of them after the event that explains it."""
        told = next((i for i in range(at, len(self._out)) if isinstance(self._out[i], Send)), len(self._out))
        self._out.insert(told, Send(event))

    # ---- transcripts ----------------------------------------------------------------------------------------------

    def _on_recognized(self, result: Heard | Guess | Partial | None, now: float) -> None:
        match result:
            case Heard():
                self._on_heard(result, now)
            case Partial(growth=growth) if self._turn_item is not None:
                self._send(items.transcription_delta(self._turn_item, growth, self._new_id("event")))
            case Guess(text=text) if text and self._may_speculate():
                self._speculate(text)

    def _may_speculate(self) -> bool:
        """True when the turn under way will be answered by itself, and nothing else is being answered."""
        detection = self.settings.audio.input.turn_detection
        answers = detection is not None and detection.create_response
        busy = self._hearing.waiting or self._answers.active_id
        return self._config.speculate and answers and self._paused and not busy

    def _speculate(self, text: str) -> None:
        """Begin the answer that will be due if the user says nothing more."""
        assert self._turn_item is not None
        order = take_order(ResponseParams(), self.settings, self.conversation, self._config.voices, self._new_id)
        part = to_part(spoken_entry(self._turn_item, Span(self.input.start, self.input.appended), text))
        assert isinstance(order, Order)
        assert part is not None
        self._answers.speculate(order, part)

    def _on_heard(self, heard: Heard, now: float) -> None:
        entry = self.conversation.get(heard.item_id)
        if entry is not None and isinstance(entry.item, Message) and heard.failure is None:
            self.conversation.replace(items.with_transcript(entry.item, heard.text))
        if heard.announce:
            if heard.growth:
                self._send(items.transcription_delta(heard.item_id, heard.growth, self._new_id("event")))
            self._send(items.transcription_end(heard, self._new_id("event")))
        if heard.failure is None and not heard.text and not self._config.answer_empty:
            self._due.discard(heard.item_id)
        if heard.failure is not None and heard.item_id in self._due:
            self._unheard = heard.failure
        self._answers.resolve(heard.item_id, heard.failure, now)
        self._answer_if_due(now)

    # ---- answers --------------------------------------------------------------------------------------------------

    def _may_answer(self) -> bool:
        """True when an answer is due, nobody speaks, every word is known and no other answer runs."""
        due = bool(self._due) or self._owed
        return due and not (self._turn_item or self._hearing.waiting or self._answers.active_id)

    def _answer_if_due(self, now: float) -> None:
        """Create the automatic answer when it may begin."""
        if now < self._not_before or not self._may_answer():
            return
        told = self._create_response(ResponseParams(), now)
        assert not isinstance(told, Fault), told

    def _create_response(self, params: ResponseParams, now: float) -> history.Told:
        order = take_order(params, self.settings, self.conversation, self._config.voices, self._new_id)
        if isinstance(order, Fault):
            return order
        active = self._answers.active_id
        if order.in_conversation and active is not None:
            return Fault(
                code="conversation_already_has_active_response",
                message=f"The conversation has an active response {active}. Wait for its response.done or cancel it.",
            )
        waits_for = self._hearing.waiting if order.parts is None else set()
        unheard: Failed | None = None
        if order.in_conversation:
            self._due.clear()
            self._owed = False
            unheard, self._unheard = self._unheard, None
        self._answers.create(order, waits_for, unheard, now)
        return ()

    def _cancel(self, event: wire.CancelResponse, now: float) -> history.Told:
        if self._answers.cancel(event.response_id, "client_cancelled", now):
            self._not_before = now + CREATE_GRACE_S
            return ()
        which = f"no active response {event.response_id}" if event.response_id else "no active response"
        return Fault(
            code="response_cancel_not_active", message=f"Cancellation failed: {which} found.", param="response_id"
        )

    def _prepare(self) -> None:
        """Let the thinker read what is known already, so that the answer begins sooner."""
        tools = order_tools(self.settings.tools)
        prompt = make_prompt(self.settings.instructions, self.conversation.parts(), tools)
        self._out.append(Prepare(prompt))

    # ---- telling --------------------------------------------------------------------------------------------------

    def _send(self, *events: AnyServerEvent) -> None:
        self._out.extend(map(Send, events))

    def _refuse(self, fault: Fault, event_id: str | None = None) -> None:
        body = wire.ErrorBody(
            type=fault.type,
            code=fault.code,
            message=fault.message,
            param=fault.param,
            event_id=fault.event_id or event_id,
        )
        self._send(wire.Error(event_id=self._new_id("event"), error=body))


def _ms(samples: int) -> int:
    return samples * 1000 // INPUT_RATE_HZ
