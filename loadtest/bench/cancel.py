"""Measures how long after a cancel a stage has let go of the reply, while other sessions keep it busy.

Eight streams have an answer without end from one thinker, whose steps take a set time and can't be ended early. At
random moments one of the answers is cancelled, and another begun in its place. What a cancel should take is the rest
of the step that runs: one step at most.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
from collections.abc import Sequence

import msgspec
import numpy as np

from loadtest.report import Load, Watch, print_figures
from models.registry import load_family
from pipeline.chunk import Prompt, Reply, StageRole, TextPart, Think
from pipeline.engine import Engine
from pipeline.observer import Unobserved
from pipeline.spec import PipelineSpec, Placement, StageSpec

STREAMS = 8
TOKENS = 1_000_000
PATIENCE_S = 10.0
NULL = "loadtest.bench.null"


class Tail(msgspec.Struct, frozen=True):
    p50: float
    p99: float


class Case(msgspec.Struct, frozen=True):
    """`steps` is the 99th percentile of a cancel, in median steps."""

    step_ms: Tail
    cancel_to_idle_ms: Tail
    steps: float


class Figures(msgspec.Struct, frozen=True):
    sessions: int
    cancels: int
    inline: Case
    process: Case
    load: Load


class Times(Unobserved):
    """Keeps what the pipeline tells of the thinker."""

    def __init__(self) -> None:
        self.steps_s: list[float] = []
        self.cancels_s: list[float] = []
        self.cancelled = asyncio.Event()

    def stepped(self, role: StageRole, seconds: float) -> None:
        self.steps_s.append(seconds)

    def acknowledged(self, role: StageRole, seconds: float) -> None:
        self.cancels_s.append(seconds)
        self.cancelled.set()


async def measure(placement: Placement, step_ms: float, cancels: int) -> Case:
    """So many cancels of a thinker in a thread of this process, or in a process of its own."""
    stages: dict[StageRole, StageSpec] = {
        "recognizer": StageSpec(f"{NULL}.recognizer", "inline"),
        "thinker": StageSpec("loadtest.bench.busy.thinker", placement, {"step_ms": step_ms}),
        "talker": StageSpec(f"{NULL}.talker", "inline"),
    }
    times = Times()
    engine = Engine(PipelineSpec(StageSpec(f"{NULL}.detector", "inline"), stages), load_family, observer=times)
    await engine.start(lambda line: None)
    try:
        await _cancel(engine, times, random.Random(1), step_ms / 1000, cancels)
    finally:
        await engine.stop()
    step, cancel = _tail(times.steps_s), _tail(times.cancels_s)
    return Case(step, cancel, round(cancel.p99 / step.p50, 2))


async def _cancel(engine: Engine, times: Times, rng: random.Random, step_s: float, cancels: int) -> None:
    epochs = dict.fromkeys((f"s{n}" for n in range(STREAMS)), 1)
    for stream in epochs:
        engine.open(stream, lambda chunk: None)
        _begin(engine, stream, 1)
    for _ in range(cancels):
        await asyncio.sleep(rng.uniform(1, 3) * step_s)
        stream = rng.choice(list(epochs))
        times.cancelled.clear()
        engine.cancel(Reply(stream, epochs[stream]))
        await asyncio.wait_for(times.cancelled.wait(), PATIENCE_S)
        epochs[stream] += 1
        _begin(engine, stream, epochs[stream])
    for stream in epochs:
        engine.close(stream)


def _begin(engine: Engine, stream: str, epoch: int) -> None:
    engine.answer(Think(Reply(stream, epoch), Prompt((TextPart("i", "user", "go on"),)), TOKENS), None)


def _tail(seconds: Sequence[float]) -> Tail:
    return Tail(*(round(float(np.percentile(seconds, part)) * 1000, 2) for part in (50, 99)))


async def run(step_ms: float, cancels: int) -> Figures:
    """Both placements, one after the other."""
    watch = Watch([os.getpid()])
    inline = await measure("inline", step_ms, cancels)
    process = await measure("process", step_ms, cancels)
    return Figures(STREAMS, cancels, inline, process, watch.load())


def main() -> None:
    parser = argparse.ArgumentParser(description="how long a cancel takes in a stage that eight sessions keep busy")
    parser.add_argument("--step-ms", type=float, default=20.0, help="how long a step takes (default 20)")
    parser.add_argument("-n", type=int, default=300, help="how many cancels (default 300)")
    parser.add_argument("--json", action="store_true", help="print one JSON object only")
    options = parser.parse_args()
    print_figures(asyncio.run(run(options.step_ms, options.n)), options.json)


if __name__ == "__main__":
    main()
