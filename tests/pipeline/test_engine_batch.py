"""Tests the batch lane of an engine: its own replicas, how they come and go, and that live answers go first."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from dataclasses import replace
from pathlib import Path

import msgspec
import psutil
import pytest

from pipeline.chunk import Chunk, End, Failed, Reply, Segment, StageRole, Text, Transcript
from pipeline.engine import Engine
from pipeline.errors import StageError
from pipeline.spec import OptionValue, PipelineSpec, Placement
from pipeline.supervise import ProcessLink
from tests.pipeline.scenes import (
    SCRIPTED,
    Listener,
    ask,
    cascade,
    coded,
    credits,
    opened,
    play,
    quiet,
    running,
    settled,
    sound,
    until,
)

NUMBERS = itertools.count(1000)
ROLES: tuple[StageRole, ...] = ("recognizer", "thinker", "talker", "vocoder")


def coding(placement: Placement, batch_replicas: int) -> PipelineSpec:
    return coded(placement, coder={"code_bytes": 300_000}, batch_replicas=batch_replicas)


def batch_pids(engine: Engine) -> dict[StageRole, int]:
    """The processes of the batch lane, one for each stage."""
    found: dict[StageRole, int] = {}
    for role, stage in engine._stages.items():
        (host,) = stage.batch
        assert isinstance(host._link, ProcessLink)
        assert host._link.pid is not None
        found[role] = host._link.pid
    return found


def transcribe(engine: Engine, number: int, stream: str = "s") -> Segment:
    fence = Segment(stream, number, 24_000)
    engine.transcribe(fence, sound(2), 24_000, final=True, language=None, prompt=None)
    return fence


@pytest.mark.parametrize("placement", ["inline", "process"])
def test_batch_requests_are_done_by_replicas_of_their_own(placement: Placement) -> None:
    async def scene() -> None:
        async with running(coding(placement, 1)) as (engine, heard):
            await asyncio.gather(engine.grow(), engine.grow())
            pids = batch_pids(engine)
            assert set(pids) == set(ROLES)
            assert {child.pid for child in psutil.Process().children()} >= set(pids.values())
            batch = opened(engine, "b", "batch")
            fence = transcribe(engine, 1, "b")
            assert await batch.last(fence, "recognizer") == Transcript("one two", "en")
            reply = ask(engine, 1, "say one two three", stream="b")
            assert await batch.last(reply, "talker") == End()
            assert batch.captions(reply) == "one two three"
            assert all(stage.home("b") == 1 for stage in engine._stages.values())
            assert await heard.last(ask(engine, 1, "say hello"), "talker") == End()
            await settled(engine)
            assert len(credits(engine)) == 4  # sound and codes, for each lane
            await engine.grow()
            assert batch_pids(engine) == pids

    play(scene)


@pytest.mark.skipif(not hasattr(os, "sched_getscheduler"), reason="the system knows no idle class")
def test_a_batch_process_computes_when_nobody_else_wants_to() -> None:
    async def scene() -> None:
        async with running(cascade("process")) as (engine, _):
            await engine.grow()
            for pid in batch_pids(engine).values():
                assert os.sched_getscheduler(pid) == os.SCHED_IDLE
            host = engine._stages["thinker"].live[0]
            assert isinstance(host._link, ProcessLink)
            assert host._link.pid is not None
            assert os.sched_getscheduler(host._link.pid) == os.SCHED_OTHER

    play(scene)


@pytest.mark.parametrize("placement", ["inline", "process"])
def test_without_replicas_of_its_own_the_batch_lane_takes_the_live_ones(placement: Placement) -> None:
    async def scene() -> None:
        async with running(coding(placement, 0)) as (engine, heard):
            count = len(psutil.Process().children())
            await engine.grow()
            assert len(psutil.Process().children()) == count
            batch = opened(engine, "b", "batch")
            reply = ask(engine, 1, "say one two three", stream="b")
            live = ask(engine, 1, "say hello there")
            assert await batch.last(reply, "talker") == End()
            assert await heard.last(live, "talker") == End()
            await settled(engine)

    play(scene)


@pytest.mark.parametrize("live_role", ["talker", "vocoder"])
def test_a_lane_of_old_and_new_replicas_is_joined_by_planes(live_role: StageRole) -> None:
    """One of the two has no batch replica: it was spawned long before the other one, and holds its end all the same."""
    whole = coding("process", 1)
    mixed = msgspec.structs.replace(whole.stages[live_role], batch_replicas=0)
    spec = msgspec.structs.replace(whole, stages={**whole.stages, live_role: mixed})

    async def scene() -> None:
        async with running(spec) as (engine, heard):
            await engine.grow()
            batch = opened(engine, "b", "batch")
            reply = ask(engine, 1, "say one two three", stream="b")
            assert await batch.last(reply, "talker") == End()
            assert batch.captions(reply) == "one two three"
            assert await heard.last(ask(engine, 1, "say hello"), "talker") == End()
            await settled(engine)

    play(scene)


def test_a_batch_process_that_dies_comes_back() -> None:
    async def scene() -> None:
        async with running(coding("inline", 1)) as (engine, heard):
            await engine.grow()
            batch = opened(engine, "b", "batch")
            for epoch, role in enumerate(("thinker", "talker", "vocoder")):
                reply = ask(engine, 2 * epoch, f"say {'word ' * 1000}", stream="b")
                await batch.until(lambda chunk, reply=reply: chunk.fence == reply and chunk.role == "talker")  # type: ignore[misc]  # bound as it is now
                os.kill(batch_pids(engine)[role], signal.SIGKILL)  # type: ignore[index]  # it is a role
                failed = await batch.last(reply, "thinker" if role == "thinker" else "talker")
                assert isinstance(failed, Failed)
                assert failed.kind == "stage_lost"
                following = ask(engine, 2 * epoch + 1, "say one two", stream="b")
                assert await batch.last(following, "talker") == End()
                assert await heard.last(ask(engine, epoch, "say hello"), "talker") == End()
            await settled(engine)

    play(scene)


# ---- how it comes ----------------------------------------------------------------------------------------------------


def stubborn(trouble: str, flag: Path) -> PipelineSpec:
    options: dict[str, OptionValue] = {"trouble": trouble, "flag": str(flag)}
    return cascade("process", thinker=options, thinker_family=f"{SCRIPTED}.stubborn")


def test_a_lane_that_does_not_come_up_leaves_nothing_and_is_tried_again(tmp_path: Path) -> None:
    flag = tmp_path / "flag"

    async def scene() -> None:
        async with running(stubborn("exhaust", flag)) as (engine, heard):
            live = {child.pid for child in psutil.Process().children()}
            flag.touch()
            for _ in range(2):
                with pytest.raises(StageError, match=r"thinker \(tests.families.scripted.stubborn\): memory ran out"):
                    await engine.grow()
                assert {child.pid for child in psutil.Process().children()} == live
            batch = opened(engine, "early", "batch")  # it takes the live ones
            assert await batch.last(ask(engine, 1, "say one", stream="early"), "talker") == End()
            flag.unlink()
            await engine.grow()
            batch = opened(engine, "b", "batch")
            assert await batch.last(ask(engine, 1, "say one", stream="b"), "talker") == End()
            assert await heard.last(ask(engine, 1, "say hello"), "talker") == End()

    play(scene)


def test_a_lane_for_which_there_is_no_memory_is_refused() -> None:
    whole = coded("process", transport="inline", batch_replicas=1)

    async def scene() -> None:
        async with running(whole) as (engine, _):
            assert engine._wiring is not None
            huge = msgspec.structs.replace(whole.edges[0], transport="shm", slots=4000, slot_bytes=1 << 40)
            engine._wiring._graph = replace(engine._wiring._graph, edges=(huge,))
            with pytest.raises(StageError, match=r"the batch lane: edges.*fewer slots, or smaller") as refused:
                await engine.grow()
            assert refused.value.kind == "capacity"

    play(scene)


def test_a_stop_while_the_lane_comes_up_leaves_nothing(tmp_path: Path) -> None:
    flag = tmp_path / "flag"

    async def scene() -> None:
        async with running(stubborn("freeze", flag)) as (engine, _):
            live = len(psutil.Process().children())
            flag.touch()
            growing = asyncio.ensure_future(engine.grow())
            await until(lambda: len(psutil.Process().children()) > live + 1)  # the recognizer's came up
            batch = opened(engine, "b", "batch")
            assert all(stage.home("b") == 0 for stage in engine._stages.values())  # no chain of halves
            assert await batch.last(ask(engine, 1, "say one", stream="b"), "talker") == End()
        with pytest.raises(asyncio.CancelledError):
            await growing

    play(scene)


# ---- who goes first --------------------------------------------------------------------------------------------------


async def turns(engine: Engine, heard: Listener, count: int) -> None:
    """Let time pass: so many passes of the recognizer, one after the other."""
    for _ in range(count):
        fence = Segment("s", next(NUMBERS), 24_000)
        engine.transcribe(fence, sound(2), 24_000, final=False, language=None, prompt=None)
        await heard.last(fence, "recognizer")


@pytest.mark.parametrize("batch_replicas", [0, 1])
@pytest.mark.parametrize("placement", ["inline", "process"])
def test_no_batch_step_begins_while_somebody_waits_for_the_first_sound(
    placement: Placement, batch_replicas: int
) -> None:
    def written(batch: Listener) -> int:
        return sum(isinstance(chunk.payload, Text) for chunk in batch.chunks)

    async def scene() -> None:
        async with running(coding(placement, batch_replicas)) as (engine, heard):
            await engine.grow()
            batch = opened(engine, "b", "batch")
            ask(engine, 1, "please go on", stream="b", max_tokens=10**9, aloud=False)
            await until(lambda: written(batch) > 10)

            fence = transcribe(engine, 1)
            await heard.last(fence, "recognizer")
            waiting = ask(engine, 1, "please stall")  # it writes a word, and no sound comes of it
            await heard.until(lambda chunk: chunk.fence == waiting)
            await turns(engine, heard, 10)  # it is known everywhere, and what was under way has come
            count = written(batch)
            await turns(engine, heard, 20)
            assert written(batch) == count

            engine.cancel(waiting)
            await until(lambda: written(batch) > count + 10)
            reply = ask(engine, 2, "say hello")  # with its first sound the batch lane goes on
            assert await heard.last(reply, "talker") == End()
            count = written(batch)
            await until(lambda: written(batch) > count)
            engine.close("b")
            await quiet(engine)

    play(scene)


def test_batch_requests_fill_no_place_of_a_live_one() -> None:
    async def scene() -> None:
        async with running(coding("inline", 0)) as (engine, heard):
            batch = opened(engine, "b", "batch")
            for epoch in range(70):
                ask(engine, epoch, "please stall", stream="b", aloud=False)
            await batch.until(_refused)
            assert await heard.last(ask(engine, 1, "say hello"), "talker") == End()
            engine.close("b")
            await settled(engine)

    play(scene)


def _refused(chunk: Chunk) -> bool:
    return isinstance(chunk.payload, Failed) and chunk.payload.kind == "capacity"


def test_a_live_stream_and_a_batch_stream_are_strangers() -> None:
    async def scene() -> None:
        async with running(cascade("inline")) as (engine, heard):
            await engine.grow()
            batch = opened(engine, "b", "batch")
            mine, theirs = Reply("s", 1), Reply("b", 1)
            ask(engine, 1, "say a b c")
            ask(engine, 1, "say x y z", stream="b")
            await heard.last(mine, "talker")
            await batch.last(theirs, "talker")
            assert {chunk.fence for chunk in heard.chunks} == {mine}
            assert {chunk.fence for chunk in batch.chunks} == {theirs}

    play(scene)
