"""Tests the scheduler with tuples and a clock that is only a number."""

from __future__ import annotations

import msgspec
import pytest

from pipeline.chunk import Chunk, End, Failed, Fence, Prepare, Prompt, Reply, Speak, Text
from pipeline.scheduler import (
    BATCH_STARVE_S,
    NEVER,
    Acknowledge,
    Cancelled,
    Discard,
    Effect,
    Emit,
    Fed,
    Forgotten,
    Gated,
    Interrupt,
    Paced,
    Prepared,
    Put,
    Refused,
    StageScheduler,
    Stalled,
    StepDone,
    StepFailed,
    Submitted,
    Turn,
    Wait,
)
from pipeline.stage import Step, Work

A, B, C = Reply("s", 1), Reply("t", 1), Reply("u", 1)


@pytest.fixture
def stage() -> StageScheduler:
    return StageScheduler("talker", 1)


def submit(stage: StageScheduler, *fences: Reply, due: float = 0.0, now: float = 0.0) -> None:
    for fence in fences:
        assert stage.feed(Submitted(Speak(fence), due), now) == ()


def text(fence: Fence, words: str = "x", seq: int = 0) -> Chunk:
    return Chunk(fence, "talker", seq, Text(words))


def end(fence: Fence, seq: int = 0) -> Chunk:
    return Chunk(fence, "talker", seq, End(), last=True)


def turn(stage: StageScheduler, now: float = 0.0) -> Turn:
    decided = stage.next(now)
    assert isinstance(decided, Turn)
    return msgspec.structs.replace(decided, waits=())  # they have a test of their own


def fences(turn: Turn) -> list[Fence]:
    return [work.fence for work in turn.work]


def done(stage: StageScheduler, *chunks: Chunk, idle: tuple[Fence, ...] = (), now: float = 0.0) -> tuple[Effect, ...]:
    return stage.feed(StepDone(Step(chunks, frozenset(idle))), now)


def test_a_job_is_admitted_with_its_first_step_only(stage: StageScheduler) -> None:
    submit(stage, A)
    assert turn(stage) == Turn(admits=(Speak(A),), work=(Work(A),), due=0.0)
    assert stage.next(0.0) is None  # one turn at a time
    assert done(stage, text(A)) == (Emit(text(A)),)
    assert turn(stage).admits == ()
    assert done(stage, end(A, 1)) == (Emit(end(A, 1)),)
    assert stage.next(0.0) is None


def test_the_earlier_deadline_goes_first(stage: StageScheduler) -> None:
    submit(stage, A, due=5.0)
    submit(stage, B, due=3.0)
    assert fences(turn(stage)) == [B]


def test_a_first_audio_goes_before_work_ahead(stage: StageScheduler) -> None:
    submit(stage, A, B)
    stage.feed(Paced(A, plays_until=0.5), 0.0)  # it runs dry soon, yet something of it is heard
    stage.feed(Paced(B, plays_until=0.4), 0.0)
    submit(stage, C, due=1.0)
    order = []
    for now in (0.0, 0.1, 0.2):
        order += fences(turn(stage, now))
        done(stage, end(order[-1]), now=now)
    assert order == [C, B, A]


def test_a_step_takes_a_batch(stage: StageScheduler) -> None:
    stage = StageScheduler("talker", 2)
    submit(stage, A, B, C)
    assert fences(turn(stage)) == [A, B]


def test_nobody_is_overtaken_for_longer_than_the_bound(stage: StageScheduler) -> None:
    submit(stage, A)
    stage.feed(Paced(A, plays_until=1.0), 0.0)
    submit(stage, B, due=1.9, now=1.9)
    assert fences(turn(stage, 1.9)) == [B]
    done(stage, now=2.0)
    assert fences(turn(stage, 2.0)) == [A]


def test_an_idle_job_waits_for_an_input_and_gets_all_in_order(stage: StageScheduler) -> None:
    submit(stage, A)
    turn(stage)
    done(stage, idle=(A,))
    assert stage.next(100.0) is None
    for seq in range(3):
        stage.feed(Fed(text(A, seq=seq)), 100.0)
    assert turn(stage, 100.0).work == (Work(A, tuple(text(A, seq=seq) for seq in range(3))),)
    done(stage, idle=(A,), now=100.0)
    assert stage.next(100.0) is None


