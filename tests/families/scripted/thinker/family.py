"""A thinker that writes a derived text word by word, and misbehaves when the user asks it to.

What the last user text says decides:
"say X" is answered with X, "say X and call F A" with a call of F with the arguments A too; "recite" with all texts
before it; "please go on" with words until `max_tokens`;
"please refuse" raises while the job is admitted, "please raise" in its second step, where "please exhaust" runs out of
memory; "please stall" never writes again after one word; "please wait" sits in a step until it is interrupted; "please
hang" sits in a step for `hang_s` and can't be interrupted ("please hang at once" in its very first); "please freeze"
even keeps the interpreter's lock meanwhile; "please exit" ends the process with status 3, "please abort" with SIGABRT
(the last three only where it has a process of its own). Anything else is answered with the number of its words.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from pipeline.chunk import CallDelta, Chunk, End, Fence, Job, Payload, Prepare, Prompt, Text, TextPart, Think, Usage
from pipeline.errors import StageError
from pipeline.spec import Capabilities, Family
from pipeline.stage import Step, Work

WAIT_S = 30.0  # "please wait" ends then, so that a broken interrupt fails a test instead of blocking it


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`text` is written whatever the user says, unless it is empty."""

    text: str = ""
    words_per_step: int = 1
    batch: int = 4
    bound_ms: int = 1000
    hang_s: float = 60.0


@dataclass(slots=True)
class _Writing:
    """A reply under way."""

    words: list[str]
    most: int
    asked: str
    reused: int
    call: tuple[str, str] | None = None
    at: int = 0
    seq: int = 0

    def chunk(self, fence: Fence, payload: Payload, *, last: bool = False) -> Chunk:
        self.seq += 1
        return Chunk(fence, "thinker", self.seq - 1, payload, last=last)


class ScriptedThinker:
    """One word is one token; what it has read for a stream counts as cached until the stream is forgotten."""

    threads = 1

    def __init__(self, options: Options) -> None:
        self._options = options
        self._jobs: dict[Fence, _Writing] = {}
        self._read: dict[str, int] = {}  # tokens of the stream's last prompt
        self._interrupted = threading.Event()

    @property
    def bound_ms(self) -> int:
        return self._options.bound_ms

    @property
    def batch(self) -> int:
        return self._options.batch

    def load(self) -> None:
        print("a library that prints to the standard output", flush=True)

    def admit(self, job: Job) -> None:
        assert isinstance(job, Think)
        asked = _asked(job.prompt)
        if "please refuse" in asked:
            raise StageError("it was asked to refuse")
        reused = min(self._read.get(job.fence.stream, 0), _tokens(job.prompt))
        self._read[job.fence.stream] = _tokens(job.prompt)
        asked, call = _call(asked)
        self._jobs[job.fence] = _Writing(self._words(asked, job.prompt), job.max_tokens, asked, reused, call)

    def prepare(self, ahead: Prepare) -> None:
        self._read[ahead.stream] = _tokens(ahead.prompt)

    def step(self, work: Sequence[Work]) -> Step:
        self._interrupted.clear()
        chunks: list[Chunk] = []
        idle = set()
        for w in work:
            writing = self._jobs[w.fence]
            if writing.at > 0 or "at once" in writing.asked:
                self._misbehave(writing.asked)
            if writing.at > 0 and "please stall" in writing.asked:
                idle.add(w.fence)
                continue
            chunks += self._write(w.fence, writing)
        return Step(tuple(chunks), frozenset(idle))

    def interrupt(self) -> None:
        self._interrupted.set()

    def drop(self, fence: Fence) -> None:
        self._jobs.pop(fence, None)

    def forget(self, stream: str) -> None:
        self._read.pop(stream, None)

    def _words(self, asked: str, prompt: Prompt) -> list[str]:
        if self._options.text:
            return self._options.text.split()
        if asked == "recite":
            return " ".join(part.text for part in prompt.parts[:-1] if isinstance(part, TextPart)).split()
        if asked.startswith("say "):
            return asked.split()[1:]
        if "please" in asked:
            return []
        return f"You said {len(asked.split())} words.".split()

    def _write(self, fence: Fence, writing: _Writing) -> list[Chunk]:
        chunks = []
        endless = "please" in writing.asked and not writing.words
        for _ in range(self._options.words_per_step):
            total = writing.most if endless else min(len(writing.words), writing.most)
            if writing.at >= total:
                usage = Usage(0, writing.reused, writing.at)
                if writing.call is not None:
                    name, arguments = writing.call
                    half = len(arguments) // 2
                    chunks.append(writing.chunk(fence, CallDelta("call_of_the_script", name, arguments[:half])))
                    chunks.append(writing.chunk(fence, CallDelta("call_of_the_script", "", arguments[half:])))
                finish = End("stop" if not endless and total == len(writing.words) else "length", usage)
                chunks.append(writing.chunk(fence, finish, last=True))
                del self._jobs[fence]
                break
            word = f"word{writing.at}" if endless else writing.words[writing.at]
            chunks.append(writing.chunk(fence, Text(word if writing.at == 0 else f" {word}")))
            writing.at += 1
        return chunks

    def _misbehave(self, asked: str) -> None:
        if "please raise" in asked:
            raise ValueError("it was asked to raise")
        if "please exhaust" in asked:
            raise MemoryError("it was asked to want 100 GB")
        if "please wait" in asked:
            assert self._interrupted.wait(WAIT_S), "nobody interrupted the step"
        if "please hang" in asked:
            threading.Event().wait(self._options.hang_s)
        if "please freeze" in asked:
            self._alone()
            ctypes.PyDLL(None).sleep(int(self._options.hang_s))
        if "please exit" in asked:
            self._alone()
            os._exit(3)
        if "please abort" in asked:
            self._alone()
            os.abort()

    def _alone(self) -> None:
        """Refuse to end a process that runs more than this stage."""
        if "pytest" in sys.modules or "duplex_server" in sys.modules:
            raise StageError("this stage shares its process with a server: place it in a process of its own")


def _asked(prompt: Prompt) -> str:
    texts = [part.text for part in prompt.parts if isinstance(part, TextPart) and part.role == "user"]
    return texts[-1] if texts else ""


def _call(asked: str) -> tuple[str, tuple[str, str] | None]:
    """What is asked for in words, and the call that is asked for with its arguments."""
    words, found, call = asked.partition(" and call ")
    name, _, arguments = call.partition(" ")
    return words, (name, arguments) if found else None


def _tokens(prompt: Prompt) -> int:
    return sum(len(part.text.split()) for part in prompt.parts if isinstance(part, TextPart))


def _make(options: msgspec.Struct) -> ScriptedThinker:
    assert isinstance(options, Options)
    return ScriptedThinker(options)


def _describe(options: msgspec.Struct) -> Capabilities:
    return Capabilities(model="scripted", note="it writes what it is told", context_tokens=4096)


FAMILY = Family("scripted.thinker", "thinker", (), Options, _make, _describe)
