"""Tests the beginning and the end of a session, and what its driver asks it."""

from __future__ import annotations

import pytest

from duplex_server.realtime import wire
from duplex_server.realtime.effects import Cancel, Close, Pace, Prepare, Recognize
from duplex_server.realtime.ids import Ids
from duplex_server.realtime.inputs import PeerLost
from pipeline.chunk import Fence, Reply, TextPart
from tests.realtime.conftest import OpenTalk
from tests.realtime.talk import RATE_HZ, Talk, kinds
from tests.realtime.test_responses import respond


def test_check_001_a_session_speaks_first(talk: Talk) -> None:
    assert kinds(talk.told) == ["session.created"]
    prepared = talk.effects(Prepare)[-1].prompt
    assert prepared.parts == (TextPart("instructions", "system", "Be brief."),)


def test_check_014_the_model_that_was_asked_for_is_echoed(open_talk: OpenTalk) -> None:
    talk = open_talk(model="someone's-own/model:7b")
    assert talk.session.settings.model == "someone's-own/model:7b"
    assert b'"model":"someone\'s-own/model:7b"' in wire.encode(talk.told[0])


def test_check_022_a_session_ends_when_its_time_is_up(open_talk: OpenTalk) -> None:
    talk = open_talk(lifetime_s=60.0)
    respond(talk)
    assert talk.session.deadline() == 60.0
    talk.wait(59.9)
    assert talk.errors == []
    told = talk.wait(0.2)
    assert kinds(told) == ["error"]
    assert talk.errors == ["session_expired"]
    close = talk.effects(Close)[-1]
    assert (close.code, close.reason) == (1001, talk.last(wire.Error).error.message)
    assert "1 minutes" in close.reason
    assert talk.effects(Cancel)[-1].fence == talk.reply
    assert not talk.session.wants(talk.reply)


def test_check_022_nothing_is_done_after_the_end(open_talk: OpenTalk) -> None:
    talk = open_talk(lifetime_s=60.0)
    talk.wait(61)
    before = len(talk.done)
    talk.ask("response.create")
    talk.append(RATE_HZ)
    talk.feed(PeerLost())
    talk.wait(100)
    assert len(talk.done) == before
    assert talk.session.deadline() is None


def test_f30_a_peer_that_leaves_leaves_no_work_behind(talk: Talk) -> None:
    beside = respond(talk, conversation="none", input=[])
    one = talk.reply
    respond(talk)
    other = talk.reply
    talk.listen(turn_detection={"type": "server_vad", "interrupt_response": False})
    talk.speech(500)
    talk.sound(256, 0.02)
    segment = talk.effects(Recognize)[-1].segment
    told = len(talk.told)
    talk.feed(PeerLost())
    assert {effect.fence for effect in talk.effects(Cancel)} == {one, other, segment}
    fences: tuple[Fence, ...] = (one, other, segment)
    assert not [fence for fence in fences if talk.session.wants(fence)]
    assert len(talk.told) == told, f"nobody is there to be told of {beside}"
    assert talk.session.deadline() is None


def test_the_driver_is_told_what_is_wanted(talk: Talk) -> None:
    assert not talk.session.wants(Reply("s1", 1))
    talk.speech(500)
    talk.sound(256, 0.02)
    segment = talk.effects(Recognize)[-1].segment
    assert talk.session.wants(segment)
    talk.silence()
    assert talk.session.wants(segment), "it was committed"
    talk.recognize("hello")
    assert not talk.session.wants(segment)
    assert talk.session.wants(talk.reply)
    talk.end()
    assert not talk.session.wants(talk.reply)


def test_the_talker_is_told_how_long_there_is_time(talk: Talk) -> None:
    respond(talk)
    talk.audio(10_000)
    assert talk.effects(Pace)[-1].plays_until == pytest.approx(10.0)
    talk.wait(1.0)
    talk.audio(1000)
    assert talk.effects(Pace)[-1].plays_until == pytest.approx(11.1), "the client's buffer of 100 ms counts"
    talk.end()


def test_the_next_tick_is_due_when_there_is_something_to_send(talk: Talk) -> None:
    assert talk.session.deadline() == 3600.0
    respond(talk)
    talk.audio(10_000)
    deadline = talk.session.deadline()
    assert deadline is not None
    assert 0.0 < deadline <= 0.2
    talk.ask("response.cancel")
    assert talk.session.deadline() == 3600.0


def test_ids_are_the_same_again_from_the_same_seed_and_from_no_other() -> None:
    first, again, other = Ids("a"), Ids("a"), Ids("b")
    ids = [first(prefix) for prefix in ("item", "resp", "item")]
    assert ids == [again(prefix) for prefix in ("item", "resp", "item")]
    assert len(set(ids)) == 3
    assert not set(ids) & {other(prefix) for prefix in ("item", "resp", "item")}
    assert ids[0].startswith("item_")


def test_a_session_is_engaged_while_a_reply_is_made_or_heard(talk: Talk) -> None:
    assert not talk.session.engaged(talk.now)
    talk.say("what time is it?")
    assert talk.session.engaged(talk.now)
    talk.speak(("It is noon.", 1000))
    assert talk.session.engaged(talk.now)
    talk.wait(3.0)
    assert not talk.session.engaged(talk.now)
