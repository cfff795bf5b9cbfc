"""Tests how chunks walk along the edges of a reply: with tuples, then against a model under any order of events."""

from __future__ import annotations

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pipeline.chunk import Audio, Chunk, End, Failed, Fence, Payload, Reply, StageRole, Tensors, Text
from pipeline.edge import OVERSHOOT
from pipeline.flows import Flows, Moves
from pipeline.spec import EdgeSpec, Policy
from transport.base import inline

A, B = Reply("s", 1), Reply("t", 1)
WORDS = EdgeSpec(source="thinker", port="text", target="talker", bound=2)
HIDDEN = EdgeSpec(source="thinker", port="hidden", target="talker", bound=1)
SPEAKING: tuple[StageRole, ...] = ("talker", "vocoder")
CODES = EdgeSpec(source="talker", port="codes", target="vocoder", bound=1)


def text(word: str, fence: Fence = A) -> Chunk:
    return Chunk(fence, "thinker", 0, Text(word))


def tensors(port: str, number: int = 0, fence: Fence = A, role: StageRole = "talker") -> Chunk:
    return Chunk(fence, role, number, Tensors(port, inline({"codes": np.array([number])})))


def end(role: StageRole, fence: Fence = A) -> Chunk:
    return Chunk(fence, role, 0, End(), last=True)


def number(chunk: Chunk) -> int:
    assert isinstance(chunk.payload, Tensors)
    return int.from_bytes(chunk.payload.blocks.blocks[0].data, "little")  # type: ignore[union-attr]  # nothing here lies in a plane


def speaking(*edges: EdgeSpec) -> Flows:
    flows = Flows()
    for fence in (A, B):
        for role in {edge.target for edge in edges}:
            flows.begin(fence, role, [edge for edge in edges if edge.target == role])
    return flows


def fed(moves: Moves) -> list[tuple[StageRole, int, Payload]]:
    return [(role, chunk.seq, chunk.payload) for role, chunk in moves.feed]


def test_a_chunk_goes_to_the_one_who_takes_it_and_is_counted_anew() -> None:
    flows = speaking(WORDS, CODES)
    assert fed(flows.push(text("a"))) == [("talker", 0, Text("a"))]
    assert fed(flows.push(text("b"))) == [("talker", 1, Text("b"))]
    assert fed(flows.push(end("thinker"))) == [("talker", 2, End())]
    code = tensors("codes", 7)
    assert fed(flows.push(code)) == [("vocoder", 0, code.payload)]


def test_replies_do_not_share_their_bounds() -> None:
    flows = speaking(CODES)
    flows.push(tensors("codes", 0, A))
    assert flows.push(tensors("codes", 1, A)).feed == []
    assert len(flows.push(tensors("codes", 0, B)).feed) == 1


def test_a_source_is_told_once_to_wait_and_once_to_go_on() -> None:
    flows = speaking(CODES)
    flows.push(tensors("codes", 0))
    assert flows.push(tensors("codes", 1)).stall == [("talker", A, True)]
    assert flows.push(tensors("codes", 2)).stall == []
    assert flows.taken("vocoder", A, 1).stall == []
    assert flows.taken("vocoder", A, 1).stall == [("talker", A, False)]


def test_a_source_that_waits_is_let_go_on_when_its_target_ends() -> None:
    flows = speaking(CODES)
    flows.push(tensors("codes", 0))
    flows.push(tensors("codes", 1))
    moves = flows.end("vocoder", A)
    assert moves.stall == [("talker", A, False)]
    assert [number(chunk) for chunk in moves.unseen] == [1]


def test_the_end_comes_after_all_that_waits_and_needs_no_room() -> None:
    flows = speaking(CODES)
    flows.push(tensors("codes", 0))
    flows.push(tensors("codes", 1))
    assert flows.push(end("talker")).feed == []
    moves = flows.taken("vocoder", A, 1)
    assert [role for role, _ in moves.feed] == ["vocoder", "vocoder"]
    assert isinstance(moves.feed[1][1].payload, End)


def test_a_stage_that_takes_two_ports_of_another_hears_of_its_end_once_and_last() -> None:
    flows = speaking(WORDS, HIDDEN)
    flows.push(tensors("hidden", 0, role="thinker"))
    flows.push(tensors("hidden", 1, role="thinker"))
    assert flows.push(text("a")).feed != []
    assert flows.push(end("thinker")).feed == []  # hidden states wait still
    moves = flows.taken("talker", A, 2)
    assert [type(chunk.payload) for _, chunk in moves.feed] == [Tensors, End]
    assert [chunk.seq for _, chunk in moves.feed] == [2, 3]  # one count for all of a source
    assert flows.taken("talker", A, 2).feed == []


