"""Tests what a router makes of jobs, chunks, cancels and deaths, with scripted stages in virtual time."""

from __future__ import annotations

import pytest

from pipeline.carry import refs_of
from pipeline.chunk import (
    Audio,
    Caption,
    Chunk,
    End,
    Failed,
    Prepare,
    Reply,
    Speak,
    StageRole,
    Tensors,
)
from pipeline.graph import Graph
from pipeline.observer import Unobserved
from pipeline.spec import EdgeSpec, Policy, Transport
from tests.pipeline.scenes import cascade, coded, prompt
from tests.pipeline.virtual import LARGE, LONG_S, STEP_S, Pipeline, ask, captions, codes, failure, of, recognize


class Counting(Unobserved):
    """Counts what an edge carries and drops."""

    def __init__(self) -> None:
        self.sends: list[tuple[str, int]] = []
        self.drops: list[tuple[str, int]] = []
        self.late = 0

    def sent(self, edge: str, nbytes: int) -> None:
        self.sends.append((edge, nbytes))

    def dropped(self, edge: str, chunks: int) -> None:
        self.drops.append((edge, chunks))

    def stale(self, role: StageRole) -> None:
        self.late += 1


# ---- what a stream is told -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", ["auto", "inline", "inproc", "shm"])
def test_all_that_is_said_comes_from_the_talker_whatever_stages_it_is_made_of(transport: Transport) -> None:
    pipeline = Pipeline(coded(coder=codes(), transport=transport))
    heard = pipeline.open("s")
    reply = ask(pipeline, 1, "say one two three")
    pipeline.run(LONG_S)
    said = of(heard, reply)
    assert [chunk.seq for chunk in said] == list(range(7))
    assert [type(chunk.payload) for chunk in said if not chunk.last].count(Audio) == 3
    assert captions(said) == "one two three"
    assert [chunk.last for chunk in said] == [False] * 6 + [True]
    assert said[-1].payload == End()
    spans = [chunk.text_span for chunk in said if isinstance(chunk.payload, Audio)]
    assert spans == [(0, 3), (3, 7), (7, 13)]
    assert {chunk.role for chunk in heard} == {"thinker", "talker"}
    pipeline.shut()


def test_sound_that_is_made_anew_is_heard_once() -> None:
    whole = coded()
    pipeline = Pipeline(whole)
    edges = tuple(edge for edge in pipeline.router._graph.edges if edge.target != "vocoder")
    anew = EdgeSpec(source="talker", port="audio", target="vocoder")
    pipeline.router._graph = Graph((*edges, anew), "vocoder")
    heard = pipeline.open("s")
    reply = Reply("s", 1)
    raw, made = Audio(b"raw!", 24_000), Audio(b"made", 24_000)
    for chunk in (
        Chunk(reply, "talker", 0, Caption("a")),
        Chunk(reply, "talker", 1, raw),
        Chunk(reply, "talker", 2, End(), last=True),
        Chunk(reply, "vocoder", 0, made),
        Chunk(reply, "vocoder", 1, End(), last=True),
    ):
        pipeline.router.delivered(chunk)
    assert [(chunk.role, chunk.seq, chunk.payload) for chunk in heard] == [
        ("talker", 0, Caption("a")),
        ("talker", 1, made),
        ("talker", 2, End()),
    ]


def test_what_lies_in_a_plane_is_counted_by_its_edge() -> None:
    counting = Counting()
    pipeline = Pipeline(coded(coder=codes()), counting)
    pipeline.open("s")
    ask(pipeline, 1, "say one two")
    pipeline.run(LONG_S)
    order_bytes = 24
    assert counting.sends == [("talker.codes -> vocoder", LARGE + order_bytes)] * 2
    pipeline.shut()


