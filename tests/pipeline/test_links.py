"""Tests what happens to a stage whose start is given up, and what a served one is given."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import numpy as np
import psutil
import pytest

from pipeline.carry import Planes
from pipeline.chunk import Chunk, Failed, Fence, Job, Segment, Transcribe
from pipeline.errors import FailureKind, StageError
from pipeline.lanes import Lanes
from pipeline.links import InlineLink, ServedLink
from pipeline.message import Emitted, Load, Loaded, Report
from pipeline.scheduler import Submitted
from pipeline.stage import Stepped
from pipeline.supervise import ProcessLink
from tests.families.scripted.recognizer import family as recognizer
from transport.base import Inline, Ref, Slot, unpack
from transport.inproc import InprocPlane

DEADLINE_S = 30.0


class Silence:
    """A listener that expects to hear nothing."""

    def reported(self, report: Report) -> None:
        raise AssertionError(f"{report} was not expected")

    def loading(self, progress: str) -> None:
        """It is started, and given up."""

    def broken(self, cause: str) -> None:
        raise AssertionError(cause)

    def down(self) -> None:
        raise AssertionError("the stage was not up")

    def lost(self, kind: FailureKind, message: str) -> None:
        raise AssertionError(message)

    def back(self, loaded: Loaded) -> None:
        raise AssertionError("the stage was not up")


def test_a_thread_that_still_loads_ends_when_it_is_told_to_stop() -> None:
    loading, go_on = threading.Event(), threading.Event()

    def make() -> Stepped:
        loading.set()
        assert go_on.wait(DEADLINE_S)
        return recognizer.CountingRecognizer(recognizer.Options())

    async def scene() -> None:
        link = InlineLink("recognizer", make, who="recognizer#0", lanes=Lanes(1), ahead_s=4.0)
        starting = asyncio.ensure_future(link.start(Silence()))
        await asyncio.to_thread(loading.wait, DEADLINE_S)
        starting.cancel()
        stopping = asyncio.ensure_future(link.stop())
        await asyncio.sleep(0)  # it waits for the thread by now
        go_on.set()
        await stopping
        assert starting.cancelled()

    before = set(threading.enumerate())
    asyncio.run(scene())
    assert set(threading.enumerate()) == before


@pytest.mark.parametrize("turns", [1, 2, 5, 20])
def test_a_process_whose_start_is_given_up_is_not_left_behind(turns: int) -> None:
    async def scene() -> None:
        link = ProcessLink(Load("recognizer", "tests.families.scripted.recognizer", {}, ahead_s=4.0))
        starting = asyncio.ensure_future(link.start(Silence()))
        for _ in range(turns):
            await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        await link.stop()

    descriptors = psutil.Process().num_fds()
    asyncio.run(scene())
    assert psutil.Process().children() == []
    assert psutil.Process().num_fds() <= descriptors


def test_a_process_that_ends_while_loading_says_so() -> None:
    async def scene() -> None:
        link = ProcessLink(Load("recognizer", "tests.families.scripted.recognizer", {}, ahead_s=4.0))
        starting = asyncio.ensure_future(link.start(Silence()))
        async with asyncio.timeout(DEADLINE_S):
            while link.pid is None:  # noqa: ASYNC110  # it is set in the middle of the start
                await asyncio.sleep(0.001)
        link.kill("stage_timeout", "the test asked for it")
        with pytest.raises(StageError, match="ended while loading"):
            await starting
        await link.stop()

    asyncio.run(scene())
    assert psutil.Process().children() == []


class Ear:
    """A service that keeps the passes it was asked for."""

    slots = 2

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    async def load(self) -> None: ...

    def submit(self, job: Job, emit: Callable[[Chunk], None]) -> None:
        self.jobs.append(job)

    def cancel(self, fence: Fence) -> None: ...

    def forget(self, stream: str) -> None: ...

    async def close(self) -> None: ...


class Failures(Silence):
    """A listener that hears of jobs that failed."""

    def __init__(self) -> None:
        self.failed: list[Failed] = []

    def reported(self, report: Report) -> None:
        assert isinstance(report, Emitted)
        assert isinstance(report.chunk.payload, Failed)
        self.failed.append(report.chunk.payload)


def test_a_served_stage_is_given_the_sound_itself() -> None:
    """It knows nothing of planes; the credit is back at once."""
    plane = InprocPlane("p", slots=1, slot_bytes=1000)

    def put() -> Ref:
        slot = plane.reserve(20, 0.0)
        assert isinstance(slot, Slot)
        return plane.put(slot, {"pcm": np.arange(10, dtype=np.int16)}).ref

    async def scene() -> None:
        ear, listener = Ear(), Failures()
        link = ServedLink("recognizer", lambda: ear, Planes(receivers={"p": plane}))
        await link.start(listener)
        link.send(Submitted(Transcribe(Segment("s", 1, 10), put(), 24_000, final=True), 0.0))
        assert plane.credits == 1
        (job,) = ear.jobs
        assert isinstance(job, Transcribe)
        assert isinstance(job.audio, Inline)
        assert unpack(job.audio)["pcm"].tolist() == list(range(10))
        ref = put()
        plane.withdraw(ref)
        link.send(Submitted(Transcribe(Segment("s", 2, 10), ref, 24_000, final=True), 0.0))
        await asyncio.sleep(0)
        (failed,) = listener.failed
        assert "should be filled" in failed.message
        await link.stop()

    asyncio.run(scene())
