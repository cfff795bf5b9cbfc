"""Tests the formats of a session's sound, both ways: which one counts for what, and how much of it there is."""

from __future__ import annotations

import asyncio
import base64
import json
from itertools import pairwise
from typing import get_args

import numpy as np
import pytest
from starlette.types import Message
from starlette.websockets import WebSocket
from websockets.asyncio.client import ClientConnection

from duplex_server.channels.websocket import WebSocketChannel
from duplex_server.realtime import formats, wire
from duplex_server.realtime.dialect import Codec
from duplex_server.realtime.effects import PlayAudio
from duplex_server.realtime.formats import Inlet
from duplex_server.realtime.g711 import decode
from duplex_server.realtime.inputs import Event
from duplex_server.realtime.intake import _SLICE_BASE64, GIVEN_S, LEAST_MS, SLICE_MS
from duplex_server.realtime.narrowband import narrowed, widened
from duplex_server.realtime.samples import Pcm
from duplex_server.realtime.schema import INPUT_RATE_HZ, FormatType, InputAudio
from duplex_server.realtime.schema import Message as MessageItem
from pipeline.chunk import Reply
from tests.duplex_server.serving import PATIENCE_S, Json, Served, first, play
from tests.duplex_server.test_driver import Peer, driven
from tests.duplex_server.test_intake import FRAME_BYTES, FRAME_S, Scene, silence, until, voice

KINDS = get_args(FormatType)
TELEPHONES = ("audio/pcmu", "audio/pcma")
WORD_MS = 300  # of the scripted talker


def b64(sound: bytes) -> str:
    return base64.b64encode(sound).decode()


def settings(kind: FormatType, heard: FormatType = "audio/pcm", **audio_input: object) -> Json:
    told = {"format": {"type": kind}, "turn_detection": None, **audio_input}
    return {"type": "realtime", "audio": {"input": told, "output": {"format": {"type": heard}}}}


def set_input(peer: Peer, kind: FormatType) -> None:
    peer.say(type="session.update", session=settings(kind))


def append(peer: Peer, sound: bytes) -> None:
    peer.say(type="input_audio_buffer.append", audio=b64(sound))


# ---- in -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_check_073_075_a_tenth_of_a_second_is_enough_in_every_format_and_a_byte_less_is_not(kind: FormatType) -> None:
    async def talk() -> tuple[Peer, int]:
        async with driven() as (peer, driver):
            enough = formats.size(100, kind)
            set_input(peer, kind)
            append(peer, bytes(enough - 1))
            peer.say(type="input_audio_buffer.commit", event_id="short")
            peer.say(type="input_audio_buffer.clear")
            append(peer, bytes(enough))
            peer.say(type="input_audio_buffer.commit")
            await peer.wait_for(wire.Committed)
            return peer, driver.session.input.committed

    peer, committed = asyncio.run(talk())
    (error,) = [event.error for event in peer.events if isinstance(event, wire.Error)]
    assert (error.code, error.event_id) == ("input_audio_buffer_commit_empty", "short")
    assert "99" in error.message
    assert committed == INPUT_RATE_HZ // 10


@pytest.mark.parametrize("kind", KINDS)
def test_check_072_nothing_of_what_was_cleared_is_in_what_comes_next(kind: FormatType) -> None:
    async def talk() -> bytes:
        async with driven() as (peer, _):
            set_input(peer, kind)
            append(peer, b"\x55\xaa\x11" * 101)
            peer.say(type="input_audio_buffer.clear")
            append(peer, bytes(range(256)) * 20)
            peer.say(type="input_audio_buffer.commit")
            set_input(peer, "audio/pcm")
            await peer.wait_for(wire.ItemDone)
            item_id = next(event.item.id for event in peer.events if isinstance(event, wire.ItemDone))
            peer.say(type="conversation.item.retrieve", item_id=item_id)
            await peer.wait_for(wire.ItemRetrieved)
            return sound_of(peer)

    assert asyncio.run(talk()) == Inlet().push(bytes(range(256)) * 20, kind).tobytes()


