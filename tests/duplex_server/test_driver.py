"""Drives sessions through a small channel of the test's own, over an engine of scripted stages."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import numpy as np
import pytest

from duplex_server.channels.base import SlowPeer
from duplex_server.realtime import wire
from duplex_server.realtime.config import SessionConfig
from duplex_server.realtime.driver import Driver
from duplex_server.realtime.driver import log as driver_log
from duplex_server.realtime.effects import Effect, PlayAudio
from duplex_server.realtime.inputs import Input, Opened
from duplex_server.realtime.intake import BIG_FRAME_BYTES
from duplex_server.realtime.journal import load, replay
from duplex_server.realtime.playout import PIECE_MS
from duplex_server.realtime.samples import Samples
from duplex_server.realtime.schema import INPUT_RATE_HZ
from duplex_server.realtime.session import Session
from models.registry import load_family
from pipeline.chunk import Reply
from pipeline.engine import Engine
from pipeline.spec import REQUIRED, PipelineSpec, StageSpec
from tests.realtime.talk import DEFAULTS

PATIENCE_S = 30.0
CONFIG = msgspec.structs.replace(
    DEFAULTS,
    voice="low",
    voices=("low", "high"),
    talker_rate_hz=24_000,
    run_ahead_ms=60_000,
    client_buffer_ms=0,
    max_reply_tokens=50,
)


class Peer:
    """The other end of a channel: frames go in, events and sound come out."""

    def __init__(self) -> None:
        self.frames: asyncio.Queue[str | bytes | None] = asyncio.Queue()
        self.events: list[wire.AnyServerEvent] = []
        self.sound = bytearray()
        self.cleared: list[Reply] = []
        self.closed: tuple[int, str] | None = None
        self.slow = False
        self._news = asyncio.Event()

    async def receive(self) -> str | bytes | None:
        return await self.frames.get()

    def send(self, event: wire.AnyServerEvent) -> None:
        if self.slow:
            raise SlowPeer("9 bytes wait")
        self.events.append(event)
        self._news.set()

    def play(self, place: PlayAudio, pcm: bytes) -> None:
        assert len(pcm) == 2 * (place.upto_sample - place.from_sample)
        self.sound += pcm

    def clear(self, reply: Reply) -> None:
        self.cleared.append(reply)

    async def close(self, code: int, reason: str) -> None:
        self.closed = (code, reason)
        self._news.set()
        self.frames.put_nowait(None)

    def say(self, **event: object) -> None:
        self.frames.put_nowait(json.dumps(event))

    def append(self, pcm: bytes) -> None:
        self.say(type="input_audio_buffer.append", audio=base64.b64encode(pcm).decode())

    async def wait_for(self, kind: type[wire.ServerEvent]) -> None:
        await self._until(lambda: any(isinstance(event, kind) for event in self.events))

    async def wait_closed(self) -> None:
        await self._until(lambda: self.closed is not None)

    async def _until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                self._news.clear()
                await self._news.wait()


@asynccontextmanager
async def driven(config: SessionConfig = CONFIG, journal_dir: Path | None = None) -> AsyncIterator[tuple[Peer, Driver]]:
    """A driver that runs until the block ends; nothing is owed by any stage afterwards."""
    stages = {role: StageSpec(f"tests.families.scripted.{role}", "inline") for role in REQUIRED}
    detector = StageSpec("tests.families.scripted.detector", "inline")
    engine = Engine(PipelineSpec(detector, stages), load_family)
    await engine.start(lambda _: None)
    try:
        peer = Peer()
        driver = Driver(peer, engine, config, journal_dir=journal_dir)
        running = asyncio.create_task(driver.run())
        yield peer, driver
        peer.frames.put_nowait(None)
        await asyncio.wait_for(running, PATIENCE_S)
        async with asyncio.timeout(PATIENCE_S):
            while not engine.quiet:  # noqa: ASYNC110  # it tells nobody when it is
                await asyncio.sleep(0)
    finally:
        await engine.stop()


def test_a_typed_turn_is_spoken_to_the_last_sample() -> None:
    async def turn() -> Peer:
        async with driven() as (peer, _):
            content = [{"type": "input_text", "text": "say one two three"}]
            peer.say(type="conversation.item.create", item={"type": "message", "role": "user", "content": content})
            peer.say(type="response.create")
            await peer.wait_for(wire.ResponseDone)
            return peer

    peer = asyncio.run(turn())
    done = next(event for event in peer.events if isinstance(event, wire.ResponseDone))
    assert done.response.status == "completed"
    assert len(peer.sound) == 2 * 3 * 300 * 24, "three words of 300 ms at 24 kHz"


def test_check_071_072_sound_is_kept_whole_across_odd_bytes_big_frames_and_bad_base64() -> None:
    pcm = (8000 * np.sin(np.arange(72_000) / 20)).astype("<i2").tobytes()
    frame = json.dumps({"type": "input_audio_buffer.append", "audio": base64.b64encode(pcm).decode()})
    assert len(frame) > BIG_FRAME_BYTES

    async def talk() -> tuple[Peer, Driver]:
        async with driven() as (peer, driver):
            peer.say(type="session.update", session={"audio": {"input": {"turn_detection": None}}})
            peer.append(pcm[:1001])
            peer.say(type="input_audio_buffer.append", audio="not base64!", event_id="e1")
            peer.append(pcm[1001:1004])
            peer.append(b"")
            peer.append(pcm[1004:])
            peer.frames.put_nowait(frame.encode())
            peer.frames.put_nowait("no event at all")
            peer.say(type="input_audio_buffer.commit")
            await peer.wait_for(wire.Committed)
            return peer, driver

    peer, driver = asyncio.run(talk())
    faults = [event.error for event in peer.events if isinstance(event, wire.Error)]
    assert [(fault.code, fault.param, fault.event_id) for fault in faults] == [
        ("invalid_value", "audio", "e1"),
        ("invalid_json", None, None),
    ]
    assert driver.session.input.committed == 2 * len(pcm) // 2


def ask(peer: Peer, text: str) -> None:
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    peer.say(type="conversation.item.create", item=item)
    peer.say(type="response.create")


def test_what_may_not_be_sent_yet_is_sent_in_time_though_nothing_else_happens() -> None:
    async def turn() -> tuple[Peer, Driver]:
        async with driven(msgspec.structs.replace(CONFIG, run_ahead_ms=100)) as (peer, driver):
            ask(peer, "say one two three")
            await peer.wait_for(wire.ResponseDone)
            return peer, driver

    peer, driver = asyncio.run(turn())
    assert len(peer.sound) == 2 * 3 * 300 * 24
    inputs = b"".join(driver.journal.lines())
    assert inputs.count(b'"tick"') >= 900 // PIECE_MS - 1, "all but the first pieces wait for their time"


def kept() -> list[int]:
    """How many bytes each holder of sound has that is still there."""
    gc.collect()
    holders = [one for one in gc.get_objects() if isinstance(one, Samples)]
    return [len(part) for one in holders for part in gc.get_referents(one) if isinstance(part, bytearray)]


def test_nothing_is_kept_of_sound_that_is_over_nor_of_a_session() -> None:
    async def talk() -> None:
        before = len(kept())
        async with driven() as (peer, driver):
            ask(peer, "say one two three")
            await peer.wait_for(wire.ResponseDone)
            for _ in range(300):
                peer.append(bytes(2 * 2400))
            async with asyncio.timeout(PATIENCE_S):
                while driver.session.input.appended < 300 * 2400:  # noqa: ASYNC110  # it tells nobody what it took
                    await asyncio.sleep(0)
            (heard,) = kept()[before:]
            assert heard < 4 * 2 * INPUT_RATE_HZ, "30 s were heard, and nobody spoke"
        del peer, driver
        assert len(kept()) == before

    asyncio.run(talk())


def test_a_session_that_has_lasted_long_enough_is_told_so_and_closed() -> None:
    async def wait() -> Peer:
        async with driven(msgspec.structs.replace(CONFIG, lifetime_s=0.05)) as (peer, _):
            await peer.wait_for(wire.Error)
            await peer.wait_closed()
            return peer

    peer = asyncio.run(wait())
    assert peer.closed is not None
    assert peer.closed[0] == 1001
    error = next(event for event in peer.events if isinstance(event, wire.Error))
    assert error.error.code == "session_expired"


def test_a_bug_ends_its_session_with_1011_and_leaves_a_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    feed = Session.feed

    def broken(self: Session, given: Input, now: float) -> tuple[Effect, ...]:
        assert isinstance(given, Opened), "a planted bug"
        return feed(self, given, now)

    monkeypatch.setattr(Session, "feed", broken)

    async def talk() -> Peer:
        async with driven(journal_dir=tmp_path) as (peer, _):
            peer.say(type="input_audio_buffer.clear")
            await peer.wait_closed()
            return peer

    peer = asyncio.run(talk())
    monkeypatch.undo()
    assert peer.closed is not None
    assert peer.closed[0] == 1011
    assert "a planted bug" in caplog.text
    header, lines = load(tmp_path / "s1.journal")
    assert header.config == CONFIG
    assert [given for _, given, _ in lines] == [Opened()]
    assert replay(tmp_path / "s1.journal").differs_at is None


def test_a_peer_that_does_not_read_is_cut_and_everything_of_it_released(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_log, "disabled", True)  # what pytest keeps of the log keeps the session alive

    async def talk() -> Peer:
        async with driven() as (peer, _):
            await peer.wait_for(wire.SessionCreated)
            peer.slow = True
            peer.say(type="input_audio_buffer.clear")
            await peer.wait_closed()
            return peer

    async def leave_nothing() -> Peer:
        before = len(kept())
        peer = await talk()
        assert len(kept()) == before, "a timer would keep the session for as long as it might have lasted"
        return peer

    peer = asyncio.run(leave_nothing())
    assert peer.closed is not None
    assert peer.closed[0] == 1008


def test_a_journal_of_a_whole_talk_replays_to_the_same_effects(tmp_path: Path) -> None:
    voice = (8000 * np.sin(np.arange(24_000) / 20)).astype("<i2").tobytes()

    async def talk() -> Driver:
        async with driven() as (peer, driver):
            peer.append(voice)
            peer.append(bytes(2 * 48_000))
            await peer.wait_for(wire.ResponseDone)
            return driver

    driver = asyncio.run(talk())
    path = tmp_path / "talk.journal"
    driver.journal.dump(path)
    again = replay(path)
    assert again.differs_at is None
    assert again.inputs > 20
    assert any(isinstance(effect, PlayAudio) for _, effect in again.effects)
    assert b'"audio":"' not in path.read_bytes(), "no sound is in it"
    assert "as recorded" in str(again)