def test_a_vocoder_that_has_said_enough_ends_the_coder_too() -> None:
    pipeline = Pipeline(coded(coder=codes(), vocoder={"ends_after": 2}))
    heard = pipeline.open("s")
    reply = ask(pipeline, 1, f"say {'word ' * 50}")
    pipeline.run(LONG_S)
    said = of(heard, reply)
    assert [chunk.payload for chunk in said if chunk.last] == [End("length")]
    assert said[-1].last
    assert len([chunk for chunk in said if isinstance(chunk.payload, Audio)]) == 2
    assert len(pipeline.parts["talker"].links[0].began) < 50
    pipeline.shut()


def test_a_text_is_said_without_a_thinker() -> None:
    pipeline = Pipeline(coded(coder=codes()))
    heard = pipeline.open("s")
    pipeline.router.say(Speak(Reply("s", 1)), "good morning to you")
    pipeline.run(LONG_S)
    assert captions(heard) == "good morning to you"
    assert {chunk.role for chunk in heard} == {"talker"}
    pipeline.shut()


@pytest.mark.parametrize("answer", ["cancel", "close"])
def test_a_stream_may_answer_a_chunk_at_once(answer: str) -> None:
    pipeline = Pipeline(coded(coder=codes()))
    heard: list[Chunk] = []

    def hear(chunk: Chunk) -> None:
        heard.append(chunk)
        if isinstance(chunk.payload, Caption):
            if answer == "cancel":
                pipeline.router.cancel(chunk.fence)
            else:
                pipeline.router.close("s")

    pipeline.router.open("s", hear)
    ask(pipeline, 1, "say one two three")
    pipeline.run(LONG_S)
    assert isinstance(heard[-1].payload, Caption)
    pipeline.shut()


# ---- trouble ---------------------------------------------------------------------------------------------------------


def test_a_coder_that_raises_ends_the_speech_once() -> None:
    pipeline = Pipeline(coded(coder=codes(raises_at="ouch")))
    heard = pipeline.open("s")
    reply = ask(pipeline, 1, "say one ouch three")
    pipeline.run(LONG_S)
    assert failure(of(heard, reply)) == Failed("stage_failed", "ValueError: it was asked to raise")
    assert [chunk.seq for chunk in of(heard, reply)] == list(range(len(of(heard, reply))))
    assert captions(of(heard, ask(pipeline, 2, "say fine"))) == ""
    pipeline.run(LONG_S)
    assert captions(of(heard, Reply("s", 2))) == "fine"
    pipeline.shut()


def test_codes_too_large_for_their_slot_end_their_reply_alone() -> None:
    spec = coded(coder=codes(large_at="huge", large_bytes=300_000), slot_bytes=100_000)
    pipeline = Pipeline(spec)
    heard, other = pipeline.open("s"), pipeline.open("t")
    reply, fine = ask(pipeline, 1, "say one huge three"), ask(pipeline, 1, "say a b c d", "t")
    pipeline.run(LONG_S)
    failed = failure(of(heard, reply))
    assert failed.kind == "capacity"
    assert "300024 bytes asked, a slot takes 0 to 100000: give its edge larger slots (slot_bytes)" in failed.message
    assert captions(of(other, fine)) == "a b c d"
    pipeline.shut()


@pytest.mark.parametrize("role", ["talker", "vocoder"])
def test_a_death_among_those_who_speak_ends_the_speech_once(role: StageRole) -> None:
    pipeline = Pipeline(coded("process", coder=codes()))
    heard = pipeline.open("s")
    reply = ask(pipeline, 1, f"say {'word ' * 20}")
    pipeline.run(0.1)
    pipeline.parts[role].links[0].die()
    pipeline.run(LONG_S)
    assert failure(of(heard, reply)).kind == "stage_lost"
    following = ask(pipeline, 2, "say a b")
    pipeline.run(LONG_S)
    assert captions(of(heard, following)) == "a b"
    pipeline.shut()


