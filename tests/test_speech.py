"""Tests that the recordings the other tests rely on are what they are said to be."""

from __future__ import annotations

import numpy as np
import pytest

from loadtest import speech


@pytest.mark.parametrize("name", speech.UTTERANCES)
def test_an_utterance_begins_and_ends_with_speech(name: str) -> None:
    pcm, text = speech.speech(name, 16_000)
    assert text
    assert pcm.dtype == np.int16
    assert abs(int(np.abs(pcm).max()) - speech.PEAK) <= 1
    assert abs(int(pcm[0])) > speech.VOICED
    assert abs(int(pcm[-1])) > speech.VOICED


def test_a_rate_changes_the_length_only() -> None:
    at_16, at_24 = (len(speech.speech("season", rate_hz)[0]) / rate_hz for rate_hz in (16_000, 24_000))
    assert at_16 == pytest.approx(at_24, abs=1e-3)


def test_sounds_are_the_same_each_time_and_as_loud_as_asked() -> None:
    assert (speech.noise(1, seed=3) == speech.noise(1, seed=3)).all()
    assert np.std(speech.noise(2, level=500)) == pytest.approx(500, rel=0.02)
    assert np.std(speech.hum(2, level=500)) == pytest.approx(500, rel=0.02)
    pcm, _ = speech.speech("season")
    added = speech.add_noise(pcm, 10).astype(float) - pcm
    assert 20 * np.log10(np.std(pcm) / np.std(added)) == pytest.approx(10, abs=0.2)


def test_word_errors_are_counted_over_words_alone() -> None:
    assert speech.word_error_rate("One two, three!", "1-2-3") == 0
    assert speech.word_error_rate("a b c d", "a x c") == 0.5