def test_an_input_that_came_during_the_step_wakes_an_idle_job(stage: StageScheduler) -> None:
    submit(stage, A)
    turn(stage)
    stage.feed(Fed(text(A)), 0.0)
    done(stage, idle=(A,))
    assert turn(stage).work == (Work(A, (text(A),)),)


def test_a_job_stays_at_most_so_far_ahead_of_what_is_heard(stage: StageScheduler) -> None:
    submit(stage, A)
    turn(stage)
    done(stage, text(A))
    stage.feed(Paced(A, plays_until=10.0), 0.0)
    assert stage.next(1.0) == Wait(6.0)
    assert fences(turn(stage, 6.0)) == [A]
    done(stage, text(A, seq=1), now=6.0)
    stage.feed(Paced(A, plays_until=9.0), 6.0)  # something was skipped
    assert fences(turn(stage, 6.0)) == [A]


def test_a_cancel_between_steps_is_acknowledged_at_once(stage: StageScheduler) -> None:
    submit(stage, A)
    turn(stage)
    done(stage)
    stage.feed(Fed(text(A)), 0.0)
    assert stage.feed(Cancelled(A), 0.0) == (Acknowledge(A), Discard(text(A)))
    assert stage.feed(Cancelled(A), 0.0) == ()
    assert turn(stage) == Turn(drops=(A,), due=4.0)


def test_a_cancelled_job_that_was_never_admitted_is_not_dropped_from_the_stage(stage: StageScheduler) -> None:
    submit(stage, A)
    assert stage.feed(Cancelled(A), 0.0) == (Acknowledge(A), Discard(Speak(A)))
    assert stage.next(0.0) is None


def test_a_cancel_during_the_step_swallows_what_comes_late(stage: StageScheduler) -> None:
    submit(stage, A)
    turn(stage)
    assert stage.feed(Cancelled(A), 0.0) == (Interrupt(),)
    assert stage.feed(Cancelled(A), 0.0) == ()
    assert done(stage, text(A), end(A, 1)) == (Discard(text(A)), Discard(end(A, 1)), Acknowledge(A))
    assert turn(stage).drops == (A,)


def test_a_step_is_interrupted_only_when_nobody_waits_for_it() -> None:
    stage = StageScheduler("talker", 2)
    submit(stage, A, B)
    turn(stage)
    assert stage.feed(Cancelled(A), 0.0) == ()
    assert stage.feed(Cancelled(B), 0.0) == (Interrupt(),)
    assert done(stage, text(A), text(B)) == (Discard(text(A)), Discard(text(B)), Acknowledge(A), Acknowledge(B))


def test_a_step_that_raises_ends_its_jobs_and_no_other() -> None:
    stage = StageScheduler("talker", 1)
    submit(stage, A, B)
    turn(stage)
    done(stage, text(A))
    turn(stage)
    (failure,) = stage.feed(StepFailed("stage_failed", "ValueError: no"), 0.0)
    assert failure == Emit(Chunk(A, "talker", 1, Failed("stage_failed", "ValueError: no"), last=True))
    following = turn(stage)
    assert following.drops == (A,)
    assert fences(following) == [B]


def test_a_refused_job_is_over_and_the_others_of_its_turn_go_on() -> None:
    stage = StageScheduler("talker", 2)
    submit(stage, A, B)
    turn(stage)
    effects = stage.feed(Refused(A, "capacity", "the context is full"), 0.0)
    assert effects == (Emit(Chunk(A, "talker", 0, Failed("capacity", "the context is full"), last=True)),)
    assert not stage.live(A)
    assert done(stage, text(B)) == (Emit(text(B)),)


def test_more_jobs_than_the_bound_fail(stage: StageScheduler) -> None:
    stage = StageScheduler("talker", 1, jobs=1)
    submit(stage, A)
    failure, discard = stage.feed(Submitted(Speak(B), 0.0), 0.0)
    assert discard == Discard(Speak(B))
    assert isinstance(failure, Emit)
    assert isinstance(failure.chunk.payload, Failed)
    assert failure.chunk.payload.kind == "capacity"
    assert fences(turn(stage)) == [A]