def test_an_end_gives_no_room_back() -> None:
    flows = Flows()
    twice = EdgeSpec(source="thinker", port="hidden", target="vocoder", bound=1)
    flows.begin(A, "vocoder", [CODES, twice])
    flows.push(end("thinker"))
    flows.push(tensors("codes", 0))
    flows.push(tensors("codes", 1))
    assert flows.taken("vocoder", A, 1).feed == []  # it took the thinker's end, and no code
    assert len(flows.taken("vocoder", A, 1).feed) == 1


def test_a_failure_ends_what_is_passed_on_too() -> None:
    flows = speaking(WORDS)
    failure = Chunk(A, "thinker", 0, Failed("stage_failed", "no"), last=True)
    assert fed(flows.push(failure)) == [("talker", 0, Failed("stage_failed", "no"))]


def test_what_nobody_takes_any_more_is_given_back() -> None:
    flows = speaking(CODES)
    flows.end("vocoder", A)
    late, foreign = tensors("codes", 1), tensors("pitch", 2, B)
    assert flows.push(late).unseen == [late]
    assert flows.push(foreign).unseen == [foreign]
    assert flows.push(Chunk(A, "talker", 0, Audio(b"", 24_000))).unseen == []  # the session sees that


def test_a_target_that_is_overrun_loses_its_job() -> None:
    flows = speaking(CODES)
    moves = Moves()
    for count in range(CODES.bound + CODES.bound + OVERSHOOT + 1):
        assert moves.full == []
        moves = flows.push(tensors("codes", count))
    ((role, fence, message),) = moves.full
    assert (role, fence) == ("vocoder", A)
    assert "chunks wait for the vocoder" in message
    assert len(flows.end("vocoder", A).unseen) == CODES.bound + OVERSHOOT + 1


def test_a_forgotten_reply_leaves_nothing() -> None:
    flows = speaking(WORDS, CODES)
    for count in range(3):
        flows.push(tensors("codes", count))
    assert flows.of("s") == (A,)
    moves = flows.forget(A)
    assert [number(chunk) for chunk in moves.unseen] == [1, 2]
    assert moves.stall == []
    assert not flows.knows(A)
    assert flows.knows(B)
    flows.forget(B)
    assert flows.idle
    assert flows.taken("vocoder", A, 1) == Moves()
    assert flows.end("vocoder", A) == Moves()


