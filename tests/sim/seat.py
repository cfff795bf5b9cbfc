"""Drives one session in virtual time, as `duplex_server.realtime.driver` does."""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Callable
from random import Random
from typing import assert_never

from duplex_server.realtime import wire
from duplex_server.realtime.config import SessionConfig
from duplex_server.realtime.driver import CHUNKS
from duplex_server.realtime.effects import (
    Begin,
    Cancel,
    ClearAudio,
    Close,
    Effect,
    Keep,
    LetGo,
    Pace,
    PlayAudio,
    Prepare,
    Recognize,
    Send,
    SendWithSound,
)
from duplex_server.realtime.hearing import PASSES
from duplex_server.realtime.inputs import AudioIn, Event, Input, Opened, PeerLost, Produced, Spoke, Tick, Voice
from duplex_server.realtime.intake import SLICE_MS
from duplex_server.realtime.meter import Meter, lasts_s
from duplex_server.realtime.session import Session
from duplex_server.realtime.wire import AnyServerEvent
from pipeline.chunk import Audio, Chunk, Fence, Reply
from tests.sim.audit import Audit
from tests.sim.cascade import Cascade
from tests.sim.clock import Clock, Timer
from tests.sim.ear import Told, Up
from tests.sim.network import Line
from tests.sim.scenario import Network
from tests.sim.speech import RATE_HZ, Speech

FRAME = 768
"""The detector's frame in samples."""
SLICE = SLICE_MS * RATE_HZ // 1000
RESAMPLER = 48
"""Samples that the way to the channel's rate holds back until the talker ends."""
QUEUE = Network(0.0001, 0.0001, 0.0, 0.0)
IDLE_TICKS = 3
"""More ticks than this, one after the other, that lead to nothing are a busy loop."""
MOMENT_S = 1e-6

Watch = Callable[[float, str, Input, tuple[Effect, ...]], None]


