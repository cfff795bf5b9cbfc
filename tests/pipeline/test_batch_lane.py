"""Tests that batch work never stands in the way of a live answer, in virtual time."""

from __future__ import annotations

import pytest

from pipeline.chunk import Audio, Failed, Text, Transcript
from pipeline.spec import PipelineSpec
from tests.pipeline.scenes import coded
from tests.pipeline.virtual import LONG_S, STEP_S, Pipeline, ask, captions, codes, of, recognize


def batch_steps(pipeline: Pipeline, since: float) -> list[float]:
    """When steps began that held work of the stream "b"."""
    return [
        at
        for part in pipeline.parts.values()
        for link in part.links
        for at, turn in link.began
        if at >= since and any(work.fence.stream == "b" for work in turn.work)
    ]


def batch_spec(batch_replicas: int) -> PipelineSpec:
    return coded("process", coder=codes(), batch_replicas=batch_replicas)


@pytest.mark.parametrize("batch_replicas", [0, 1])
@pytest.mark.parametrize("spoken", [True, False])
def test_no_batch_step_begins_between_the_end_of_speech_and_the_first_sound(batch_replicas: int, spoken: bool) -> None:
    pipeline = Pipeline(batch_spec(batch_replicas))
    if batch_replicas:
        pipeline.grow()
    heard, batch = pipeline.open("s"), pipeline.open("b", batch=True)
    for epoch in range(4):
        ask(pipeline, epoch, f"say {'word ' * 300}", "b")
    pipeline.run(0.5)
    assert batch_steps(pipeline, 0.0)

    recognize(pipeline, 1)
    told = pipeline.clock.now + 0.002  # the word of it is on its way
    pipeline.run(0.3)  # the turn is not sure yet
    assert isinstance(heard[-1].payload, Transcript)
    reply = ask(pipeline, 1, "say one two three", aloud=spoken)
    while not any(isinstance(chunk.payload, Audio if spoken else Text) for chunk in heard if chunk.fence == reply):
        assert batch_steps(pipeline, told) == []
        pipeline.run(STEP_S / 4)
    pipeline.run(LONG_S)
    assert batch_steps(pipeline, told)
    assert len([chunk for chunk in batch if chunk.last]) == 8
    pipeline.shut()


def test_a_coder_that_has_finished_is_not_the_first_sound() -> None:
    pipeline = Pipeline(batch_spec(0))
    pipeline.parts["vocoder"].links[0].step_s = 1.0
    heard, _ = pipeline.open("s"), pipeline.open("b", batch=True)
    ask(pipeline, 1, f"say {'word ' * 300}", "b")
    pipeline.run(0.2)
    reply = ask(pipeline, 1, "say hi")
    told = pipeline.clock.now + 0.002
    while not any(isinstance(chunk.payload, Audio) for chunk in of(heard, reply)):
        assert batch_steps(pipeline, told) == []
        pipeline.run(STEP_S / 4)
    pipeline.run(1000.0)
    assert batch_steps(pipeline, told)
    pipeline.shut()


@pytest.mark.parametrize("why", ["cancel", "close", "silence", "failure", "nothing"])
def test_batch_work_goes_on_when_no_sound_will_come(why: str) -> None:
    pipeline = Pipeline(batch_spec(0))
    pipeline.open("s")
    pipeline.open("b", batch=True)
    ask(pipeline, 1, f"say {'word ' * 500}", "b")
    pipeline.run(0.2)
    match why:
        case "silence":
            recognize(pipeline, 1, words=0)
        case "nothing":  # words, and no answer to them
            recognize(pipeline, 1)
        case "failure":
            ask(pipeline, 1, "please refuse")
        case _:
            reply = ask(pipeline, 1, "please stall")
    pipeline.run(1.5)
    if why == "cancel":
        pipeline.router.cancel(reply)
    elif why == "close":
        pipeline.router.close("s")
    now = pipeline.clock.now
    pipeline.run(0.2)
    assert batch_steps(pipeline, now)
    pipeline.run(LONG_S)
    pipeline.shut()


def test_an_answer_that_never_comes_holds_batch_work_up_for_a_bounded_time() -> None:
    pipeline = Pipeline(batch_spec(0))
    pipeline.open("s")
    pipeline.open("b", batch=True)
    ask(pipeline, 1, f"say {'word ' * 500}", "b")
    pipeline.run(0.2)
    stuck = ask(pipeline, 1, "please stall")
    pipeline.run(9.0)
    assert batch_steps(pipeline, pipeline.clock.now - 8.0) == []
    pipeline.run(2.0)
    assert batch_steps(pipeline, pipeline.clock.now - 1.0)
    pipeline.router.cancel(stuck)
    pipeline.run(LONG_S)
    pipeline.shut()


def test_batch_replicas_that_come_while_somebody_waits_wait_too() -> None:
    pipeline = Pipeline(batch_spec(1))
    pipeline.open("s")
    stuck = ask(pipeline, 1, "please stall")
    pipeline.grow()
    pipeline.open("b", batch=True)
    ask(pipeline, 1, "say one two", "b")
    pipeline.run(5.0)
    assert batch_steps(pipeline, 0.0) == []
    pipeline.router.cancel(stuck)
    pipeline.run(LONG_S)
    assert batch_steps(pipeline, 5.0)
    pipeline.shut()


def test_a_batch_request_never_takes_the_place_of_a_live_one() -> None:
    pipeline = Pipeline(batch_spec(0))
    heard = pipeline.open("s")
    batch = pipeline.open("b", batch=True)
    for epoch in range(70):
        ask(pipeline, epoch, "say one", "b", aloud=False)
    pipeline.run(0.0015)
    reply = ask(pipeline, 1, "say hello")
    pipeline.run(LONG_S)
    assert captions(of(heard, reply)) == "hello"
    assert [chunk.payload.kind for chunk in batch if isinstance(chunk.payload, Failed)] == ["capacity"] * 6
    pipeline.shut()
