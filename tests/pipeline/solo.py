"""Sets the scene for tests of one stage process: its host, what its user is told, and a look at what is left."""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psutil

from pipeline.chunk import Chunk, End, Failed, Fence, Payload, Prompt, Reply, Text, TextPart, Think
from pipeline.host import Host
from pipeline.message import Load
from pipeline.spec import OptionValue
from pipeline.supervise import ProcessLink

DEADLINE_S = 60.0
THINKER = "tests.families.scripted.thinker"
STUBBORN = "tests.families.scripted.stubborn"


class User:
    """A stage's host, and what its user was told."""

    def __init__(self, order: Load) -> None:
        self.link = ProcessLink(order)
        self.chunks: list[Chunk] = []
        self.over: list[Fence] = []
        self.host = Host(
            order.role, self.link, deliver=self.chunks.append, taken=lambda fence, count: None, over=self.over.append
        )

    def ask(self, epoch: int, text: str, max_tokens: int = 1000) -> Reply:
        fence = Reply("s", epoch)
        self.host.submit(Think(fence, Prompt((TextPart("i", "user", text),)), max_tokens), 0.0)
        return fence

    async def last(self, fence: Fence) -> Payload:
        """How a job ended."""
        await self.until(lambda: any(chunk.fence == fence and chunk.last for chunk in self.chunks))
        [payload] = [chunk.payload for chunk in self.chunks if chunk.fence == fence and chunk.last]
        return payload

    async def failure(self, fence: Fence) -> Failed:
        payload = await self.last(fence)
        assert isinstance(payload, Failed)
        return payload

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():  # noqa: ASYNC110  # a host has no need to announce how it is
                await asyncio.sleep(0.001)

    async def works(self, epoch: int) -> None:
        """The stage is itself again, owes nothing, and nobody's jobs are mixed up."""
        fence = self.ask(epoch, "say all is well")
        assert isinstance(await self.last(fence), End)
        assert [chunk.payload for chunk in self.chunks if chunk.fence == fence][:-1] == [
            Text("all"),
            Text(" is"),
            Text(" well"),
        ]
        assert self.host.state.phase == "ready"
        assert self.host.state.cause == ""
        await self.until(lambda: self.host.idle)


@asynccontextmanager
async def using(order: Load) -> AsyncIterator[User]:
    user = User(order)
    try:
        assert user.host.state.phase == "loading"
        await user.host.start()
        assert user.host.ready
        yield user
    finally:
        await user.host.stop()


def order(family: str = THINKER, **options: OptionValue) -> Load:
    return Load("thinker", family, options, ahead_s=4.0)


def play(scene: Callable[[], Awaitable[None]]) -> None:
    """Run a scene, and see that it leaves no thread, process, task or descriptor, and nothing in the file system."""
    process, threads = psutil.Process(), set(threading.enumerate())
    descriptors = process.num_fds()

    async def body() -> None:
        await scene()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(body())
    assert set(threading.enumerate()) - threads == set()
    assert process.children(recursive=True) == []
    assert process.num_fds() <= descriptors
    assert list(Path(tempfile.gettempdir()).glob(f"duplex-{os.getpid()}-*")) == []


def pid(user: User) -> int:
    assert user.link.pid is not None
    return user.link.pid
