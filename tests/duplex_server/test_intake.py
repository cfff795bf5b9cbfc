"""Tests the way of a peer's frames to its session: what waits, what goes before, and that nothing is lost on it."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence

import msgspec
import numpy as np
import pytest

from duplex_server.realtime import wire
from duplex_server.realtime.driver import Driver
from duplex_server.realtime.hearing import PASSES
from duplex_server.realtime.inputs import AudioIn, Event, Input, PeerLost, Rejected
from duplex_server.realtime.intake import INBOX_BYTES, LATE_S, LEAST_MS, SLICE_MS, Intake
from duplex_server.realtime.samples import Pcm
from duplex_server.realtime.schema import INPUT_RATE_HZ
from duplex_server.realtime.session import Session
from pipeline.stage import Step, Work
from tests.duplex_server.test_driver import CONFIG, PATIENCE_S, Peer, driven
from tests.families.scripted.recognizer.family import CountingRecognizer

TURN_S = 10
LIVE = msgspec.structs.replace(CONFIG, run_ahead_ms=500)


def voice(seconds: float) -> bytes:
    """What the scripted detector takes for speech and the scripted recognizer for a word each half second."""
    return (8000 * np.sin(np.arange(int(seconds * INPUT_RATE_HZ)) / 20)).astype("<i2").tobytes()


def silence(seconds: float) -> bytes:
    return bytes(2 * int(seconds * INPUT_RATE_HZ))


FRAME_S = 0.02
TURN = voice(3) + silence(1)
FRAME_BYTES = 15 * 1024 * 1024


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A recognizer that hangs in its step until the gate is set."""
    opened = threading.Event()
    step = CountingRecognizer.step

    def hang(self: CountingRecognizer, work: Sequence[Work]) -> Step:
        assert opened.wait(PATIENCE_S), "nobody opened the gate"
        return step(self, work)

    monkeypatch.setattr(CountingRecognizer, "step", hang)
    yield opened
    opened.set()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110  # a session tells nobody what it has taken
            await asyncio.sleep(0)


async def fill(peer: Peer, driver: Driver, turn_s: float = TURN_S) -> None:
    """As many turns as may wait for their words, sent at once, and one more that has to wait for those."""
    peer.say(type="session.update", session={"type": "realtime", "audio": {"input": {"turn_detection": None}}})
    for _ in range(PASSES + 1):
        peer.append(voice(turn_s))
        peer.say(type="input_audio_buffer.commit")
    await until(lambda: driver.session.passes_waiting == PASSES)


def transcripts(peer: Peer) -> list[str]:
    return [event.transcript for event in peer.events if isinstance(event, wire.TranscriptionCompleted)]


def taken_s(driver: Driver) -> float:
    return driver.session.input.appended / INPUT_RATE_HZ


def test_a_cancel_is_taken_at_once_while_the_recognizer_hangs(gate: threading.Event) -> None:
    async def talk() -> tuple[Peer, float]:
        async with driven(LIVE) as (peer, driver):
            content = [{"type": "input_text", "text": "please go on"}]
            peer.say(type="conversation.item.create", item={"type": "message", "role": "user", "content": content})
            peer.say(type="response.create")
            await peer.wait_for(wire.TranscriptDelta)
            await fill(peer, driver)
            peer.say(type="response.cancel")
            await peer.wait_for(wire.ResponseDone)
            taken = taken_s(driver)
            gate.set()
            await until(lambda: taken_s(driver) == (PASSES + 1) * TURN_S)
            await until(lambda: driver.session.passes_waiting == 0)
            assert driver.dropped_turns == 0
            return peer, taken

    peer, taken = asyncio.run(talk())
    done = next(event for event in peer.events if isinstance(event, wire.ResponseDone))
    assert done.response.status == "cancelled"
    assert taken < (PASSES + 1) * TURN_S, "the sound before it still waited"


def test_a_cancel_of_a_response_that_was_asked_for_behind_the_sound_keeps_its_place(gate: threading.Event) -> None:
    async def talk() -> Peer:
        async with driven(LIVE) as (peer, driver):
            await fill(peer, driver)
            peer.say(type="response.create", response={"input": []})
            peer.say(type="response.cancel")
            await until(lambda: peer.frames.empty())
            assert not any(isinstance(event, wire.Error) for event in peer.events), "there was nothing to cancel yet"
            gate.set()
            await peer.wait_for(wire.ResponseDone)
            return peer

    done = next(event for event in asyncio.run(talk()).events if isinstance(event, wire.ResponseDone))
    assert done.response.status == "cancelled"


