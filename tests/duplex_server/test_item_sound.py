"""Tests the sound of items with real stages: what is given is recognized, and what was said can be heard again."""

from __future__ import annotations

import asyncio
import base64
import threading

import msgspec
import numpy as np
import pytest

from duplex_server.realtime import wire
from duplex_server.realtime.hearing import PASSES
from duplex_server.realtime.schema import InputAudio, Message, OutputAudio
from duplex_server.realtime.shelf import FRAME_BYTES, ITEM_BYTES, ITEM_S, SHELF_BYTES, Shelf
from tests.duplex_server import test_intake
from tests.duplex_server.test_driver import Peer, driven
from tests.duplex_server.test_intake import TURN, silence, until, voice

gate = test_intake.gate
"""A recognizer that hangs until it is opened."""


def b64(pcm: bytes) -> str:
    return base64.b64encode(pcm).decode()


def give(peer: Peer, audio: str, item_id: str, **fields: object) -> None:
    item = {"type": "message", "role": "user", "id": item_id, "content": [{"type": "input_audio", "audio": audio}]}
    peer.say(type="conversation.item.create", item=item, **fields)


async def retrieved(peer: Peer, item_id: str) -> tuple[str, bytes]:
    """The transcript and the sound of an item."""
    before = len(peer.events)
    peer.say(type="conversation.item.retrieve", item_id=item_id, event_id="r")
    await peer._until(lambda: any(isinstance(event, wire.ItemRetrieved) for event in peer.events[before:]))
    event = next(event for event in peer.events[before:] if isinstance(event, wire.ItemRetrieved))
    assert len(wire.encode(event)) < FRAME_BYTES
    assert isinstance(event.item, Message)
    part = event.item.content[0]
    assert isinstance(part, InputAudio | OutputAudio)
    return part.transcript or "", base64.b64decode(part.audio) if isinstance(part.audio, str) else b""


def errors(peer: Peer) -> list[tuple[str | None, str | None, str | None]]:
    return [(e.error.code, e.error.param, e.error.event_id) for e in peer.events if isinstance(e, wire.Error)]


def test_check_108_given_sound_is_answered_and_comes_back_sample_for_sample() -> None:
    pcm = voice(2)

    async def talk() -> tuple[Peer, tuple[str, bytes]]:
        async with driven() as (peer, _):
            give(peer, b64(pcm), "mine")
            peer.say(type="response.create", response={"output_modalities": ["text"]})
            await peer.wait_for(wire.ResponseDone)
            return peer, await retrieved(peer, "mine")

    peer, (words, heard) = asyncio.run(talk())
    assert words.startswith("one two three")
    assert heard == pcm
    assert not errors(peer)
    done = next(event for event in peer.events if isinstance(event, wire.ResponseDone))
    assert done.response.status == "completed"


def test_check_108_both_sides_of_a_spoken_turn_can_be_heard_again() -> None:
    async def talk() -> tuple[Peer, tuple[str, bytes], tuple[str, bytes]]:
        async with driven() as (peer, _):
            peer.append(TURN + silence(1))
            await peer.wait_for(wire.ResponseDone)
            committed = next(event for event in peer.events if isinstance(event, wire.Committed))
            done = next(event for event in peer.events if isinstance(event, wire.ResponseDone))
            user, ours = committed.item_id, done.response.output[0].id
            return peer, await retrieved(peer, user), await retrieved(peer, ours)

    peer, (_, user), (_, ours) = asyncio.run(talk())
    assert user
    assert user in TURN + silence(1), "a stretch of what was sent"
    assert ours == bytes(peer.sound), "all that was played"


def test_check_152_a_truncated_item_comes_back_shorter() -> None:
    async def talk() -> tuple[Peer, tuple[str, bytes], tuple[str, bytes]]:
        async with driven() as (peer, _):
            item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "say one two three"}]}
            peer.say(type="conversation.item.create", item=item)
            peer.say(type="response.create")
            await peer.wait_for(wire.ResponseDone)
            done = next(event for event in peer.events if isinstance(event, wire.ResponseDone))
            ours = done.response.output[0].id
            peer.say(type="conversation.item.truncate", item_id=ours, content_index=0, audio_end_ms=600)
            await peer.wait_for(wire.ItemTruncated)
            cut = await retrieved(peer, ours)
            peer.say(type="conversation.item.truncate", item_id=ours, content_index=0, audio_end_ms=0)
            return peer, cut, await retrieved(peer, ours)

    peer, (words, heard), empty = asyncio.run(talk())
    assert words.split() == ["one", "two"]
    assert heard == bytes(peer.sound[: 2 * 600 * 24])
    assert empty == ("", b"")


