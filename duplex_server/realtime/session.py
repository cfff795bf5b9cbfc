"""Is one realtime conversation: takes inputs with the time they came, and returns what is to be done.

It reads no clock, starts no task and touches no sound, so the same session is driven by a socket, a test or a replay.
"""

from __future__ import annotations

from typing import assert_never, overload

from duplex_server.realtime import history, wire
from duplex_server.realtime.answers import Answers
from duplex_server.realtime.config import SessionConfig
from duplex_server.realtime.conversation import Conversation
from duplex_server.realtime.effects import Close, Effect, Send
from duplex_server.realtime.idle import IdleTimer
from duplex_server.realtime.ids import Ids
from duplex_server.realtime.input_buffer import InputBuffer
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
from duplex_server.realtime.listening import Listening
from duplex_server.realtime.orders import prepare, take_order
from duplex_server.realtime.schema import ResponseParams, ServerVad
from duplex_server.realtime.settings import begin, merge, shown
from duplex_server.realtime.wire import AnyClientEvent, AnyServerEvent, Fault
from pipeline.chunk import Failed, Fence, Segment

CREATE_GRACE_S = 0.05
"""After a cancel the client may create a response of its own before the automatic one that is due."""
CLOSE_EXPIRED = 1001
BESIDE = 16
"""Responses that may run at once beside the conversation."""
MESSAGE_CHARS, PARAM_CHARS, EVENT_ID_CHARS = 1000, 256, 512
"""An error quotes what a client wrote, and a client may write much."""