def test_more_inputs_than_the_bound_fail_the_job() -> None:
    stage = StageScheduler("talker", 1, inputs=2)
    submit(stage, A)
    for seq in range(2):
        assert stage.feed(Fed(text(A, seq=seq)), 0.0) == ()
    failure, *discards = stage.feed(Fed(text(A, seq=2)), 0.0)
    assert isinstance(failure, Emit)
    assert failure.chunk.last
    assert discards == [Discard(Speak(A)), *(Discard(text(A, seq=seq)) for seq in range(3))]
    assert stage.feed(Fed(text(A, seq=3)), 0.0) == (Discard(text(A, seq=3)),)
    assert stage.next(0.0) is None


def test_what_is_unknown_is_ignored(stage: StageScheduler) -> None:
    for event in (Cancelled(A), Paced(A, 1.0), Stalled(A, True), Refused(A, "stage_failed", "")):
        assert stage.feed(event, 0.0) == ()
    assert stage.feed(Fed(text(A)), 0.0) == (Discard(text(A)),)
    submit(stage, A)
    turn(stage)
    assert done(stage, text(B), end(A)) == (Discard(text(B)), Emit(end(A)))


def test_what_arrives_during_the_last_step_of_a_job_is_discarded(stage: StageScheduler) -> None:
    submit(stage, A)
    turn(stage)
    stage.feed(Fed(text(A)), 0.0)
    assert done(stage, end(A)) == (Emit(end(A)), Discard(text(A)))


def test_a_stalled_job_waits_until_it_may_go_on(stage: StageScheduler) -> None:
    submit(stage, A)
    stage.feed(Stalled(A, True), 0.0)
    assert stage.next(5.0) is None
    stage.feed(Stalled(A, False), 5.0)
    decided = stage.next(6.0)
    assert isinstance(decided, Turn)
    assert decided.waits == (1.0,)  # not the time for which those behind it were full


def test_a_turn_says_how_long_its_jobs_were_ready() -> None:
    stage = StageScheduler("talker", 2)
    submit(stage, A, now=1.0)
    submit(stage, B, now=2.0)
    decided = stage.next(2.5)
    assert isinstance(decided, Turn)
    assert decided.waits == (1.5, 0.5)


def test_batch_jobs_come_after_all_live_work_but_not_for_ever() -> None:
    stage = StageScheduler("talker", 1)
    submit(stage, A, due=NEVER)
    submit(stage, B)
    assert fences(turn(stage)) == [B]
    stage.feed(Paced(B, 1.0), 0.0)  # it works ahead of its playout now, and still goes first
    done(stage, text(B))
    assert fences(turn(stage)) == [B]
    done(stage, text(B, seq=1), now=BATCH_STARVE_S)
    assert fences(turn(stage, BATCH_STARVE_S)) == [A]


def test_no_batch_job_begins_a_step_while_the_gate_is_closed(stage: StageScheduler) -> None:
    submit(stage, A, due=NEVER)
    stage.feed(Gated(True), 0.0)
    assert stage.next(2 * BATCH_STARVE_S) is None
    submit(stage, B, now=2 * BATCH_STARVE_S)
    assert fences(turn(stage, 2 * BATCH_STARVE_S)) == [B]
    done(stage, end(B), now=2 * BATCH_STARVE_S)
    stage.feed(Gated(False), 2 * BATCH_STARVE_S)
    assert fences(turn(stage, 2 * BATCH_STARVE_S)) == [A]


def test_each_lane_has_places_of_its_own() -> None:
    stage = StageScheduler("talker", 1, jobs=1)
    submit(stage, A, due=NEVER)
    assert stage.feed(Submitted(Speak(B), 0.0), 0.0) == ()
    failure, _ = stage.feed(Submitted(Speak(Reply("s", 2)), NEVER), 0.0)
    assert isinstance(failure, Emit)
    assert failure.chunk.fence == Reply("s", 2)


