"""A thinker that schedules itself on the event loop: it echoes the user, a word per turn of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from pipeline.chunk import Chunk, End, Fence, Job, Prompt, Text, TextPart, Think
from pipeline.errors import StageError
from pipeline.spec import Capabilities, Family
from pipeline.stage import Served


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`slots` is how many replies it writes at once."""

    slots: int = 2


class EchoService:
    """Each job is a task; "please stall" is never answered, "please refuse" not taken."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._tasks: dict[Fence, asyncio.Task[None]] = {}

    @property
    def slots(self) -> int:
        return self._options.slots

    async def load(self) -> None:
        """Nothing to reach."""

    def submit(self, job: Job, emit: Callable[[Chunk], None]) -> None:
        assert isinstance(job, Think)
        words = _last_words(job.prompt)
        if words == ["please", "refuse"]:
            raise StageError("it was asked to refuse")
        self._tasks[job.fence] = asyncio.get_running_loop().create_task(self._write(job.fence, words, emit))

    def cancel(self, fence: Fence) -> None:
        if (task := self._tasks.pop(fence, None)) is not None:
            task.cancel()

    def forget(self, stream: str) -> None:
        for fence in [fence for fence in self._tasks if fence.stream == stream]:
            self.cancel(fence)

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for fence in list(self._tasks):
            self.cancel(fence)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _write(self, fence: Fence, words: list[str], emit: Callable[[Chunk], None]) -> None:
        if words == ["please", "stall"]:
            await asyncio.Event().wait()
        for at, word in enumerate(words):
            emit(Chunk(fence, "thinker", at, Text(word if at == 0 else f" {word}")))
            await asyncio.sleep(0)
        del self._tasks[fence]
        emit(Chunk(fence, "thinker", len(words), End(), last=True))


def _last_words(prompt: Prompt) -> list[str]:
    texts = [part.text for part in prompt.parts if isinstance(part, TextPart)]
    return texts[-1].split()


def _make(options: msgspec.Struct) -> Served:
    assert isinstance(options, Options)
    return EchoService(options)


def _describe(options: msgspec.Struct) -> Capabilities:
    return Capabilities(model="echo")


FAMILY = Family("scripted.served", "thinker", (), Options, _make, _describe, served=True)