def test_check_070_071_sound_is_not_answered_unless_it_can_not_be_read() -> None:
    async def talk() -> Peer:
        async with driven() as (peer, driver):
            set_input(peer, "audio/pcmu")
            append(peer, bytes(800))
            peer.say(type="input_audio_buffer.append", audio="not base64!", event_id="bad")
            append(peer, bytes(800))
            await until(lambda: driver.session.input.appended == 4800)
            return peer

    peer = asyncio.run(talk())
    kinds = [type(event) for event in peer.events]
    assert kinds == [wire.SessionCreated, wire.SessionUpdated, wire.Error]
    error = peer.events[-1]
    assert isinstance(error, wire.Error)
    assert (error.error.code, error.error.param, error.error.event_id) == ("invalid_value", "audio", "bad")


def test_f16_sound_is_read_in_the_format_that_is_in_force_when_its_turn_comes() -> None:
    sounds: list[tuple[FormatType, bytes]] = [
        ("audio/pcm", voice(0.2)[:-1]),
        ("audio/pcmu", bytes(range(256)) * 20),
        ("audio/pcma", bytes(range(256)) * 20),
        ("audio/pcm", voice(0.2)),
    ]

    async def talk() -> tuple[bytes, int]:
        async with driven() as (peer, driver):
            for kind, sound in sounds:  # all of it has come before any is taken
                set_input(peer, kind)
                append(peer, sound)
            peer.say(type="input_audio_buffer.commit")
            await peer.wait_for(wire.ItemDone)
            item_id = next(event.item.id for event in peer.events if isinstance(event, wire.ItemDone))
            peer.say(type="conversation.item.retrieve", item_id=item_id)
            await peer.wait_for(wire.ItemRetrieved)
            assert not [event for event in peer.events if isinstance(event, wire.Error)]
            return sound_of(peer), driver.session.input.appended

    heard, appended = asyncio.run(talk())
    inlet = Inlet()
    expected = np.concatenate([inlet.push(sound, kind) for kind, sound in sounds])
    assert heard == expected.tobytes()
    assert appended == len(expected) == 4799 + 2 * 3 * 5120 + 4800


def sound_of(peer: Peer) -> bytes:
    """What came with the item that was retrieved last."""
    item = [event.item for event in peer.events if isinstance(event, wire.ItemRetrieved)][-1]
    assert isinstance(item, MessageItem)
    part = item.content[0]
    assert isinstance(part, InputAudio)
    assert isinstance(part.audio, str)
    return base64.b64decode(part.audio)


@pytest.mark.parametrize("kind", TELEPHONES)
def test_check_108_sound_that_is_given_is_in_the_format_of_the_input_and_comes_back_in_it(kind: FormatType) -> None:
    pcm = voice(2)
    given = formats.encode_whole(pcm, kind)

    async def talk() -> tuple[str, bytes, int]:
        async with driven() as (peer, driver):
            peer.say(type="session.update", session=settings(kind, transcription={"model": "whisper-1"}))
            content = [{"type": "input_audio", "audio": b64(given)}]
            item = {"type": "message", "role": "user", "id": "mine", "content": content}
            peer.say(type="conversation.item.create", item=item)
            await peer.wait_for(wire.TranscriptionCompleted)
            words = next(event.transcript for event in peer.events if isinstance(event, wire.TranscriptionCompleted))
            peer.say(type="conversation.item.retrieve", item_id="mine")
            await peer.wait_for(wire.ItemRetrieved)
            return words, sound_of(peer), driver.session.input.appended

    words, back, appended = asyncio.run(talk())
    assert words.startswith("one two three four")
    assert appended == 0
    assert len(back) == len(given)
    heard, meant = (Inlet().push(sound, kind).astype(float) for sound in (back, given))
    assert np.sum((heard - meant) ** 2) < np.sum(meant**2) / 1000, "30 dB"


