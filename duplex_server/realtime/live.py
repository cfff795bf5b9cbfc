"""Is one reply under way: what it was ordered to be, what is made for it, how the wire is told, what of it is heard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from duplex_server.realtime.config import SessionConfig
from duplex_server.realtime.effects import Begin, Effect, PlayAudio, Send
from duplex_server.realtime.generation import Generation
from duplex_server.realtime.hearing import Heard
from duplex_server.realtime.items import with_transcript
from duplex_server.realtime.orders import Order, make_prompt
from duplex_server.realtime.playout import Playout
from duplex_server.realtime.response import CONTENT_INDEX, Response
from duplex_server.realtime.schema import INPUT_RATE_HZ, Message, ResponseUsage
from duplex_server.realtime.usage import count_usage, estimate
from pipeline.chunk import CallDelta, Caption, Chunk, Failed, Part, Speak, Text, Think

LEAD = INPUT_RATE_HZ // 2
"""The far side may be this many samples further than we think, and in the middle of a word."""


@dataclass(slots=True)
class _Call:
    """A function call that is being made."""

    call_id: str
    name: str
    untold: str = ""  # of its arguments
    announced: bool = False


@dataclass(slots=True)
class LiveReply:
    """One response with its generation and its playout. `think` is what it is made of, once the making has begun."""

    order: Order
    generation: Generation
    response: Response
    playout: Playout
    think: Think | None = None
    audio_in_samples: int = 0
    item_id: str | None = None
    said: str = ""  # the captions that were sent
    written_bytes: int = 0  # of the thinker's text, in UTF-8
    silent_at: float | None = None  # when it was cut
    _written: list[str] = field(default_factory=list)  # what is read, not heard, and was not told yet
    _worded: bool = False  # the thinker wrote words
    _calls: dict[str, _Call] = field(default_factory=dict)
    _calls_first: bool = False  # there were none before the first call
    _calling: bool = False  # what it wrote last belongs to a call
    _calls_ended: bool = False

    def begin(self, parts: tuple[Part, ...], config: SessionConfig) -> Begin:
        """Let it be made of these parts."""
        order, generation = self.order, self.generation
        wanted, most = order.terms.max_output_tokens, config.max_reply_tokens
        self.think = Think(
            fence=generation.reply,
            prompt=make_prompt(order.instructions, parts, order.tools),
            max_tokens=most if wanted == "inf" else min(wanted, most),
            temperature=order.terms.temperature,
            tool_choice=order.tool_choice,
            parallel_calls=order.parallel_calls,
            retention=order.retention,
        )
        speak = None
        if generation.spoken:
            voice = order.terms.voice if order.terms.voice in config.voices else None
            bound = round(config.max_reply_s * config.talker_rate_hz)
            speak = Speak(fence=generation.reply, voice=voice, speed=order.speed, max_samples=bound)
        return Begin(self.think, speak, order.terms.format.type)

    def hear(self, heard: Heard) -> None:
        """The words of speech that was given with the order are known."""
        for entry in self.order.context or ():
            if entry.item.id == heard.item_id and isinstance(entry.item, Message) and heard.failure is None:
                entry.item = with_transcript(entry.item, heard.text)

    def take(self, chunk: Chunk) -> None:
        """A thinker's or talker's chunk, other than sound."""
        match chunk.payload:
            case Text(text=text):
                self.written_bytes += len(text.encode())
                self._worded |= bool(text.strip())
                self._calling = False
                if not self.generation.spoken:
                    self._written.append(text)
            case Caption(text=text):
                self.playout.caption(text)
            case CallDelta() as delta:
                self.written_bytes += len(f"{delta.name}{delta.arguments}".encode())
                self._calls_first |= not (self._worded or self._calls)
                self._calling = True
                call = self._calls.setdefault(delta.call_id, _Call(delta.call_id, delta.name))
                call.untold += delta.arguments
        if chunk.last:
            self.generation.end(chunk)

    def release(self, now: float, new_id: Callable[[str], str]) -> list[Effect]:
        """What may be told and played by now. Words that were written after a call come after it."""
        effects: list[Effect] = []
        if self._calls_first:
            effects += self._tell_calls()
            if not self.generation.written:
                return effects
        if self._worded:
            for text in self._written:
                effects += map(Send, self.response.write(text))
            self._written.clear()
        while (piece := self.playout.take(now)) is not None:
            if piece.caption:
                effects += map(Send, self.response.say(piece.caption))
                self.said += piece.caption
                self.item_id = self.response.message_id
                continue
            effects += map(Send, self.response.open_for_audio())
            self.item_id = self.response.message_id
            assert self.item_id is not None
            effects.append(
                PlayAudio(
                    reply=self.generation.reply,
                    from_sample=piece.from_sample,
                    upto_sample=piece.upto_sample,
                    event_id=new_id("event"),
                    response_id=self.response.id,
                    item_id=self.item_id,
                    output_index=self.response.output_index,
                    content_index=CONTENT_INDEX,
                    format=self.order.terms.format.type,
                    kept=self.response.is_kept,
                )
            )
        return effects

    def sounded(self, since: float, until: float) -> str:
        """The words that the far side heard between two times, begun ones too.

        What was sent ahead of that can't echo yet.
        """
        if since >= self.sounds_until + LEAD / INPUT_RATE_HZ:
            return ""
        end = until if self.silent_at is None else min(until, self.silent_at)
        heard_text = self.playout.track.heard_text
        before = heard_text(self.said, self.playout.heard_at(min(since, end), end))
        whole = heard_text(self.said, self.playout.heard(end) + LEAD)
        begun = self.said[len(whole) :].split(maxsplit=1)[:1]
        return " ".join([whole[len(before) :].strip(), *begun])

    @property
    def sounds_until(self) -> float:
        """When the last of what was sent has been heard."""
        return self.playout.free_at if self.silent_at is None else min(self.playout.free_at, self.silent_at)

    def call_functions(self) -> list[Effect]:
        """Tell the calls that stand after all that was said."""
        if not self._calls or self._calls_first:
            return []
        cut = self.generation.cut_by_length and not self.generation.thinker_cut
        return [*map(Send, self.response.close("incomplete" if cut else "completed")), *self._tell_calls()]

    def _tell_calls(self) -> list[Effect]:
        """What is known of the calls. The first is told as it is written, the others when all are known."""
        effects: list[Effect] = []
        known = [*self._calls.values()] if self.generation.written else [*self._calls.values()][:1]
        for call in known:
            if not call.announced:
                call.announced = True
                effects += map(Send, self.response.call(call.call_id, call.name))
            if call.untold:
                effects += map(Send, self.response.add_arguments(call.untold))
                call.untold = ""
        if self.generation.written and not self._calls_ended:
            self._calls_ended = True
            if not (self._calling and self.generation.thinker_cut):
                effects += map(Send, self.response.close("completed"))
        return effects

    @property
    def over(self) -> bool:
        """True when it can be ended: it failed, or all that was made was sent."""
        return self.generation.ended and (self.playout.drained or self.failure is not None)

    @property
    def failure(self) -> Failed | None:
        return self.generation.failure

    def usage(self) -> ResponseUsage:
        """The thinker's own count, or an estimate where it was stopped before it could give one."""
        text = self.generation.usage or (estimate(self.think.prompt, self.written_bytes) if self.think else None)
        return count_usage(text, self.audio_in_samples, self.playout.sent)
