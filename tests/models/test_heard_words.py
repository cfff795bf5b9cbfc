"""Cuts the talker's speech off, lets a recognizer hear what was left of it, and holds the words told against that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnxruntime
import pytest

from duplex_server.realtime.playout import Track
from models.piper.shaping import PIECE_MS
from models.piper.talker import Options, PiperTalker
from models.whisper.recognizer import Recognizer
from pipeline.chunk import Audio, Caption, Chunk
from tests.heard import counts, words
from tests.models.test_piper import FENCE, RATE_HZ, captions, hear, say, sound

TEXTS = (
    "The oldest bridge in the whole city was built by hand, and it still stands today. Its seven arches carry trams, "
    "buses, and walkers over the wide river every single day.",
    "In the middle of the night, a cold wind blew down from the mountains and rattled the windows of the farmhouse.",
    "She doesn't know that we're going to the well-known place, but it's likely that she will find us there.",
    "It was in 1995 that the ticket to the city still cost only $3.50, and the trip took about 25 minutes.",
    "Dr. Smith will see you on May 3rd at 10:30 a.m., so please be there on time, and bring your papers.",
)
ODD = (
    "See https://example.com/a/b, or mail joe@x.org \u2014 it's $2.5 million (about 50% off) on 2024-05-01!",
    "AT&T's twenty-one-year-old CEO, e.g., earns 5-10 km/h; \u201cdon't\u201d call 555-1234\u2026 in the U.S.A.",
)
CUTS = 8
"""Of each text."""


@dataclass(frozen=True, slots=True)
class Heard:
    """One cut: how many words of the text a recognizer may have heard, and how many each way of telling says."""

    recognized: frozenset[int]
    aligned: int
    estimated: int


@pytest.fixture(scope="module")
def talker() -> PiperTalker:
    onnxruntime.set_seed(7)
    stage = PiperTalker(Options(threads=1))
    stage.load()
    return stage


def aligned(chunks: Sequence[Chunk]) -> Track:
    track = Track()
    for chunk in chunks:
        if isinstance(chunk.payload, Audio):
            track.grow(len(chunk.payload.pcm) // 2, chunk.text_span, chunk.exact)
    return track


def estimated(chunks: Sequence[Chunk]) -> Track:
    """The same speech as a voice without alignment tells of it."""
    clauses: list[list[int]] = []
    for chunk in chunks:
        if isinstance(chunk.payload, Caption):
            clauses.append([len(chunk.payload.text), 0])
        elif isinstance(chunk.payload, Audio):
            clauses[-1][1] += len(chunk.payload.pcm) // 2
    track, at = Track(), 0
    for chars, samples in clauses:
        size = RATE_HZ * PIECE_MS // 1000
        for start in range(0, samples, size):
            stop = min(start + size, samples)
            track.grow(stop - start, (at + chars * start // samples, at + chars * stop // samples))
        at += chars
    return track


def word_ends(chunks: Sequence[Chunk]) -> list[int]:
    """The samples at which a word ends."""
    ends, at = [], 0
    for chunk in chunks:
        if isinstance(chunk.payload, Audio):
            at += len(chunk.payload.pcm) // 2
            if chunk.text_span is not None and chunk.text_span[0] < chunk.text_span[1]:
                ends.append(at)
    return ends


def cut_and_hear(stage: PiperTalker, whisper: Recognizer, text: str) -> list[Heard]:
    chunks = say(stage, text)
    stage.forget(FENCE.stream)
    pcm, caption, said = sound(chunks), captions(chunks), words(text)
    ends = word_ends(chunks)[3:-1]  # a recognizer makes little of less
    found = []
    for end in np.random.default_rng(1).choice(ends, CUTS, replace=False):
        heard = hear(whisper, np.concatenate([pcm[:end], np.zeros(RATE_HZ // 2, np.int16)]))
        told = [len(words(track.heard_text(caption, int(end)))) for track in (aligned(chunks), estimated(chunks))]
        found.append(Heard(counts(said, words(heard)), *told))
    return found


def test_speech_that_is_cut_at_a_word_is_heard_up_to_that_word(talker: PiperTalker, whisper: Recognizer) -> None:
    found = [heard for text in TEXTS for heard in cut_and_hear(talker, whisper, text)]
    same = sum(one.aligned in one.recognized for one in found) / len(found)
    near = sum(any(abs(one.aligned - count) <= 1 for count in one.recognized) for one in found) / len(found)
    before = sum(one.estimated in one.recognized for one in found) / len(found)
    # Measured over 195 cuts: 0.79, 0.92 and 0.34. A short word that is cut off sharply is often not recognized.
    assert same >= 0.6, found
    assert near >= 0.8, found
    assert before <= same - 0.15, "knowing when words are said is worth little over guessing"


@pytest.mark.parametrize("text", [*TEXTS, *ODD])
def test_spans_are_exact_rise_and_cover_the_captions(talker: PiperTalker, text: str) -> None:
    chunks = say(talker, text)
    caption = captions(chunks)
    assert caption == text[: len(caption)]
    spans = [chunk.text_span for chunk in chunks if isinstance(chunk.payload, Audio)]
    at = 0
    for span in spans:
        assert span is not None
        assert span[0] == at <= span[1]
        at = span[1]
        assert at in (0, len(caption)) or caption[at].isspace() or caption[at - 1].isspace(), (
            "a span ends inside a word"
        )
    assert at == len(caption)
    assert all(chunk.exact for chunk in chunks if isinstance(chunk.payload, Audio))


def test_a_voice_that_can_not_tell_estimates_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("models.piper.voice.take_apart", lambda _: None)
    stage = PiperTalker(Options(threads=1))
    stage.load()
    assert len([record for record in caplog.records if "what was heard is estimated" in record.message]) == 1
    chunks = say(stage, TEXTS[0])
    spoken = [chunk for chunk in chunks if isinstance(chunk.payload, Audio)]
    assert not any(chunk.exact for chunk in spoken)
    assert [chunk.text_span for chunk in spoken][-1] == (spoken[-2].text_span[1], len(TEXTS[0]))  # type: ignore[index]
