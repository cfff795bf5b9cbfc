"""Coordinates the responses of a session: begins them, passes on what is made, cancels them, and ends each once.

At most one response of the conversation runs at a time; any number may run beside it. What has been generated may
still be playing: a reply is live until it is generated and sent, and can be cut until it is heard.

A reply may be begun before the user's turn is sure to be over. Such a tentative one is made and held, unknown to the
client. When a response is created for exactly what it was made of, it is that response; otherwise it never was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import msgspec

from duplex_server.realtime import wire
from duplex_server.realtime.config import SessionConfig
from duplex_server.realtime.conversation import Conversation, Entry, parts_of
from duplex_server.realtime.echo import AT_ONCE_S, ECHO_AFTER_S, Said
from duplex_server.realtime.effects import Cancel, ClearAudio, Effect, Pace, Send
from duplex_server.realtime.generation import Generation
from duplex_server.realtime.hearing import Heard
from duplex_server.realtime.inputs import Spoke
from duplex_server.realtime.items import failure_detail
from duplex_server.realtime.live import LiveReply
from duplex_server.realtime.orders import Order
from duplex_server.realtime.playout import ECHO_S, Playout
from duplex_server.realtime.response import Response
from duplex_server.realtime.schema import INPUT_RATE_HZ, CancelReason, ResponseStatus, StatusDetails
from duplex_server.realtime.wire import AnyServerEvent
from pipeline.chunk import Chunk, Failed, Part, Reply, Think

RATE_LIMIT = 1_000_000
"""This server has no rate limits; clients expect the numbers all the same."""
MUCH = INPUT_RATE_HZ
"""A reply that had less than this left to be heard is as good as heard."""
SPOKEN = 8
"""So many replies that have fallen silent are remembered: their echo may still be on its way."""
HELD = 2 * INPUT_RATE_HZ
"""So much of a tentative reply is made: what is said first must last until the rest is made."""
HOLD_S = 60.0
"""Then it is paced as if its sound ended this much later: no more is made until it is wanted."""


@dataclass(frozen=True, slots=True)
class Cut:
    """What an interruption cut: if the newest reply was unheard, and if much was lost."""

    unheard: bool
    lost: bool


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
        self._live: dict[Reply, LiveReply] = {}
        self._tentative: LiveReply | None = None
        self._playing: list[LiveReply] = []  # generated and sent; still to be heard, or just over
        self._silent: deque[LiveReply] = deque(maxlen=SPOKEN)
        self.has_spoken = False
        self.underruns = 0  # times the far side ran dry in the middle of a reply

    # ---- what is there --------------------------------------------------------------------------------------------

    def wants(self, reply: Reply) -> bool:
        """True while chunks of this reply are of use."""
        return self._find(reply) is not None

    @property
    def active_id(self) -> str | None:
        """The conversation's response under way."""
        live = self._default()
        return live.response.id if live else None

    @property
    def beside(self) -> int:
        """How many responses run beside the conversation."""
        return sum(not live.response.in_conversation for live in self._live.values())

    def running(self, response_id: str | None) -> LiveReply | None:
        """A response under way, by default the conversation's."""
        if response_id is None:
            return self._default()
        return next((live for live in self._live.values() if live.response.id == response_id), None)

    def deadline(self) -> float | None:
        """When `advance` has something to send."""
        if not self._live:
            return None
        times = [at for live in self._live.values() if (at := live.playout.deadline()) is not None]
        return min(times, default=None)

    def audible(self, now: float) -> bool:
        """True while what a microphone hears may be us: a reply sounds, has a gap, or has only just ended."""
        return bool(self._audible(now))

    def heard_until(self, now: float) -> float:
        """When all that has been said will have been heard."""
        return max([now, *(live.playout.free_at for live in self._playing)])

    def said(self, began: float, now: float, *, wary: bool) -> Said:
        """What a microphone may have heard of us in a stretch of speech that began at a time and has lasted until now.

        `wary` takes one that began when we had just fallen silent for one over our words.
        """
        active = self._default()
        spoken = [*self._silent, *self._playing, *([active] if active is not None and active.playout.sent else [])]
        words, at_once = (
            " ".join(filter(None, (live.sounded(began - back_s, now) for live in spoken)))
            for back_s in (ECHO_AFTER_S, AT_ONCE_S)
        )
        from_then = began - (ECHO_S if wary else 0.0)
        over = active in spoken or any(live.sounds_until > from_then for live in spoken)
        return Said(words, at_once, over)

    def _audible(self, now: float) -> list[LiveReply]:
        heard = [live for live in self._playing if live.playout.lingers(now)]
        active = self._default()
        return [*heard, active] if active is not None and active.playout.sent else heard

    def _default(self) -> LiveReply | None:
        return next((live for live in self._live.values() if live.response.in_conversation), None)

    def _find(self, reply: Reply) -> LiveReply | None:
        if self._tentative is not None and self._tentative.generation.reply == reply:
            return self._tentative
        return self._live.get(reply)

    # ---- beginning ------------------------------------------------------------------------------------------------

    def create(self, order: Order, waits_for: set[str], failure: Failed | None, now: float) -> None:
        """Open a response; its making begins when the transcripts it needs are there.

        A `failure` that is known already ends it at once: the client learns why it is not answered.
        """
        live = self._open(order, waits_for, failure)
        if order.in_conversation:
            live = self._adopt(live, now)
            live.playout.free_at = max((one.playout.free_at for one in self._playing), default=0.0)
        self._live[live.generation.reply] = live
        self._send(live.response.created())
        if live.think is None:
            self._begin(live)
        self.advance(now)

    def speculate(self, order: Order, part: Part) -> None:
        """Begin on what the user has probably said, and tell nobody."""
        self.discard()
        live = self._tentative = self._open(order, set(), None)
        self._out.append(live.begin((*self._conversation.parts(), part), self._config))

    def discard(self) -> None:
        """The user goes on: what was begun never was."""
        if self._tentative is not None:
            self._out.append(Cancel(self._tentative.generation.reply))
            self._tentative = None

    def _adopt(self, wanted: LiveReply, now: float) -> LiveReply:
        """The tentative reply, if it is made of just what is wanted now; else the wanted one, not begun."""
        tentative = self._tentative
        if tentative is None or wanted.generation.waits_for or wanted.failure or tentative.failure:
            self.discard()
            return wanted
        begin = wanted.begin(self._parts(wanted), self._config)
        if tentative.order != wanted.order or not _same(begin.think, tentative.think):
            wanted.think = None
            self.discard()
            return wanted
        self._tentative = None
        tentative.audio_in_samples = wanted.audio_in_samples
        self._out.append(Pace(tentative.generation.reply, tentative.playout.plays_until(now)))
        return tentative

    def resolve(self, heard: Heard, now: float) -> None:
        """A transcript came, or will never come."""
        for live in list(self._live.values()):
            if heard.item_id in live.generation.waits_for:
                live.generation.waits_for.discard(heard.item_id)
                live.generation.failure = heard.failure or live.generation.failure
                live.hear(heard)
                self._begin(live)
        self.advance(now)

    def _open(self, order: Order, waits_for: set[str], failure: Failed | None) -> LiveReply:
        self._epoch += 1
        playout = Playout(self._config.run_ahead_ms, self._config.client_buffer_ms)
        conversation = self._conversation if order.in_conversation else None
        spoken = order.terms.modality == "audio"
        response = Response(self._new_id, order.terms, conversation, playout.track if spoken else None)
        generation = Generation(Reply(self._stream, self._epoch), spoken, set(waits_for), failure=failure)
        return LiveReply(order, generation, response, playout)

    def _begin(self, live: LiveReply) -> None:
        if live.think is None and not live.generation.waits_for and live.failure is None:
            self._out.append(live.begin(self._parts(live), self._config))

    def _parts(self, live: LiveReply) -> tuple[Part, ...]:
        entries = tuple(self._conversation) if live.order.context is None else live.order.context
        parts = parts_of(entries)
        told = {part.id for part in parts}
        live.audio_in_samples = sum(entry.spoken_samples for entry in entries if entry.item.id in told)
        return parts

    # ---- making ---------------------------------------------------------------------------------------------------

    def take(self, chunk: Chunk, now: float) -> None:
        """A thinker's or talker's chunk, other than sound."""
        assert isinstance(chunk.fence, Reply)
        live = self._find(chunk.fence)
        if live is not None:
            live.take(chunk)
            self.advance(now)

    def spoke(self, spoke: Spoke, now: float) -> None:
        """A talker's sound."""
        live = self._find(spoke.reply)
        if live is None:
            return
        live.playout.audio(spoke.samples, spoke.text_span, spoke.exact, spoke.upto_sample)
        held_s = HOLD_S if live is self._tentative and live.playout.track.samples >= HELD else 0.0
        self._out.append(Pace(spoke.reply, live.playout.plays_until(now) + held_s))
        self.advance(now)

    def advance(self, now: float) -> None:
        """Send what may be sent by now, and end what is complete."""
        for live in list(self._live.values()):
            if live.failure is None:
                before = live.playout.underruns
                self._out += live.release(now, self._new_id)
                self.underruns += live.playout.underruns - before
                self.has_spoken |= live.playout.sent > 0
            if live.over:
                self._finish(live)
        self._silent += [live for live in self._playing if not live.playout.lingers(now)]
        self._playing = [live for live in self._playing if live.playout.lingers(now)]

    def played(self, reply: Reply, samples: int) -> None:
        """A paced channel says what it played."""
        for live in (*self._live.values(), *self._playing):
            if live.generation.reply == reply:
                live.playout.played(samples)

    # ---- ending ---------------------------------------------------------------------------------------------------

    def _finish(self, live: LiveReply) -> None:
        if live.failure is not None:
            error = failure_detail(live.failure)
            live.playout.silence()
            self._tell_heard(live, live.playout.sent)
            self._out.append(Cancel(live.generation.reply))
            self._end(live, "failed", StatusDetails(type="failed", error=error))
        else:
            self._out += live.call_functions()
            if live.generation.cut_by_length:
                self._end(live, "incomplete", StatusDetails(type="incomplete", reason="max_output_tokens"))
            else:
                self._end(live, "completed", None)
        if live.response.in_conversation:
            self._playing.append(live)

    def _end(self, live: LiveReply, status: ResponseStatus, details: StatusDetails | None) -> None:
        del self._live[live.generation.reply]
        self._send(*live.response.done(status, details, live.usage()), self._rate_limits())

    def cancel(self, response_id: str | None, reason: CancelReason, now: float) -> bool:
        """Cancel a response, by default the conversation's. False when there is none such."""
        live = self.running(response_id)
        if live is None:
            return False
        self._cancel(live, reason, now)
        return True

    def interrupt(self, now: float) -> Cut | None:
        """The user speaks over us: fall silent. Gives what was cut, if anything was."""
        playing = [live for live in self._playing if live.playout.playing(now)]
        lost = any(live.playout.sent - live.playout.heard(now) >= MUCH for live in playing)
        active = self._default()
        newest = active or next(reversed(playing), None)
        self._silent += self._playing
        self._playing = []
        if newest is None:
            return None
        unheard = newest.playout.heard(now) == 0  # a short one may have been sent to its end, and still be so
        for live in playing:
            self._cut(live, now)
        if active is not None:
            self._cancel(active, "turn_detected", now)
        return Cut(unheard, lost or active is not None)

    def abandon(self) -> None:
        """The peer is gone: stop all work, say nothing."""
        self.discard()
        for reply in self._live:
            self._out.append(Cancel(reply))
        self._live.clear()
        self._playing.clear()
        self._silent.clear()

    def _cancel(self, live: LiveReply, reason: CancelReason, now: float) -> None:
        self._cut(live, now)
        self._silent.append(live)
        self._end(live, "cancelled", StatusDetails(type="cancelled", reason=reason))

    def _cut(self, live: LiveReply, now: float) -> None:
        """Fall silent first, stop the work next; the model is told only what was heard."""
        heard = live.playout.heard(now)
        live.playout.silence()
        live.silent_at = now
        self._out.append(ClearAudio(live.generation.reply))
        if live.generation.reply in self._live:
            self._out.append(Cancel(live.generation.reply))
        self._tell_heard(live, heard)

    def _tell_heard(self, live: LiveReply, samples: int) -> None:
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


def _same(one: Think, other: Think | None) -> bool:
    """True when two jobs make the same reply, whatever it is called."""
    return other is not None and msgspec.structs.replace(one, fence=other.fence) == other
