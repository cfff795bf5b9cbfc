"""Tests the sound that a driver keeps beside the session: what came in, what the detector hears, what goes out."""

from __future__ import annotations

from itertools import pairwise
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duplex_server.realtime.ears import Ears
from duplex_server.realtime.inputs import Voice
from duplex_server.realtime.mouth import Mouth
from duplex_server.realtime.narrowband import narrowed
from duplex_server.realtime.playout import LEAST
from duplex_server.realtime.samples import Pcm, Samples
from duplex_server.realtime.schema import FormatType
from pipeline.audio import Resampler
from pipeline.chunk import Audio, Reply
from tests.families.scripted.detector.family import EnergyDetector, Options
from tests.realtime.talk import CASES, FRAME_SAMPLES, RATE_HZ

REPLY = Reply("s", 1)


def ramp(samples: int, start: int = 0) -> Pcm:
    return (np.arange(start, start + samples) % 30_000).astype(np.int16)


def hum(samples: int, level: float) -> Pcm:
    pcm: Pcm = (level * np.sin(np.arange(samples) * 0.05)).astype(np.int16)
    return pcm


# ---- input --------------------------------------------------------------------------------------------------------


@CASES
@given(st.lists(st.tuples(st.integers(0, 60_000), st.integers(0, 70_000)), max_size=12))
def test_samples_are_found_by_position_until_they_are_let_go(steps: list[tuple[int, int]]) -> None:
    samples, floor = Samples(), 0
    for count, back in steps:
        samples.append(ramp(count, samples.end))
        floor = max(floor, samples.end - back)
        samples.let_go(floor)
        assert (samples.get(floor, samples.end) == ramp(samples.end - floor, floor)).all()


def test_samples_that_were_let_go_take_no_room() -> None:
    samples = Samples()
    for _ in range(100):
        samples.append(ramp(RATE_HZ))
        samples.let_go(samples.end)
    assert samples.end == 100 * RATE_HZ
    with pytest.raises(AssertionError):
        samples.get(0, 10)


@pytest.mark.parametrize("positions", [(-1, 5), (5, 4), (0, 101)])
def test_asking_for_samples_that_are_not_there_is_a_bug(positions: tuple[int, int]) -> None:
    samples = Samples()
    samples.append(ramp(100))
    with pytest.raises(AssertionError):
        samples.get(*positions)


@pytest.mark.parametrize("piece", [101, 768, 5000])
def test_the_detectors_frames_lie_side_by_side_in_the_input(piece: int) -> None:
    ears = Ears(EnergyDetector(Options()), start_sample=4800)
    pcm = np.concatenate([hum(RATE_HZ, 0), hum(RATE_HZ, 8000)])
    voices = [voice for at in range(0, len(pcm), piece) for voice in ears.hear(pcm[at : at + piece])]
    assert voices[0].from_sample == 4800
    assert all(one.upto_sample == other.from_sample for one, other in pairwise(voices))
    assert all(voice.upto_sample - voice.from_sample == FRAME_SAMPLES for voice in voices)
    assert 4800 + len(pcm) - voices[-1].upto_sample < 2 * FRAME_SAMPLES
    onset = next(voice for voice in voices if voice.probability > 0.5)
    assert abs(onset.from_sample - 4800 - RATE_HZ) <= FRAME_SAMPLES
    assert isinstance(onset, Voice)


# ---- output -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate_hz", [22_050, 24_000])
def test_a_talkers_sound_comes_out_whole_at_the_rate_of_the_channel(rate_hz: int) -> None:
    mouth, pcm, taken, grown = opened(), hum(rate_hz, 8000), b"", 0
    for at in range(0, len(pcm), 1001):
        grown += mouth.take(REPLY, Audio(pcm[at : at + 1001].tobytes(), rate_hz)).samples
    grown += mouth.finish(REPLY)
    assert grown == RATE_HZ
    for at in range(0, grown, 4800):
        taken += mouth.give(REPLY, at, min(at + 4800, grown))
    resampler = Resampler(rate_hz, RATE_HZ)
    whole = np.concatenate([resampler.push(pcm), resampler.flush()])
    assert taken == whole.tobytes()


@pytest.mark.parametrize("rate_hz", [16_000, 22_050, 24_000, 48_000])
def test_where_a_word_ends_is_known_before_the_resampler_has_given_it(rate_hz: int) -> None:
    mouth, ends, grown = opened(), [], 0
    for word_ms in (130, 57, 301, 200):
        word = np.full(rate_hz * word_ms // 1000, 8000, np.int16)
        gap = np.zeros(rate_hz // 20, np.int16)
        took = mouth.take(REPLY, Audio(word.tobytes(), rate_hz))
        ends.append(took.upto_sample)
        grown += took.samples
        assert grown <= took.upto_sample <= grown + RATE_HZ // 20 + 2 * LEAST
        grown += mouth.take(REPLY, Audio(gap.tobytes(), rate_hz)).samples
    grown += mouth.finish(REPLY)
    out = np.abs(np.frombuffer(mouth.give(REPLY, 0, grown), np.int16).astype(np.int32))
    loud = np.flatnonzero(out > 4000)
    edges = [*(int(a) + 1 for a, b in pairwise(loud) if b - a > RATE_HZ // 50), int(loud[-1]) + 1]
    assert edges == pytest.approx(ends, abs=RATE_HZ // 1000)


def opened(kind: FormatType = "audio/pcm") -> Mouth:
    mouth = Mouth()
    mouth.begin(REPLY, kind)
    return mouth


def test_a_reply_without_sound_has_nothing_left() -> None:
    assert Mouth().finish(REPLY) == 0


def test_replies_that_are_over_are_let_go() -> None:
    mouth = opened()
    mouth.begin(Reply("s", 2), "audio/pcm")
    mouth.take(REPLY, Audio(ramp(100).tobytes(), RATE_HZ))
    mouth.take(Reply("s", 2), Audio(ramp(50).tobytes(), RATE_HZ))
    mouth.keep(lambda reply: reply.epoch == 2)
    assert len(mouth.give(Reply("s", 2), 0, 50)) == 100
    with pytest.raises(KeyError):
        mouth.give(REPLY, 0, 1)


@CASES
@given(
    st.sampled_from([8000, 16_000, 22_050, 24_000]),
    st.sampled_from(get_args(FormatType)),
    st.lists(st.integers(1, 6000), min_size=1, max_size=20),
)
def test_check_119_120_no_sound_is_sent_that_is_too_short_and_none_is_lost(
    rate_hz: int, kind: FormatType, chunks: list[int]
) -> None:
    mouth, pcm, at, told = opened(kind), hum(sum(chunks), 8000), 0, []
    for chunk in chunks:
        told.append(mouth.take(REPLY, Audio(pcm[at : at + chunk].tobytes(), rate_hz)).samples)
        at += chunk
    told.append(mouth.finish(REPLY))
    resampler = Resampler(rate_hz, RATE_HZ)
    whole = np.concatenate([resampler.push(pcm), resampler.flush()])
    assert sum(told) == len(whole)
    assert all(samples == 0 or samples >= LEAST for samples in told) or (told[-1] == len(whole) < LEAST)
    expected = whole if kind == "audio/pcm" else narrowed(whole)
    assert mouth.give(REPLY, 0, len(whole)) == expected.tobytes()
