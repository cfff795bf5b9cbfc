"""Sets the scene for tests of the engine: a cascade of scripted stages, a listener, and a look at what is left."""

from __future__ import annotations

import asyncio
import gc
import importlib
import os
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import numpy as np
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
from pipeline.observer import Observer
from pipeline.replicas import Lane
from pipeline.spec import EdgeSpec, Family, OptionValue, PipelineSpec, Placement, Policy, StageSpec, Transport
from transport.inproc import InprocPlane

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
        {
            "recognizer": StageSpec(f"{SCRIPTED}.recognizer", placement, recognizer or {}),
            "thinker": StageSpec(thinker_family, placement, thinker or {}),
            "talker": StageSpec(talker_family, placement, talker or {}),
        },
    )


def coded(
    placement: Placement = "inline",
    *,
    coder_placement: Placement | None = None,
    coder: Mapping[str, OptionValue] | None = None,
    vocoder: Mapping[str, OptionValue] | None = None,
    bound: int = 64,
    policy: Policy = "block",
    transport: Transport = "auto",
    slots: int | None = None,
    slot_bytes: int = 1 << 20,
    replicas: int = 1,
    batch_replicas: int = 0,
) -> PipelineSpec:
    """A cascade in which a coder and a vocoder speak; all on threads of this process, but these two as it is said."""
    whole = cascade("inline", talker=coder, talker_family=f"{SCRIPTED}.coder")
    spec = StageSpec(f"{SCRIPTED}.vocoder", placement, vocoder or {})
    stages = {**whole.stages, "vocoder": spec}
    for role, stage in stages.items():
        where = (coder_placement or placement) if role == "talker" else stage.placement
        count = replicas if role in ("talker", "vocoder") else 1
        stages[role] = msgspec.structs.replace(stage, placement=where, replicas=count, batch_replicas=batch_replicas)
    edge = EdgeSpec(
        source="talker",
        port="codes",
        target="vocoder",
        bound=bound,
        policy=policy,
        transport=transport,
        slots=slots,
        slot_bytes=slot_bytes,
    )
    return PipelineSpec(whole.detector, stages, (edge,))


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


def sound(words: int = 1) -> np.ndarray[tuple[int], np.dtype[np.int16]]:
    """Speech at 24 kHz of which the scripted recognizer makes so many words."""
    return np.tile(np.array([8000, -8000], np.int16), 6000 * words)


def credits(engine: Engine) -> dict[str, tuple[int, int]]:
    """Of each data plane: how many slots are free, and how many there are."""
    found = {}
    for name, plane in engine._wired._planes.items():
        whole = plane.arena or plane.sender
        if isinstance(whole, InprocPlane):
            found[name] = whole.credits, len(whole._cells)
        elif plane.arena is not None:
            found[name] = plane.arena.credits, plane.arena.slots
    return found


async def settled(engine: Engine) -> None:
    """Until nothing is owed any more, and every credit of every plane is back."""
    await quiet(engine)
    await until(lambda: all(free == whole for free, whole in credits(engine).values()))


def ask(
    engine: Engine, epoch: int, text: str, *, stream: str = "s", max_tokens: int = 1000, aloud: bool = True
) -> Reply:
    reply = Reply(stream, epoch)
    engine.answer(Think(reply, prompt(text), max_tokens), Speak(reply) if aloud else None)
    return reply


@asynccontextmanager
async def running(
    spec: PipelineSpec, *, observer: Observer | None = None, lane: Lane = "live"
) -> AsyncIterator[tuple[Engine, Listener]]:
    engine = Engine(spec, load_family, cores=2, observer=observer)
    await engine.start(lambda line: None)
    try:
        yield engine, opened(engine, "s", lane)
    finally:
        await engine.stop()


def opened(engine: Engine, stream: str, lane: Lane = "live") -> Listener:
    """A listener at a new stream."""
    listener = Listener()
    engine.open(stream, listener.emit, lane)
    return listener


async def quiet(engine: Engine) -> None:
    """Until no stage owes anything: every cancel acknowledged, every credit back."""
    await until(lambda: engine.quiet)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110  # the engine has no need to announce that nothing is owed
            await asyncio.sleep(0.001)


def play(scene: Callable[[], Awaitable[None]]) -> None:
    """Run a scene in a loop of its own and see that it leaves no thread, process, descriptor, memory or directory."""
    process = psutil.Process()
    before = set(threading.enumerate())
    descriptors = process.num_fds()
    shared, doors = _shared(), _doors()

    async def body() -> None:
        await scene()

    asyncio.run(body())
    assert set(threading.enumerate()) - before == set()
    assert process.children(recursive=True) == []
    gc.collect()  # an arena is unmapped with the last view of it
    assert process.num_fds() <= descriptors
    assert _shared() - shared == set()
    assert _doors() - doors == set()


def _shared() -> set[str]:
    """The shared memory that this process maps, and what lies in the system's folder for it."""
    maps = Path("/proc/self/maps").read_text().splitlines() if Path("/proc/self/maps").exists() else []
    named = os.listdir("/dev/shm") if Path("/dev/shm").exists() else []
    return {line for line in maps if "memfd:duplex" in line} | {name for name in named if "duplex" in name}


def _doors() -> set[Path]:
    """The directories in which this process can be reached by its workers."""
    return set(Path(tempfile.gettempdir()).glob(f"duplex-{os.getpid()}-*"))


class Hold:
    """Lets a scripted vocoder make its steps one by one; all that are left, in the end."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "hold")
        os.mkfifo(self.path)
        self._fd = os.open(self.path, os.O_RDWR)

    def let(self, steps: int) -> None:
        os.write(self._fd, bytes(steps))

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._fd)
