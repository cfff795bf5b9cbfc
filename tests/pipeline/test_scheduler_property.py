"""Tests the scheduler against a model of what it owes, under any order of events."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pipeline.chunk import Chunk, End, Failed, Fence, Reply, Speak, Text
from pipeline.scheduler import (
    BATCH_STARVE_S,
    NEVER,
    Acknowledge,
    Cancelled,
    Discard,
    Effect,
    Emit,
    Event,
    Fed,
    Forgotten,
    Gated,
    Interrupt,
    Paced,
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
from pipeline.stage import Step

AHEAD_S = 4.0
STARVE_S = 2.0
BATCH = 2
JOBS = 4
INPUTS = 3


class Owed:
    """What the model knows of a job that is alive."""

    def __init__(self) -> None:
        self.inputs: list[Chunk] = []
        self.seq = 0
        self.plays_until: float | None = None
        self.idle = self.stalled = self.kept = self.batch = False
        self.since = 0.0


class Scheduling(RuleBasedStateMachine):
    """Random events; the answers are held against what was promised."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.epochs = 0
        self.stage = StageScheduler("talker", BATCH, ahead_s=AHEAD_S, starve_s=STARVE_S, jobs=JOBS, inputs=INPUTS)
        self.live: dict[Fence, Owed] = {}
        self.in_stage: set[Fence] = set()  # admitted and not yet dropped or over
        self.running: tuple[Fence, ...] | None = None
        self.unacknowledged: set[Fence] = set()
        self.acknowledged: set[Fence] = set()
        self.ended: set[Fence] = set()
        self.gated = False
        self.fed = 0
        self.waiting: set[int] = set()  # inputs that are in no turn yet, and were not discarded
        self.outside: set[Fence] = set()  # jobs that are in no turn yet, and were not discarded

    def feed(self, event: Event) -> tuple[Effect, ...]:
        effects = self.stage.feed(event, self.now)
        for effect in effects:
            match effect:
                case Emit(chunk):
                    assert chunk.fence not in self.ended, "a chunk after the end"
                    assert chunk.fence in self.live or chunk.seq == 0, "a chunk nobody waits for"
                    if chunk.last:
                        self.ended.add(chunk.fence)
                        self.live.pop(chunk.fence, None)
                case Acknowledge(fence):
                    assert fence in self.unacknowledged, "an acknowledgement that nobody asked for"
                    assert self.running is None or fence not in self.running
                    self.unacknowledged.discard(fence)
                    self.acknowledged.add(fence)
                case Interrupt():
                    assert self.running
                    assert not any(fence in self.live for fence in self.running)
                case Discard(Chunk(role="thinker") as chunk):
                    assert chunk.seq in self.waiting, "an input that a turn has, or that was discarded before"
                    self.waiting.discard(chunk.seq)
                case Discard(Speak(fence)):
                    assert fence in self.outside, "a job that a turn has, or that was discarded before"
                    self.outside.discard(fence)
        return effects

    def fence(self, data: st.DataObject) -> Fence:
        return data.draw(st.sampled_from([Reply("nobody", 0), *self.live, *self.live, *self.live]))

    @rule(stream=st.sampled_from("st"), slack=st.floats(0, 3), batch=st.sampled_from((False, False, True)))
    def submit(self, stream: str, slack: float, batch: bool) -> None:
        self.epochs += 1
        fence = Reply(stream, self.epochs)
        full = sum(owed.batch == batch for owed in self.live.values()) >= JOBS
        if not full:
            self.live[fence] = Owed()
            self.live[fence].since = self.now
            self.live[fence].batch = batch
        self.outside.add(fence)
        effects = self.feed(Submitted(Speak(fence), NEVER if batch else self.now + slack))
        assert bool(effects) == full

    @rule(data=st.data())
    def input(self, data: st.DataObject) -> None:
        fence = self.fence(data)
        owed = self.live.get(fence)
        full = owed is not None and len(owed.inputs) >= INPUTS
        self.fed += 1
        chunk = Chunk(fence, "thinker", self.fed, Text("x"))
        self.waiting.add(self.fed)
        if owed is not None and not full:
            if owed.idle and not owed.inputs:
                owed.since = self.now
            owed.inputs.append(chunk)
        effects = self.feed(Fed(chunk))
        assert any(isinstance(effect, Emit) for effect in effects) == full

    @rule(data=st.data(), what=st.sampled_from(("cancel", "cancel", "forget", "fail", "refuse")))
    def disturb(self, data: st.DataObject, what: str) -> None:
        """All that ends jobs is one rule, so that most jobs live long enough to be scheduled."""
        match what:
            case "cancel":
                self.cancel(data)
            case "forget":
                self.forget(data.draw(st.sampled_from("st")))
            case "fail" if self.running is not None:
                self.fail()
            case "refuse" if self.running:
                self.refuse(data)

    def cancel(self, data: st.DataObject) -> None:
        fence = self.fence(data)
        if self.live.pop(fence, None) is not None:
            self.unacknowledged.add(fence)
        self.feed(Cancelled(fence))
        assert self.running is not None or not self.unacknowledged

    def forget(self, stream: str) -> None:
        for fence in [fence for fence in self.live if fence.stream == stream]:
            del self.live[fence]
        self.feed(Forgotten(stream))

    @rule(data=st.data(), ahead_s=st.floats(-1, 9))
    def pace(self, data: st.DataObject, ahead_s: float) -> None:
        fence = self.fence(data)
        if (owed := self.live.get(fence)) is not None:
            owed.plays_until = self.now + ahead_s
        self.feed(Paced(fence, self.now + ahead_s))

    @rule(data=st.data(), stalled=st.booleans())
    def stall(self, data: st.DataObject, stalled: bool) -> None:
        fence = self.fence(data)
        if (owed := self.live.get(fence)) is not None:
            owed.stalled = stalled
            owed.since = max(owed.since, self.now)
        self.feed(Stalled(fence, stalled))

    @rule()
    def gate(self) -> None:
        self.gated = not self.gated
        self.feed(Gated(self.gated))

    @rule(data=st.data(), more=st.booleans())
    def put(self, data: st.DataObject, more: bool) -> None:
        """What a step gave finds room later; the job goes on when all of it has."""
        fence = self.fence(data)
        owed = self.live.get(fence)
        if owed is None or not owed.kept:
            late = Chunk(fence, "talker", 0, Text("x"))
            if owed is None:
                assert self.feed(Put((late,), frozenset((fence,)))) == (Discard(late),)
            return
        chunk = Chunk(fence, "talker", owed.seq, Text("x"))
        owed.seq += 1
        if not more:
            owed.kept = False
            owed.since = self.now
        assert self.feed(Put((chunk,), frozenset(() if more else (fence,)))) == (Emit(chunk),)

    @rule(passed_s=st.one_of(st.floats(0, 3), st.just(BATCH_STARVE_S)))
    def wait(self, passed_s: float) -> None:
        self.now += passed_s

    def ready(self, owed: Owed) -> bool:
        waits = owed.plays_until is not None and self.now < owed.plays_until - AHEAD_S
        held = owed.stalled or owed.kept or (owed.batch and self.gated)
        return not waits and not held and not (owed.idle and not owed.inputs)

    @rule()
    def next(self) -> None:
        decided = self.stage.next(self.now)
        ready = {fence for fence, owed in self.live.items() if self.ready(owed)}
        if self.running is not None:
            assert decided is None
            return
        if not isinstance(decided, Turn):
            assert not ready, "work was left lying"
            if isinstance(decided, Wait):
                assert decided.until > self.now
            return
        chosen = [work.fence for work in decided.work]
        assert set(decided.drops) <= self.in_stage
        self.in_stage -= set(decided.drops)
        assert {job.fence for job in decided.admits} == set(chosen) - self.in_stage
        self.in_stage |= set(chosen)
        assert set(chosen) <= ready
        assert len(chosen) == min(BATCH, len(ready))
        self.check_order(chosen, ready - set(chosen))
        for job in decided.admits:
            assert job.fence in self.outside, "a job was admitted twice, or after it was discarded"
            self.outside.discard(job.fence)
        for work in decided.work:
            for chunk in work.inputs:
                assert chunk.seq in self.waiting, "an input in two turns, or after it was discarded"
                self.waiting.discard(chunk.seq)
            assert list(work.inputs) == self.live[work.fence].inputs, "inputs were lost or out of order"
            self.live[work.fence].inputs.clear()
        self.running = tuple(chosen)

    def check_order(self, chosen: list[Fence], left: set[Fence]) -> None:
        def starved(fence: Fence) -> bool:
            owed = self.live[fence]
            since = owed.since if owed.plays_until is None else max(owed.since, owed.plays_until - AHEAD_S)
            return self.now - since >= (BATCH_STARVE_S if owed.batch else STARVE_S)

        def heard(fence: Fence) -> bool:
            return self.live[fence].plays_until is not None

        for fence in left:
            assert not starved(fence) or all(starved(other) for other in chosen)
            if not self.live[fence].batch:
                assert all(not self.live[other].batch or starved(other) for other in chosen), "batch work went first"
            elif not heard(fence):
                continue
            if not heard(fence):
                assert all(not heard(other) or starved(other) for other in chosen)

    @precondition(lambda self: self.running is not None)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        assert self.running is not None
        chunks, idle = [], set()
        over = set()
        for fence in self.running:
            owed = self.live.get(fence) or Owed()  # a stage does not know who still listens
            what = data.draw(st.sampled_from(("text", "end", "idle", "nothing", "kept")))
            if what == "text":
                chunks.append(Chunk(fence, "talker", owed.seq, Text("x")))
                owed.seq += 1
            elif what == "end":
                chunks.append(Chunk(fence, "talker", owed.seq, End(), last=True))
                over.add(fence)
            elif what == "idle":
                idle.add(fence)
            owed.idle = what == "idle"
            owed.kept = what == "kept"
            owed.since = self.now
        heard = {chunk.fence for chunk in chunks} & set(self.live)
        kept = {fence for fence in self.running if fence in self.live and self.live[fence].kept}
        cancelled = set(self.running) & self.unacknowledged
        self.in_stage -= {fence for fence in over if fence in self.live}
        self.running = None
        effects = self.feed(StepDone(Step(tuple(chunks), frozenset(idle)), frozenset(kept)))
        assert {effect.chunk.fence for effect in effects if isinstance(effect, Emit)} == heard
        assert {effect.fence for effect in effects if isinstance(effect, Acknowledge)} == cancelled

    def fail(self) -> None:
        assert self.running is not None
        expected = {fence for fence in self.running if fence in self.live}
        self.running = None
        effects = self.feed(StepFailed("stage_failed", "no"))
        failed = [effect.chunk for effect in effects if isinstance(effect, Emit)]
        assert {chunk.fence for chunk in failed} == expected
        assert all(isinstance(chunk.payload, Failed) for chunk in failed)

    def refuse(self, data: st.DataObject) -> None:
        assert self.running is not None
        fence = data.draw(st.sampled_from(self.running))
        alive = fence in self.live
        effects = self.feed(Refused(fence, "stage_failed", "no"))
        assert any(isinstance(effect, Emit) for effect in effects) == alive

    @invariant()
    def every_input_and_every_job_is_in_one_place(self) -> None:
        assert self.waiting == {chunk.seq for owed in self.live.values() for chunk in owed.inputs}
        assert self.outside <= set(self.live), "a job is over that no turn had and nobody discarded"

    @invariant()
    def nobody_is_both_cancelled_and_waited_for(self) -> None:
        assert not self.unacknowledged & set(self.live)
        assert all(self.stage.live(fence) for fence in self.live)


TestScheduling = Scheduling.TestCase
TestScheduling.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)
