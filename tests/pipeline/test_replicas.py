"""Tests how streams are spread over the replicas of a stage, stay there, and move when theirs is down."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from pipeline.chunk import Caption, Chunk, End, Failed, Reply, Speak, Think
from pipeline.errors import StageError
from pipeline.replicas import Replicas
from pipeline.spec import PipelineSpec
from tests.pipeline.scenes import cascade, prompt
from tests.pipeline.virtual import Pipeline, VirtualHost

LONG_S = 60.0


def spec(replicas: int = 2, batch_replicas: int = 0) -> PipelineSpec:
    whole = cascade("process")
    stages = {
        role: msgspec.structs.replace(stage, replicas=replicas, batch_replicas=batch_replicas)
        for role, stage in whole.stages.items()
    }
    return msgspec.structs.replace(whole, stages=stages)


def homes(pipeline: Pipeline, *streams: str) -> list[int]:
    return [pipeline.stages["thinker"].home(stream) for stream in streams]


def ask(pipeline: Pipeline, epoch: int, stream: str = "s", text: str = "say hello there") -> Reply:
    reply = Reply(stream, epoch)
    pipeline.router.answer(Think(reply, prompt(text), 1000), Speak(reply))
    return reply


def steps(pipeline: Pipeline, stream: str) -> list[int]:
    """How many steps of each thinker held work of a stream."""
    return [
        sum(any(work.fence.stream == stream for work in turn.work) for _, turn in link.began)
        for link in pipeline.parts["thinker"].links
    ]


def captions(heard: list[Chunk], fence: Reply) -> str:
    return "".join(c.payload.text for c in heard if c.fence == fence and isinstance(c.payload, Caption))


def test_streams_are_spread_and_stay() -> None:
    pipeline = Pipeline(spec())
    heard = {stream: pipeline.open(stream) for stream in "abcd"}
    assert homes(pipeline, *"abcd") == [0, 1, 0, 1]
    pipeline.router.close("a")
    pipeline.open("e")
    assert homes(pipeline, "e") == [0]  # where there are the fewest
    for epoch in range(3):
        reply = ask(pipeline, epoch, "b")
        pipeline.run(LONG_S)
        assert captions(heard["b"], reply) == "hello there"
    assert steps(pipeline, "b")[0] == 0
    pipeline.shut()


def test_a_stream_whose_replica_is_down_moves_with_its_next_job_and_stays_there() -> None:
    pipeline = Pipeline(spec())
    heard = pipeline.open("s")
    lost = ask(pipeline, 1, text="please stall")
    pipeline.run(0.1)
    pipeline.parts["thinker"].links[0].die(away_s=5.0)
    pipeline.run(0.1)
    assert pipeline.stages["thinker"].ready
    moved = ask(pipeline, 2)
    pipeline.run(1.0)
    assert captions(heard, moved) == "hello there"
    pipeline.run(LONG_S)
    (failed,) = [c.payload for c in heard if c.fence == lost and c.role == "thinker" and c.last]
    assert isinstance(failed, Failed)
    assert homes(pipeline, "s") == [1]  # its cache is warm there by now
    pipeline.shut()


def test_a_stream_waits_for_its_replica_when_no_other_one_is_up() -> None:
    pipeline = Pipeline(spec())
    heard = pipeline.open("s")
    for link in pipeline.parts["thinker"].links:
        link.die(away_s=3.0)
    pipeline.run(0.1)
    assert not pipeline.stages["thinker"].ready
    reply = ask(pipeline, 1)
    pipeline.run(1.0)
    assert not heard
    pipeline.run(LONG_S)
    assert captions(heard, reply) == "hello there"
    assert homes(pipeline, "s") == [0]
    pipeline.shut()


def test_a_new_stream_goes_where_a_replica_is_up() -> None:
    pipeline = Pipeline(spec())
    pipeline.parts["thinker"].links[0].die(away_s=3.0)
    pipeline.run(0.1)
    pipeline.open("a")
    pipeline.open("b")
    assert homes(pipeline, "a", "b") == [1, 1]
    pipeline.run(LONG_S)
    pipeline.shut()


def test_a_job_is_reached_where_it_runs_though_its_stream_has_moved() -> None:
    pipeline = Pipeline(spec())
    heard = pipeline.open("s")
    first = ask(pipeline, 1, text="please go on")
    pipeline.run(0.1)
    host = pipeline.parts["talker"].hosts[0]
    pipeline.parts["thinker"].links[0].die(away_s=3.0)
    pipeline.run(0.05)
    ask(pipeline, 2)
    assert homes(pipeline, "s") == [1]
    pipeline.router.cancel(first)
    pipeline.run(LONG_S)
    assert host.idle
    assert [c.payload for c in heard if c.fence == Reply("s", 2) and c.last][-1] == End()
    pipeline.shut()


def test_the_batch_lane_has_replicas_of_its_own_once_they_have_come() -> None:
    pipeline = Pipeline(spec(2, 2))
    before = pipeline.open("before", batch=True)
    assert homes(pipeline, "before") == [0]
    pipeline.grow()
    after = pipeline.open("after", batch=True)
    pipeline.open("live")
    assert homes(pipeline, "after", "live", "before") == [2, 1, 0]
    replies = ask(pipeline, 1, "before"), ask(pipeline, 1, "after")
    pipeline.run(LONG_S)
    assert captions(before, replies[0]) == captions(after, replies[1]) == "hello there"
    assert steps(pipeline, "after")[:2] == [0, 0]
    pipeline.shut()


def test_a_batch_stream_moves_within_its_lane() -> None:
    pipeline = Pipeline(spec(1, 2))
    pipeline.grow()
    pipeline.open("b", batch=True)
    assert homes(pipeline, "b") == [1]
    pipeline.parts["thinker"].links[1].die(away_s=3.0)
    pipeline.run(0.1)
    assert homes(pipeline, "b") == [2]
    pipeline.parts["thinker"].links[2].die(away_s=3.0)
    pipeline.run(0.1)
    assert homes(pipeline, "b") == [2]  # not to a live one
    pipeline.run(LONG_S)
    pipeline.shut()


class Reluctant(VirtualHost):
    """A host that is told whether its stage comes up."""

    comes = True
    stopped = False

    async def start(self) -> None:
        if not self.comes:
            raise StageError("it will not")
        await super().start()

    async def stop(self) -> None:
        self.stopped = True
        await super().stop()


def test_a_batch_lane_that_does_not_come_up_leaves_nothing_and_may_be_tried_again() -> None:
    pipeline = Pipeline(spec(1))
    made: list[Reluctant] = []

    def make(number: int) -> Reluctant:
        host = Reluctant("thinker", pipeline.parts["thinker"].links[0], deliver=_no, taken=_no, over=_no)
        host.comes = number != 2 or len(made) > 3
        made.append(host)
        return host

    async def scene() -> None:
        stage = Replicas("thinker", make, 1, 2)
        stage.gate(True)
        with pytest.raises(StageError, match="it will not"):
            await stage.grow()
        assert [host.stopped for host in made] == [False, True, True]
        assert stage.batch == []
        stage.open("early", "batch")
        await stage.grow()
        stage.open("meanwhile", "batch")
        assert stage.hosts == (made[0],)  # it has come, and is not let in
        stage.adopt()
        stage.open("late", "batch")
        assert [stage.home(stream) for stream in ("early", "meanwhile", "late")] == [0, 0, 1]
        with pytest.raises(AssertionError, match="already"):
            await stage.grow()

    asyncio.run(scene())
    pipeline.shut()


def test_a_batch_lane_that_nobody_wants_is_brought_down() -> None:
    pipeline = Pipeline(spec(1))
    made: list[Reluctant] = []

    def make(number: int) -> Reluctant:
        made.append(Reluctant("thinker", pipeline.parts["thinker"].links[0], deliver=_no, taken=_no, over=_no))
        return made[-1]

    async def scene() -> None:
        stage = Replicas("thinker", make, 1, 2)
        await stage.grow()
        await stage.shrink()
        assert [host.stopped for host in made] == [False, True, True]
        stage.adopt()
        assert stage.batch == []

    asyncio.run(scene())
    pipeline.shut()


def _no(*told: object) -> None:
    raise AssertionError(f"{told} was not expected")
