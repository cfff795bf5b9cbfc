"""Talks with a session on a virtual clock: plays its peer, its detector and its stages, and collects what it does."""

from __future__ import annotations

import base64
from typing import Literal, TypeVar

import msgspec
from hypothesis import settings

from duplex_server.realtime import given as gifts
from duplex_server.realtime import wire
from duplex_server.realtime.config import SessionConfig
from duplex_server.realtime.effects import Begin, Effect, PlayAudio, Recognize, Send, SendWithSound
from duplex_server.realtime.inputs import (
    AudioIn,
    Event,
    Input,
    Opened,
    Played,
    Produced,
    Rejected,
    Spoke,
    Tick,
    Voice,
)
from duplex_server.realtime.journal import Journal
from duplex_server.realtime.session import Session
from duplex_server.realtime.wire import AnyServerEvent, Fault
from pipeline.chunk import (
    CallDelta,
    Caption,
    Chunk,
    End,
    Failed,
    Part,
    Payload,
    Reply,
    StageRole,
    Text,
    TextPart,
    Transcript,
    Usage,
)
from tests.realtime.grammar import Grammar

RATE_HZ = 24_000
FRAME_SAMPLES = 768
"""The detector's frame: 32 ms."""
FRAME_S = FRAME_SAMPLES / RATE_HZ
TICKS = 10_000
"""More ticks than this in one wait are a busy loop."""

CASES = settings(deadline=None, max_examples=60)
"""For properties: a machine under load is slow, and that is no fault of a core."""

E = TypeVar("E", bound=AnyServerEvent)
F = TypeVar("F", bound=Effect)

DEFAULTS = SessionConfig(
    stream="s1",
    id_seed="seed",
    model="gpt-realtime",
    instructions="Be brief.",
    voice="marin",
    temperature=None,
    expires_at=1_900_000_000,
    lifetime_s=3600.0,
    voices=("joe", "amy"),
    talker_rate_hz=22_050,
    run_ahead_ms=2000,
    client_buffer_ms=100,
    speculate=True,
    echo_guard=True,
    answer_on=True,
    answer_empty=False,
    max_reply_tokens=400,
    max_reply_s=60.0,
)


