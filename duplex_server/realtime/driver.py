"""Drives one session: stamps what comes in with the time, feeds it, and carries out the effects in their order."""

from __future__ import annotations

import asyncio
import binascii
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import assert_never

import numpy as np

from duplex_server.channels.base import Channel, SlowPeer
from duplex_server.observe import Spoken
from duplex_server.realtime import wire
from duplex_server.realtime.config import SessionConfig
from duplex_server.realtime.ears import Ears
from duplex_server.realtime.effects import (
    Begin,
    Cancel,
    ClearAudio,
    Close,
    Effect,
    Pace,
    PlayAudio,
    Prepare,
    Recognize,
    Send,
)
from duplex_server.realtime.inputs import AudioIn, Event, Input, Opened, PeerLost, Produced, Rejected, Spoke, Tick
from duplex_server.realtime.journal import Journal
from duplex_server.realtime.mouth import Mouth
from duplex_server.realtime.samples import Pcm, Samples
from duplex_server.realtime.schema import INPUT_RATE_HZ
from duplex_server.realtime.session import Session
from duplex_server.realtime.timing import TurnClock
from duplex_server.realtime.wire import Append, Fault
from pipeline import chunk as chunks
from pipeline.chunk import Chunk, Reply
from pipeline.engine import Engine

log = logging.getLogger(__name__)

SLICE_MS = 100
"""Input is taken in such pieces, with a turn of the event loop between them, however large a frame is."""
_SLICE_BYTES = 2 * SLICE_MS * INPUT_RATE_HZ // 1000
_SLICE_BASE64 = 16 * 1024  # characters; a multiple of four
BIG_FRAME_BYTES = 64 * 1024
"""Frames beyond this are parsed off the event loop."""
CHUNKS = 4096
"""Chunks of the stages that may wait for the session; pacing keeps them far below."""
PASSES = 2
"""Turns of a session that may wait for their words. A client that sends faster than anybody speaks waits for them, so
that it can't keep the recognizer from the others."""
LEAVE_LOOK_S = 0.05
"""How often a session that is to end is looked at."""
CLOSE_SLOW, CLOSE_BUG, CLOSE_STOPPING = 1008, 1011, 1012


