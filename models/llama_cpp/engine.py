"""Wraps the llama.cpp binding: one model, one context with many sequences, typed and without its pitfalls."""

from __future__ import annotations

import os
from array import array
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import msgspec
import numpy as np

from models.llama_cpp.cpu import check_cpu
from models.llama_cpp.detokenize import BROKEN
from models.llama_cpp.template import Layout, Message, learn
from models.llama_cpp.vocabulary import TOP_K, TOP_P, Scores, Vocabulary, bytes_of
from models.registry import library
from pipeline.errors import StageError

NO_TOKEN = -1
NO_FLASH_ATTENTION = 0  # one token took 7.7 ms without it and 9.4 ms with it (SmolLM2, 2 threads); prefill was equal
# Fewer tokens than this are computed by one thread: two bring 146 tokens a second in place of 138 on a quiet machine,
# and 39 in place of 136 beside one busy process.
WIDE_TOKENS = 16
RANDOM_SEED = 0xFFFFFFFF  # llama.cpp's word for "draw one"


class Entry(msgspec.Struct, frozen=True):
    """One token of a batch: where it stands in its sequence, and whether what follows it will be sampled."""

    token: int
    position: int
    seq: int
    sampled: bool


class Limits(msgspec.Struct, frozen=True):
    """The sizes of a context, in tokens, sequences and threads. `context_tokens` is the most of one sequence."""

    context_tokens: int
    cache_tokens: int
    sequences: int
    batch_tokens: int
    threads: int


class Sampling(msgspec.Struct, frozen=True):
    """How the next token is chosen. `temperature` 0 takes the likeliest; `seed` None draws one."""

    temperature: float
    repeat_penalty: float
    repeat_window: int
    seed: int | None


# ---- what is used of the binding, which comes without annotations --------------------------------------------------


class _Vocab(Protocol):
    def tokenize(self, text: str, add_special: bool, parse_special: bool) -> list[int]: ...
    def detokenize(self, tokens: list[int], max_chars: int, remove_special: bool, show_special: bool) -> str: ...
    def is_eog(self, token: int) -> bool: ...
    def is_control(self, token: int) -> bool: ...
    def get_add_bos(self) -> bool: ...
    def get_text(self, token: int) -> str: ...
    def token_bos(self) -> int: ...


class _Batch(Protocol):
    def add(self, token: int, position: int, sequences: list[int], logits: bool) -> None: ...
    def clear(self) -> None: ...


class _Context(Protocol):
    cancel: bool

    def install_cancel_callback(self) -> None: ...
    def set_n_threads(self, few_tokens: int, many_tokens: int) -> None: ...
    def decode(self, batch: _Batch) -> int: ...
    def get_logits_ith(self, index: int) -> list[float]: ...
    def memory_seq_rm(self, seq: int, start: int, end: int) -> bool: ...
    def memory_seq_cp(self, source: int, target: int, start: int, end: int) -> None: ...
    def memory_seq_pos_max(self, seq: int) -> int: ...


class _Sampler(Protocol):
    def sample(self, context: _Context, index: int) -> int: ...


# ---- the engine ----------------------------------------------------------------------------------------------------


def _model(native: ModuleType) -> type[Any]:
    """The binding's class of models, with room for `n_vocab`: its contexts ask their model for it and find none."""
    return type("Model", (native.LlamaModel,), {})


class Sampler:
    """Chooses the next token of one reply, with the memory that its repetition penalty needs."""

    def __init__(self, chain: _Sampler, context: _Context) -> None:
        self._chain = chain
        self._context = context

    def sample(self, index: int) -> int:
        """The token that follows the `index`-th entry of the batch just computed; that entry was `sampled`."""
        return self._chain.sample(self._context, index)


