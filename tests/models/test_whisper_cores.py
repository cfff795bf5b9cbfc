"""Tests how a decoding is judged and where long audio is cut."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.whisper.verdict import Attempt, Heard, Verdict, judge, next_attempt
from models.whisper.windows import FULL_WINDOW_S, SEARCH_S, window_end

RATE_HZ = 1000


def decoding(
    text: str = "hello", *, no_speech: float = 0.1, log: float = -0.2, repetition: float = 1.0, capped: bool = False
) -> Heard:
    return Heard(text, "en", no_speech, log, repetition, capped)


@pytest.mark.parametrize(
    ("heard", "short", "full"),
    [
        (decoding(), Verdict.WORDS, Verdict.WORDS),
        (decoding(log=-0.5), Verdict.AGAIN, Verdict.WORDS),
        (decoding(repetition=3), Verdict.AGAIN, Verdict.AGAIN),
        (decoding(capped=True), Verdict.AGAIN, Verdict.AGAIN),
        (decoding(". ."), Verdict.SILENCE, Verdict.SILENCE),
        (decoding("you", no_speech=0.95, log=-0.43), Verdict.SILENCE, Verdict.SILENCE),
        (decoding("No.", no_speech=0.74, log=-0.79), Verdict.AGAIN, Verdict.WORDS),  # a soft word over noise
        (decoding("Ahhh!", no_speech=0.61, log=-1.57), Verdict.AGAIN, Verdict.SILENCE),  # loud breath
        (decoding("you", no_speech=0.83, log=-0.93), Verdict.AGAIN, Verdict.SILENCE),  # clicks
    ],
)
def test_what_a_decoding_is_worth(heard: Heard, short: Verdict, full: Verdict) -> None:
    assert judge(heard, Attempt.SHORT) is short
    assert judge(heard, Attempt.FULL) is full


def test_the_attempts_get_costlier_and_end() -> None:
    assert next_attempt(Attempt.SHORT) is Attempt.FULL
    assert next_attempt(Attempt.FULL) is Attempt.STRICT
    assert judge(decoding(repetition=3, capped=True), Attempt.STRICT) is Verdict.SILENCE
    assert judge(decoding(capped=True), Attempt.STRICT) is Verdict.WORDS


def test_a_cut_lies_in_the_pause() -> None:
    pcm = np.full(40 * RATE_HZ, 1000, np.int16)
    pcm[25 * RATE_HZ : 26 * RATE_HZ] = 3
    assert 25 * RATE_HZ < window_end(pcm, 0, RATE_HZ) < 26 * RATE_HZ


@given(st.integers(0, 200 * RATE_HZ), st.integers(0, 2**32 - 1))
def test_the_windows_cover_everything_once_and_fit_the_model(length: int, seed: int) -> None:
    pcm = np.random.default_rng(seed).integers(-9000, 9000, length, dtype=np.int16)
    at = 0
    while at < length:
        end = window_end(pcm, at, RATE_HZ)
        assert at < end <= at + FULL_WINDOW_S * RATE_HZ
        assert end == length or end >= at + (FULL_WINDOW_S - SEARCH_S) * RATE_HZ
        at = end
    assert at == length