class Talk:
    """One session and all who talk with it. Every feed is held against the grammar and noted in a journal."""

    def __init__(self, config: SessionConfig = DEFAULTS) -> None:
        self.session = Session(config)
        self.journal = Journal(config)
        self.grammar = Grammar(self.session)
        self.now = 0.0
        self.done: list[Effect] = []
        self.told: list[AnyServerEvent] = []
        self._frame_from = 0  # where the detector's next frame begins
        self._seq = 0

    # ---- feeding --------------------------------------------------------------------------------------------------

    def feed(self, given: Input) -> list[AnyServerEvent]:
        """Feed one input now; gives the events that the client sees of it."""
        effects = self.session.feed(given, self.now)
        self.journal.note(self.now, given, effects)
        told = [event for effect in effects if (event := _as_event(effect)) is not None]
        self.grammar.check(given, self.now, effects, told)
        self.done += effects
        self.told += told
        return told

    def open(self) -> Talk:
        self.feed(Opened())
        return self

    def wait(self, seconds: float) -> list[AnyServerEvent]:
        """Let time pass; the session gets its ticks."""
        until = self.now + seconds
        told: list[AnyServerEvent] = []
        for _ in range(TICKS):
            deadline = self.session.deadline()
            if deadline is None or deadline > until:
                self.now = until
                return told
            self.now = max(self.now, deadline)
            told += self.feed(Tick())
        raise AssertionError("a busy loop of ticks")

    # ---- the peer -------------------------------------------------------------------------------------------------

    def ask(self, kind: str, **fields: object) -> list[AnyServerEvent]:
        """The client sends an event, as JSON."""
        return self.frame(msgspec.json.encode({"type": kind, **fields}).decode())

    def frame(self, frame: str | bytes) -> list[AnyServerEvent]:
        event = wire.decode(frame)
        if isinstance(event, wire.CreateItem | wire.CreateResponse):
            lengths = [len(base64.b64decode(audio)) // 2 for _, audio in gifts.sounds(event)]
            return self.feed(Event(gifts.without_sounds(event, lengths)))
        return self.feed(Rejected(event) if isinstance(event, Fault) else Event(event))

    def update(self, **session: object) -> list[AnyServerEvent]:
        return self.ask("session.update", session={"type": "realtime", **session})

    def listen(self, **audio_input: object) -> list[AnyServerEvent]:
        """Change the settings of the input."""
        return self.update(audio={"input": audio_input})

    def transcribed(self) -> Talk:
        """Ask for transcripts."""
        self.listen(transcription={"model": "whisper-1"})
        return self

    def by_hand(self) -> Talk:
        """Turn the detection of turns off."""
        self.listen(turn_detection=None)
        return self

    def append(self, samples: int) -> None:
        """Sound that no detector hears, in one piece."""
        self.feed(AudioIn(self.session.input.appended, samples))
        self._frame_from = self.session.input.appended

    def sound(self, ms: float, probability: float, *, speed: float = 1.0) -> list[AnyServerEvent]:
        """Sound in frames of the detector, `speed` times as fast as real time; at least one frame."""
        told: list[AnyServerEvent] = []
        for _ in range(max(1, round(ms / 1000 / FRAME_S))):
            told += self.wait(FRAME_S / speed)
            told += self.feed(AudioIn(self.session.input.appended, FRAME_SAMPLES))
            upto = self._frame_from + FRAME_SAMPLES
            if self.session.detects:
                told += self.feed(Voice(self._frame_from, upto, probability))
            self._frame_from = upto
        return told

    def speech(self, ms: float = 600) -> list[AnyServerEvent]:
        return self.sound(ms, 0.95)

    def silence(self, ms: float = 700) -> list[AnyServerEvent]:
        return self.sound(ms, 0.02)

    def say(self, words: str, ms: float = 600) -> str:
        """A whole turn of the user: speech, silence, and the recognizer's words. Gives the item's id."""
        self.speech(ms)
        self.silence()
        item_id = self.last(wire.Committed).item_id
        self.recognize(words)
        return item_id

    # ---- the stages -----------------------------------------------------------------------------------------------

    def recognize(self, words: str | Failed, at: int = -1) -> list[AnyServerEvent]:
        """The recognizer ends the last pass it was asked for."""
        fence = self.effects(Recognize)[at].segment
        payload = words if isinstance(words, Failed) else Transcript(words)
        return self.feed(Produced(Chunk(fence, "recognizer", 0, payload, last=True)))

    @property
    def reply(self) -> Reply:
        """The reply that was begun last."""
        return self.effects(Begin)[-1].think.fence

    @property
    def prompt(self) -> tuple[Part, ...]:
        """What the thinker was told last."""
        return self.effects(Begin)[-1].think.prompt.parts

    def chunk(self, role: StageRole, payload: Payload, *, reply: Reply | None = None) -> list[AnyServerEvent]:
        self._seq += 1
        last = isinstance(payload, End | Failed)
        return self.feed(Produced(Chunk(reply or self.reply, role, self._seq, payload, last=last)))

    def write(self, text: str, reply: Reply | None = None) -> list[AnyServerEvent]:
        return self.chunk("thinker", Text(text), reply=reply)

    def call(self, call_id: str, name: str, arguments: str) -> list[AnyServerEvent]:
        return self.chunk("thinker", CallDelta(call_id, name, arguments))

    def caption(self, text: str, reply: Reply | None = None) -> list[AnyServerEvent]:
        return self.chunk("talker", Caption(text), reply=reply)

    def audio(self, ms: int, span: tuple[int, int] | None = None, reply: Reply | None = None) -> list[AnyServerEvent]:
        return self.feed(Spoke(reply or self.reply, ms * RATE_HZ // 1000, span))

    def end(
        self,
        role: Literal["thinker", "talker", "both"] = "both",
        *,
        finish: Literal["stop", "length"] = "stop",
        usage: Usage | None = None,
        reply: Reply | None = None,
    ) -> list[AnyServerEvent]:
        told: list[AnyServerEvent] = []
        reply = reply or self.reply
        if role != "talker":
            told += self.chunk("thinker", End(finish, usage), reply=reply)
        if role != "thinker":
            told += self.chunk("talker", End(finish if role == "talker" else "stop"), reply=reply)
        return told

    def speak(self, *clauses: tuple[str, int], end: bool = True) -> list[AnyServerEvent]:
        """A whole spoken answer: clauses, each with its length in ms. Nothing waits for it to be sent."""
        told: list[AnyServerEvent] = []
        start = 0
        for text, ms in clauses:
            told += self.caption(text)
            told += self.audio(ms, (start, start + len(text)))
            start += len(text)
        return told + (self.end() if end else [])

    def play(self, samples: int, reply: Reply | None = None) -> None:
        """A paced channel reports."""
        self.feed(Played(reply or self.reply, samples))

    # ---- what came of it ------------------------------------------------------------------------------------------

    def events(self, kind: type[E]) -> list[E]:
        return [event for event in self.told if isinstance(event, kind)]

    def last(self, kind: type[E]) -> E:
        return self.events(kind)[-1]

    def effects(self, kind: type[F]) -> list[F]:
        return [effect for effect in self.done if isinstance(effect, kind)]

    @property
    def errors(self) -> list[str | None]:
        return [event.error.code for event in self.events(wire.Error)]


def kinds(events: list[AnyServerEvent]) -> list[str]:
    """The types of events, as they stand on the wire."""
    return [str(event.__struct_config__.tag) for event in events]


def texts(parts: tuple[Part, ...]) -> list[str]:
    """The texts of a prompt, without the instructions."""
    return [part.text for part in parts if isinstance(part, TextPart) and part.id != "instructions"]


def _as_event(effect: Effect) -> AnyServerEvent | None:
    """What a text channel makes of an effect."""
    match effect:
        case Send(event=event) | SendWithSound(event=event):
            return event
        case PlayAudio():
            return wire.AudioDelta(
                event_id=effect.event_id,
                response_id=effect.response_id,
                item_id=effect.item_id,
                output_index=effect.output_index,
                content_index=effect.content_index,
                delta=base64.b64encode(bytes(2 * (effect.upto_sample - effect.from_sample))).decode(),
            )
        case _:
            return None