class Seat:
    """One session, fed by its client, its detector, its stages and its clock."""

    def __init__(
        self,
        clock: Clock,
        rng: Random,
        cascade: Cascade,
        config: SessionConfig,
        speech: Speech,
        tell: Callable[[Told], None],
        watch: Watch | None,
    ) -> None:
        self._clock, self._cascade, self._config, self._speech = clock, cascade, config, speech
        self._tell, self._watch = tell, watch
        self.session = Session(config)
        self.audit: Audit | None = None
        self._ears_from: int | None = None
        self._frames = 0
        self._taken: dict[Fence, int] = {}  # samples that a resampler has taken; it holds the last of them
        self._chunks: Line[Chunk] = Line(clock, rng, QUEUE, self._take_chunk)
        self._inbox: deque[tuple[Up, float]] = deque()  # each with when it would have come in real time
        self._meter = Meter()
        self._received = self._held = 0  # samples that came, and those of them in the inbox
        self._caught_up: Timer | None = None
        self._tick: Timer | None = None
        self._idle_ticks = 0
        self.over = False

    def open(self, audit: Audit) -> None:
        self.audit = audit
        self._cascade.open(self._config.stream, self._emit, self._speech)
        self._feed(Opened())

    def leave(self) -> None:
        """The peer is gone."""
        if self.over:
            return
        self._feed(PeerLost())
        self.over = True
        self._cascade.close(self._config.stream)
        assert self.session.deadline() is None
        assert self.session.feed(Tick(), self._clock.now) == (), "a session that is over does something"

    # ---- in -------------------------------------------------------------------------------------------------------

    def receive(self, given: Up) -> None:
        if self.over:
            return
        now = self._clock.now
        if isinstance(given, int):
            at = self._meter.arrived(given, now)
            for start in range(0, given, SLICE):
                self._inbox.append((min(SLICE, given - start), at + lasts_s(start)))
            self._received += given
            self._held += given
        elif self.session.overtakes(given):
            self._feed(Event(given))
        else:
            self._inbox.append((given, now))
        self._read()

    def _read(self) -> None:
        """Take what has come, in its order; sound ahead of its time waits while too many turns wait for their words."""
        if self._caught_up is not None:
            self._caught_up.cancel()
            self._caught_up = None
        while self._inbox and not self.over:
            given, at = self._inbox[0]
            if not isinstance(given, int):
                self._feed(Event(given))
            elif self.session.passes_waiting < PASSES or self._clock.now >= at:
                assert self._clock.now <= at + MOMENT_S, "sound lags behind real time"
                self._held -= given
                self._listen(given)
            else:
                self._caught_up = self._clock.call_at(at, self._read)
                break
            self._inbox.popleft()
        assert self.over or self.session.input.appended + self._held == self._received, "sound that is nowhere"

    @property
    def behind(self) -> bool:
        """Whether anything that has come was not taken yet."""
        return bool(self._inbox)

    def _listen(self, samples: int) -> None:
        at = self.session.input.appended
        self._feed(AudioIn(at, samples))
        if not self.session.detects:
            self._ears_from = None
            return
        if self._ears_from is None:
            self._ears_from, self._frames = at, 0
        start = self._ears_from + self._frames * FRAME
        while start + FRAME <= at + samples:
            self._frames += 1
            self._feed(Voice(start, start + FRAME, self._speech.probability(start, start + FRAME)))
            start += FRAME

    def _emit(self, chunk: Chunk) -> None:
        self._chunks.send(chunk)
        assert self._chunks.under_way <= CHUNKS, "more chunks wait than the driver keeps"

    def _take_chunk(self, chunk: Chunk) -> None:
        self._feed_chunk(chunk)
        if chunk.role == "recognizer":
            self._read()

    def _feed_chunk(self, chunk: Chunk) -> None:
        fence = chunk.fence
        if self.over or not self.session.wants(fence):
            self._taken.pop(fence, None)
            return
        if isinstance(chunk.payload, Audio):
            assert isinstance(fence, Reply)
            before = self._taken.get(fence, 0)
            upto = self._taken[fence] = before + len(chunk.payload.pcm) // 2
            grown = max(0, upto - RESAMPLER) - max(0, before - RESAMPLER)
            self._feed(Spoke(fence, grown, chunk.text_span, chunk.exact, upto))
            return
        if chunk.last and chunk.role == "talker" and isinstance(fence, Reply) and fence in self._taken:
            self._feed(Spoke(fence, min(RESAMPLER, self._taken.pop(fence))))
        self._feed(Produced(chunk))

    def _on_tick(self) -> None:
        self._tick = None
        self._idle_ticks += 1
        self._feed(Tick())
        assert self._idle_ticks <= IDLE_TICKS, "ticks that lead to nothing"

    # ---- out ------------------------------------------------------------------------------------------------------

    def _feed(self, given: Input) -> None:
        assert self.audit is not None
        now = self._clock.now
        effects = self.session.feed(given, now)
        if self._watch is not None:
            self._watch(now, self._config.stream, given, effects)
        if effects or not isinstance(given, Tick):
            self._idle_ticks = 0
        self.audit.check(given, now, effects, [event for effect in effects if (event := as_event(effect))])
        for effect in effects:
            self._carry_out(effect)
        self._wind()

    def _wind(self) -> None:
        deadline = self.session.deadline()
        if self._tick is not None:
            if self._tick.at == deadline:
                return
            self._tick.cancel()
            self._tick = None
        if deadline is not None:
            self._tick = self._clock.call_at(deadline, self._on_tick)

    def _carry_out(self, effect: Effect) -> None:
        cascade = self._cascade
        match effect:
            case Send(event=event) | SendWithSound(event=event):
                self._tell(event)
            case PlayAudio():
                self._tell(effect)
            case ClearAudio() | Close() | Keep() | LetGo():
                pass  # the sound is at the client; a session does not last long enough to be ended
            case Recognize():
                cascade.transcribe(effect.segment, effect.from_sample, final=effect.final)
            case Prepare(prompt=prompt):
                cascade.prepare(self._config.stream, prompt)
            case Begin(think=think, speak=speak):
                cascade.answer(think, speak)
            case Cancel(fence=fence):
                cascade.cancel(fence)
            case Pace(reply=reply, plays_until=plays_until):
                cascade.pace(reply, plays_until)
            case _:
                assert_never(effect)


NO_SOUND = base64.b64encode(bytes(2)).decode()


def as_event(effect: Effect) -> AnyServerEvent | None:
    """What a client sees of an effect."""
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
                delta=NO_SOUND,
            )
        case _:
            return None
