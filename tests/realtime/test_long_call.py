"""Lives through half an hour with clocks that run apart: what is estimated stays as good as it was at the start."""

from __future__ import annotations

import pytest

from duplex_server.realtime import wire
from duplex_server.realtime.effects import PlayAudio
from duplex_server.realtime.meter import FAST, Meter
from duplex_server.realtime.playout import Playout
from tests.realtime.talk import FRAME_S, FRAME_SAMPLES, RATE_HZ, Talk

HALF_HOUR_S = 1800.0


@pytest.mark.parametrize("drift", [-200e-6, 0.0, 200e-6])
def test_what_was_heard_is_estimated_as_well_after_half_an_hour_as_at_the_start(drift: float) -> None:
    """A client's loudspeaker runs fast or slow: what it has played of each reply is known to a few milliseconds."""
    now, reply_s, errors = 0.0, 9.0, []
    while now < HALF_HOUR_S:
        playout, began = Playout(2000, 100), now + 0.1
        playout.audio(round(reply_s * RATE_HZ), None)
        while playout.heard(now) < reply_s * RATE_HZ:
            while playout.take(now) is not None:
                pass
            heard = min(reply_s, max(0.0, (now - began) * (1 + drift)))
            errors.append(abs(playout.heard(now) / RATE_HZ - heard))
            now += 0.05
        now += 3.0
    assert max(errors) < reply_s * abs(drift) + 0.001


@pytest.mark.parametrize("pace", [1 - 200e-6, 1 + 200e-6, 0.99, 1.01])
def test_a_microphone_whose_clock_runs_apart_never_counts_as_ahead(pace: float) -> None:
    meter, now = Meter(), 100.0
    while now < 100.0 + HALF_HOUR_S:
        assert meter.arrived(480, now) == now
        assert meter.ahead_s(now) <= 0.02
        now += 480 / RATE_HZ / pace
    assert abs(pace - 1) < FAST


def test_a_sender_who_is_really_fast_counts_as_ahead() -> None:
    meter, now = Meter(), 100.0
    for _ in range(1000):
        meter.arrived(480, now)
        now += 0.01
    assert meter.ahead_s(now) == pytest.approx(1000 * 0.02 / (1 + FAST) - 10.0)


@pytest.mark.parametrize("pace", [0.99, 1.01])
def test_a_call_of_half_an_hour_keeps_its_times_and_its_answers(talk: Talk, pace: float) -> None:
    """The client's clock runs fast or slow: turns end after the same silence, and answers are not held up or cut."""
    talk.transcribed()
    stopped_after, began_off = [], []
    while talk.now < HALF_HOUR_S:
        talk.sound(20_000, 0.02, speed=pace)
        onset_at, voiced_from = talk.now, talk.session.input.appended
        talk.sound(640, 0.95, speed=pace)
        began_off.append(abs(talk.session.speech_began - onset_at))
        voiced_upto = talk.session.input.appended
        talk.sound(640, 0.02, speed=pace)
        stopped_after.append(talk.last(wire.SpeechStopped).audio_end_ms - voiced_upto * 1000 // RATE_HZ)
        assert talk.last(wire.SpeechStarted).audio_start_ms == (voiced_from * 1000 // RATE_HZ) - 300
        talk.recognize("and then?")
        begun_at = talk.now
        talk.speak(("Then they went home. ", 4000))
        talk.sound(5000, 0.02, speed=pace)
        assert talk.last(wire.ResponseDone).response.status == "completed"
        played = sum(play.upto_sample - play.from_sample for play in talk.effects(PlayAudio))
        assert played == len(stopped_after) * 4 * RATE_HZ, "all of it was sent, at once and in time"
        assert begun_at < talk.now
    assert len(stopped_after) > 60
    assert set(stopped_after) <= {511, 512}
    assert max(began_off) < 0.02 * FRAME_S + FRAME_S
    assert talk.session.input.pending < RATE_HZ
    assert talk.session.input.appended == pytest.approx(
        talk.now * pace * RATE_HZ, abs=2 * FRAME_SAMPLES + 0.01 * RATE_HZ * 1800
    )
    assert talk.session.input.dropped == {"overflow": 0, "late": 0, "overloaded": 0, "failed": 0}
    assert talk.errors == []
    assert talk.session.underruns == 0
