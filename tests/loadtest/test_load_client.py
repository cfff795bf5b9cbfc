"""Tests that a client that was late says so: its figures are its own then, and not the server's."""

from __future__ import annotations

import asyncio
import time

from loadtest.microphone import FRAME_S, Microphone, Pcm

HELD_S = 5 * FRAME_S


def test_a_microphone_that_was_held_up_knows_how_late_its_latest_frame_left() -> None:
    async def scene() -> float:
        count = 0
        enough = asyncio.Event()

        async def hold(pcm: Pcm) -> None:
            nonlocal count
            count += 1
            until = time.monotonic() + (HELD_S if count == 1 else 0.0)
            while time.monotonic() < until:
                pass  # as a process does that has too much to do
            if count == 2:
                enough.set()

        microphone = Microphone(16_000, hold)
        assert microphone.late_s == 0.0
        running = asyncio.create_task(microphone.run())
        await enough.wait()
        running.cancel()
        return microphone.late_s

    # The second frame was due one frame after the first.
    assert asyncio.run(scene()) >= HELD_S - FRAME_S
