"""Drives one session: stamps what comes in with the time, feeds it, and carries out the effects in their order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal, assert_never

from duplex_server.channels.base import Channel, SlowPeer
from duplex_server.observe import Spoken
from duplex_server.realtime.config import SessionConfig
from duplex_server.realtime.dialect import Codec
from duplex_server.realtime.ears import Ears
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
from duplex_server.realtime.formats import encode_whole
from duplex_server.realtime.input_buffer import DropReason
from duplex_server.realtime.inputs import AudioIn, Input, Opened, PeerLost, Produced, Spoke, Tick
from duplex_server.realtime.intake import Intake
from duplex_server.realtime.journal import Journal
from duplex_server.realtime.milestones import FirstAudio, Milestones, Unwatched, Watcher
from duplex_server.realtime.mouth import Mouth
from duplex_server.realtime.samples import Pcm, Samples
from duplex_server.realtime.schema import INPUT_RATE_HZ, Message
from duplex_server.realtime.session import Session
from duplex_server.realtime.shelf import ITEM_BYTES, Encode, Shelf
from duplex_server.realtime.timing import Split, TurnClock
from duplex_server.realtime.wire import ItemRetrieved
from pipeline import chunk as chunks
from pipeline.chunk import Chunk, Reply
from pipeline.engine import Engine

log = logging.getLogger(__name__)

CHUNKS = 4096
"""Chunks of the stages that may wait for the session; pacing keeps them far below."""
LEAVE_LOOK_S = 0.05
"""How often a session that is to end is looked at."""
CLOSE_SLOW, CLOSE_BUG, CLOSE_STOPPING = 1008, 1011, 1012

Ending = Literal["peer_left", "expired", "slow_peer", "bug", "server_stopped"]
"""Why a session is over."""


class Driver:
    """The shell of one session. Everything here runs on the event loop; `feed` never waits, so there are no locks."""

    def __init__(
        self,
        channel: Channel,
        engine: Engine,
        config: SessionConfig,
        *,
        codec: Codec | None = None,
        journal_dir: Path | None = None,
        watcher: Watcher | None = None,
    ) -> None:
        self.session = Session(config)
        self.journal = Journal(config)
        self._channel, self._engine, self._config = channel, engine, config
        self._journal_dir = journal_dir
        self._loop = asyncio.get_running_loop()
        self._chunks: asyncio.Queue[Chunk] = asyncio.Queue(CHUNKS)
        self._heard = Samples()
        self._ears: Ears | None = None
        self._mouth = Mouth()
        self._shelf = Shelf()
        self._given: Sequence[Pcm] = ()  # the sounds that came with the event that is being taken
        self._due = asyncio.Event()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at: float | None = None
        self._clock, self._milestones = TurnClock(), Milestones()
        self._watcher = watcher or Unwatched()
        self._tasks = asyncio.TaskGroup()
        codec = codec or Codec()
        codec.conversation_id = self.session.conversation.id
        self._intake = Intake(
            config.stream, channel, self.session, self._feed, self._listen, self._loop.time, codec.decode
        )
        self.stale_chunks = 0
        self.ending: Ending = "peer_left"

    @property
    def dropped_turns(self) -> int:
        """Turns whose words were given up, because the recognizer is slower than real time."""
        return self.session.dropped_turns

    @property
    def dropped_samples(self) -> dict[DropReason, int]:
        """Input samples at 24 kHz that were lost to the conversation, by reason."""
        return self.session.input.dropped

    async def run(self) -> None:
        """Hold the session until its peer leaves or it ends; nothing of it is left afterwards."""
        self._engine.open(self._config.stream, self._chunks.put_nowait)
        try:
            await self._hold()
        except* SlowPeer as group:
            self.ending = "slow_peer"
            log.warning("%s: %s", self._config.stream, group.exceptions[0])
            await self._channel.close(CLOSE_SLOW, "too slow to read")
        except* Exception:  # the root of the session's tasks: a bug ends this session and no other
            self.ending = "bug"
            log.exception("%s: the session ends by a bug in the server", self._config.stream)
            self._dump_journal()
            await self._channel.close(CLOSE_BUG, "internal error")
        finally:
            self._set_alarm(None)
            self._engine.close(self._config.stream)

    async def leave(self, within_s: float) -> None:
        """Let the reply under way end, for so long at most, then end the connection: the server stops."""
        try:
            async with asyncio.timeout(within_s):
                while self.session.engaged(self._loop.time()):  # noqa: ASYNC110  # time alone may end it
                    await asyncio.sleep(LEAVE_LOOK_S)
        except TimeoutError:
            log.info("%s: its reply is cut, the server stops", self._config.stream)
        self.ending = "server_stopped"
        await self._channel.close(CLOSE_STOPPING, "the server is stopping")

    async def _hold(self) -> None:
        async with self._tasks as tasks:
            others = [tasks.create_task(task) for task in (self._take_chunks(), self._tick(), self._intake.take())]
            self._feed(Opened())
            await self._intake.read()
            self._feed(PeerLost())
            for task in others:
                task.cancel()

    def _dump_journal(self) -> None:
        if self._journal_dir is None:
            log.error("no journal was written: set server.journal_dir to keep one of a session that ends by a bug")
            return
        path = self._journal_dir / f"{self._config.stream}.journal"
        self.journal.dump(path)
        log.error("the session's journal is in %s; run `duplex-server replay` on it", path)

    # ---- in -------------------------------------------------------------------------------------------------------

    def _listen(self, pcm: Pcm, late: bool) -> None:
        """Keep the sound, tell the session, and let the detector speak before anything else is fed."""
        at_sample = self._heard.end
        self._heard.let_go(self.session.input_floor)
        self._heard.append(pcm)
        self._feed(AudioIn(at_sample, len(pcm), late))
        if late or not self.session.detects:
            self._ears = None
            return
        if self._ears is None:
            self._ears = Ears(self._engine.detector, at_sample)
        for voice in self._ears.hear(pcm):
            self._feed(voice)

    async def _take_chunks(self) -> None:
        while True:
            chunk = await self._chunks.get()
            if not self.session.wants(chunk.fence):
                self.stale_chunks += 1
            elif isinstance(chunk.payload, chunks.Audio):
                self._hear_talker(chunk, chunk.payload)
            else:
                self._take_chunk(chunk)
            if chunk.role == "recognizer":
                self._intake.recognized()

    def _hear_talker(self, chunk: Chunk, audio: chunks.Audio) -> None:
        assert isinstance(chunk.fence, Reply)
        grown = self._mouth.take(chunk.fence, audio)
        self._feed(Spoke(chunk.fence, grown.samples, chunk.text_span, chunk.exact, grown.upto_sample))

    def _take_chunk(self, chunk: Chunk) -> None:
        if chunk.last and chunk.role == "talker" and isinstance(chunk.fence, Reply):
            rest = self._mouth.finish(chunk.fence)
            if rest:
                self._feed(Spoke(chunk.fence, rest))
        if isinstance(chunk.payload, chunks.Transcript):
            log.info("%s heard %s", self._config.stream, Spoken(chunk.payload.text))
        self._feed(Produced(chunk))

    async def _tick(self) -> None:
        while True:
            await self._due.wait()
            self._due.clear()
            self._feed(Tick())

    def _set_alarm(self, deadline: float | None) -> None:
        """Let the next tick come at a deadline; most inputs leave it where it is."""
        if deadline == self._alarm_at:
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at = deadline
        self._alarm = None if deadline is None else self._loop.call_at(deadline, self._ring)

    def _ring(self) -> None:
        self._alarm = self._alarm_at = None
        self._due.set()

    # ---- out ------------------------------------------------------------------------------------------------------

    def _feed(self, given: Input, sounds: Sequence[Pcm] = ()) -> None:
        self._given = sounds
        now = self._loop.time()
        effects = self.session.feed(given, now)
        self.journal.note(now, given, effects)
        split = self._clock.note(now, given, effects)
        for effect in effects:
            self._carry_out(effect)
        if effects:
            self._tell(given, effects, split)
            self._mouth.keep(self.session.wants)  # no reply is over without an effect
        if effects or not isinstance(given, AudioIn):  # sound alone moves no deadline
            self._set_alarm(self.session.deadline())

    def _tell(self, given: Input, effects: tuple[Effect, ...], split: Split | None) -> None:
        """Count and log what has been carried out by now."""
        reached = self._milestones.note(self._loop.time(), given, effects, self.session.speech_began)
        for one in reached:
            self._watcher.reached(one)
        if split is not None:
            turn_id = next((one.turn_id for one in reached if isinstance(one, FirstAudio)), "an old turn")
            log.info("%s answers: %s (%s)", self._config.stream, split, turn_id)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Send(event=event):
                self._channel.send(event)
            case SendWithSound(event=event, upto_sample=upto_sample):
                self._channel.send(self._shelf.show(event, upto_sample, self._as_heard(event)))
            case PlayAudio():
                sound = self._mouth.give(effect.reply, effect.from_sample, effect.upto_sample)
                self._channel.play(effect, sound)
                if effect.kept:
                    self._shelf.add(effect.item_id, sound)
            case ClearAudio(reply=reply):
                self._channel.clear(reply)
            case Keep():
                upto = min(effect.upto_sample, effect.from_sample + ITEM_BYTES // 2)
                pcm = self._sound(effect.given, effect.from_sample, upto)
                self._shelf.add(effect.item_id, pcm.tobytes(), effect.upto_sample - effect.from_sample)
            case LetGo():
                self._shelf.let_go(effect.item_id, effect.from_sample)
            case Recognize():
                pcm = self._sound(effect.given, effect.from_sample, effect.segment.upto_sample)
                self._engine.transcribe(
                    effect.segment,
                    pcm,
                    INPUT_RATE_HZ,
                    final=effect.final,
                    language=effect.language,
                    prompt=effect.prompt,
                )
            case Prepare(prompt=prompt, retention=retention):
                self._engine.prepare(chunks.Prepare(self._config.stream, prompt, retention))
            case Begin(think=think, speak=speak, format=kind):
                self._mouth.begin(think.fence, kind)
                self._engine.answer(think, speak)
            case Cancel(fence=fence):
                self._engine.cancel(fence)
            case Pace(reply=reply, plays_until=plays_until):
                self._engine.pace(reply, plays_until)
            case Close(code=code, reason=reason):
                self.ending = "expired"  # the only end that a session asks for
                self._tasks.create_task(self._channel.close(code, reason))
            case _:
                assert_never(effect)

    def _as_heard(self, event: ItemRetrieved) -> Encode:
        """Brings an item's sound into the format in which the peer sends its own, or hears ours."""
        audio = self.session.settings.audio
        ours = isinstance(event.item, Message) and event.item.role == "assistant"
        return partial(encode_whole, kind=(audio.output if ours else audio.input).format.type)

    def _sound(self, given: int | None, from_sample: int, upto_sample: int) -> Pcm:
        """A stretch of the input, or of a sound that came with the event that is being taken."""
        if given is None:
            return self._heard.get(from_sample, upto_sample)
        return self._given[given][from_sample:upto_sample]
