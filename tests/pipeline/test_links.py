"""Tests what happens to a stage whose start is given up."""

from __future__ import annotations

import asyncio
import threading

import psutil
import pytest

from pipeline.errors import FailureKind, StageError
from pipeline.lanes import Lanes
from pipeline.links import InlineLink
from pipeline.message import Load, Loaded, Report
from pipeline.stage import Stepped
from pipeline.supervise import ProcessLink
from tests.families.scripted.recognizer import family as recognizer

DEADLINE_S = 30.0


class Silence:
    """A listener that expects to hear nothing."""

    def reported(self, report: Report) -> None:
        raise AssertionError(f"{report} was not expected")

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
        link = InlineLink("recognizer", make, lanes=Lanes(1), planes={}, ahead_s=4.0)
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
