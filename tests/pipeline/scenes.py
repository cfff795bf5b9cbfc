"""Sets the scene for tests of the engine: a cascade of scripted stages, a listener, and a look at what is left."""

from __future__ import annotations

import asyncio
import importlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import psutil

from pipeline.chunk import (
    Audio,
    Caption,
    Chunk,
    Payload,
    Prompt,
    Reply,
    Segment,
    Speak,
    Text,
    TextPart,
    Think,
)
from pipeline.engine import Engine
from pipeline.spec import Family, OptionValue, PipelineSpec, Placement, StageSpec

DEADLINE_S = 30.0
SCRIPTED = "tests.families.scripted"
PLACEMENTS: tuple[Placement, ...] = ("inline", "process")


def load_family(name: str) -> Family:
    family = importlib.import_module(f"{name}.family").FAMILY
    assert isinstance(family, Family)
    return family


def cascade(
    placement: Placement,
    *,
    thinker: Mapping[str, OptionValue] | None = None,
    talker: Mapping[str, OptionValue] | None = None,
    recognizer: Mapping[str, OptionValue] | None = None,
    thinker_family: str = f"{SCRIPTED}.thinker",
    talker_family: str = f"{SCRIPTED}.talker",
) -> PipelineSpec:
    return PipelineSpec(
        StageSpec(f"{SCRIPTED}.detector", "inline"),
        StageSpec(f"{SCRIPTED}.recognizer", placement, recognizer or {}),
        StageSpec(thinker_family, placement, thinker or {}),
        StageSpec(talker_family, placement, talker or {}),
    )


class Listener:
    """Keeps what a stream was sent, and lets a test wait for a chunk."""

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self._arrived = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    def emit(self, chunk: Chunk) -> None:
        assert threading.current_thread() is threading.main_thread()
        self.chunks.append(chunk)
        task = asyncio.ensure_future(self._wake())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _wake(self) -> None:
        async with self._arrived:
            self._arrived.notify_all()

    async def until(self, wanted: Callable[[Chunk], bool]) -> Chunk:
        def found() -> list[Chunk]:
            return [chunk for chunk in self.chunks if wanted(chunk)]

        async with asyncio.timeout(DEADLINE_S), self._arrived:
            await self._arrived.wait_for(found)
            return found()[0]

    async def last(self, fence: Reply | Segment, role: str) -> Payload:
        return (await self.until(lambda c: c.fence == fence and c.role == role and c.last)).payload

    def text(self, fence: Reply) -> str:
        return "".join(c.payload.text for c in self.chunks if c.fence == fence and isinstance(c.payload, Text))

    def captions(self, fence: Reply) -> str:
        return "".join(c.payload.text for c in self.chunks if c.fence == fence and isinstance(c.payload, Caption))

    def samples(self, fence: Reply) -> int:
        heard = [c.payload for c in self.chunks if c.fence == fence and isinstance(c.payload, Audio)]
        return sum(len(audio.pcm) // 2 for audio in heard)


def prompt(text: str) -> Prompt:
    return Prompt((TextPart("item_1", "user", text),))


def ask(
    engine: Engine, epoch: int, text: str, *, stream: str = "s", max_tokens: int = 1000, aloud: bool = True
) -> Reply:
    reply = Reply(stream, epoch)
    engine.answer(Think(reply, prompt(text), max_tokens), Speak(reply) if aloud else None)
    return reply


@asynccontextmanager
async def running(spec: PipelineSpec) -> AsyncIterator[tuple[Engine, Listener]]:
    engine = Engine(spec, load_family, cores=2)
    await engine.start(lambda line: None)
    try:
        listener = Listener()
        engine.open("s", listener.emit)
        yield engine, listener
    finally:
        await engine.stop()


async def quiet(engine: Engine) -> None:
    """Until no stage owes anything: every cancel acknowledged, every credit back."""
    await until(lambda: engine.quiet)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110  # the engine has no need to announce that nothing is owed
            await asyncio.sleep(0.001)


def play(scene: Callable[[], Awaitable[None]]) -> None:
    """Run a scene in a loop of its own and see that it leaves no thread, no process and no descriptor."""
    process = psutil.Process()
    before = set(threading.enumerate())
    descriptors = process.num_fds()

    async def body() -> None:
        await scene()

    asyncio.run(body())
    assert set(threading.enumerate()) - before == set()
    assert process.children(recursive=True) == []
    assert process.num_fds() <= descriptors
