"""A thinker that calls the first tool it may, once in a conversation, and tells what it got.

Asked for a story, by the user or by its instructions, it says many words; otherwise it says how many words it was told.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from pipeline.chunk import (
    CallDelta,
    Chunk,
    End,
    Fence,
    Job,
    Payload,
    Prepare,
    Prompt,
    ResultPart,
    Text,
    TextPart,
    Think,
    Usage,
)
from pipeline.spec import Capabilities, Family
from pipeline.stage import Step, Work

ARGUMENTS = '{"city": "Paris"}'
STORY = " ".join(["The sea is wide and the sea is deep."] * 8)


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """It has none."""


class CallingThinker:
    """It writes all of an answer in one step; one word is one token."""

    threads = 1
    bound_ms = 1000
    batch = 4

    def __init__(self) -> None:
        self._jobs: dict[Fence, Think] = {}

    def load(self) -> None:
        """Nothing to load."""

    def admit(self, job: Job) -> None:
        assert isinstance(job, Think)
        self._jobs[job.fence] = job

    def prepare(self, ahead: Prepare) -> None:
        """It keeps nothing between answers."""

    def step(self, work: Sequence[Work]) -> Step:
        chunks = [chunk for one in work for chunk in _chunks(self._jobs.pop(one.fence))]
        return Step(tuple(chunks), frozenset())

    def interrupt(self) -> None:
        """A step takes no time."""

    def drop(self, fence: Fence) -> None:
        self._jobs.pop(fence, None)

    def forget(self, stream: str) -> None:
        """It keeps nothing."""


def _chunks(job: Think) -> Iterator[Chunk]:
    answer = _answer(job)
    told = sum(len(part.text.split()) for part in job.prompt.parts if isinstance(part, TextPart))
    told += sum(len(part.output.split()) for part in job.prompt.parts if isinstance(part, ResultPart))
    yield Chunk(job.fence, "thinker", 0, answer)
    yield Chunk(job.fence, "thinker", 1, End("stop", Usage(told, 0, 1)), last=True)


def _answer(job: Think) -> Payload:
    parts = job.prompt.parts
    results = [part for part in parts if isinstance(part, ResultPart)]
    if job.prompt.tools and job.tool_choice != "none" and not results:
        return CallDelta(f"call_{job.fence.stream}_{job.fence.epoch}", job.prompt.tools[0].name, ARGUMENTS)
    if results and parts[-1] is results[-1]:
        return Text(results[-1].output)
    return Text(STORY if _story(job.prompt) else f"You said {_words(job.prompt)} words.")


def _story(prompt: Prompt) -> bool:
    texts = [part for part in prompt.parts if isinstance(part, TextPart)]
    asked = [part.text for part in texts if part.role == "system"]
    asked += [part.text for part in texts if part.role == "user"][-1:]
    return any("story" in text for text in asked)


def _words(prompt: Prompt) -> int:
    texts = [part.text for part in prompt.parts if isinstance(part, TextPart) and part.role == "user"]
    return len(texts[-1].split()) if texts else 0


def _make(options: msgspec.Struct) -> CallingThinker:
    assert isinstance(options, Options)
    return CallingThinker()


def _describe(options: msgspec.Struct) -> Capabilities:
    return Capabilities(model="caller", note="it calls the tool it is given", context_tokens=4096)


FAMILY = Family("scripted.caller", "thinker", (), Options, _make, _describe)
