"""Tests the engine where a coder and a vocoder speak together, over each transport, in threads and in processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from pipeline.chunk import Audio, Caption, Chunk, End, Failed, Reply, StageRole
from pipeline.engine import Engine
from pipeline.errors import ConfigError
from pipeline.host import Host
from pipeline.observer import Unobserved
from pipeline.spec import PipelineSpec, Placement, Policy, Transport
from pipeline.supervise import ProcessLink
from tests.pipeline.scenes import (
    Hold,
    Listener,
    ask,
    coded,
    credits,
    load_family,
    opened,
    play,
    running,
    settled,
    until,
)

LARGE = 300_000
Build = Callable[..., PipelineSpec]

WAYS: dict[str, tuple[Placement, Placement, Transport]] = {
    "threads, inline": ("inline", "inline", "inline"),
    "threads, inproc": ("inline", "inline", "inproc"),
    "threads, shm": ("inline", "inline", "shm"),
    "processes, inline": ("process", "process", "inline"),
    "processes, shm": ("process", "process", "auto"),
    "a thread and a process, shm": ("inline", "process", "auto"),
    "a process and a thread, shm": ("process", "inline", "auto"),
}


@pytest.fixture(params=list(WAYS.values()), ids=list(WAYS))
def build(request: pytest.FixtureRequest) -> Build:
    """A pipeline whose coder and vocoder are joined in one of the ways; its codes are large."""
    coder_placement, placement, transport = request.param

    def made(*, coder: dict[str, str | int] | None = None, **settings: object) -> PipelineSpec:
        options: dict[str, str | int] = {"code_bytes": LARGE, **(coder or {})}
        build = partial(coded, placement, coder_placement=coder_placement, transport=transport, coder=options)
        return build(**settings)  # type: ignore[arg-type]  # each test names what `coded` takes

    return made


def said(heard: Listener, fence: Reply) -> list[Chunk]:
    return [chunk for chunk in heard.chunks if chunk.fence == fence and chunk.role == "talker"]


async def told(heard: Listener, reply: Reply, count: int) -> None:
    """Until so many chunks of a reply were told."""
    await until(lambda: len(said(heard, reply)) >= count)


async def works(engine: Engine, heard: Listener, epoch: int, stream: str = "s") -> None:
    """A whole reply is spoken, and nothing is owed afterwards."""
    reply = ask(engine, epoch, "say one two three", stream=stream)
    assert await heard.last(reply, "talker") == End()
    chunks = said(heard, reply)
    assert heard.captions(reply) == "one two three"
    assert [chunk.seq for chunk in chunks] == list(range(7))
    assert [chunk.text_span for chunk in chunks if isinstance(chunk.payload, Audio)] == [(0, 3), (3, 7), (7, 13)]
    await settled(engine)


async def fails(heard: Listener, reply: Reply) -> Failed:
    """What the speech of a reply failed with: it is told once, and last."""
    failed = await heard.last(reply, "talker")
    assert isinstance(failed, Failed)
    assert [chunk.last for chunk in said(heard, reply)].count(True) == 1
    assert said(heard, reply)[-1].last
    return failed


def test_codes_become_speech(build: Build) -> None:
    async def scene() -> None:
        async with running(build()) as (engine, heard):
            for epoch in range(3):
                await works(engine, heard, epoch)
            assert {chunk.role for chunk in heard.chunks} == {"thinker", "talker"}

    play(scene)


def test_many_speak_at_once_and_none_waits_for_ever(build: Build) -> None:
    async def scene() -> None:
        async with running(build(slots=1)) as (engine, heard):
            streams = {f"t{n}": opened(engine, f"t{n}") for n in range(6)}
            words = "one two three four five six"
            replies = {stream: ask(engine, 1, f"say {words}", stream=stream) for stream in streams}
            for stream, listener in streams.items():
                assert await listener.last(replies[stream], "talker") == End()
                assert listener.captions(replies[stream]) == words
                assert listener.samples(replies[stream]) == 6 * 7200
            await works(engine, heard, 1)

    play(scene)


def test_a_cancel_at_any_moment_gives_every_credit_back(build: Build) -> None:
    async def scene() -> None:
        async with running(build(bound=2, slots=3)) as (engine, heard):
            for epoch in range(12):
                reply = ask(engine, epoch, f"say {'word ' * 30}")
                await told(heard, reply, epoch)
                engine.cancel(reply)
                count = len(heard.chunks)
                if epoch % 3 == 0:
                    await settled(engine)
                    assert len(heard.chunks) == count
            await settled(engine)
            await works(engine, heard, 99)

    play(scene)


def test_a_stream_that_is_closed_in_the_middle_leaves_nothing(build: Build) -> None:
    async def scene() -> None:
        async with running(build(bound=2, slots=3)) as (engine, heard):
            for count in (1, 4, 7):
                other = opened(engine, "t")
                reply = ask(engine, 1, f"say {'word ' * 30}", stream="t")
                await told(other, reply, count)
                engine.close("t")
                before = len(other.chunks)
                await settled(engine)
                assert len(other.chunks) == before
            await works(engine, heard, 1)

    play(scene)


def test_stop_in_the_middle_of_it_leaves_nothing(build: Build) -> None:
    async def scene() -> None:
        async with running(build(bound=2, slots=3)) as (engine, heard):
            reply = ask(engine, 1, f"say {'word ' * 1000}")
            await told(heard, reply, 4)
            assert not engine.quiet

    play(scene)


def test_a_coder_that_raises_ends_the_speech_once(build: Build) -> None:
    async def scene() -> None:
        async with running(build(coder={"raises_at": "ouch"})) as (engine, heard):
            failed = await fails(heard, ask(engine, 1, "say one ouch three"))
            assert failed == Failed("stage_failed", "ValueError: it was asked to raise")
            await works(engine, heard, 2)

    play(scene)


def test_codes_that_are_too_large_end_their_reply_alone(build: Build, request: pytest.FixtureRequest) -> None:
    """A slot takes 1 MiB here, and all messages of a step to another process some MiB together."""
    within = "inline" in request.node.name.partition("[")[2].split(", ")[1]
    threads = "threads" in request.node.name

    async def scene() -> None:
        async with running(build(coder={"large_at": "huge", "large_bytes": 9 << 20})) as (engine, heard):
            other = opened(engine, "t")
            long = ask(engine, 1, f"say {'word ' * 10}", stream="t")
            reply = ask(engine, 1, "say one huge three")
            if within and threads:
                assert await heard.last(reply, "talker") == End()  # they hand on references
            else:
                failed = await fails(heard, reply)
                assert failed.kind == "capacity"
                assert ("bytes of one step are too much" if within else "larger slots (slot_bytes)") in failed.message
            assert await other.last(long, "talker") == End()
            await works(engine, heard, 2)

    play(scene)


@pytest.mark.parametrize("transport", ["shm", "inline"])
@pytest.mark.parametrize("role", ["talker", "vocoder"])
def test_a_process_that_dies_in_the_middle_ends_the_speech_once(role: StageRole, transport: Transport) -> None:
    spec = partial(coded, "process", coder={"code_bytes": LARGE}, bound=2, slots=3, transport=transport)

    async def scene() -> None:
        async with running(spec()) as (engine, heard):
            for epoch, count in enumerate((0, 3, 6)):
                reply = ask(engine, 2 * epoch, f"say {'word ' * 1000}")
                await told(heard, reply, count)
                os.kill(pid(engine, role), signal.SIGKILL)
                failed = await fails(heard, reply)
                assert failed.kind == "stage_lost"
                await works(engine, heard, 2 * epoch + 1)

    play(scene)


def pid(engine: Engine, role: StageRole, replica: int = 0) -> int:
    """The process of a replica."""
    link = engine._stages[role].hosts[replica]._link
    assert isinstance(link, ProcessLink)
    assert link.pid is not None
    return link.pid


def lying(heard: Listener, reply: Reply) -> int:
    """Words that were coded and not spoken."""
    chunks = said(heard, reply)
    captions = sum(isinstance(chunk.payload, Caption) for chunk in chunks)
    return captions - sum(isinstance(chunk.payload, Audio) for chunk in chunks)


class Drops(Unobserved):
    """Counts what was dropped."""

    def __init__(self) -> None:
        self.drops: list[str] = []

    def dropped(self, edge: str, chunks: int) -> None:
        self.drops += [edge] * chunks


def test_a_vocoder_that_lags_stalls_the_coder(build: Build, tmp_path: Path) -> None:
    """What lies between them is within the bound, but for the step that is held and what came before it heard."""
    bound, slots, words = 3, 8, 40

    async def scene() -> None:
        with Hold(tmp_path) as hold:
            spec = build(coder={"word_ms": 10}, vocoder={"hold": hold.path}, bound=bound, slots=slots)
            async with running(spec) as (engine, heard):
                reply = ask(engine, 1, f"say {'word ' * words}")
                hold.let(1)  # its first step sees that it has nothing to do, or a word
                await until(lambda: engine._routed._flows._stalled == {("talker", reply)})
                other = opened(engine, "t")
                for epoch in range(3):  # time passes, and the coder does not use it
                    await other.last(ask(engine, epoch, "say one", stream="t", aloud=False), "thinker")
                assert bound < lying(heard, reply) < words / 2
                hold.let(4096)
                assert await heard.last(reply, "talker") == End()
                assert heard.samples(reply) == words * 240
                await settled(engine)
                await works(engine, heard, 2)

    play(scene)


@pytest.mark.parametrize("policy", ["drop_oldest", "block"])
@pytest.mark.parametrize("placement", ["inline", "process"])
def test_what_makes_room_is_counted(placement: Placement, policy: Policy, tmp_path: Path) -> None:
    words = 40

    async def scene() -> None:
        with Hold(tmp_path) as hold:
            options = {"code_bytes": LARGE, "word_ms": 10}
            spec = coded(placement, coder=options, vocoder={"hold": hold.path}, bound=2, policy=policy)
            counted = Drops()
            async with running(spec, observer=counted) as (engine, heard):
                reply = ask(engine, 1, f"say {'word ' * words}")
                if policy == "drop_oldest":  # the coder never waits
                    await until(lambda: lying(heard, reply) == words)
                hold.let(4096)
                assert await heard.last(reply, "talker") == End()
                spoken = heard.samples(reply) // 240
                assert counted.drops == ["talker.codes -> vocoder"] * (words - spoken)
                assert (spoken == words) == (policy == "block")
                await settled(engine)

    play(scene)


# ---- replicas --------------------------------------------------------------------------------------------------------


def test_streams_stick_to_their_replicas_and_move_when_one_is_down() -> None:
    spec = coded("process", coder={"code_bytes": LARGE}, replicas=2, slots=2)

    async def scene() -> None:
        async with running(spec) as (engine, heard):
            other = opened(engine, "t")
            talkers = engine._stages["talker"]
            assert [talkers.home(stream) for stream in "st"] == [0, 1]
            assert len(credits(engine)) == 1 + 4
            for epoch in range(2):
                await works(engine, heard, epoch)
                await works(engine, other, epoch, "t")
            victims: tuple[tuple[StageRole, int], ...] = (("talker", 0), ("vocoder", 0), ("vocoder", 1), ("talker", 1))
            for number, (role, victim) in enumerate(victims):
                stage = engine._stages[role]
                before = stage.home("s")
                os.kill(pid(engine, role, victim), signal.SIGKILL)
                await until(partial(_is, stage.hosts[victim], False))
                await works(engine, heard, 10 + number)
                assert stage.home("s") == (1 - victim if before == victim else before)
                await until(partial(_is, stage.hosts[victim], True))
                await works(engine, heard, 20 + number)
                await works(engine, other, 20 + number, "t")

    play(scene)


def _is(host: Host, ready: bool) -> bool:
    return host.ready == ready


# ---- its start -------------------------------------------------------------------------------------------------------


def test_memory_that_is_not_there_is_told_by_its_edge_and_nothing_is_left() -> None:
    async def scene() -> None:
        engine = Engine(coded("process", slots=4000, slot_bytes=1 << 40), load_family, cores=2)
        with pytest.raises(ConfigError, match=r"edges\.talker\.codes -> vocoder: .*fewer slots, or smaller"):
            await engine.start(lambda line: None)
        assert not engine.ready

    play(scene)


def test_a_graph_that_can_not_run_is_refused_before_anything_is_loaded() -> None:
    lines: list[str] = []

    async def scene() -> None:
        whole = coded()
        without = PipelineSpec(whole.detector, {r: s for r, s in whole.stages.items() if r != "vocoder"})
        with pytest.raises(ConfigError, match="talker: nobody takes the 'codes' that the talker gives"):
            await Engine(without, load_family, cores=2).start(lines.append)

    play(scene)
    assert lines == []
