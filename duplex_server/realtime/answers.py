"""Coordinates the responses of a session: begins them, passes on what is made, cancels them, and ends each once.

At most one response of the conversation runs at a time; any number may run beside it. What has been generated may
still be playing: a reply is live until it is generated and sent, and can be cut until it is heard.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from duplex_server.realtime import wire
from duplex_server.realtime.config import SessionConfig
from duplex_server.realtime.conversation import Conversation, Entry
from duplex_server.realtime.effects import Begin, Cancel, ClearAudio, Effect, Pace, PlayAudio, Send
from duplex_server.realtime.generation import Generation
from duplex_server.realtime.inputs import Spoke
from duplex_server.realtime.items import failure_code
from duplex_server.realtime.playout import Playout
from duplex_server.realtime.response import CONTENT_INDEX, Response, Terms
from duplex_server.realtime.schema import (
    CancelReason,
    ErrorDetail,
    ResponseStatus,
    StatusDetails,
)
from duplex_server.realtime.usage import count_usage
from duplex_server.realtime.wire import AnyServerEvent
from pipeline.chunk import CallDelta, Caption, Chunk, Failed, Part, Prompt, Reply, Speak, Text, TextPart, Think, Tool

INSTRUCTIONS_ID = "instructions"
RATE_LIMIT = 1_000_000
"""This server has no rate limits; clients expect the numbers all the same."""


@dataclass(frozen=True, slots=True)
class Order:
    """What a response is to be made of. `parts` None means the conversation, as it stands when the making begins."""

    terms: Terms
    instructions: str
    tools: tuple[Tool, ...]
    parts: tuple[Part, ...] | None
    speed: float
    in_conversation: bool


@dataclass(slots=True)
class _Live:
    """One response with what is made for it and what of that is heard."""

    order: Order
    generation: Generation
    response: Response
    playout: Playout
    audio_in_samples: int = 0
    calls: dict[str, CallDelta] = field(default_factory=dict)
    item_id: str | None = None


class Answers:
    """The response coordinator of one session."""

    def __init__(
        self,
        stream: str,
        config: SessionConfig,
        conversation: Conversation,
        new_id: Callable[[str], str],
        out: list[Effect],
    ) -> None:
        self._stream, self._config, self._conversation = stream, config, conversation
        self._new_id, self._out = new_id, out
        self._epoch = 0
        self._live: dict[Reply, _Live] = {}
        self._playing: list[_Live] = []  # generated and sent, perhaps not yet heard
        self.has_spoken = False

    # ---- what is there --------------------------------------------------------------------------------------------

    def wants(self, reply: Reply) -> bool:
        """True while chunks of this reply are of use."""
        return reply in self._live

    @property
    def active_id(self) -> str | None:
        """The conversation's response under way."""
        live = self._default()
        return live.response.id if live else None

    def deadline(self) -> float | None:
        """When `advance` has something to send."""
        times = [at for live in self._live.values() if (at := live.playout.deadline()) is not None]
        return min(times, default=None)

    def _default(self) -> _Live | None:
        return next((live for live in self._live.values() if live.response.in_conversation), None)

    # ---- beginning ------------------------------------------------------------------------------------------------

    def create(self, order: Order, waits_for: set[str], failure: Failed | None, now: float) -> None:
        """Open a response; its making begins when the transcripts it needs are there.

        A `failure` that is known already ends it at once: the client learns why it is not answered.
        """
        self._epoch += 1
        reply = Reply(self._stream, self._epoch)
        after = max((live.playout.free_at for live in self._playing), default=0.0) if order.in_conversation else 0.0
        playout = Playout(self._config.run_ahead_ms, self._config.client_buffer_ms, after)
        conversation = self._conversation if order.in_conversation else None
        spoken = order.terms.modality == "audio"
        response = Response(self._new_id, order.terms, conversation, playout.track if spoken else None)
        live = _Live(order, Generation(reply, spoken, set(waits_for), failure=failure), response, playout)
        self._live[reply] = live
        self._send(response.created())
        self._begin(live)
        self.advance(now)

    def resolve(self, item_id: str, failure: Failed | None, now: float) -> None:
        """A transcript came, or will never come."""
        for live in list(self._live.values()):
            if item_id in live.generation.waits_for:
                live.generation.waits_for.discard(item_id)
                if failure is not None:
                    live.generation.failure = failure
                self._begin(live)
        self.advance(now)

    def _begin(self, live: _Live) -> None:
        generation, order = live.generation, live.order
        if generation.begun or generation.waits_for or generation.failure:
            return
        generation.begun = True
        parts = self._conversation.parts() if order.parts is None else order.parts
        told = {part.id for part in parts}
        spans = (entry.input_span for entry in self._conversation if entry.item.id in told)
        live.audio_in_samples = sum(len(span) for span in spans if span)
        wanted = order.terms.max_output_tokens
        most = self._config.max_reply_tokens
        think = Think(
            fence=generation.reply,
            prompt=self.prompt(order.instructions, parts, order.tools),
            max_tokens=most if wanted == "inf" else min(wanted, most),
            temperature=self._config.temperature,
        )
        speak = None
        if generation.spoken:
            voice = order.terms.voice if order.terms.voice in self._config.voices else None
            bound = round(self._config.max_reply_s * self._config.talker_rate_hz)
            speak = Speak(fence=generation.reply, voice=voice, speed=order.speed, max_samples=bound)
        self._out.append(Begin(think, speak))

    @staticmethod
    def prompt(instructions: str, parts: tuple[Part, ...], tools: tuple[Tool, ...]) -> Prompt:
        """The context of a reply: instructions first, so that its prefix stays."""
        head: tuple[Part, ...] = (TextPart(INSTRUCTIONS_ID, "system", instructions),) if instructions else ()
        return Prompt(head + parts, tools)

    # ---- making ---------------------------------------------------------------------------------------------------

    def take(self, chunk: Chunk, now: float) -> None:
        """A thinker's or talker's chunk, other than sound."""
        assert isinstance(chunk.fence, Reply)
        live = self._live.get(chunk.fence)
        if live is None:
            return
        match chunk.payload:
            case Text(text=text) if not live.generation.spoken:
                self._send(*live.response.write(text))
            case Caption(text=text):
                live.playout.caption(text)
            case CallDelta() as delta:
                known = live.calls.get(delta.call_id)
                arguments = (known.arguments if known else "") + delta.arguments
                name = known.name if known else delta.name
                live.calls[delta.call_id] = CallDelta(delta.call_id, name, arguments)
        if chunk.last:
            live.generation.end(chunk)
        self.advance(now)

    def spoke(self, spoke: Spoke, now: float) -> None:
        """A talker's sound."""
        live = self._live.get(spoke.reply)
        if live is None:
            return
        live.playout.audio(spoke.samples, spoke.text_span)
        self._out.append(Pace(spoke.reply, live.playout.plays_until(now)))
        self.advance(now)

    def advance(self, now: float) -> None:
        """Send what may be sent by now, and end what is complete."""
        for live in list(self._live.values()):
            if live.generation.failure is None:
                self._release(live, now)
            if live.generation.ended and (live.playout.drained or live.generation.failure):
                self._finish(live, now)
        self._playing = [live for live in self._playing if live.playout.playing(now)]

    def played(self, reply: Reply, samples: int) -> None:
        """A paced channel says what it played."""
        for live in (*self._live.values(), *self._playing):
            if live.generation.reply == reply:
                live.playout.played(samples)

    def _release(self, live: _Live, now: float) -> None:
        while (piece := live.playout.take(now)) is not None:
            if piece.caption:
                self._send(*live.response.say(piece.caption))
                live.item_id = live.response.message_id
                continue
            self._send(*live.response.open_for_audio())
            live.item_id = live.response.message_id
            assert live.item_id is not None
            self.has_spoken = True
            self._out.append(
                PlayAudio(
                    reply=live.generation.reply,
                    from_sample=piece.from_sample,
                    upto_sample=piece.upto_sample,
                    event_id=self._new_id("event"),
                    response_id=live.response.id,
                    item_id=live.item_id,
                    output_index=live.response.output_index,
                    content_index=CONTENT_INDEX,
                )
            )

    # ---- ending ---------------------------------------------------------------------------------------------------

    def _finish(self, live: _Live, now: float) -> None:
        generation = live.generation
        if generation.failure is not None:
            error = ErrorDetail(
                type="server_error", code=failure_code(generation.failure), message=generation.failure.message
            )
            live.playout.silence()
            self._tell_heard(live, live.playout.sent)
            self._out.append(Cancel(generation.reply))
            self._end(live, "failed", StatusDetails(type="failed", error=error))
        elif generation.cut_by_length:
            self._end(live, "incomplete", StatusDetails(type="incomplete", reason="max_output_tokens"))
        else:
            for call in live.calls.values():
                self._send(*live.response.call(call.call_id, call.name, call.arguments))
            self._end(live, "completed", None)
        if live.response.in_conversation:
            self._playing.append(live)

    def _end(self, live: _Live, status: ResponseStatus, details: StatusDetails | None) -> None:
        del self._live[live.generation.reply]
        usage = count_usage(live.generation.usage, live.audio_in_samples, live.playout.sent)
        self._send(*live.response.done(status, details, usage), self._rate_limits())

    def cancel(self, response_id: str | None, reason: CancelReason, now: float) -> bool:
        """Cancel a response, by default the conversation's. False when there is none such."""
        if response_id is None:
            live = self._default()
        else:
            live = next((one for one in self._live.values() if one.response.id == response_id), None)
        if live is None:
            return False
        self._cancel(live, reason, now)
        return True

    def interrupt(self, now: float) -> bool:
        """The user speaks over us: fall silent. True if something was cut of which nothing had been heard."""
        playing, self._playing = self._playing, []
        for live in playing:
            if live.playout.playing(now):
                self._cut(live, now)
        active = self._default()
        if active is None:
            return False
        unheard = active.playout.heard(now) == 0
        self._cancel(active, "turn_detected", now)
        return unheard

    def abandon(self) -> None:
        """The peer is gone: stop all work, say nothing."""
        for reply in self._live:
            self._out.append(Cancel(reply))
        self._live.clear()
        self._playing.clear()

    def _cancel(self, live: _Live, reason: CancelReason, now: float) -> None:
        self._cut(live, now)
        self._end(live, "cancelled", StatusDetails(type="cancelled", reason=reason))

    def _cut(self, live: _Live, now: float) -> None:
        """Fall silent first, stop the work next; the model is told only what was heard."""
        heard = live.playout.heard(now)
        live.playout.silence()
        self._out.append(ClearAudio(live.generation.reply))
        if live.generation.reply in self._live:
            self._out.append(Cancel(live.generation.reply))
        self._tell_heard(live, heard)

    def _tell_heard(self, live: _Live, samples: int) -> None:
        entry: Entry | None = self._conversation.get(live.item_id) if live.item_id else None
        if entry is not None and live.response.in_conversation:
            self._conversation.hear(entry, samples)

    def _send(self, *events: AnyServerEvent) -> None:
        self._out.extend(map(Send, events))

    def _rate_limits(self) -> AnyServerEvent:
        names: tuple[Literal["requests", "tokens"], ...] = ("requests", "tokens")
        limits = tuple(
            wire.RateLimit(name=name, limit=RATE_LIMIT, remaining=RATE_LIMIT, reset_seconds=0.0) for name in names
        )
        return wire.RateLimitsUpdated(event_id=self._new_id("event"), rate_limits=limits)