def test_f19_more_sound_than_an_item_may_have_is_refused_before_it_has_grown() -> None:
    async def talk() -> Peer:
        async with driven() as (peer, _):
            set_input(peer, "audio/pcmu")
            content = [{"type": "input_audio", "audio": b64(bytes(GIVEN_S * 8000 + 1))}]
            peer.say(type="conversation.item.create", item={"type": "message", "role": "user", "content": content})
            await peer.wait_for(wire.Error)
            return peer

    error = next(event.error for event in asyncio.run(talk()).events if isinstance(event, wire.Error))
    assert (error.code, error.param) == ("invalid_value", "item.content[0].audio")
    assert f"at most {GIVEN_S} s" in error.message


def test_what_a_whole_sound_grows_to_is_the_same_taken_in_pieces() -> None:
    sound = bytes(range(256)) * 40

    async def talk() -> bytes:
        async with driven() as (peer, _):
            set_input(peer, "audio/pcma")
            content = [{"type": "input_audio", "audio": b64(sound), "transcript": "words"}]
            item = {"type": "message", "role": "user", "id": "mine", "content": content}
            peer.say(type="conversation.item.create", item=item)
            set_input(peer, "audio/pcm")
            peer.say(type="conversation.item.retrieve", item_id="mine")
            await peer.wait_for(wire.ItemRetrieved)
            return sound_of(peer)

    assert asyncio.run(talk()) == widened(decode(sound, "a")).tobytes()


# ---- at its time --------------------------------------------------------------------------------------------------


def telephone(scene: Scene) -> None:
    """The session of a scene is told µ-law."""
    event = wire.decode(json.dumps({"type": "session.update", "session": settings("audio/pcmu")}))
    assert not isinstance(event, wire.Fault)
    scene.session.feed(Event(event), scene.now)


