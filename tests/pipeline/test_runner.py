"""Tests the runner with the scripted stages, on this thread."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.chunk import Failed, Prompt, Reply, Segment, TextPart, Think, Transcribe, Transcript
from pipeline.message import Acknowledged, Began, Emitted, Ended, Report
from pipeline.runner import StageRunner
from pipeline.scheduler import Cancelled, Forgotten, StageScheduler, Submitted
from tests.families.scripted.recognizer import family as recognizer
from tests.families.scripted.thinker import family as thinker
from transport.base import Ref, Slot
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
    assert reports.said[0] == Began(1, ())


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
    reports.runner = StageRunner(stage, StageScheduler("recognizer", 1), reports, planes={"p": plane})
    reports.runner.feed(transcribe(ref))
    reports.runner.run()
    assert [said.chunk.payload for said in reports.said if isinstance(said, Emitted)] == [Transcript("one two", "en")]
    assert plane.credits == 1


@pytest.mark.parametrize(("plane", "cause"), [("elsewhere", "does not reach this worker"), ("p", "should be filled")])
def test_a_payload_that_is_not_there_fails_the_job(plane: str, cause: str) -> None:
    reports = Reports(wanted=1)
    stage = recognizer.CountingRecognizer(recognizer.Options())
    planes = {"p": InprocPlane("p", slots=1, slot_bytes=10)}
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

    runner = reports.runner = StageRunner(stage, StageScheduler("recognizer", 1), report, planes={"p": plane})
    runner.feed(transcribe(refs[0], 1))
    runner.feed(transcribe(refs[1], 2))
    runner.run()
    assert Acknowledged(Segment("s", 1, 1)) in reports.said
    assert [said.chunk.fence for said in reports.said if isinstance(said, Emitted)] == [Segment("s", 2, 1)]
    assert plane.withdraw(refs[0])  # the stage never looked at it
    assert caplog.records == []  # nor was it asked to go on with it


def test_a_forgotten_stream_is_forgotten_by_the_stage() -> None:
    stage = thinker.ScriptedThinker(thinker.Options(words_per_step=10))
    reports = Reports(wanted=1)
    reports.runner = StageRunner(stage, StageScheduler("thinker", 1), reports)
    reports.runner.feed(Forgotten("s"))
    reports.runner.feed(think("say a"))
    reports.runner.run()
    assert "Emitted" in reports.kinds()
