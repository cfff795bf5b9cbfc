"""Tests that an event too large for the event loop is read in the client's own dialect all the same."""

from __future__ import annotations

import asyncio
import threading

import msgspec

from duplex_server.realtime import wire
from duplex_server.realtime.dialect import Codec, open_codec
from duplex_server.realtime.inputs import Event
from duplex_server.realtime.intake import BIG_FRAME_BYTES
from tests.duplex_server.test_driver import PATIENCE_S
from tests.duplex_server.test_intake import Scene

INSTRUCTIONS = "Be kind. " * (BIG_FRAME_BYTES // 8)


def test_check_067_a_large_first_update_is_read_in_a_thread_and_switches_before_it_is_taken() -> None:
    codec = open_codec("auto", {}, ())
    threads: list[int] = []

    def decode(frame: str | bytes) -> wire.AnyClientEvent | wire.Fault:
        threads.append(threading.get_ident())
        return codec.decode(frame)

    async def read() -> Event:
        scene = Scene(decode=decode)
        scene.peer.say(type="session.update", session={"modalities": ["text"], "instructions": INSTRUCTIONS})
        scene.peer.frames.put_nowait(None)
        await asyncio.wait_for(scene.intake.read(), PATIENCE_S)
        taking = asyncio.create_task(scene.intake.take())
        async with asyncio.timeout(PATIENCE_S):
            while not scene.fed:  # noqa: ASYNC110  # it tells nobody when it is
                await asyncio.sleep(0)
        taking.cancel()
        (given,) = scene.fed
        assert isinstance(given, Event)
        return given

    event = asyncio.run(read()).event
    assert threads != [threading.get_ident()]
    assert len(threads) == 1
    assert isinstance(event, wire.SessionUpdate)
    assert event.session.output_modalities == ("text",)
    assert event.session.instructions == INSTRUCTIONS
    told = wire.TextDelta(event_id="e", response_id="r", item_id="i", output_index=0, content_index=0, delta="Hello.")
    assert [msgspec.json.decode(frame)["type"] for frame in codec.encode(told)] == ["response.text.delta"]
    assert [msgspec.json.decode(frame)["type"] for frame in Codec().encode(told)] == ["response.output_text.delta"]