class Session:
    """The state of one conversation."""

    def __init__(self, config: SessionConfig) -> None:
        self._config = config
        self._out: list[Effect] = []
        self._new_id = Ids(config.id_seed)
        settings = begin(config, self._new_id("sess"))
        assert not isinstance(settings, Fault), settings  # whoever gave `config.start` has seen to it
        self.settings = settings
        self.conversation = Conversation(self._new_id("conv"))
        self._answers = Answers(config.stream, config, self.conversation, self._new_id, self._out)
        self._listening = Listening(config, self.settings, self.conversation, self._answers, self._new_id, self._out)
        self._idle = IdleTimer()
        self._not_before = 0.0  # no automatic answer begins before this
        self._expires: float | None = None
        self._over = False

    # ---- what the driver asks -------------------------------------------------------------------------------------

    @property
    def detects(self) -> bool:
        """True while voice activity decides about turns."""
        return self.settings.audio.input.turn_detection is not None

    @property
    def input(self) -> InputBuffer:
        """The account of every sample that came in."""
        return self._listening.input

    def engaged(self, now: float) -> bool:
        """True while a reply is made or heard."""
        return self._answers.active_id is not None or self._answers.audible(now)

    @property
    def passes_waiting(self) -> int:
        """How many turns wait for their words; a client that sends faster than that must wait too."""
        return len(self._listening.waiting)

    @property
    def waiting_samples(self) -> int:
        """How much sound of the user they have."""
        return self._listening.waiting_samples

    @property
    def dropped_turns(self) -> int:
        """How many turns did not get their words, because too many waited."""
        return self._listening.dropped_turns

    @property
    def speech_began(self) -> float:
        """When the newest speech of the user began, for one who speaks in real time."""
        return self._listening.speech_began

    @property
    def underruns(self) -> int:
        """How often the far side ran dry in the middle of a reply."""
        return self._answers.underruns

    def overtakes(self, event: AnyClientEvent) -> bool:
        """True when an event may go before what was sent ahead of it: it cancels a response that is under way."""
        return isinstance(event, wire.CancelResponse) and self._answers.running(event.response_id) is not None

    @property
    def input_floor(self) -> int:
        """Input before this sample will not be asked for any more."""
        return self.input.start

    def wants(self, fence: Fence) -> bool:
        """True while a chunk under this fence is of use; others are stale and vanish at the door."""
        return self._listening.wants(fence) if isinstance(fence, Segment) else self._answers.wants(fence)

    def deadline(self) -> float | None:
        """When a `Tick` is due, if nothing else comes."""
        soonest = self._expires
        may_answer_at = self._not_before if self._may_answer() else None
        for at in (self._answers.deadline(), may_answer_at, self._idle_at()):
            if at is not None and (soonest is None or at < soonest):
                soonest = at
        return None if self._over else soonest

    def feed(self, given: Input, now: float) -> tuple[Effect, ...]:
        """Take one input in; the effects are to be carried out in their order."""
        if not self._over:
            self._take(given, now)
        if not self._over:
            followed = self._follow(0, now)
            idle_at, since = self._idle_at(), self._idle.since
            if idle_at is not None and since is not None and now >= idle_at:
                self._listening.time_out(now - since)
            self._answer_if_due(now)
            self._follow(followed, now)
            if self._expires is not None and now >= self._expires:
                self._expire()
        effects = tuple(self._out)
        self._out.clear()
        return effects

    def _take(self, given: Input, now: float) -> None:
        match given:  # what comes most often first
            case AudioIn():
                fault_of_buffer = self._listening.audio(given)
                if fault_of_buffer is not None:
                    self._refuse(fault_of_buffer)
            case Voice():
                self._listening.voice(given, now)
            case Opened():
                self._expires = now + self._config.lifetime_s
                self._send(wire.SessionCreated(event_id=self._new_id("event"), session=shown(self.settings)))
                if self.settings.type == "realtime":
                    self._out.append(prepare(self.settings, self.conversation))
            case Event(event=event):
                self._on_event(event, now)
            case Rejected(fault=fault):
                self._refuse(fault)
            case Spoke():
                self._answers.spoke(given, now)
            case Produced(chunk=chunk):
                if isinstance(chunk.fence, Segment):
                    self._listening.recognized(chunk, now)
                else:
                    self._answers.take(chunk, now)
            case Played():
                self._answers.played(given.reply, given.samples)
            case PeerLost():
                self._over = True
                self._listening.leave()
                self._answers.abandon()
            case Tick():
                self._answers.advance(now)
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
                told = self._update(event, now)
            case wire.Commit():
                told = self._listening.commit(now)
            case wire.Clear():
                told = self._listening.clear()
            case wire.CreateItem():
                told = self._create_item(event, now)
            case wire.RetrieveItem():
                told = history.retrieve(self.conversation, event, self._new_id, self._out)
            case wire.TruncateItem():
                told = history.truncate(self.conversation, event, self._new_id, self._out)
            case wire.DeleteItem():
                told = history.delete(self.conversation, event, self._new_id, self._out)
            case wire.CreateResponse():
                told = self._create_response(event.response or ResponseParams(), now)
            case wire.CancelResponse():
                told = self._cancel(event, now)
            case wire.ClearOutput() | wire.Append():
                told = ()  # over a text channel the peer plays by itself; sound comes as AudioIn
            case _:
                assert_never(event)
        if isinstance(told, Fault):
            self._refuse(wire.in_its_words(told, event), event.event_id)
        else:
            self._send(*told)

    def _update(self, event: wire.SessionUpdate, now: float) -> history.Told:
        merged = merge(self.settings, event.session, self._config, voice_fixed=self._answers.has_spoken)
        if isinstance(merged, Fault):
            return merged
        before = self.settings
        self.settings = merged
        self._listening.configure(merged)
        if merged.audio.input.turn_detection != before.audio.input.turn_detection:
            self._idle.reset(self._idle_ms, now)
        if merged.instructions != before.instructions or merged.tools != before.tools:
            self._out.append(prepare(merged, self.conversation))
        return (wire.SessionUpdated(event_id=self._new_id("event"), session=shown(merged)),)

    def _create_item(self, event: wire.CreateItem, now: float) -> history.Told:
        entry = history.accept(self.conversation, event, self._new_id)
        if isinstance(entry, Fault):
            return entry
        self._send(*history.add(self.conversation, entry, event.previous_item_id, self._new_id))
        self._listening.bring(entry, now)
        return ()

    # ---- silence --------------------------------------------------------------------------------------------------

    @property
    def _idle_ms(self) -> int | None:
        """How long the client lets its user be silent."""
        detection = self.settings.audio.input.turn_detection
        return detection.idle_timeout_ms if isinstance(detection, ServerVad) else None

    def _idle_at(self) -> float | None:
        """When the user will have been silent for that long, if all is quiet."""
        return self._idle.due(self._idle_ms) if self._listening.quiet else None

    def _follow(self, start: int, now: float) -> int:
        """Let the timer see what the client is told, from an effect on; gives how many effects there are."""
        if len(self._out) > start:
            heard_until = self._answers.heard_until(now)
            for effect in self._out[start:]:
                if isinstance(effect, Send):
                    self._idle.told(effect.event, heard_until)
        return len(self._out)

    # ---- answers --------------------------------------------------------------------------------------------------

    def _answer_if_due(self, now: float) -> None:
        """Create the automatic answer when it may begin."""
        if now >= self._not_before and self._may_answer():
            told = self._create_response(ResponseParams(), now)
            if isinstance(told, Fault):
                self._fail_response(told, now)

    def _fail_response(self, fault: Fault, now: float) -> None:
        """The settings ask for an answer that can't be: the client learns it from a response that fails."""
        order = take_order(
            ResponseParams(tool_choice="none"), self.settings, self.conversation, self._config.voices, self._new_id
        )
        assert not isinstance(order, Fault), order
        self._listening.answered()
        self._answers.create(order, set(), Failed("stage_failed", fault.message), now)

    def _may_answer(self) -> bool:
        return self._listening.answer_due and self._answers.active_id is None

    def _create_response(self, params: ResponseParams, now: float) -> history.Told:
        if self.settings.type == "transcription":
            message = "This session only transcribes. Open one with a model for responses."
            return Fault(code="invalid_value", message=message, param="type")
        order = take_order(params, self.settings, self.conversation, self._config.voices, self._new_id)
        if isinstance(order, Fault):
            return order
        active = self._answers.active_id
        if order.in_conversation and active is not None:
            return Fault(
                code="conversation_already_has_active_response",
                message=f"The conversation has an active response {active}. Wait for its response.done or cancel it.",
            )
        if not order.in_conversation and self._answers.beside >= BESIDE:
            message = (
                f"{BESIDE} responses run beside the conversation. Wait for the response.done of one, or cancel it."
            )
            return Fault(code="rate_limit_exceeded", message=message)
        for entry in order.context or ():
            if entry.item.id not in self.conversation:
                self._listening.bring(entry, now)
        waits_for = self._listening.waiting
        if order.context is not None:
            waits_for &= {entry.item.id for entry in order.context}
        unheard = self._listening.answered() if order.in_conversation else None
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

    # ---- telling --------------------------------------------------------------------------------------------------

    def _send(self, *events: AnyServerEvent) -> None:
        self._out.extend(map(Send, events))

    def _refuse(self, fault: Fault, event_id: str | None = None) -> None:
        body = wire.ErrorBody(
            type=fault.type,
            code=fault.code,
            message=_clip(fault.message, MESSAGE_CHARS),
            param=_clip(fault.param, PARAM_CHARS),
            event_id=_clip(fault.event_id or event_id, EVENT_ID_CHARS),
        )
        self._send(wire.Error(event_id=self._new_id("event"), error=body))


@overload
def _clip(text: str, most: int) -> str: ...
@overload
def _clip(text: str | None, most: int) -> str | None: ...
def _clip(text: str | None, most: int) -> str | None:
    return text if text is None or len(text) <= most else f"{text[: most - 1]}…"