class Walking(RuleBasedStateMachine):
    """A thinker that gives words and hidden states to a talker, whose codes go on to a vocoder: any order of events."""

    def __init__(self) -> None:
        super().__init__()
        self.flows = Flows()
        self.edges: dict[tuple[StageRole, str], EdgeSpec] = {}
        self.alive: dict[tuple[Fence, StageRole], list[Chunk]] = {}  # what each job was fed and has not taken
        self.given: dict[tuple[Fence, StageRole, str], list[int]] = {}
        self.got: dict[tuple[Fence, StageRole, str], list[int]] = {}
        self.lost: dict[tuple[Fence, StageRole, str], list[int]] = {}
        self.stalled: set[tuple[StageRole, Fence]] = set()
        self.ended: set[tuple[Fence, StageRole]] = set()  # sources that have ended
        self.heard: set[tuple[Fence, StageRole, StageRole]] = set()  # ends that arrived
        self.epoch = 0
        self.count = 0

    @initialize(bound=st.integers(1, 3), policy=st.sampled_from(("block", "drop_oldest")))
    def lay(self, bound: int, policy: Policy) -> None:
        self.edges = {
            ("thinker", "hidden"): EdgeSpec(source="thinker", port="hidden", target="talker", bound=bound),
            ("thinker", "mood"): EdgeSpec(source="thinker", port="mood", target="talker", bound=4 - bound),
            ("talker", "codes"): EdgeSpec(source="talker", port="codes", target="vocoder", bound=bound, policy=policy),
        }

    @rule()
    def begin(self) -> None:
        self.epoch += 1
        fence = Reply("s", self.epoch)
        for role in SPEAKING:
            self.flows.begin(fence, role, [edge for edge in self.edges.values() if edge.target == role])
            self.alive[fence, role] = []

    def job(self, data: st.DataObject) -> tuple[Fence, StageRole]:
        return data.draw(st.sampled_from(sorted(self.alive, key=str)))

    @precondition(lambda self: self.epoch)
    @rule(data=st.data(), leaves=st.sampled_from((("thinker", "hidden"), ("thinker", "mood"), ("talker", "codes"))))
    def give(self, data: st.DataObject, leaves: tuple[StageRole, str]) -> None:
        fence = Reply("s", data.draw(st.integers(1, self.epoch)))
        if (fence, leaves[0]) in self.ended or (leaves[0], fence) in self.stalled:
            return
        self.count += 1
        self.given.setdefault((fence, *leaves), []).append(self.count)
        self.follow(self.flows.push(tensors(leaves[1], self.count, fence, leaves[0])))

    @precondition(lambda self: self.epoch)
    @rule(data=st.data(), role=st.sampled_from(("thinker", "talker")))
    def finish(self, data: st.DataObject, role: StageRole) -> None:
        fence = Reply("s", data.draw(st.integers(1, self.epoch)))
        if (fence, role) not in self.ended:
            self.ended.add((fence, role))
            self.follow(self.flows.push(end(role, fence)))

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), count=st.integers(1, 3))
    def take(self, data: st.DataObject, count: int) -> None:
        fence, role = self.job(data)
        waiting = self.alive[fence, role]
        count = min(count, len(waiting))
        del waiting[:count]
        self.follow(self.flows.taken(role, fence, count))

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), all_of_it=st.booleans())
    def leave(self, data: st.DataObject, all_of_it: bool) -> None:
        fence, role = self.job(data)
        if not all_of_it:
            del self.alive[fence, role]
            self.follow(self.flows.end(role, fence))
            return
        for other in SPEAKING:
            self.alive.pop((fence, other), None)
        self.stalled = {one for one in self.stalled if one[1] != fence}  # a source that is cancelled waits for nothing
        moves = self.flows.forget(fence)
        assert moves.feed == []
        assert moves.stall == []
        self.follow(moves)

    def follow(self, moves: Moves) -> None:
        assert not moves.full, "a source that waits when it is told to is never lost"
        for role, chunk in moves.feed:
            key = (chunk.fence, role)
            assert key in self.alive, "a job that is over was fed"
            self.alive[key].append(chunk)
            if isinstance(chunk.payload, End):
                assert (chunk.fence, chunk.role, role) not in self.heard, "an end came twice"
                self.heard.add((chunk.fence, chunk.role, role))
                continue
            assert (chunk.fence, chunk.role, role) not in self.heard, "a chunk came after the end"
            assert isinstance(chunk.payload, Tensors)
            self.got.setdefault((chunk.fence, chunk.role, chunk.payload.port), []).append(number(chunk))
        for chunk in moves.unseen:
            assert isinstance(chunk.payload, Tensors)
            self.lost.setdefault((chunk.fence, chunk.role, chunk.payload.port), []).append(number(chunk))
        for source, fence, stalled in moves.stall:
            assert source != "session"
            assert ((source, fence) in self.stalled) != stalled, "a source was told twice"
            (self.stalled.add if stalled else self.stalled.discard)((source, fence))
        assert len(moves.dropped) <= len(moves.unseen)
        assert all(edge.policy == "drop_oldest" for edge, _ in moves.dropped)

    @invariant()
    def every_chunk_is_in_one_place(self) -> None:
        for key, given in self.given.items():
            fence, source, port = key
            edge = self.edges[source, port]
            got, lost = self.got.get(key, []), self.lost.get(key, [])
            alive = self.alive.get((fence, edge.target))
            waiting = len(given) - len(got) - len(lost)
            assert got == sorted(got), "out of order"
            assert not set(got) & set(lost)
            assert set(got) | set(lost) <= set(given)
            if alive is None:
                assert waiting == 0, "something waits for a job that is over"
                continue
            untaken = sum(isinstance(c.payload, Tensors) and (c.role, c.payload.port) == (source, port) for c in alive)
            assert untaken <= edge.bound, "more lies at the target than the bound"
            assert waiting == 0 or untaken == edge.bound, "something waits and there is room"
            if edge.policy == "block":
                assert lost == [], "an edge that blocks lost something"
            else:
                assert waiting <= edge.bound

    @invariant()
    def no_end_is_kept_back(self) -> None:
        for fence, source in self.ended:
            target: StageRole = "talker" if source == "thinker" else "vocoder"
            if (fence, target) not in self.alive or (fence, source, target) in self.heard:
                continue
            keys = [(fence, source, port) for one, port in self.edges if one == source]
            passed = sum(len(self.got.get(key, [])) + len(self.lost.get(key, [])) for key in keys)
            assert passed < sum(len(self.given.get(key, [])) for key in keys), "nothing waits, and the end did not come"

    @invariant()
    def who_is_stalled_has_something_waiting(self) -> None:
        expected = set()
        for (fence, source, port), given in self.given.items():
            edge = self.edges[source, port]
            key = (fence, source, port)
            waiting = len(given) - len(self.got.get(key, [])) - len(self.lost.get(key, []))
            if waiting and edge.policy == "block" and (fence, edge.target) in self.alive:
                expected.add((source, fence))
        assert self.stalled == expected

    @invariant()
    def it_knows_what_is_alive(self) -> None:
        assert self.flows.idle == (not self.alive)
        for epoch in range(1, self.epoch + 1):
            fence = Reply("s", epoch)
            assert self.flows.knows(fence) == any(one == fence for one, _ in self.alive)


TestWalking = Walking.TestCase
TestWalking.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)
