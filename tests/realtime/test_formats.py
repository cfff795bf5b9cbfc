"""Tests sound on its way between a client's format and 24 kHz: the same however it is cut, all of it, in its place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duplex_server.realtime import formats
from duplex_server.realtime.formats import Inlet
from duplex_server.realtime.narrowband import DELAY, Narrower, Widener, narrowed, widened
from duplex_server.realtime.samples import Pcm
from duplex_server.realtime.schema import NARROW_RATE_HZ, FormatType
from loadtest.speech import speech
from tests.realtime.talk import CASES, RATE_HZ

KINDS = get_args(FormatType)
TELEPHONES = ("audio/pcmu", "audio/pcma")
EDGE = 100  # samples at either end, where a sound has no neighbours

sizes = st.lists(st.integers(1, 900), min_size=1, max_size=8)
S = TypeVar("S", bound=Sequence[object] | Pcm | bytes)


def cut(whole: S, sizes: list[int]) -> Iterator[S]:
    at = turn = 0
    while at < len(whole):
        size = sizes[turn % len(sizes)]
        yield whole[at : at + size]  # type: ignore[misc]  # a slice of what it is
        at, turn = at + size, turn + 1


def noise(samples: int, seed: int) -> Pcm:
    return np.random.default_rng(seed).integers(-32768, 32768, samples).astype(np.int16)


def tone(hz: float, rate_hz: int, seconds: float = 0.5) -> Pcm:
    at = np.arange(round(seconds * rate_hz)) / rate_hz
    pcm: Pcm = np.rint(12_000 * np.sin(2 * np.pi * hz * at)).astype(np.int16)
    return pcm


def joined(pieces: list[Pcm]) -> Pcm:
    return np.concatenate([np.zeros(0, np.int16), *pieces])


def loudness(pcm: Pcm) -> float:
    return float(np.sqrt(np.mean(pcm[EDGE:-EDGE].astype(float) ** 2)))


# ---- the filter ---------------------------------------------------------------------------------------------------


@CASES
@given(st.integers(0, 3000), sizes, st.integers(0, 9))
def test_any_cut_gives_the_same_samples_at_once_and_all_of_them(count: int, sizes: list[int], seed: int) -> None:
    pcm = noise(count, seed)
    widener, narrower = Widener(), Narrower()
    pieces = [widener.push(piece) for piece in cut(pcm, sizes)]
    assert [len(wide) for wide in pieces] == [3 * len(piece) for piece in cut(pcm, sizes)]
    np.testing.assert_array_equal(joined(pieces)[DELAY:], widened(pcm)[: max(0, 3 * count - DELAY)])
    out = joined([*(narrower.push(piece) for piece in cut(pcm, sizes)), narrower.flush()])
    np.testing.assert_array_equal(out, narrowed(pcm))
    assert len(out) == count


@CASES
@given(st.integers(1, 500), st.integers(0, 9))
def test_the_samples_of_a_telephone_stand_untouched_among_those_at_24_khz(count: int, seed: int) -> None:
    pcm = noise(count, seed)
    np.testing.assert_array_equal(widened(pcm)[::3], pcm)


@pytest.mark.parametrize("hz", [200, 1000, 3000])
def test_a_tone_stays_where_it_is_and_as_loud(hz: int) -> None:
    wide = tone(hz, RATE_HZ)
    assert np.max(np.abs(widened(tone(hz, NARROW_RATE_HZ)) - wide)[EDGE:-EDGE]) < 12_000 / 100
    assert np.max(np.abs(narrowed(wide) - wide)[EDGE:-EDGE]) < 12_000 / 100


@pytest.mark.parametrize("hz", [4600, 6000, 9000])
def test_what_a_telephone_can_not_carry_is_taken_out_before_it_folds_back(hz: int) -> None:
    assert loudness(narrowed(tone(hz, RATE_HZ))) < loudness(tone(hz, RATE_HZ)) / 100


@pytest.mark.parametrize("hz", [300, 2000, 3400])
def test_no_mirror_image_is_heard(hz: int) -> None:
    spectrum = np.abs(np.fft.rfft(widened(tone(hz, NARROW_RATE_HZ, 1.0)) * np.hanning(RATE_HZ)))
    assert max(spectrum[4500:]) < spectrum[hz] / 100


def test_full_scale_is_clipped_and_does_not_wrap() -> None:
    square = np.repeat(np.array([32767, -32768] * 50, np.int16), 40)
    for out, step in ((widened(square), 120), (narrowed(square), 40)):
        middle = out.reshape(-1, step)[1:-1, step // 4 : -step // 4]
        assert np.all(np.sign(middle) == np.sign(middle[:, :1]))


# ---- in -----------------------------------------------------------------------------------------------------------


@CASES
@given(st.sampled_from(KINDS), st.binary(min_size=1, max_size=4000), sizes)
def test_check_072_any_cut_of_the_bytes_gives_the_same_samples(
    kind: FormatType, sound: bytes, sizes: list[int]
) -> None:
    whole, inlet = Inlet(), Inlet()
    expected = whole.push(sound, kind)
    np.testing.assert_array_equal(joined([inlet.push(piece, kind) for piece in cut(sound, sizes)]), expected)
    assert len(expected) == formats.samples(len(sound), kind)
    np.testing.assert_array_equal(inlet.flush(), whole.flush())


@pytest.mark.parametrize("kind", TELEPHONES)
def test_speech_comes_in_a_millisecond_late_and_as_clear_as_its_bytes(kind: FormatType) -> None:
    pcm = speech("hello_world")[0]
    sent = formats.encode_whole(pcm.tobytes(), kind)
    assert len(sent) == -(-len(pcm) // 3)
    heard = Inlet().push(sent, kind)[DELAY:].astype(float)
    meant = narrowed(pcm)[: len(heard)].astype(float)
    assert DELAY == RATE_HZ // 1000
    assert np.sum(meant**2) > 1000 * np.sum((heard - meant) ** 2), "30 dB"


def test_another_format_begins_afresh() -> None:
    inlet = Inlet()
    inlet.push(b"\x01\x02\x03", "audio/pcm")
    assert len(inlet.push(b"\xff\xff", "audio/pcmu")) == 6
    assert inlet.push(b"\x01\x02", "audio/pcm").tolist() == [0x0201], "half a sample of long ago is no part of it"
    inlet.push(b"\x03", "audio/pcm")
    inlet.clear()
    assert inlet.push(b"\x01\x02", "audio/pcm").tolist() == [0x0201]


@pytest.mark.parametrize(("kind", "size"), [("audio/pcm", 4800), ("audio/pcmu", 800), ("audio/pcma", 800)])
def test_check_075_the_bytes_of_a_tenth_of_a_second(kind: FormatType, size: int) -> None:
    assert formats.size(100, kind) == size
    assert formats.samples(size, kind) == RATE_HZ // 10
    assert formats.is_whole(size - 1, kind) == (kind != "audio/pcm")


# ---- out ----------------------------------------------------------------------------------------------------------


@CASES
@given(st.sampled_from(KINDS), st.integers(0, 5000), sizes, st.integers(0, 9))
def test_check_119_any_cut_of_a_reply_gives_the_same_bytes(
    kind: FormatType, count: int, sizes: list[int], seed: int
) -> None:
    pcm = noise(count, seed)
    stream = pcm if formats.narrower(kind) is None else narrowed(pcm)
    whole, at, sent = formats.encode_whole(pcm.tobytes(), kind), 0, b""
    for piece in cut(stream, sizes):
        sent += formats.encode(piece.tobytes(), kind, at)
        at += len(piece)
    assert sent == whole
    assert abs(len(whole) - count * formats.size(1000, kind) / RATE_HZ) <= 1


@pytest.mark.parametrize("kind", TELEPHONES)
def test_a_sound_that_was_sent_and_came_back_is_where_it_was(kind: FormatType) -> None:
    pcm = tone(440, RATE_HZ)
    back = widened(Inlet().push(formats.encode_whole(pcm.tobytes(), kind), kind)[::3])
    assert np.argmax(np.correlate(back.astype(float), pcm.astype(float), "full")) - (len(pcm) - 1) == DELAY
