"""Tests the scheduler against a model of what it owes, under any order of events."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pipeline.chunk import Chunk, End, Failed, Fence, Reply, Speak, Text
from pipeline.scheduler import (
    Acknowledge,
    Cancelled,
    Effect,
    Emit,
    Event,
    Fed,
    Forgotten,
    Interrupt,
    Paced,
    Refused,
    StageScheduler,
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
        self.fed = 0
        self.seq = 0
        self.plays_until: float | None = None
        self.idle = False
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
        return effects

    def fence(self, data: st.DataObject) -> Fence:
        return data.draw(st.sampled_from([Reply("nobody", 0), *self.live, *self.live, *self.live]))

    @rule(stream=st.sampled_from("st"), slack=st.floats(0, 3))
    def submit(self, stream: str, slack: float) -> None:
        self.epochs += 1
        fence = Reply(stream, self.epochs)
        full = len(self.live) >= JOBS
        if not full:
            self.live[fence] = Owed()
            self.live[fence].since = self.now
        effects = self.feed(Submitted(Speak(fence), self.now + slack))
        assert bool(effects) == full

    @rule(data=st.data())
    def input(self, data: st.DataObject) -> None:
        fence = self.fence(data)
        owed = self.live.get(fence)
        full = owed is not None and len(owed.inputs) >= INPUTS
        if owed is not None and not full:
            if owed.idle and not owed.inputs:
                owed.since = self.now
            owed.inputs.append(Chunk(fence, "thinker", owed.fed, Text("x")))
            owed.fed += 1
        effects = self.feed(Fed(Chunk(fence, "thinker", owed.fed - 1 if owed and not full else 0, Text("x"))))
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

    @rule(passed_s=st.floats(0, 3))
    def wait(self, passed_s: float) -> None:
        self.now += passed_s

    def ready(self, owed: Owed) -> bool:
        waits = owed.plays_until is not None and self.now < owed.plays_until - AHEAD_S
        return not waits and not (owed.idle and not owed.inputs)

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
        for work in decided.work:
            assert list(work.inputs) == self.live[work.fence].inputs, "inputs were lost or out of order"
            self.live[work.fence].inputs.clear()
        self.running = tuple(chosen)

    def check_order(self, chosen: list[Fence], left: set[Fence]) -> None:
        def starved(fence: Fence) -> bool:
            owed = self.live[fence]
            since = owed.since if owed.plays_until is None else max(owed.since, owed.plays_until - AHEAD_S)
            return self.now - since >= STARVE_S

        def heard(fence: Fence) -> bool:
            return self.live[fence].plays_until is not None

        for fence in left:
            assert not starved(fence) or all(starved(other) for other in chosen)
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
            what = data.draw(st.sampled_from(("text", "end", "idle", "nothing")))
            if what == "text":
                chunks.append(Chunk(fence, "talker", owed.seq, Text("x")))
                owed.seq += 1
            elif what == "end":
                chunks.append(Chunk(fence, "talker", owed.seq, End(), last=True))
                over.add(fence)
            elif what == "idle":
                idle.add(fence)
            owed.idle = what == "idle"
            owed.since = self.now
        heard = {chunk.fence for chunk in chunks} & set(self.live)
        cancelled = set(self.running) & self.unacknowledged
        self.in_stage -= {fence for fence in over if fence in self.live}
        self.running = None
        effects = self.feed(StepDone(Step(tuple(chunks), frozenset(idle))))
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
    def nobody_is_both_cancelled_and_waited_for(self) -> None:
        assert not self.unacknowledged & set(self.live)
        assert all(self.stage.live(fence) for fence in self.live)


TestScheduling = Scheduling.TestCase
TestScheduling.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)