def test_a_reply_asked_for_while_the_vocoder_is_away_is_spoken_when_it_is_back() -> None:
    """What the coder puts for the next process must not be given back with what the last one held."""
    pipeline = Pipeline(coded("process", coder=codes(), slots=8))
    heard = pipeline.open("s")
    lost = ask(pipeline, 1, f"say {'word ' * 20}")
    pipeline.run(0.1)
    pipeline.parts["vocoder"].links[0].die(away_s=1.0)
    pipeline.run(0.05)  # it is known to be down, and not yet gone
    reply = ask(pipeline, 2, "say one two three")
    pipeline.run(LONG_S)
    assert failure(of(heard, lost)).kind == "stage_lost"
    assert captions(of(heard, reply)) == "one two three"
    assert of(heard, reply)[-1].payload == End()
    pipeline.shut()


def test_a_coder_that_dies_harms_no_reply_of_another_one() -> None:
    """Its codes are gone, which a step of the vocoder that holds replies of both may find out."""
    pipeline = Pipeline(coded("process", coder=codes(), vocoder={"batch": 4}, replicas=2))
    pipeline.stages["vocoder"]._home = lambda stream: pipeline.parts["vocoder"].hosts[0]  # type: ignore[method-assign]  # both meet at one
    pipeline.stages["vocoder"]._homes = dict.fromkeys("st", pipeline.parts["vocoder"].hosts[0])
    pipeline.parts["vocoder"].links[0].step_s = 0.5
    heard, other = pipeline.open("s"), pipeline.open("t")
    reply, fine = ask(pipeline, 1, f"say {'word ' * 8}"), ask(pipeline, 1, "say a b c d e f", "t")
    pipeline.run(0.15)
    pipeline.parts["talker"].links[0].die(away_s=0.2)
    pipeline.run(LONG_S)
    assert failure(of(heard, reply)).kind == "stage_lost"
    assert captions(of(other, fine)) == "a b c d e f"
    assert of(other, fine)[-1].payload == End()
    pipeline.shut()


@pytest.mark.parametrize("when", ["up", "away"])
def test_a_vocoder_that_can_not_be_reached_ends_the_speech_and_keeps_no_slot(when: str) -> None:
    pipeline = Pipeline(coded("process", coder=codes()))
    heard = pipeline.open("s")
    link = pipeline.parts["vocoder"].links[0]
    if when == "away":
        link.die(away_s=1.0)
        pipeline.run(0.1)
    link.full = True
    reply = ask(pipeline, 1, f"say {'word ' * 5}")
    pipeline.run(LONG_S)
    failed = failure(of(heard, reply))
    assert failed == Failed("capacity", "the vocoder leaves too much unread: it is overloaded")
    pipeline.shut()


def test_a_stream_that_can_not_take_a_chunk_is_closed() -> None:
    pipeline = Pipeline(cascade("inline"))
    other = pipeline.open("t")

    def refuse(chunk: Chunk) -> None:
        raise RuntimeError("a bug in a session")

    pipeline.router.open("s", refuse)
    ask(pipeline, 1, "say one")
    fine = ask(pipeline, 1, "say two", "t")
    pipeline.run(LONG_S)
    assert captions(of(other, fine)) == "two"
    with pytest.raises(AssertionError, match="not open"):
        ask(pipeline, 2, "say three")
    pipeline.shut()


def test_a_stream_that_was_not_opened_is_a_bug_of_the_caller() -> None:
    pipeline = Pipeline(cascade("inline"))
    for call in (
        lambda: recognize(pipeline, 1, "nobody"),
        lambda: ask(pipeline, 1, "say a", "nobody"),
        lambda: pipeline.router.say(Speak(Reply("nobody", 1)), "a"),
    ):
        with pytest.raises(AssertionError, match="not open"):
            call()
    pipeline.router.prepare(Prepare("nobody", prompt("x")))
    pipeline.router.close("nobody")
    pipeline.open("s")
    with pytest.raises(AssertionError, match="is open"):
        pipeline.open("s")
    pipeline.shut()


