"""Lets the models of a pipeline talk to each other once, and takes the time of each."""

from __future__ import annotations

import asyncio
import re
import time
from difflib import SequenceMatcher

import msgspec
import numpy as np
from numpy.typing import NDArray

from pipeline.chunk import (
    Audio,
    Chunk,
    Failed,
    Fence,
    Prompt,
    Reply,
    Segment,
    Speak,
    Text,
    TextPart,
    Think,
    Transcript,
)
from pipeline.engine import Engine
from pipeline.errors import StageError

SENTENCE = "What is the capital of France?"
STAGE_S = 60.0  # a stage that takes longer can't hold a conversation
FIRST_TOKENS = 8
STREAM = "doctor"
_CHUNKS = 4096  # far more than a sentence makes


class RoundTrip(msgspec.Struct, frozen=True):
    """A sentence was spoken by the talker, heard by the recognizer and answered by the thinker.

    `agreement` is the share of words that came through, 0 to 1. Times are in ms: until the first sound of the talker
    (`talker_first`), until all `speech` ms of it, until the transcript, until the first word of the answer. Everything
    was loaded before.
    """

    said: str
    heard: str
    agreement: float
    speech_ms: float
    talker_first_ms: float
    talker_ms: float
    recognizer_ms: float
    thinker_first_ms: float


async def round_trip(engine: Engine, instructions: str, said: str = SENTENCE) -> RoundTrip:
    """Go once through all stages of a started engine. Raises `StageError`, which names the stage."""
    chunks: asyncio.Queue[Chunk] = asyncio.Queue(_CHUNKS)
    engine.open(STREAM, chunks.put_nowait)
    try:
        pcm, rate_hz, first_ms, talker_ms = await _speak(engine, chunks, said)
        heard, recognizer_ms = await _hear(engine, chunks, pcm, rate_hz)
        thinker_ms = await _think(engine, chunks, instructions, heard or said)
    finally:
        engine.close(STREAM)
    speech_ms = 1000 * len(pcm) / rate_hz
    times = (round(one, 1) for one in (speech_ms, first_ms, talker_ms, recognizer_ms, thinker_ms))
    return RoundTrip(said, heard, agreement(said, heard), *times)


async def _speak(
    engine: Engine, chunks: asyncio.Queue[Chunk], text: str
) -> tuple[NDArray[np.int16], int, float, float]:
    """The speech (int16, shape (n,)), its rate, and when its first and its last sample stood, in ms."""
    reply = Reply(STREAM, 1)
    began = time.monotonic()
    engine.say(Speak(reply), text)
    pieces: list[bytes] = []
    rate_hz, first_ms = 0, 0.0
    while True:
        chunk = await _next(chunks, reply, "talker")
        if isinstance(chunk.payload, Audio):
            first_ms = first_ms if pieces else _ms_since(began)
            pieces.append(chunk.payload.pcm)
            rate_hz = chunk.payload.rate_hz
        if chunk.last:
            break
    if not rate_hz:
        raise StageError(f"talker: it made no sound of {text!r}")
    return np.frombuffer(b"".join(pieces), "<i2"), rate_hz, first_ms, _ms_since(began)


async def _hear(
    engine: Engine, chunks: asyncio.Queue[Chunk], pcm: NDArray[np.int16], rate_hz: int
) -> tuple[str, float]:
    segment = Segment(STREAM, 1, len(pcm))
    began = time.monotonic()
    engine.transcribe(segment, pcm, rate_hz, final=True, language=None, prompt=None)
    while True:
        chunk = await _next(chunks, segment, "recognizer")
        if isinstance(chunk.payload, Transcript):
            return chunk.payload.text, _ms_since(began)


async def _think(engine: Engine, chunks: asyncio.Queue[Chunk], instructions: str, text: str) -> float:
    parts = (TextPart("instructions", "system", instructions), TextPart("question", "user", text))
    reply = Reply(STREAM, 2)
    began = time.monotonic()
    engine.answer(Think(reply, Prompt(parts), FIRST_TOKENS), None)
    while True:
        chunk = await _next(chunks, reply, "thinker")
        if isinstance(chunk.payload, Text) and chunk.payload.text:
            return _ms_since(began)
        if chunk.last:
            raise StageError(f"thinker: it had no answer to {text!r}")


async def _next(chunks: asyncio.Queue[Chunk], fence: Fence, role: str) -> Chunk:
    """The next chunk of a job. Raises `StageError` when it failed, or none comes."""
    try:
        async with asyncio.timeout(STAGE_S):
            while (chunk := await chunks.get()).fence != fence:
                pass  # the rest of a stage that was asked before
    except TimeoutError as error:
        raise StageError(f"{role}: nothing came of it within {STAGE_S:.0f} s", "stage_timeout") from error
    if isinstance(chunk.payload, Failed):
        raise StageError(f"{role}: {chunk.payload.message}", chunk.payload.kind)
    return chunk


def _ms_since(began: float) -> float:
    return 1000 * (time.monotonic() - began)


def agreement(said: str, heard: str) -> float:
    """The share of the words of `said` that stand, in their order, in `heard`, whatever case and punctuation."""
    words, others = _words(said), _words(heard)
    same = sum(block.size for block in SequenceMatcher(None, words, others, autojunk=False).get_matching_blocks())
    return round(same / len(words), 2) if words else 0.0


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.casefold())