class Engine:
    """A loaded model. One thread uses it, except for `interrupt`.

    Raises `StageError` when the processor, the library or the model can't do what is needed here.
    """

    def __init__(self, path: Path, limits: Limits) -> None:
        check_cpu()
        # Threads that spin long at a barrier burn their time slice while the one they wait for has no core: beside one
        # busy process a prompt of 140 tokens took 1.28 s so, 0.67 s with a short spin. Read when the library loads.
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
        self._native = library("cyllama.llama.llama_cpp", "llama_cpp")
        self._native.disable_logging()
        try:
            self._model = _model(self._native)(str(path), self._native.LlamaModelParams())
        except (ValueError, RuntimeError, OSError) as error:
            raise StageError(
                f"llama.cpp can't read {path}: {error}; expected a GGUF file of a language model"
            ) from error
        if self._model.is_recurrent() or self._model.is_hybrid() or not self._model.has_decoder():
            raise StageError(f"{path.name}: only decoders with a plain attention cache, which can be cut, work here")
        self._vocab: _Vocab = self._model.get_vocab()
        self._model.n_vocab = self._vocab_size = int(self._model.get_vocab().n_vocab)
        self.opening_token = self._vocab.token_bos() if self._vocab.get_add_bos() else None
        trained = self._model.n_ctx_train
        if limits.context_tokens > trained:
            raise StageError(f"context_tokens is {limits.context_tokens}; this model was trained on {trained} at most")
        self._threads = limits.threads
        self._context = self._open(limits)
        self._batch: _Batch = self._native.LlamaBatch(n_tokens=limits.batch_tokens, embd=0, n_seq_max=1)
        # The binding strips blanks from the left of what it detokenizes: a token before them keeps them.
        self._anchor = self.tokenize("a", special=False)
        self._anchor_chars = len(self._detokenize(self._anchor))

    def _open(self, limits: Limits) -> _Context:
        params = self._native.LlamaContextParams()
        params.n_ctx = limits.cache_tokens
        params.n_batch = params.n_ubatch = limits.batch_tokens
        params.n_seq_max = limits.sequences
        params.kv_unified = True  # sequences share room, and a prefix can be shared: else a copy aborts the process
        params.swa_full = True  # keep tokens outside a sliding window, or the cache couldn't be cut
        params.flash_attn_type = NO_FLASH_ATTENTION
        params.n_threads = params.n_threads_batch = limits.threads
        params.no_perf = True
        context: _Context = self._native.LlamaContext(self._model, params)
        context.install_cancel_callback()
        return context

    # ---- text ----

    def layout(self, chat_template: str) -> Layout:
        """Learn the chat template: the model's own, or llama.cpp's of that name. Raises `StageError`."""
        source = chat_template or self._model.get_default_chat_template()
        if not source:
            raise StageError("the model has no chat template: name one by the option `chat_template`, such as 'chatml'")

        def render(messages: Sequence[Message], reply: bool) -> str:
            native = [self._native.LlamaChatMessage(role, text) for role, text in messages]
            return str(self._model.chat_apply_template(source, native, reply))

        try:
            return learn(render)
        except RuntimeError as error:
            known = ", ".join(self._native.chat_builtin_templates())
            raise StageError(
                f"llama.cpp doesn't know this chat template: name one it knows by the option `chat_template` ({known})"
            ) from error

    def tokenize(self, text: str, special: bool) -> tuple[int, ...]:
        """The tokens of `text`; names of special tokens in it mean those tokens only if `special`."""
        return tuple(self._vocab.tokenize(text, False, special))

    def text(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without special ones; bytes that are no whole character become U+FFFD."""
        return self._detokenize((*self._anchor, *tokens))[self._anchor_chars :]

    def _detokenize(self, tokens: Sequence[int]) -> str:
        return self._vocab.detokenize(list(tokens), 16 * len(tokens), False, False)

    def vocabulary(self) -> Vocabulary:
        """The texts of all tokens, as bytes."""
        return Vocabulary([self._piece(token) for token in range(self._vocab_size)])

    def _piece(self, token: int) -> bytes:
        text = self.text((token,))
        return bytes_of(self._vocab.get_text(token)) if BROKEN in text else text.encode()

    def ends(self, token: int) -> bool:
        """Whether the reply is over: at the end of a turn, and at any other token that is no text."""
        return self._vocab.is_eog(token) or self._vocab.is_control(token)

    # ---- computing ----

    def sampler(self, sampling: Sampling) -> Sampler:
        """A fresh sampler for one reply."""
        chain = self._native.LlamaSampler()
        if sampling.repeat_penalty != 1.0:
            chain.add_penalties(sampling.repeat_window, sampling.repeat_penalty, 0.0, 0.0)
        if sampling.temperature <= 0.0:
            chain.add_greedy()
        else:
            chain.add_top_k(TOP_K)
            chain.add_top_p(TOP_P, 1)
            chain.add_temp(sampling.temperature)
            chain.add_dist(RANDOM_SEED if sampling.seed is None else sampling.seed)
        return Sampler(chain, self._context)

    def scores(self, index: int) -> Scores:
        """How likely each token is to follow the `index`-th entry of the batch just computed, as logits (n_tokens,)."""
        return np.frombuffer(array("f", self._context.get_logits_ith(index)), np.float32)

    def decode(self, entries: Sequence[Entry]) -> bool:
        """Compute a batch of at most `batch_tokens` entries; False when `interrupt` ended it.

        After False nothing can be sampled, and each sequence holds what `length` says.
        """
        self._context.cancel = False
        threads = self._threads if len(entries) >= WIDE_TOKENS else 1
        self._context.set_n_threads(threads, threads)
        self._batch.clear()
        for entry in entries:
            self._batch.add(entry.token, entry.position, [entry.seq], entry.sampled)
        try:
            self._context.decode(self._batch)
        except InterruptedError:
            return False
        return True

    def interrupt(self) -> None:
        """End the running `decode`; without one, nothing. Called from any thread."""
        self._context.cancel = True

    # ---- the cache ----

    def cut(self, seq: int, length: int) -> bool:
        """Keep the first `length` tokens of a sequence; False when the cache can only be emptied."""
        return self._context.memory_seq_rm(seq, length, -1)

    def copy(self, source: int, target: int, length: int) -> None:
        """Let an empty sequence share the first `length` tokens of another."""
        self._context.memory_seq_cp(source, target, 0, length)

    def length(self, seq: int) -> int:
        """How many tokens a sequence holds."""
        return self._context.memory_seq_pos_max(seq) + 1