class Driver:
    """The shell of one session. Everything here runs on the event loop; `feed` never waits, so there are no locks."""

    def __init__(
        self, channel: Channel, engine: Engine, config: SessionConfig, *, journal_dir: Path | None = None
    ) -> None:
        self.session = Session(config)
        self.journal = Journal(config)
        self._channel, self._engine, self._config = channel, engine, config
        self._journal_dir = journal_dir
        self._loop = asyncio.get_running_loop()
        self._chunks: asyncio.Queue[Chunk] = asyncio.Queue(CHUNKS)
        self._heard = Samples()
        self._spare = b""  # half a sample
        self._ears: Ears | None = None
        self._mouth = Mouth()
        self._fed = asyncio.Event()
        self._recognized = asyncio.Event()
        self._clock = TurnClock()
        self._tasks = asyncio.TaskGroup()
        self.stale_chunks = 0

    async def run(self) -> None:
        """Hold the session until its peer leaves or it ends; nothing of it is left afterwards."""
        self._engine.open(self._config.stream, self._chunks.put_nowait)
        try:
            await self._hold()
        except* SlowPeer as group:
            log.warning("%s: %s", self._config.stream, group.exceptions[0])
            await self._channel.close(CLOSE_SLOW, "too slow to read")
        except* Exception:  # the root of the session's tasks: a bug ends this session and no other
            log.exception("%s: the session ends by a bug in the server", self._config.stream)
            self._dump_journal()
            await self._channel.close(CLOSE_BUG, "internal error")
        finally:
            self._engine.close(self._config.stream)

    async def leave(self, within_s: float) -> None:
        """Let the reply under way end, for so long at most, then end the connection: the server stops."""
        try:
            async with asyncio.timeout(within_s):
                while self.session.engaged(self._loop.time()):  # noqa: ASYNC110  # time alone may end it
                    await asyncio.sleep(LEAVE_LOOK_S)
        except TimeoutError:
            log.info("%s: its reply is cut, the server stops", self._config.stream)
        await self._channel.close(CLOSE_STOPPING, "the server is stopping")

    async def _hold(self) -> None:
        async with self._tasks as tasks:
            others = [tasks.create_task(self._take_chunks()), tasks.create_task(self._tick())]
            self._feed(Opened())
            await self._receive()
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

    async def _receive(self) -> None:
        while (frame := await self._channel.receive()) is not None:
            event = await self._decode(frame)
            match event:
                case Fault():
                    self._feed(Rejected(event))
                case Append():
                    await self._append(event)
                case _:
                    self._feed(Event(event))

    async def _decode(self, frame: str | bytes) -> wire.AnyClientEvent | Fault:
        if len(frame) > BIG_FRAME_BYTES:
            return await asyncio.to_thread(wire.decode, frame)
        return wire.decode(frame)

    async def _append(self, event: Append) -> None:
        sound = await self._sound(event)
        if isinstance(sound, Fault):
            self._feed(Rejected(sound))
            return
        async for pcm in self._slices(sound):
            while self.session.passes_waiting >= PASSES:
                self._recognized.clear()
                await self._recognized.wait()
            self._listen(pcm)

    async def _sound(self, event: Append) -> bytes | Fault:
        sound = bytearray()
        text = event.audio
        try:
            for start in range(0, len(text), _SLICE_BASE64):
                if start:
                    await asyncio.sleep(0)
                sound += binascii.a2b_base64(text[start : start + _SLICE_BASE64], strict_mode=True)
        except ValueError as error:  # binascii.Error, or characters that are not ASCII
            return Fault(
                code="invalid_value",
                message=f"Expected base64 with padding: {error}. Nothing of it was appended.",
                param="audio",
                event_id=event.event_id,
            )
        return bytes(sound)

    async def _slices(self, sound: bytes) -> AsyncIterator[Pcm]:
        """Whole samples; an odd byte waits for the next append."""
        sound = self._spare + sound
        whole = len(sound) - len(sound) % 2
        self._spare = sound[whole:]
        for start in range(0, whole, _SLICE_BYTES):
            if start:
                await asyncio.sleep(0)
            yield np.frombuffer(sound[start : min(start + _SLICE_BYTES, whole)], "<i2")

    def _listen(self, pcm: Pcm) -> None:
        """Keep the sound, tell the session, and let the detector speak before anything else is fed."""
        at_sample = self._heard.end
        self._heard.append(pcm)
        self._feed(AudioIn(at_sample, len(pcm)))
        if not self.session.detects:
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
                self._recognized.set()

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
            self._fed.clear()
            deadline = self.session.deadline()
            wait_s = None if deadline is None else max(0.0, deadline - self._loop.time())
            try:
                async with asyncio.timeout(wait_s):
                    await self._fed.wait()
            except TimeoutError:
                self._feed(Tick())

    # ---- out ------------------------------------------------------------------------------------------------------

    def _feed(self, given: Input) -> None:
        now = self._loop.time()
        effects = self.session.feed(given, now)
        self.journal.note(now, given, effects)
        if (split := self._clock.note(now, given, effects)) is not None:
            log.info("%s answers: %s", self._config.stream, split)
        for effect in effects:
            self._carry_out(effect)
        self._heard.let_go(self.session.input_floor)
        self._mouth.keep(self.session.wants)
        self._fed.set()

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Send(event=event):
                self._channel.send(event)
            case PlayAudio():
                sound = self._mouth.give(effect.reply, effect.from_sample, effect.upto_sample)
                self._channel.play(effect, sound)
            case ClearAudio(reply=reply):
                self._channel.clear(reply)
            case Recognize():
                pcm = self._heard.get(effect.from_sample, effect.segment.upto_sample)
                self._engine.transcribe(
                    effect.segment,
                    pcm,
                    INPUT_RATE_HZ,
                    final=effect.final,
                    language=effect.language,
                    prompt=effect.prompt,
                )
            case Prepare(prompt=prompt):
                self._engine.prepare(chunks.Prepare(self._config.stream, prompt))
            case Begin(think=think, speak=speak):
                self._engine.answer(think, speak)
            case Cancel(fence=fence):
                self._engine.cancel(fence)
            case Pace(reply=reply, plays_until=plays_until):
                self._engine.pace(reply, plays_until)
            case Close(code=code, reason=reason):
                self._tasks.create_task(self._channel.close(code, reason))
            case _:
                assert_never(effect)
