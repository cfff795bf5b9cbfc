"""Plants faults between sessions and their stages: in routing, on edges, in planes and connections, in supervision."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pipeline import runner
from pipeline.breaker import Breaker
from pipeline.chunk import Chunk, Fence, Reply
from pipeline.flows import Flows, Moves
from pipeline.gate import Gate
from pipeline.host import Host
from pipeline.outgoing import Gave, Outgoing
from pipeline.replicas import Replicas
from pipeline.wiring import Wiring, _Sent
from transport.line import DATA, Line
from transport.outbox import Frame, Outbox, weight
from transport.shm import FILLED, FREE, LEASED, STATE_BITS, ShmArena

Plant = Callable[[pytest.MonkeyPatch], None]


# ---- planes ---------------------------------------------------------------------------------------------------------


def discarded_input_keeps_its_credit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(runner, "give_back", lambda planes, unseen: None)


def reclaim_forgets_leases(patch: pytest.MonkeyPatch) -> None:
    """What a process was reading when it died stays leased."""

    def only_filled(self: _Sent) -> None:
        for index, generation in self._slots:
            self._arena.give_back(index, generation, FILLED)

    patch.setattr(_Sent, "give_back", only_filled)


def reclaim_takes_what_is_for_the_next(patch: pytest.MonkeyPatch) -> None:
    """All that lies there when a process is gone counts as its own, also what was put for the one that follows."""
    lost = Wiring.lost
    patch.setattr(Wiring, "lost", lambda self, role, replica: lambda: lost(self, role, replica)())


def late_chunk_keeps_its_slot(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Wiring, "withdraw", lambda self, ref: None)


def old_reference_opens_what_is_new(patch: pytest.MonkeyPatch) -> None:
    move = ShmArena.move

    def any_generation(self: ShmArena, index: int, generation: int, was: int, to: int) -> bool:
        return move(self, index, self.state(index)[0] if to == LEASED else generation, was, to)

    patch.setattr(ShmArena, "move", any_generation)


def late_withdrawal_takes_what_is_new(patch: pytest.MonkeyPatch) -> None:
    give_back = ShmArena.give_back

    def any_generation(self: ShmArena, index: int, generation: int, *states: int) -> bool:
        return give_back(self, index, self.state(index)[0], *states)

    patch.setattr(ShmArena, "give_back", any_generation)


def credit_returns_twice(patch: pytest.MonkeyPatch) -> None:
    """A release that comes again frees the slot of somebody else."""

    def released(self: ShmArena, ref: object) -> None:
        index = ref.slot  # type: ignore[attr-defined]  # it is a `Ref`
        self._words[index] = (self._words[index] >> STATE_BITS) + 1 << STATE_BITS | FREE

    patch.setattr(ShmArena, "released", released)


def no_room_no_chunk(patch: pytest.MonkeyPatch) -> None:
    """What finds no room in its plane is lost."""
    give = Outgoing.give

    def lossy(self: Outgoing, chunks: object, now: float) -> Gave:
        gave = give(self, chunks, now)  # type: ignore[arg-type]  # passed on as it came
        self._kept.clear()
        return gave

    patch.setattr(Outgoing, "give", lossy)


# ---- connections ----------------------------------------------------------------------------------------------------


def control_does_not_overtake(patch: pytest.MonkeyPatch) -> None:
    """A cancel waits behind the chunks that it is to stop."""

    def data_first(self: Outbox) -> Frame | None:
        if self._data:
            return self._data[0] if self._credits > 0 else None
        return self._control[0] if self._control else None

    def sent(self: Outbox) -> None:
        frame = (self._data or self._control).popleft()
        self._credits -= frame[0] == DATA
        self._queued_bytes -= weight(frame)
        self._wire_bytes += weight(frame)

    patch.setattr(Outbox, "head", data_first)
    patch.setattr(Outbox, "sent", sent)


def credits_never_told(patch: pytest.MonkeyPatch) -> None:
    """The receiver takes data off the wire and does not say so."""
    patch.setattr(Line, "_lot_data", property(lambda self: 1 << 30, lambda self, lot: None), raising=False)


def acknowledgement_waited_for_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Host, "_overdue", lambda self, fence: None)


# ---- edges and replicas ---------------------------------------------------------------------------------------------


def stall_never_released(patch: pytest.MonkeyPatch) -> None:
    stall = Host.stall

    def for_good(self: Host, fence: Fence, stalled: bool) -> None:
        if stalled:
            stall(self, fence, stalled)

    patch.setattr(Host, "stall", for_good)


def source_never_stalled(patch: pytest.MonkeyPatch) -> None:
    look = Flows._look

    def look_away(self: Flows, moves: Moves, fence: Fence) -> None:
        look(self, moves, fence)
        moves.stall.clear()

    patch.setattr(Flows, "_look", look_away)


def moved_stream_feeds_its_old_replica(patch: pytest.MonkeyPatch) -> None:
    submit = Replicas.submit
    first: dict[tuple[int, str], Host] = {}

    def note(self: Replicas, job: object, due: float, routes: object = ()) -> None:
        submit(self, job, due, routes)  # type: ignore[arg-type]  # passed on as it came
        fence: Fence = job.fence  # type: ignore[attr-defined]  # it is a `Job`
        first.setdefault((id(self), fence.stream), self._jobs[fence])

    def feed(self: Replicas, chunk: Chunk) -> bool:
        host = first.get((id(self), chunk.fence.stream))
        return host is not None and host.feed(chunk)

    patch.setattr(Replicas, "submit", note)
    patch.setattr(Replicas, "feed", feed)


def planes_of_the_old_home(patch: pytest.MonkeyPatch) -> None:
    """The planes of a job are chosen before its stream has moved."""
    patch.setattr(Replicas, "home", lambda self, stream: self.hosts.index(self._homes[stream]))


def nobody_stays_at_home(patch: pytest.MonkeyPatch) -> None:
    """Each job goes to the replica with the fewest streams."""

    def least(self: Replicas, stream: str) -> Host:
        others = self.batch if self._homes[stream] in self.batch else self.live
        homes = list(self._homes.values())
        self._homes[stream] = min(others, key=lambda host: (not host.ready, homes.count(host)))
        return self._homes[stream]

    patch.setattr(Replicas, "_home", least)


# ---- the breaker and the gate ---------------------------------------------------------------------------------------


def breaker_never_closes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Breaker, "_mend", lambda self, now: None)


def broken_stage_waited_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Host, "broken", lambda self, cause: None)


def gate_ignores_replies(patch: pytest.MonkeyPatch) -> None:
    begin = Gate.begin

    def only_passes(self: Gate, fence: Fence, now: float) -> None:
        if not isinstance(fence, Reply):
            begin(self, fence, now)

    patch.setattr(Gate, "begin", only_passes)


def gate_opens_between_words_and_answer(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Gate, "understood", lambda self, fence, now: self.end(fence))


STAGE_FAULTS: dict[str, Plant] = {
    plant.__name__: plant
    for plant in (
        discarded_input_keeps_its_credit,
        reclaim_forgets_leases,
        reclaim_takes_what_is_for_the_next,
        late_chunk_keeps_its_slot,
        old_reference_opens_what_is_new,
        late_withdrawal_takes_what_is_new,
        credit_returns_twice,
        no_room_no_chunk,
        control_does_not_overtake,
        credits_never_told,
        acknowledgement_waited_for_for_ever,
        stall_never_released,
        source_never_stalled,
        moved_stream_feeds_its_old_replica,
        planes_of_the_old_home,
        nobody_stays_at_home,
        breaker_never_closes,
        broken_stage_waited_for,
        gate_ignores_replies,
        gate_opens_between_words_and_answer,
    )
}
