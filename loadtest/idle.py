"""Measures what one silent session costs: the server's share of a core, and whether its memory grows.

The microphone is open in a quiet room and nobody speaks. `core_share` is the processor time of the server and its
workers over the sound sent; the time before and after the session is left out.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Sequence

import msgspec
import psutil

from loadtest.caller import Caller
from loadtest.report import Load, Watch, print_figures, server

INSTRUCTIONS = "You are a friendly voice assistant."
SETTLE_S = 5.0
"""The session's beginning is not counted: its instructions are prefilled, caches are filled."""
LOOK_S = 5.0
MOST_CORE_SHARE = 0.05
MOST_GROWTH_MB = 10.0


class Memory(msgspec.Struct, frozen=True):
    """Resident memory of the server and its workers together; pages that they share count for each."""

    start: float
    end: float
    most: float


class Figures(msgspec.Struct, frozen=True):
    media_s: float
    core_share: float
    rss_mb: Memory
    turns: int
    """How often the room was taken for speech."""
    held: bool
    """Whether the bounds were kept: 5 % of a core, 10 MB of growth, no turn."""
    load: Load


class Family:
    """A server's process with its workers."""

    def __init__(self, pids: Sequence[int]) -> None:
        roots = [psutil.Process(pid) for pid in pids]
        self._processes = [one for root in roots for one in (root, *root.children(recursive=True))]

    def used_s(self) -> float:
        """The processor time that they have used so far."""
        return sum(sum(one.cpu_times()[:2]) for one in self._processes)

    def rss_mb(self) -> float:
        """Their resident memory."""
        return sum(one.memory_info().rss for one in self._processes) / 2**20


async def measure(url: str, pids: Sequence[int], seconds: float) -> Figures:
    """Hold a silent session until `seconds` of sound have been sent. Raises `ConnectionError` when it ends before."""
    family = Family(pids)
    async with await Caller.dial(url, None, INSTRUCTIONS) as caller:
        await caller.stay(SETTLE_S)
        watch = Watch([os.getpid()])
        began_s, used_s, memory = caller.microphone.sent_s, family.used_s(), [family.rss_mb()]
        while (left := began_s + seconds - caller.microphone.sent_s) > 0:
            await caller.stay(min(LOOK_S, left))
            memory.append(family.rss_mb())
        media_s = caller.microphone.sent_s - began_s
        core_share = (family.used_s() - used_s) / media_s
        load = watch.load()
    turns = sum(arrived.type == "input_audio_buffer.speech_started" for arrived in caller.events)
    grown = memory[-1] - memory[0]
    held = core_share < MOST_CORE_SHARE and grown < MOST_GROWTH_MB and turns == 0
    rss = Memory(*(round(one, 1) for one in (memory[0], memory[-1], max(memory))))
    return Figures(round(media_s, 2), round(core_share, 4), rss, turns, held, load)


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object only")
    parser.add_argument("--seconds", type=float, default=300.0, help="of sound, sent in real time (default 300)")
    options = parser.parse_args()
    async with server(None) as subject:
        figures = await measure(subject.url, subject.pids, options.seconds)
    print_figures(figures, options.json)
    return 0 if figures.held else 1


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