def test_sound_of_a_telephone_is_as_long_as_it_lasts_and_taken_where_it_is_read() -> None:
    scene = Scene()
    telephone(scene)
    frame = formats.size(20, "audio/pcmu")

    async def play() -> None:
        reading = asyncio.create_task(scene.intake.read())
        for count in range(1, 101):
            append(scene.peer, bytes(frame))
            await until(lambda count=count: scene.listened == count * 480)  # type: ignore[misc]  # of a parameter
            assert not scene.intake.waiting_bytes, "nobody takes what waits"
            scene.now += FRAME_S
        scene.now += 1.0
        append(scene.peer, bytes(formats.size(LEAST_MS, "audio/pcmu") // 2))
        await until(lambda: scene.intake.waiting_bytes > 0)
        reading.cancel()

    asyncio.run(asyncio.wait_for(play(), PATIENCE_S))


def test_sound_of_a_telephone_that_is_ahead_of_its_time_waits_its_turn() -> None:
    scene = Scene()
    telephone(scene)

    async def play() -> None:
        reading = asyncio.create_task(scene.intake.read())
        for _ in range(50):
            append(scene.peer, bytes(formats.size(20, "audio/pcmu")))
        await until(lambda: scene.peer.frames.empty() and scene.intake.waiting_bytes > 0)
        reading.cancel()

    asyncio.run(asyncio.wait_for(play(), PATIENCE_S))
    assert 480 < scene.listened <= (SLICE_MS / 1000 + FRAME_S) * INPUT_RATE_HZ


def test_sound_behind_a_change_of_its_format_is_as_long_as_the_change_makes_it() -> None:
    scene = Scene(cost=0.9)

    async def play() -> None:
        taking = [asyncio.create_task(task) for task in (scene.intake.read(), scene.intake.take())]
        scene.peer.say(type="session.update", session=settings("audio/pcmu", turn_detection={"type": "server_vad"}))
        append(scene.peer, bytes(8000 * 60))
        append(scene.peer, bytes(8000))
        await until(lambda: scene.listened + scene.late == 61 * INPUT_RATE_HZ)
        for task in taking:
            task.cancel()

    asyncio.run(asyncio.wait_for(play(), PATIENCE_S))
    assert scene.late == 0, "a minute that came at once is a minute ahead, and the second behind it is not late"


@pytest.mark.parametrize(("kind", "size"), [("audio/pcm", FRAME_BYTES), ("audio/pcmu", FRAME_BYTES // 10)])
def test_check_015_others_are_heard_while_a_large_frame_is_taken(kind: FormatType, size: int) -> None:
    large, small = Scene(), Scene()
    if kind == "audio/pcmu":
        telephone(large)
    base64_pieces = size * 4 // 3 // _SLICE_BASE64
    slices = size // formats.size(SLICE_MS, kind)

    async def play() -> tuple[int, int, int]:
        scenes = [task for scene in (large, small) for task in (scene.intake.read(), scene.intake.take())]
        tasks = [asyncio.create_task(task) for task in scenes]
        append(large.peer, bytes(size))
        before, during, most = 0, 0, 0
        while large.listened < formats.samples(size, kind):
            had, expected = large.listened, small.listened + len(silence(FRAME_S)) // 2
            small.peer.append(silence(FRAME_S))
            small.now += FRAME_S
            await until(lambda: small.listened >= expected)  # noqa: B023  # it is called here and now
            if large.listened:
                during += 1
                most = max(most, large.listened - had)
            else:
                before += 1
        for task in tasks:
            task.cancel()
        return before, during, most

    before, during, most = asyncio.run(asyncio.wait_for(play(), PATIENCE_S))
    assert before >= base64_pieces / 4, "frames of the other while the base64 was decoded"
    assert during >= slices / 4, "frames of the other while the sound was listened to"
    assert most <= 4 * SLICE_MS * INPUT_RATE_HZ // 1000, "sound taken while a frame of the other waited"


# ---- through a socket ---------------------------------------------------------------------------------------------


async def tell(connection: ClientConnection, kind: str, **fields: object) -> None:
    await connection.send(json.dumps({"type": kind, **fields}))


async def hear(connection: ClientConnection, *kinds: str) -> list[Json]:
    """All events up to the first of one of these types."""
    events: list[Json] = []
    async with asyncio.timeout(PATIENCE_S):
        while not events or events[-1]["type"] not in kinds:
            events.append(json.loads(await connection.recv()))
    return events


@pytest.mark.parametrize("kind", TELEPHONES)
def test_f16_who_connects_anew_and_sends_settings_and_sound_at_once_is_understood(kind: FormatType) -> None:
    async def scene(server: Served) -> None:
        bound = await server.ask("/v1/realtime/client_secrets", {"session": settings(kind)})
        for key in (None, None, bound.json()["value"]):
            async with server.socket(key=key) as connection:
                if key is None:
                    await tell(connection, "session.update", session=settings(kind))
                await tell(connection, "input_audio_buffer.append", audio=b64(bytes(800)))
                await tell(connection, "input_audio_buffer.commit")
                events = await hear(connection, "conversation.item.done", "error")
                assert events[-1]["type"] == "conversation.item.done", events[-1]
                item_id = events[-1]["item"]["id"]
                await tell(connection, "conversation.item.retrieve", item_id=item_id)
                (shown,) = (await hear(connection, "conversation.item.retrieved"))[-1]["item"]["content"]
                assert len(base64.b64decode(shown["audio"])) == 800

    play(scene)


@pytest.mark.parametrize("kind", KINDS)
def test_check_119_the_deltas_of_a_reply_join_to_it_wherever_it_is_cut(kind: FormatType) -> None:
    pcm = narrowed(np.frombuffer(voice(1), np.int16))
    cuts = [0, 1000, 2001, 6002, len(pcm)]

    async def talk() -> list[bytes]:
        frames: list[Json] = []
        came = asyncio.Event()

        async def receive() -> Message:
            return {"type": "websocket.connect"}

        async def send(message: Message) -> None:
            if message["type"] == "websocket.send":
                frames.append(json.loads(message["text"]))
                came.set()

        socket = WebSocket({"type": "websocket"}, receive, send)
        await socket.accept()
        channel = WebSocketChannel(socket, Codec())
        for begin, end in pairwise(cuts):
            place = PlayAudio(Reply("s", 1), begin, end, "e", "r", "i", 0, 0, format=kind)
            channel.play(place, pcm[begin:end].tobytes())
        writing = asyncio.create_task(channel.run())
        while len(frames) < len(cuts) - 1:
            came.clear()
            await came.wait()
        writing.cancel()
        return [base64.b64decode(frame["delta"]) for frame in frames]

    deltas = asyncio.run(asyncio.wait_for(talk(), PATIENCE_S))
    assert b"".join(deltas) == formats.encode(pcm.tobytes(), kind)


@pytest.mark.parametrize("kind", KINDS)
def test_check_119_120_121_a_reply_is_as_long_as_its_item_in_every_format(kind: FormatType) -> None:
    async def scene(server: Served) -> None:
        async with server.socket() as connection:
            await tell(connection, "session.update", session=settings("audio/pcm", kind))
            sound, events = await reply(connection, "say one two three")
            assert events[-1]["response"]["audio"]["output"]["format"]["type"] == kind
            await tell_length(connection, events, len(sound) / formats.size(1, kind))
            heard = Inlet().push(sound, kind)
            assert len(heard) == 3 * WORD_MS * 24
            assert loudest_hz(heard) == pytest.approx(220, abs=5), "the talker's tone"

    play(scene, "session.run_ahead_ms=60000")


def test_check_063_121_a_response_has_the_format_that_it_asks_for_and_the_next_the_sessions() -> None:
    async def scene(server: Served) -> None:
        async with server.socket() as connection:
            kinds: list[FormatType | None] = ["audio/pcmu", None, "audio/pcma", None]
            for kind in kinds:
                changes = {"audio": {"output": {"format": {"type": kind}}}} if kind else {}
                sound, _ = await reply(connection, "say one", **changes)
                assert len(sound) == formats.size(WORD_MS, kind or "audio/pcm")
            await tell(connection, "session.update", session={"audio": {"output": {"format": "g711_alaw"}}})
            sound, _ = await reply(connection, "say one")
            assert len(sound) == formats.size(WORD_MS, "audio/pcma")

    play(scene, "session.run_ahead_ms=60000")


async def reply(connection: ClientConnection, text: str, **response: object) -> tuple[bytes, list[Json]]:
    """A typed turn; gives the sound of the answer, whose deltas are of the size that clients expect, and its events."""
    content = [{"type": "input_text", "text": text}]
    await tell(connection, "conversation.item.create", item={"type": "message", "role": "user", "content": content})
    await tell(connection, "response.create", response=response)
    events = await hear(connection, "response.done")
    kind: FormatType = events[-1]["response"]["audio"]["output"]["format"]["type"]
    deltas = [base64.b64decode(event["delta"]) for event in events if event["type"] == "response.output_audio.delta"]
    assert all(20 <= len(delta) / formats.size(1, kind) <= 250 for delta in deltas), list(map(len, deltas))
    assert all(formats.is_whole(len(delta), kind) for delta in deltas)
    return b"".join(deltas), events


async def tell_length(connection: ClientConnection, events: list[Json], length_ms: float) -> None:
    """An item that is cut far behind its end is as long as it is."""
    item_id = events[-1]["response"]["output"][0]["id"]
    await tell(connection, "conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=99_999)
    cut = (await hear(connection, "conversation.item.truncated"))[-1]
    assert cut["audio_end_ms"] == pytest.approx(length_ms, abs=1)


def loudest_hz(pcm: Pcm) -> float:
    return float(np.argmax(np.abs(np.fft.rfft(pcm)))) * INPUT_RATE_HZ / len(pcm)


@pytest.mark.parametrize("kind", ["audio/pcm", "audio/pcmu"])
def test_check_015_a_frame_of_20_mib_is_accepted(kind: FormatType) -> None:
    async def scene(server: Served) -> None:
        async with server.socket() as connection:
            await first(connection)
            await tell(connection, "session.update", session=settings(kind))
            await hear(connection, "session.updated")
            frame = b64(bytes(FRAME_BYTES))
            assert len(frame) == 20 * 1024 * 1024
            await tell(connection, "input_audio_buffer.append", audio=frame)
            await tell(connection, "input_audio_buffer.clear")
            assert [event["type"] for event in await hear(connection, "input_audio_buffer.cleared")] in (
                ["input_audio_buffer.cleared"],
                ["error", "input_audio_buffer.cleared"],  # µ-law of 32 minutes is more than the buffer holds
            )

    play(scene)
