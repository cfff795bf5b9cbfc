"""Tests resampling and framing: sample-exact, however the stream is cut."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.audio import Framer, Pcm, Resampler

RATES = (8_000, 16_000, 22_050, 24_000, 44_100, 48_000)


def noise(count: int, seed: int) -> Pcm:
    return np.random.default_rng(seed).integers(-32768, 32768, count).astype(np.int16)


def cut(pcm: Pcm, sizes: list[int]) -> list[Pcm]:
    pieces, at, turn = [], 0, 0
    while at < len(pcm):
        size = sizes[turn % len(sizes)]
        pieces.append(pcm[at : at + size])
        at, turn = at + size, turn + 1
    return pieces


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(RATES),
    st.sampled_from(RATES),
    st.integers(0, 3000),
    st.lists(st.integers(1, 700), min_size=1, max_size=8),
    st.integers(0, 9),
)
def test_any_cut_gives_the_same_samples(from_hz: int, to_hz: int, count: int, sizes: list[int], seed: int) -> None:
    pcm = noise(count, seed)
    whole = Resampler(from_hz, to_hz).push(pcm, last=True)
    resampler = Resampler(from_hz, to_hz)
    pieces = np.concatenate([*(resampler.push(piece) for piece in cut(pcm, sizes)), resampler.flush()])
    np.testing.assert_array_equal(pieces, whole)
    assert len(whole) == (2 * count * to_hz + from_hz) // (2 * from_hz)
    np.testing.assert_array_equal(resampler.push(pcm, last=True), whole)  # it begins afresh after a flush


def test_a_tone_stays_where_it_is_and_as_loud() -> None:
    at = np.arange(16_000)
    tone = np.rint(12_000 * np.sin(2 * np.pi * 440 * at / 16_000)).astype(np.int16)
    out = Resampler(16_000, 24_000).push(tone, last=True)
    expected = 12_000 * np.sin(2 * np.pi * 440 * np.arange(24_000) / 24_000)
    assert np.max(np.abs(out[500:-500] - expected[500:-500])) < 3


def test_full_scale_is_clipped_and_does_not_wrap() -> None:
    square = np.repeat(np.array([32767, -32768] * 50, np.int16), 40)
    out = Resampler(16_000, 24_000).push(square, last=True)
    middle = out.reshape(-1, 60)[1:-1, 15:45]  # away from the edges of each half wave
    assert np.all(np.abs(middle.astype(int)) > 20_000)
    assert np.all(np.sign(middle) == np.sign(middle[:, :1]))


def test_equal_rates_pass_through() -> None:
    pcm = noise(100, 1)
    np.testing.assert_array_equal(Resampler(24_000, 24_000).push(pcm), pcm)


@given(st.integers(1, 600), st.integers(0, 3000), st.lists(st.integers(1, 900), min_size=1, max_size=8))
def test_frames_hold_every_sample_once(samples: int, count: int, sizes: list[int]) -> None:
    pcm = noise(count, 3)
    framer = Framer(samples)
    frames = [frame for piece in cut(pcm, sizes) for frame in framer.push(piece)]
    assert all(frame.shape == (samples,) for frame in frames)
    np.testing.assert_array_equal(np.concatenate([*frames, framer.flush()]), pcm)
    assert len(frames) == count // samples
    assert len(framer.flush()) == 0


@pytest.mark.parametrize("wrong", [np.zeros(4, np.float32), np.zeros((2, 2), np.int16)])
def test_other_arrays_are_refused(wrong: Pcm) -> None:
    with pytest.raises(TypeError, match="int16 samples of shape"):
        Resampler(16_000, 24_000).push(wrong)
    with pytest.raises(TypeError, match="int16 samples of shape"):
        Framer(10).push(wrong)


def test_numbers_that_mean_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="positive"):
        Resampler(0, 24_000)
    with pytest.raises(ValueError, match="at least one sample"):
        Framer(0)