def test_a_job_goes_on_when_all_that_it_gave_has_gone_out(stage: StageScheduler) -> None:
    submit(stage, A)
    turn(stage)
    assert stage.feed(StepDone(Step((text(A),)), frozenset((A,))), 1.0) == (Emit(text(A)),)
    assert stage.next(2.0) is None
    assert stage.feed(Put((text(A, seq=1),), frozenset()), 2.0) == (Emit(text(A, seq=1)),)
    assert stage.next(3.0) is None
    assert stage.feed(Put((text(A, seq=2),), frozenset((A,))), 3.0) == (Emit(text(A, seq=2)),)
    decided = stage.next(4.0)
    assert isinstance(decided, Turn)
    assert decided.waits == (1.0,)


def test_an_end_that_is_kept_ends_its_job_when_it_goes_out(stage: StageScheduler) -> None:
    submit(stage, A)
    turn(stage)
    stage.feed(StepDone(Step(()), frozenset((A,))), 0.0)
    stage.feed(Fed(text(A)), 0.0)
    assert stage.next(0.0) is None
    assert stage.feed(Put((end(A),), frozenset((A,))), 0.0) == (Emit(end(A)), Discard(text(A)))
    assert stage.next(0.0) is None


def test_what_is_kept_of_a_cancelled_job_is_discarded(stage: StageScheduler) -> None:
    submit(stage, A)
    turn(stage)
    stage.feed(StepDone(Step(()), frozenset((A,))), 0.0)
    assert stage.feed(Cancelled(A), 0.0) == (Acknowledge(A),)
    assert stage.feed(Put((text(A),), frozenset((A,))), 0.0) == (Discard(text(A)),)
    assert turn(stage).drops == (A,)


def test_a_job_knows_the_planes_of_what_it_gives(stage: StageScheduler) -> None:
    stage.feed(Submitted(Speak(A), 0.0, (("codes", "plane"),)), 0.0)
    assert stage.route(A, "codes") == "plane"
    assert stage.route(A, "text") is None
    assert stage.route(B, "codes") is None


def test_equal_fences_are_the_same_fence(stage: StageScheduler) -> None:
    submit(stage, A)
    assert stage.feed(Cancelled(Reply("s", 1)), 0.0) == (Acknowledge(A), Discard(Speak(A)))


def test_a_forgotten_stream_leaves_in_silence() -> None:
    stage = StageScheduler("talker", 2)
    submit(stage, A, B, Reply("s", 2))
    turn(stage)
    assert stage.feed(Forgotten("s"), 0.0) == (Discard(Speak(Reply("s", 2))),)
    assert done(stage, text(A), text(B)) == (Discard(text(A)), Emit(text(B)))
    following = turn(stage)
    assert following.drops == (A,)
    assert following.forgets == ("s",)
    assert fences(following) == [B]


def test_preparation_is_worked_off_while_no_job_is_there(stage: StageScheduler) -> None:
    ahead = Prepare("s", Prompt(()))
    stage.feed(Prepared(Prepare("s", Prompt((), ()))), 0.0)
    stage.feed(Prepared(ahead), 0.0)  # the newer note replaces the older
    first = turn(stage)
    assert first.prepares == (ahead,)
    assert first.ahead
    stage.feed(StepDone(Step(more=True)), 0.0)
    assert turn(stage) == Turn(ahead=True, due=4.0)
    submit(stage, A)
    stage.feed(StepDone(Step(more=True)), 0.0)
    assert not turn(stage).ahead
    done(stage, end(A))
    assert turn(stage).ahead  # what was left is taken up again
    stage.feed(StepDone(Step()), 0.0)
    assert stage.next(0.0) is None


def test_a_preparation_that_raises_is_not_repeated(stage: StageScheduler) -> None:
    stage.feed(Prepared(Prepare("s", Prompt(()))), 0.0)
    turn(stage)
    assert stage.feed(StepFailed("stage_failed", "no"), 0.0) == ()
    assert stage.next(0.0) is None


def test_a_fence_is_used_once(stage: StageScheduler) -> None:
    submit(stage, A)
    with pytest.raises(AssertionError, match="twice"):
        stage.feed(Submitted(Speak(A), 0.0), 0.0)
