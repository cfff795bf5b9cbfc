"""Tests what is sent when, what of it was heard, and which words that is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duplex_server.realtime.playout import PIECE_MS, SLACK_MS, Piece, Playout, Track
from tests.realtime.talk import CASES, RATE_HZ

PIECE = PIECE_MS * RATE_HZ // 1000
ROUNDING_S = 1e-6


def drain(playout: Playout, now: float) -> list[Piece]:
    pieces = []
    while (piece := playout.take(now)) is not None:
        pieces.append(piece)
    return pieces


# ---- the alignment ------------------------------------------------------------------------------------------------


def test_words_are_cut_back_to_the_last_whole_one() -> None:
    track = Track()
    track.grow(1000, (0, 10))
    assert track.heard_text("Good day. And", 1000) == "Good day."
    assert track.heard_text("Good day. And", 800) == "Good"
    assert track.heard_text("Good day. And", 300) == ""


def test_a_pause_speaks_nothing_new() -> None:
    track = Track()
    track.grow(1000, (0, 10))
    track.grow(1000, None)
    track.grow(1000, (10, 13))
    assert track.heard_text("Good day. And", 1900) == "Good day."
    assert track.heard_text("Good day. And", 3000) == "Good day. And"


def test_words_whose_sound_was_lost_on_the_way_are_not_claimed_before_those_after_them_are_heard() -> None:
    track = Track()
    track.grow(1000, (0, 4))
    track.grow(1000, (15, 20))
    assert track.heard_text("Good day to all people", 1010) == "Good"
    assert track.heard_text("Good day to all people", 1600) == "Good day to"


def test_a_caption_without_sound_was_not_heard() -> None:
    assert Track().heard_text("Good day.", 0) == ""
    track = Track()
    track.grow(500, None)
    assert track.heard_text("Good day.", 500) == ""


def test_words_whose_sound_is_still_in_the_resampler_were_not_heard() -> None:
    track = Track()
    track.grow(0, (0, 9))
    assert track.heard_text("Good day.", 0) == ""
    track.grow(500, None)
    assert track.heard_text("Good day.", 500) == "Good day."


def exactly(*words: tuple[str, int]) -> tuple[str, Track]:
    """A caption and its track: each word with the samples it takes, and where it ends is known."""
    caption, track = "", Track()
    for word, samples in words:
        start, caption = len(caption), f"{caption} {word}".lstrip()
        track.grow(samples, (start, len(caption)), exact=True)
    return caption, track


def test_where_words_are_known_to_end_the_last_one_that_ended_was_heard() -> None:
    caption, track = exactly(("Good", 5000), ("day.", 4000), ("And", 3000))
    assert [track.heard_text(caption, at) for at in (0, 4000, 5000, 8000, 9000, 11_000, 12_000)] == [
        "",
        "",
        "Good",
        "Good",
        "Good day.",
        "Good day.",
        "Good day. And",
    ]
    assert track.heard_text(f"{caption} more", 12_000) == "Good day. And", "a caption precedes its audio"


def test_a_word_is_heard_if_a_moment_of_it_was_missed() -> None:
    caption, track = exactly(("Good", 5000), ("day.", 4000))
    slack = SLACK_MS * RATE_HZ // 1000
    assert track.heard_text(caption, 5000 - slack) == "Good"
    assert track.heard_text(caption, 5000 - slack - 1) == ""
    assert track.heard_text(caption, 9000 - slack) == "Good day."


def test_sound_inside_a_word_and_a_pause_after_it_add_nothing() -> None:
    track = Track()
    track.grow(3000, (0, 0), exact=True)
    track.grow(3000, (0, 4), exact=True)
    track.grow(5000, (4, 4), exact=True)
    track.grow(2000, None)
    assert [track.heard_text("Good day.", at) for at in (5000, 6000, 12_999, 13_000, 99_999)] == ["", *["Good"] * 4]


def test_a_word_ends_where_its_sound_will_be_not_where_the_resampler_is() -> None:
    track = Track()
    track.grow(4400, (0, 4), exact=True, upto_sample=4800)
    track.grow(5100, (4, 9), exact=True, upto_sample=9600)
    track.grow(100, None)
    assert track.samples == 9600
    assert track.heard_text("Good day.", 4400) == ""
    assert track.heard_text("Good day.", 4800) == "Good"
    assert track.heard_text("Good day.", 9400) == "Good"
    assert track.heard_text("Good day.", 9600) == "Good day."


def test_an_estimate_too_is_of_where_the_sound_will_be() -> None:
    track = Track()
    track.grow(4400, (0, 10), upto_sample=4800)
    assert track.heard_text("Good day. And", 4300) == "Good"
    assert track.heard_text("Good day. And", 4800) == "Good day."


def test_what_was_never_sent_was_never_heard() -> None:
    track = Track()
    track.grow(1000, (0, 10))
    track.cut(400)
    track.cut(900)
    assert track.samples == 400
    assert track.heard_text("Good day. ", 5000) == "Good day. ", "a caller asks for no more than there is"


words = st.lists(st.sampled_from(["a", "bird", "sang", "loudly,", "then", "stopped."]), min_size=1, max_size=12)


@CASES
@given(words, st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 12)), max_size=8), st.booleans(), st.data())
def test_what_was_heard_grows_with_the_sound_and_ends_between_words(
    said: list[str], chunks: list[tuple[int, int]], exact: bool, data: st.DataObject
) -> None:
    caption, track, at = " ".join(said), Track(), 0
    bounds = [at for at in range(len(caption) + 1) if at == len(caption) or caption[at] == " "]
    for samples, length in chunks:
        upto = min(at + length, len(caption))
        span = (at, next(bound for bound in bounds if bound >= upto) if exact and length else upto)
        at = span[1]
        track.grow(samples, span if length else None, exact)
    cuts = sorted(data.draw(st.lists(st.integers(0, track.samples), min_size=2, max_size=6)))
    heard = [track.heard_text(caption, samples) for samples in cuts]
    for text, more in zip(heard, [*heard[1:], caption], strict=True):
        assert more.startswith(text)
        assert text.split() == said[: len(text.split())], "a word was cut in two"


# ---- the clock ----------------------------------------------------------------------------------------------------


def test_captions_go_at_once_and_sound_in_its_time() -> None:
    playout = Playout(1000, 100)
    playout.caption("Hello ")
    playout.audio(2 * RATE_HZ, (0, 6))
    playout.caption("there.")
    pieces = drain(playout, 0.0)
    assert pieces[0] == Piece(caption="Hello ")
    assert [piece.upto_sample - piece.from_sample for piece in pieces[1:]] == [PIECE] * 5
    assert playout.deadline() == pytest.approx(0.1)
    assert drain(playout, 0.09) == []
    assert drain(playout, 5.0)[-1] == Piece(caption="there.")
    assert playout.drained
    assert playout.deadline() is None


def test_what_was_heard_lags_by_the_clients_buffer() -> None:
    playout = Playout(2000, 100)
    playout.audio(RATE_HZ, None)
    drain(playout, 10.0)
    assert playout.heard(10.1) == 0
    assert playout.heard(10.6) == RATE_HZ // 2
    assert playout.playing(11.09)
    assert not playout.playing(11.1)
    assert playout.heard(99) == RATE_HZ


def test_a_reply_is_heard_after_the_one_before_it() -> None:
    playout = Playout(2000, 100)
    playout.free_at = 12.0
    playout.audio(RATE_HZ, None)
    drain(playout, 11.0)
    assert playout.heard(12.0) == 0
    assert playout.heard(12.5) == RATE_HZ // 2
    assert playout.plays_until(11.0) == pytest.approx(13.0)


def test_a_stall_of_the_talker_makes_nothing_unheard() -> None:
    playout = Playout(2000, 100)
    playout.audio(RATE_HZ, None)
    drain(playout, 0.0)
    assert playout.heard(5.0) == RATE_HZ
    playout.audio(PIECE, None)
    drain(playout, 5.0)
    assert playout.heard(5.0) == RATE_HZ
    assert playout.heard(5.2) == RATE_HZ + PIECE // 2


def test_a_paced_channel_is_believed() -> None:
    playout = Playout(200, 0)
    playout.audio(RATE_HZ, None)
    drain(playout, 0.0)
    playout.played(1000)
    playout.played(500)
    assert playout.heard(9.0) == 1000
    playout.played(99_999)
    assert playout.heard(9.0) == playout.sent


def test_silence_drops_what_was_not_sent() -> None:
    playout = Playout(200, 0)
    playout.audio(RATE_HZ, None)
    drain(playout, 0.0)
    playout.silence()
    assert playout.drained
    assert playout.track.samples == playout.sent < RATE_HZ
    assert playout.plays_until(0.0) == pytest.approx(playout.sent / RATE_HZ)


steps = st.lists(
    st.tuples(st.sampled_from(["audio", "caption", "wait"]), st.integers(0, 40_000)), min_size=1, max_size=30
)


@CASES
@given(steps, st.sampled_from([0, 200, 2000]), st.sampled_from([0, 100, 500]), st.sampled_from([0.0, 3.0]))
def test_sending_keeps_its_distance_and_what_was_heard_only_grows(
    what: list[tuple[str, int]], run_ahead_ms: int, buffer_ms: int, after: float
) -> None:
    playout = Playout(run_ahead_ms, buffer_ms)
    playout.free_at = after
    now, heard = 0.0, 0
    bound_s = max(run_ahead_ms, buffer_ms) / 1000 + PIECE_MS / 1000 + ROUNDING_S
    for kind, amount in what:
        match kind:
            case "audio":
                playout.audio(amount, None)
            case "caption":
                playout.caption("x")
            case _:
                now += amount / 10_000
        sent = playout.sent
        for piece in drain(playout, now):
            assert playout.free_at - now <= max(bound_s, after - now + bound_s)
            assert piece.caption or (piece.from_sample == sent and 0 < piece.upto_sample - sent <= PIECE)
            sent = piece.upto_sample or sent
        deadline = playout.deadline()
        assert playout.drained if deadline is None else deadline > now
        assert heard <= playout.heard(now) <= playout.sent <= playout.track.samples
        heard = playout.heard(now)
    assert playout.heard(now + 1e6) == playout.sent