# ---- bounds ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("transport", "slots"), [("inproc", 64), ("shm", 64), ("inline", None), ("shm", 2)])
def test_a_vocoder_that_lags_stalls_the_coder(transport: Transport, slots: int | None) -> None:
    """At most the bound lies at it, and what came of the steps that ran before the coder heard of it."""
    bound, unheard = 3, 2
    pipeline = Pipeline(coded(coder=codes(word_ms=10), transport=transport, bound=bound, slots=slots))
    pipeline.parts["vocoder"].links[0].step_s = 20 * STEP_S
    heard = pipeline.open("s")
    reply = ask(pipeline, 1, f"say {'word ' * 40}")
    under_way = []
    for _ in range(400):
        pipeline.run(STEP_S)
        turns = [turn for _, turn in pipeline.parts["vocoder"].links[0].began]
        taken = sum(isinstance(chunk.payload, Tensors) for turn in turns for work in turn.work for chunk in work.inputs)
        given = sum(isinstance(chunk.payload, Caption) for chunk in of(heard, reply))
        under_way.append(given - taken)
    assert bound <= max(under_way) <= bound + unheard
    pipeline.run(LONG_S)
    assert of(heard, reply)[-1].payload == End()
    assert len([chunk for chunk in of(heard, reply) if isinstance(chunk.payload, Audio)]) == 40
    pipeline.shut()


def test_a_reply_whose_slots_are_held_holds_up_nobody_else() -> None:
    """One slot, held at the vocoder until the playout of its reply allows a step."""
    pipeline = Pipeline(coded(coder=codes(word_ms=2000), slots=1, transport="shm"))
    heard, other = pipeline.open("s"), pipeline.open("t")
    vocoder = pipeline.parts["vocoder"].links[0]
    vocoder.step_s = 20 * STEP_S
    reply = ask(pipeline, 1, f"say {'word ' * 30}")
    while not any(refs_of(chunk) for live in vocoder.scheduler._jobs.values() for chunk in live.inputs):
        pipeline.run(STEP_S / 4)
    pipeline.router.pace(reply, pipeline.clock.now + 1000.0)
    pipeline.run(0.5)
    assert pipeline.credits()["talker#0.codes>vocoder#0"] == (0, 1)
    fine = ask(pipeline, 1, "say one two three", "t")
    pipeline.run(10.0)
    assert of(other, fine)[-1].payload == End()
    assert not of(heard, reply)[-1].last
    pipeline.router.pace(reply, pipeline.clock.now)
    pipeline.run(LONG_S)
    assert of(heard, reply)[-1].payload == End()
    pipeline.shut()


@pytest.mark.parametrize("policy", ["drop_oldest", "block"])
def test_what_makes_room_is_counted_and_its_credit_comes_back(policy: Policy) -> None:
    counting = Counting()
    pipeline = Pipeline(coded(coder=codes(word_ms=10), bound=2, policy=policy), counting)
    pipeline.parts["vocoder"].links[0].step_s = 20 * STEP_S
    heard = pipeline.open("s")
    reply = ask(pipeline, 1, f"say {'word ' * 40}")
    pipeline.run(LONG_S)
    spoken = len([chunk for chunk in of(heard, reply) if isinstance(chunk.payload, Audio)])
    assert of(heard, reply)[-1].payload == End()
    assert spoken + len(counting.drops) == 40
    assert set(counting.drops) == ({("talker.codes -> vocoder", 1)} if policy == "drop_oldest" else set())
    pipeline.shut()


# ---- replicas --------------------------------------------------------------------------------------------------------


def test_large_codes_find_the_replica_a_stream_has_moved_to() -> None:
    """Each pair of replicas has a plane of its own: who moves takes another one."""
    pipeline = Pipeline(coded("process", coder=codes(), replicas=2))
    heard = pipeline.open("s")
    for epoch, (role, number) in enumerate((("talker", 0), ("vocoder", 0), ("talker", 1), ("vocoder", 1))):
        pipeline.parts[role].links[number].die(away_s=5.0)  # type: ignore[index]  # they are roles
        pipeline.run(0.1)
        reply = ask(pipeline, epoch, "say one two three")
        pipeline.run(2.0)
        assert captions(of(heard, reply)) == "one two three", (role, number)
        assert of(heard, reply)[-1].payload == End()
        pipeline.run(LONG_S)
    pipeline.shut()