def test_the_loss_of_a_peer_is_seen_while_the_recognizer_hangs(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: list[float] = []
    feed = Session.feed

    def watch(self: Session, given: Input, now: float) -> object:
        if isinstance(given, PeerLost):
            lost.append(self.input.appended / INPUT_RATE_HZ)
            gate.set()  # the engine may come to rest
        return feed(self, given, now)

    monkeypatch.setattr(Session, "feed", watch)

    async def talk() -> None:
        async with driven(LIVE) as (peer, driver):
            await fill(peer, driver)

    asyncio.run(talk())
    assert len(lost) == 1
    assert lost[0] < (PASSES + 1) * TURN_S, "what was sent before it still waited"


def test_sound_waits_no_longer_than_real_time_takes_to_catch_up(gate: threading.Event) -> None:
    async def talk() -> tuple[Peer, Driver]:
        async with driven(LIVE) as (peer, driver):
            await fill(peer, driver, turn_s=0.15)
            await until(lambda: driver.dropped_turns > 0)
            assert not gate.is_set(), "the recognizer still hangs"
            gate.set()
            await until(lambda: driver.session.passes_waiting == 0)
            return peer, driver

    peer, driver = asyncio.run(talk())
    account = driver.session.input
    assert driver.dropped_turns == 1
    assert account.committed == account.appended == (PASSES + 1) * int(0.15 * INPUT_RATE_HZ)
    assert driver.dropped_samples["overloaded"] == int(0.15 * INPUT_RATE_HZ)
    errors = [event.error.code for event in peer.events if isinstance(event, wire.Error)]
    assert errors == ["overloaded"]


def test_minutes_of_sound_in_one_frame_lose_nothing_on_a_healthy_recognizer() -> None:
    turns = FRAME_BYTES // len(TURN)
    frame = TURN * turns

    async def talk() -> tuple[Peer, Driver]:
        async with driven() as (peer, driver):
            detection = {"type": "server_vad", "create_response": False}
            audio = {"input": {"transcription": {"model": "whisper-1"}, "turn_detection": detection}}
            peer.say(type="session.update", session={"type": "realtime", "audio": audio})
            peer.append(frame)
            await until(lambda: len(transcripts(peer)) == turns)
            await until(lambda: driver.session.input.appended == len(frame) // 2)
            return peer, driver

    peer, driver = asyncio.run(talk())
    account = driver.session.input
    assert turns > 70
    assert all(words.startswith("one two three four five six") for words in transcripts(peer))
    assert driver.dropped_turns == 0
    assert set(driver.dropped_samples.values()) == {0}
    assert account.heard == account.committed
    assert account.committed + account.discarded + account.pending == account.appended


# ---- alone --------------------------------------------------------------------------------------------------------


class Scene:
    """An intake with a clock of its own. Taking sound takes `cost` times as long as the sound lasts."""

    def __init__(
        self, cost: float = 0.0, decode: Callable[[str | bytes], wire.AnyClientEvent | wire.Fault] = wire.decode
    ) -> None:
        self.peer = Peer()
        self.session = Session(CONFIG)
        self.now, self.cost = 100.0, cost
        self.fed: list[Input] = []
        self.late = self.listened = 0
        self.intake = Intake("s1", self.peer, self.session, self._feed, self._listen, lambda: self.now, decode)

    def _feed(self, given: Input, sounds: Sequence[Pcm] = ()) -> None:
        self.fed.append(given)
        self.session.feed(given, self.now)

    def _listen(self, pcm: Pcm, late: bool) -> None:
        self._feed(AudioIn(self.session.input.appended, len(pcm), late))
        if late:
            self.late += len(pcm)
        else:
            self.listened += len(pcm)
            self.now += self.cost * len(pcm) / INPUT_RATE_HZ

    async def live(self, seconds: float) -> None:
        """A client that sends in real time for so long, as the clock goes."""
        began, sent = self.now, 0
        while sent < seconds / FRAME_S:
            while began + sent * FRAME_S <= self.now and sent < seconds / FRAME_S:
                self.peer.append(silence(FRAME_S))
                sent += 1
            if self.peer.frames.empty() and not self.intake.waiting_bytes:
                self.now += FRAME_S
            await asyncio.sleep(0)
        await until(lambda: not self.intake.waiting_bytes)


def run(scene: Scene, play: Callable[[], Awaitable[None]]) -> None:
    async def both() -> None:
        async with asyncio.TaskGroup() as tasks:
            reading = [tasks.create_task(scene.intake.read()), tasks.create_task(scene.intake.take())]
            await play()
            for task in reading:
                task.cancel()

    asyncio.run(asyncio.wait_for(both(), PATIENCE_S))


def by_hand() -> wire.AnyClientEvent:
    event = wire.decode(
        '{"type": "session.update", "session": {"type": "realtime", "audio": {"input": {"turn_detection": null}}}}'
    )
    assert not isinstance(event, wire.Fault)
    return event


def overloads(scene: Scene) -> list[Rejected]:
    return [given for given in scene.fed if isinstance(given, Rejected) and given.fault.code == "overloaded"]


def test_who_sends_in_real_time_is_never_held() -> None:
    scene = Scene()
    scene.session.feed(Event(by_hand()), scene.now)
    for _ in range(PASSES):
        scene.session.feed(AudioIn(scene.session.input.appended, INPUT_RATE_HZ), scene.now)
        scene.session.feed(Event(wire.Commit()), scene.now)
    assert scene.session.passes_waiting == PASSES
    run(scene, lambda: scene.live(30))
    assert scene.listened == 30 * INPUT_RATE_HZ


def test_a_machine_slower_than_real_time_lets_sound_go_by_tells_it_and_recovers() -> None:
    scene = Scene(cost=1.5)

    async def play() -> None:
        await scene.live(60)
        lost = scene.late
        assert lost > 0
        scene.cost = 0.1
        await scene.live(10)
        assert scene.late - lost <= (LATE_S + 1) * INPUT_RATE_HZ, "what waited when the load ended"

    run(scene, play)
    account = scene.session.input
    assert scene.late + scene.listened == account.appended == 70 * INPUT_RATE_HZ
    assert account.dropped["late"] == scene.late
    told = overloads(scene)
    assert 1 <= len(told) <= 70 / LATE_S, "told once each time, not with every piece"
    assert told[0].fault.type == "server_error"


def test_a_machine_that_keeps_up_lets_nothing_go_by() -> None:
    scene = Scene(cost=0.9)
    run(scene, lambda: scene.live(60))
    assert scene.late == 0
    assert not overloads(scene)


def test_what_is_sent_ahead_of_its_time_is_not_late() -> None:
    scene = Scene(cost=0.9)

    async def play() -> None:
        scene.peer.append(silence(120))
        await until(lambda: scene.listened == 120 * INPUT_RATE_HZ)

    run(scene, play)
    assert scene.late == 0


def test_live_sound_is_taken_where_it_is_read_and_what_is_ahead_or_tiny_waits_its_turn() -> None:
    scene = Scene()
    frame = int(FRAME_S * INPUT_RATE_HZ)

    async def play() -> None:
        reading = asyncio.create_task(scene.intake.read())
        scene.peer.append(silence(FRAME_S))
        await until(lambda: scene.listened == frame)
        for _ in range(50):
            scene.peer.append(silence(FRAME_S))
        await until(lambda: scene.peer.frames.empty() and scene.intake.waiting_bytes > 0)
        taken = scene.listened
        assert frame < taken <= frame + (SLICE_MS / 1000 + FRAME_S) * INPUT_RATE_HZ, "no burst holds the loop"
        scene.now += 2.0
        scene.peer.append(silence(FRAME_S))
        await until(lambda: scene.peer.frames.empty())
        await asyncio.sleep(0)
        assert scene.listened == taken, "it must not overtake the sound that waits"
        taking = asyncio.create_task(scene.intake.take())
        await until(lambda: scene.listened == 52 * frame)
        taking.cancel()
        scene.now += 2.0
        scene.peer.append(bytes(2 * (LEAST_MS * INPUT_RATE_HZ // 1000 - 2)))
        await until(lambda: scene.intake.waiting_bytes > 0)
        reading.cancel()

    asyncio.run(asyncio.wait_for(play(), PATIENCE_S))


def test_sound_that_took_longer_to_take_than_it_lasts_makes_what_follows_wait_until_that_is_caught_up() -> None:
    scene = Scene(cost=1.5)
    frame = int(FRAME_S * INPUT_RATE_HZ)

    async def play() -> None:
        reading = asyncio.create_task(scene.intake.read())
        scene.peer.append(silence(FRAME_S))
        await until(lambda: scene.listened == frame)
        scene.cost = 0.0
        scene.peer.append(silence(FRAME_S))
        await until(lambda: scene.intake.waiting_bytes > 0)
        taking = asyncio.create_task(scene.intake.take())
        await until(lambda: scene.listened == 2 * frame)
        taking.cancel()
        scene.peer.append(silence(FRAME_S))
        await until(lambda: scene.listened >= 3 * frame)
        reading.cancel()

    asyncio.run(asyncio.wait_for(play(), PATIENCE_S))
    assert scene.listened == 3 * frame, "nothing was listened to twice"


def test_a_peer_is_read_no_further_than_the_inbox_holds_and_no_event_is_lost() -> None:
    scene = Scene()
    frame = base64.b64encode(silence(60)).decode()
    count = INBOX_BYTES // len(frame) + 20

    async def play() -> None:
        scene.peer.append(silence(0.1))
        await until(lambda: scene.listened > 0)
        for number in range(count):
            scene.peer.say(type="input_audio_buffer.append", audio=frame)
            scene.peer.say(type="conversation.item.retrieve", item_id="nobody", event_id=f"e{number}")
        most = 0
        while scene.listened < (60 * count + 0.1) * INPUT_RATE_HZ:
            most = max(most, scene.intake.waiting_bytes)
            await asyncio.sleep(0)
        assert INBOX_BYTES / 2 < most <= INBOX_BYTES
        await until(lambda: not scene.intake.waiting_bytes)

    run(scene, play)
    asked = [given.event.event_id for given in scene.fed if isinstance(given, Event)]
    assert asked == [f"e{number}" for number in range(count)]
