"""Tests the runner with the scripted stages, on this thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pytest

from pipeline.carry import Planes
from pipeline.chunk import (
    Chunk,
    End,
    Failed,
    Fence,
    Job,
    Prepare,
    Prompt,
    Reply,
    Segment,
    Speak,
    Tensors,
    TextPart,
    Think,
    Transcribe,
    Transcript,
)
from pipeline.errors import StageError
from pipeline.message import Acknowledged, Began, Emitted, Ended, Report
from pipeline.outgoing import INSIDE_BYTES
from pipeline.runner import StageRunner
from pipeline.scheduler import Cancelled, Fed, Forgotten, StageScheduler, Submitted
from pipeline.stage import Step, Work
from tests.families.scripted.recognizer import family as recognizer
from tests.families.scripted.thinker import family as thinker
from transport.base import Inline, Ref, Slot, inline, unpack
from transport.inproc import InprocPlane

REPLY = Reply("s", 1)


class Reports:
    """Keeps the reports and stops the runner at the end of the turn in which `wanted` jobs have ended."""

    def __init__(self, wanted: int) -> None:
        self.said: list[Report] = []
        self.runner: StageRunner | None = None
        self._wanted = wanted

    def __call__(self, report: Report) -> None:
        self.said.append(report)
        ended = sum(1 for said in self.said if isinstance(said, Emitted) and said.chunk.last)
        if isinstance(report, Ended) and ended == self._wanted:
            assert self.runner is not None
            self.runner.stop()

    def kinds(self) -> list[str]:
        return [type(report).__name__ for report in self.said]


def think(text: str, reply: Reply = REPLY) -> Submitted:
    return Submitted(Think(reply, Prompt((TextPart("item_1", "user", text),)), 100), 0.0)


def test_a_turn_is_reported_from_its_beginning_to_its_end() -> None:
    reports = Reports(wanted=1)
    stage = thinker.ScriptedThinker(thinker.Options(words_per_step=10))
    reports.runner = StageRunner(stage, StageScheduler("thinker", 1), reports)
    reports.runner.feed(think("say a b"))
    reports.runner.run()
    assert reports.kinds() == ["Began", "Emitted", "Emitted", "Emitted", "Ended"]
    began = reports.said[0]
    assert isinstance(began, Began)
    assert (began.turn, began.took) == (1, ())
    assert len(began.waits) == 1


def test_a_step_that_raises_ends_its_jobs_with_the_cause() -> None:
    reports = Reports(wanted=2)
    stage = thinker.ScriptedThinker(thinker.Options(batch=1))
    reports.runner = StageRunner(stage, StageScheduler("thinker", 1), reports)
    reports.runner.feed(think("please raise"))
    reports.runner.feed(think("say fine", Reply("s", 2)))
    reports.runner.run()
    failures = [said.chunk.payload for said in reports.said if isinstance(said, Emitted) and said.chunk.last]
    assert failures[0] == Failed("stage_failed", "ValueError: it was asked to raise")
    assert not isinstance(failures[1], Failed)


def transcribe(ref: Ref, number: int = 1) -> Submitted:
    return Submitted(Transcribe(Segment("s", number, 1), ref, 24_000, final=True), 0.0)


def test_a_payload_in_a_plane_reaches_the_stage_and_its_credit_returns() -> None:
    plane = InprocPlane("p", slots=1, slot_bytes=100_000)
    slot = plane.reserve(48_000, 0.0)
    assert isinstance(slot, Slot)
    ref = plane.put(slot, {"pcm": np.full(24_000, 9000, np.int16)}).ref
    reports = Reports(wanted=1)
    stage = recognizer.CountingRecognizer(recognizer.Options())
    reports.runner = StageRunner(stage, StageScheduler("recognizer", 1), reports, planes=Planes(receivers={"p": plane}))
    reports.runner.feed(transcribe(ref))
    reports.runner.run()
    assert [said.chunk.payload for said in reports.said if isinstance(said, Emitted)] == [Transcript("one two", "en")]
    assert plane.credits == 1


@pytest.mark.parametrize(("plane", "cause"), [("elsewhere", "does not end at this stage"), ("p", "should be filled")])
def test_a_payload_that_is_not_there_fails_the_job(plane: str, cause: str) -> None:
    reports = Reports(wanted=1)
    stage = recognizer.CountingRecognizer(recognizer.Options())
    planes = Planes(receivers={"p": InprocPlane("p", slots=1, slot_bytes=10)})
    reports.runner = StageRunner(stage, StageScheduler("recognizer", 1), reports, planes=planes)
    reports.runner.feed(transcribe(Ref(plane, 0, 0)))
    reports.runner.run()
    (failure,) = [said.chunk.payload for said in reports.said if isinstance(said, Emitted)]
    assert isinstance(failure, Failed)
    assert cause in failure.message


def test_a_job_cancelled_while_it_waits_for_its_cores_is_not_computed(caplog: pytest.LogCaptureFixture) -> None:
    stage = recognizer.CountingRecognizer(recognizer.Options())
    plane = InprocPlane("p", slots=2, slot_bytes=100)
    refs = []
    for _ in range(2):
        slot = plane.reserve(20, 0.0)
        assert isinstance(slot, Slot)
        refs.append(plane.put(slot, {"pcm": np.zeros(10, np.int16)}).ref)
    reports = Reports(wanted=1)

    def report(said: Report) -> None:
        if isinstance(said, Began) and said.turn == 1:  # the first thing after the cores were granted
            runner.feed(Cancelled(Segment("s", 1, 1)))
        reports(said)

    planes = Planes(receivers={"p": plane})
    runner = reports.runner = StageRunner(stage, StageScheduler("recognizer", 1), report, planes=planes)
    runner.feed(transcribe(refs[0], 1))
    runner.feed(transcribe(refs[1], 2))
    runner.run()
    assert Acknowledged(Segment("s", 1, 1)) in reports.said
    assert [said.chunk.fence for said in reports.said if isinstance(said, Emitted)] == [Segment("s", 2, 1)]
    assert plane.credits == 2  # also of what the stage never looked at
    assert caplog.records == []  # nor was it asked to go on with it


def test_a_forgotten_stream_is_forgotten_by_the_stage() -> None:
    stage = thinker.ScriptedThinker(thinker.Options(words_per_step=10))
    reports = Reports(wanted=1)
    reports.runner = StageRunner(stage, StageScheduler("thinker", 1), reports)
    reports.runner.feed(Forgotten("s"))
    reports.runner.feed(think("say a"))
    reports.runner.run()
    assert "Emitted" in reports.kinds()


class Joiner:
    """Takes codes: it says how many came and ends with their sum; it raises when it is asked to."""

    bound_ms, threads, batch = 1000, 1, 4

    def __init__(self) -> None:
        self.seen: list[tuple[Fence, int]] = []
        self.dropped: list[Fence] = []
        self.raises = False

    def load(self) -> None: ...

    def admit(self, job: Job) -> None: ...

    def prepare(self, ahead: Prepare) -> None: ...

    def step(self, work: Sequence[Work]) -> Step:
        chunks = []
        for w in work:
            for chunk in w.inputs:
                assert isinstance(chunk.payload, Tensors)
                assert isinstance(chunk.payload.blocks, Inline)
                self.seen.append((w.fence, int(unpack(chunk.payload.blocks)["codes"].sum())))
        if self.raises:
            raise ValueError("it was asked to raise")
        for w in work:
            if w.inputs:
                chunks.append(Chunk(w.fence, "vocoder", 0, End(), last=True))
        return Step(tuple(chunks), frozenset(w.fence for w in work if not w.inputs))

    def interrupt(self) -> None: ...

    def drop(self, fence: Fence) -> None:
        self.dropped.append(fence)

    def forget(self, stream: str) -> None: ...


A, B = Reply("s", 1), Reply("t", 1)


def lie(plane: InprocPlane, number: int) -> Ref:
    slot = plane.reserve(8, 0.0)
    assert isinstance(slot, Slot)
    return plane.put(slot, {"codes": np.array([number])}).ref


def code(fence: Reply, ref: Ref) -> Fed:
    return Fed(Chunk(fence, "talker", 0, Tensors("codes", ref)))


def test_arrays_that_are_gone_end_their_job_and_no_other_of_the_step() -> None:
    plane = InprocPlane("p", slots=4, slot_bytes=100)
    stage, reports = Joiner(), Reports(wanted=2)
    reports.runner = StageRunner(stage, StageScheduler("vocoder", 4), reports, planes=Planes(receivers={"p": plane}))
    gone, there, also = lie(plane, 1), lie(plane, 2), lie(plane, 3)
    plane.withdraw(gone)  # as after the death of the one who put it
    for fence in (A, B):
        reports.runner.feed(Submitted(Speak(fence), 0.0))
    for request in (code(A, also), code(A, gone), code(B, there)):
        reports.runner.feed(request)
    reports.runner.run()
    ends = {said.chunk.fence: said.chunk.payload for said in reports.said if isinstance(said, Emitted)}
    assert ends[B] == End()
    failure = ends[A]
    assert isinstance(failure, Failed)
    assert failure.kind == "stage_lost"
    assert "what it was given is gone" in failure.message
    assert stage.seen == [(B, 2)]
    assert plane.credits == 4


@pytest.mark.parametrize("when", ["before the step", "in the step"])
def test_a_turn_that_raises_gives_all_of_its_slots_back(when: str) -> None:
    plane = InprocPlane("p", slots=4, slot_bytes=100)
    stage, reports = Joiner(), Reports(wanted=2)
    stage.raises = when == "in the step"

    @contextmanager
    def cores(threads: int, due: float) -> Iterator[None]:
        if when == "before the step":
            raise StageError("no core came free", "stage_timeout")
        yield

    planes = Planes(receivers={"p": plane})
    runner = reports.runner = StageRunner(stage, StageScheduler("vocoder", 4), reports, planes=planes, cores=cores)
    for fence, number in ((A, 1), (B, 2)):
        runner.feed(Submitted(Speak(fence), 0.0))
        runner.feed(code(fence, lie(plane, number)))
    runner.feed(code(A, lie(plane, 3)))
    runner.run()
    assert plane.credits == 4


class Giver(Joiner):
    """Gives three chunks of large codes at once, and ends."""

    batch = 1

    def step(self, work: Sequence[Work]) -> Step:
        (fence,) = [w.fence for w in work]
        large = inline({"codes": np.ones(INSIDE_BYTES // 8 + 1)})
        chunks = [Chunk(fence, "talker", n, Tensors("codes", large)) for n in range(3)]
        return Step((*chunks, Chunk(fence, "talker", 3, End(), last=True)))


def test_what_finds_no_room_in_its_plane_goes_out_as_room_comes_and_in_order() -> None:
    plane = InprocPlane("p", slots=1, slot_bytes=2 * INSIDE_BYTES)
    reports = Reports(wanted=1)
    seqs: list[int] = []

    def report(said: Report) -> None:
        if isinstance(said, Emitted):
            seqs.append(said.chunk.seq)
            if isinstance(said.chunk.payload, Tensors):
                assert isinstance(said.chunk.payload.blocks, Ref)
                assert plane.credits == 0
                plane.open(said.chunk.payload.blocks).release()
            if said.chunk.last:
                runner.stop()
        reports(said)

    runner = reports.runner = StageRunner(
        Giver(), StageScheduler("talker", 1), report, planes=Planes(senders={"p": plane})
    )
    runner.feed(Submitted(Speak(A), 0.0, (("codes", "p"),)))
    runner.run()
    assert seqs == [0, 1, 2, 3]
    assert plane.credits == 1


def test_what_is_too_much_for_messages_ends_its_job_and_not_the_stage() -> None:
    reports = Reports(wanted=2)
    runner = reports.runner = StageRunner(Giver(), StageScheduler("talker", 1), reports, most_bytes=100)
    for fence in (A, B):
        runner.feed(Submitted(Speak(fence), 0.0))
    runner.run()
    failures = [said.chunk for said in reports.said if isinstance(said, Emitted)]
    assert [(chunk.fence, chunk.seq, chunk.last) for chunk in failures] == [(A, 0, True), (B, 0, True)]
    assert all(isinstance(chunk.payload, Failed) and chunk.payload.kind == "capacity" for chunk in failures)
