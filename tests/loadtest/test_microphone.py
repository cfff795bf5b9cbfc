"""Tests the microphone: it sends all that is said, over a room that is never digitally silent."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from loadtest.microphone import FRAME_S, ROOM, Microphone, Pcm

RATE_HZ = 16_000


def test_what_is_said_is_sent_whole_over_the_noise_of_the_room() -> None:
    said = np.full(RATE_HZ // 10 + 77, 8000, np.int16)  # ends within a frame

    async def scene() -> tuple[Microphone, list[Pcm]]:
        sent: list[Pcm] = []

        async def keep(pcm: Pcm) -> None:
            sent.append(pcm)

        microphone = Microphone(RATE_HZ, keep, seed=1)
        running = asyncio.create_task(microphone.run())
        heard = await microphone.say(said)
        assert heard.began < heard.ended
        running.cancel()
        return microphone, sent

    microphone, sent = asyncio.run(scene())
    assert {len(frame) for frame in sent} == {round(RATE_HZ * FRAME_S)}
    assert microphone.sent_s == pytest.approx(len(sent) * FRAME_S)
    stream = np.concatenate(sent).astype(np.float64)
    assert (stream > 4000).sum() == len(said)
    quiet = stream[stream <= 4000]
    assert 0 < np.sqrt(np.mean(quiet**2)) < 2 * ROOM
    assert np.sqrt(np.mean((stream[stream > 4000] - 8000) ** 2)) == pytest.approx(ROOM, rel=0.2)


def test_a_seed_decides_the_noise_and_loud_speech_is_limited() -> None:
    async def record(seed: int) -> Pcm:
        sent: list[Pcm] = []

        async def keep(pcm: Pcm) -> None:
            sent.append(pcm)

        microphone = Microphone(RATE_HZ, keep, seed)
        running = asyncio.create_task(microphone.run())
        await microphone.say(np.full(320, 32767, np.int16))
        running.cancel()
        return np.concatenate(sent)[:320]

    first, again, other = (asyncio.run(record(seed)) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert first.min() > 32_000
