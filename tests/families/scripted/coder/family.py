"""A talker that gives codes for a vocoder: for each word its caption, then codes of any size."""

from __future__ import annotations

import msgspec
import numpy as np

from pipeline.chunk import Audio, Chunk, Tensors
from pipeline.spec import Capabilities, Family, Ports
from tests.families.scripted.talker import family as tone
from transport.base import inline

FILLS = 251  # codes of one word are all the same number, below this


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`code_bytes` is the size of a word's codes, `large_bytes` that of the word `large_at`.

    The step that would speak `raises_at` raises, the one that would speak `dies_at` aborts the process.
    """

    word_ms: int = 300
    batch: int = 4
    bound_ms: int = 1000
    code_bytes: int = 1000
    large_at: str = ""
    large_bytes: int = 0
    raises_at: str = ""
    dies_at: str = ""


class Coder(tone.ToneTalker):
    """A word a step. Its codes say what the vocoder is to make of them: how many samples, for which characters."""

    def __init__(self, options: Options) -> None:
        super().__init__(
            tone.Options(
                word_ms=options.word_ms, batch=options.batch, bound_ms=options.bound_ms, dies_at=options.dies_at
            )
        )
        self._codes = options

    def _say(self, speech: tone.Speech, word: str) -> list[Chunk]:
        if word == self._codes.raises_at:
            raise ValueError("it was asked to raise")
        nbytes = self._codes.large_bytes if word == self._codes.large_at else self._codes.code_bytes
        return [_coded(chunk, nbytes) for chunk in super()._say(speech, word)]


def _coded(chunk: Chunk, nbytes: int) -> Chunk:
    if not isinstance(chunk.payload, Audio):
        return chunk
    assert chunk.text_span is not None
    order = np.array((len(chunk.payload.pcm) // 2, *chunk.text_span), np.int64)
    codes = np.full(nbytes, chunk.seq % FILLS, np.uint8)
    return msgspec.structs.replace(chunk, payload=Tensors("codes", inline({"order": order, "codes": codes})))


def _make(options: msgspec.Struct) -> Coder:
    assert isinstance(options, Options)
    return Coder(options)


def _describe(options: msgspec.Struct) -> Capabilities:
    return Capabilities(model="codes", rate_hz=tone.RATE_HZ, voices=tone.VOICES)


FAMILY = Family("scripted.coder", "talker", (), Options, _make, _describe, ports=Ports(("text",), ("codes",)))
