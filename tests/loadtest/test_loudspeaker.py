"""Tests the ideal loudspeaker: when which sample is heard."""

from __future__ import annotations

import numpy as np
import pytest

from loadtest.loudspeaker import RATE_HZ, VOICED, Loudspeaker, Pcm


def tone(seconds: float, quiet_s: float = 0.0) -> Pcm:
    """Quiet, then loud samples."""
    pcm = np.full(round(seconds * RATE_HZ), VOICED + 1, np.int16)
    pcm[: round(quiet_s * RATE_HZ)] = VOICED
    return pcm


def test_a_sample_is_heard_when_it_arrives_or_when_the_one_before_it_ends() -> None:
    speaker = Loudspeaker()
    speaker.play(tone(1.0), 10.0)
    speaker.play(tone(1.0), 10.2)  # in time: played without a gap
    assert speaker.free_at == pytest.approx(12.0)
    speaker.play(tone(1.0), 15.0)  # late: a gap
    assert speaker.free_at == pytest.approx(16.0)
    assert speaker.first_voiced(10.5) == pytest.approx(10.5)
    assert speaker.first_voiced(12.5) == pytest.approx(15.0)
    assert speaker.first_voiced(16.5) is None
    assert speaker.last_voiced(0.0, 14.0) == pytest.approx(12.0, abs=2 / RATE_HZ)
    assert speaker.last_voiced(12.5, 14.0) is None


def test_quiet_samples_are_not_heard() -> None:
    speaker = Loudspeaker()
    speaker.play(tone(1.0, quiet_s=0.25), 10.0)
    assert speaker.first_voiced(0.0) == pytest.approx(10.25)
    speaker.play(-tone(1.0), 12.0)  # a negative sample is as loud
    assert speaker.first_voiced(11.5) == pytest.approx(12.0)


def test_a_cut_silences_what_was_not_heard_yet() -> None:
    speaker = Loudspeaker()
    speaker.play(tone(1.0), 10.0)
    speaker.play(tone(1.0), 10.0)
    speaker.cut(10.5)
    assert speaker.last_voiced(0.0, 99.0) == pytest.approx(10.5, abs=2 / RATE_HZ)
    speaker.play(tone(1.0), 10.6)  # the next answer does not wait for the one that was cut
    assert speaker.first_voiced(10.55) == pytest.approx(10.6)
    speaker.cut(20.0)  # what was heard stays heard
    assert speaker.last_voiced(0.0, 99.0) == pytest.approx(11.6, abs=2 / RATE_HZ)