@pytest.mark.parametrize(
    ("audio", "expected"),
    [("not base64!", "base64"), (b64(bytes(9601)), "whole samples"), (b64(bytes(100)), "at least 100 ms")],
)
def test_f19_sound_that_can_not_be_read_is_named_and_the_session_lives(audio: str, expected: str) -> None:
    async def talk() -> Peer:
        async with driven() as (peer, _):
            give(peer, audio, "bad", event_id="e1")
            item = {"type": "message", "role": "user", "content": [{"type": "input_audio", "audio": audio}]}
            peer.say(type="response.create", event_id="e2", response={"input": [item]})
            give(peer, b64(voice(1)), "good")
            await peer.wait_for(wire.ItemDone)
            return peer

    peer = asyncio.run(talk())
    assert errors(peer) == [
        ("invalid_value", "item.content[0].audio", "e1"),
        ("invalid_value", "response.input[0].content[0].audio", "e2"),
    ]
    assert all(expected in event.error.message for event in peer.events if isinstance(event, wire.Error))
    assert [event.item.id for event in peer.events if isinstance(event, wire.ItemAdded)] == ["good"]


def test_many_items_with_sound_wait_for_each_other_and_none_is_given_up(gate: threading.Event) -> None:
    def count(peer: Peer, kind: type[wire.ServerEvent]) -> int:
        return sum(isinstance(event, kind) for event in peer.events)

    async def talk() -> tuple[Peer, int]:
        async with driven() as (peer, driver):
            peer.say(type="session.update", session={"audio": {"input": {"transcription": {"model": "whisper-1"}}}})
            for number in range(8):
                give(peer, b64(voice(1)), f"item{number}")
            await until(lambda: driver.session.passes_waiting == PASSES and peer.frames.empty())
            for _ in range(100):
                await asyncio.sleep(0)  # time enough for the others, if they did not wait
            assert count(peer, wire.ItemAdded) == PASSES
            gate.set()
            await peer._until(lambda: count(peer, wire.TranscriptionCompleted) == 8)
            return peer, driver.dropped_turns

    peer, dropped = asyncio.run(talk())
    assert dropped == 0
    assert not errors(peer)


def test_the_journal_of_given_sound_holds_none_and_counts_it() -> None:
    async def talk() -> bytes:
        async with driven() as (peer, driver):
            give(peer, b64(voice(1)), "mine")
            await peer.wait_for(wire.ItemDone)
            return b"".join(driver.journal.lines())

    journal = asyncio.run(talk())
    assert b'"audio":"' not in journal
    assert b'"sound":{"number":0,"samples":24000}' in journal


# ---- the shelf alone ----------------------------------------------------------------------------------------------


def asked(item_id: str, words: str = "hi") -> wire.ItemRetrieved:
    item = Message(id=item_id, role="assistant", content=(OutputAudio(transcript=words),))
    return wire.ItemRetrieved(event_id="e", item=item)


def noise(samples: int) -> bytes:
    return (np.arange(samples) % 251).astype("<i2").tobytes()


def test_check_016_an_item_is_shown_without_its_sound_rather_than_in_a_large_frame() -> None:
    shelf = Shelf()
    shelf.add("short", noise(ITEM_BYTES // 2))
    shelf.add("long", noise(ITEM_BYTES // 2 + 1))
    assert len(wire.encode(shelf.show(asked("short"), 10**9, bytes))) < FRAME_BYTES
    assert shelf.show(asked("short"), 10**9, bytes) != asked("short")
    assert shelf.show(asked("long"), 10**9, bytes) == asked("long")
    assert shelf.get("long", 24_000) == noise(24_000), "a client that heard the beginning may hear that again"
    wordy = asked("short", "x" * 60_000)
    assert shelf.show(wordy, 10**9, bytes) == wordy
    assert ITEM_S >= 10


def test_sound_that_comes_in_pieces_is_one_and_only_its_beginning_is_kept() -> None:
    shelf = Shelf()
    for _ in range(20):
        shelf.add("a", noise(24_000))
    assert shelf.get("a", 5 * 24_000) == noise(24_000) * 5
    assert shelf.get("a", 20 * 24_000) is None
    shelf.let_go("a", 2 * 24_000)
    assert shelf.get("a", 20 * 24_000) == noise(24_000) * 2
    shelf.let_go("a")
    assert shelf.get("a", 24_000) is None
    shelf.let_go("nobody")


def test_the_oldest_sound_is_let_go_first_and_its_end_is_not_taken_for_its_beginning() -> None:
    shelf = Shelf()
    count = SHELF_BYTES // ITEM_BYTES
    for number in range(count):
        shelf.add(f"i{number}", noise(ITEM_BYTES // 2 - 100))
    shelf.add("new", noise(ITEM_BYTES // 2))
    shelf.add("newer", noise(ITEM_BYTES // 2))
    assert shelf.get("i0", 10**9) is None
    assert shelf.get("new", 10**9) is not None
    shelf.add("i0", noise(50))
    assert shelf.get("i0", 10**9) is None
    assert shelf.get("i0", 20) is None


def test_sound_of_an_item_without_speech_is_not_shown() -> None:
    shelf = Shelf()
    shelf.add("a", noise(10))
    event = wire.ItemRetrieved(event_id="e", item=Message(id="a", role="user", content=()))
    assert shelf.show(event, 10, bytes) == event
    assert msgspec.json.encode(shelf.show(asked("a"), 10, bytes)).count(b'"audio":"') == 1
