"""Runs a pipeline as `pipeline.engine` does, on machines in virtual time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine
from functools import partial
from random import Random

import numpy as np

from pipeline.chunk import (
    Chunk,
    Failed,
    Fence,
    Prepare,
    Prompt,
    Reply,
    Segment,
    Speak,
    StageRole,
    Think,
    Transcribe,
)
from pipeline.edge import OVERSHOOT
from pipeline.engine import THINKER_AHEAD_S
from pipeline.observer import Unobserved
from pipeline.replicas import Lane as LaneName
from pipeline.replicas import Replicas
from pipeline.router import Router
from pipeline.scheduler import AHEAD_S, Turn
from pipeline.spec import SESSION, Placement, Source
from pipeline.wiring import Where
from tests.sim.arena import Wires
from tests.sim.bodies import Body, Recognizer, Talker, Thinker
from tests.sim.clock import Clock
from tests.sim.codes import FRAMES, Coder, Vocoder
from tests.sim.machines import RAISED, Machine, Site
from tests.sim.scenario import Health, Scenario
from tests.sim.speech import RATE_HZ, Speech
from tests.sim.stand import Lane, Stand
from tests.sim.waits import Waits
from transport.base import Blocks, Full, Inline, inline, unpack
from transport.errors import PlaneError

PILE = 4 * FRAMES
"""A source that is told at once to wait gives no more than it had begun with."""

Emitter = Callable[[Chunk], None]


class Cascade:
    """The stages that all sessions of a run share, behind the router of the real engine."""

    def __init__(self, clock: Clock, seed: int, scenario: Scenario) -> None:
        self._clock, self._seed, self._scenario, self._works = clock, seed, scenario, scenario.works
        self._speech: dict[str, Speech] = {}
        self._batch: set[str] = set()
        self._waits = Waits()
        self._grown = False
        self.met: Counter[str] = Counter()
        graph = self._works.graph
        self.wires = Wires(graph, clock, Random(f"{seed} planes"), self._works.stutters, self.met)
        self.wires.lay(self._where(batch=False))
        self.stands: list[Stand] = []
        self._stages: dict[StageRole, Replicas] = {}
        self._lanes: dict[tuple[StageRole, bool], Lane] = {}
        self._router = Router(graph, self._stages, self.wires, clock, Unobserved())  # type: ignore[arg-type]  # of a loop it uses `time` and `call_at` alone
        for role in self._works.roles:
            make = partial(self._host, role)
            self._stages[role] = Replicas(role, make, self._works.live(role), self._works.batch_replicas)
        for stand in self.stands:
            stand.begin()

    def _where(self, *, batch: bool) -> Where:
        """As `Engine` has it."""
        works = self._works
        where: dict[tuple[Source, int], Placement] = {(SESSION, 0): "inline"}
        for role in works.roles:
            live, more = works.live(role), works.batch_replicas if batch else 0
            numbers = range(live, live + more) if more else range(live)
            where |= {(role, number): works.place(role, number) for number in numbers}
        return where

    def _host(self, role: StageRole, replica: int) -> Stand:
        router, batch = self._router, replica >= self._works.live(role)
        name = f"{self._seed} {role}" + (f" {replica}" if replica else "")
        site = Site(
            ahead_s=THINKER_AHEAD_S if role == "thinker" else AHEAD_S,
            process=self._works.place(role, replica) == "process",
            planes=self.wires.ends(role, replica),
            works=self._works,
            lost=partial(self.wires.lost, role, replica),
            leave=partial(self.wires.leave, role, replica),
            begins=self._begins,
            met=self.met,
        )
        machine = Machine(self._clock, Random(name), self._make(role), self._scenario.health[role], site)
        stand = Stand(
            role,
            machine,
            self._clock,
            self._lanes.setdefault((role, batch), Lane()),
            deliver=router.delivered,
            taken=partial(router.taken, role),
            over=partial(router.over, role),
            stale=router.stale,
        )
        self.stands.append(stand)
        return stand

    def _make(self, role: StageRole) -> Callable[[], Body]:
        seed = self._seed
        match role:
            case "recognizer":
                return lambda: Recognizer(self._listen)
            case "thinker":
                return lambda: Thinker(seed)
            case "talker":
                return lambda: Coder(seed) if "vocoder" in self._works.roles else Talker(seed)
            case "vocoder":
                return lambda: Vocoder(gaps=self._works.drops)

    def heal(self) -> None:
        """No more trouble from now on."""
        for stand in self.stands:
            stand.machine.health = Health(respawn_s=stand.machine.health.respawn_s)

    @property
    def quiet(self) -> bool:
        """Whether no stage owes anything, and nothing lies in a plane."""
        return self._router.quiet and not self.left

    @property
    def left(self) -> dict[str, object]:
        """What is under way, by what it is."""
        slots = {name: left for name, left in self.wires.left.items() if left}
        jobs = [fence for stand in self.stands for fence in stand.jobs]
        known = {"jobs": jobs, "slots": slots, "said": self._router._said, "waits": self._waits.left}
        return {name: what for name, what in known.items() if what}

    @property
    def tells_late(self) -> bool:
        """Whether a stage may learn only after its next step how long what it said will sound."""
        return self._works.manners is not None

    def check(self) -> None:
        """What is bounded is within its bound."""
        for stand in self.stands:
            stand.check()
        self.wires.check()
        most = PILE if self._works.manners is None else OVERSHOOT
        for target in (target for targets in self._router._flows._targets.values() for target in targets.values()):
            for edge in target.edges:
                waiting = len(edge._waiting)
                assert waiting <= most, f"{waiting} chunks wait at {edge.spec.name}: its source does not wait for them"

    def shut(self) -> None:
        """Nobody uses it any more."""
        self.wires.close()

    # ---- streams and jobs, as an engine has them ------------------------------------------------------------------

    def open(self, stream: str, emit: Emitter, speech: Speech, lane: LaneName = "live") -> None:
        assert stream not in self._speech
        self._speech[stream] = speech
        if lane == "batch":
            self._batch.add(stream)
        self._router.open(stream, partial(self._emitted, emit), lane)

    def close(self, stream: str) -> None:
        del self._speech[stream]
        self._waits.forget(stream)
        self._router.close(stream)

    def grow(self) -> None:
        """Bring up the replicas of the batch lane, if there are any."""
        if not self._grown and self._works.batch_replicas:
            self._grown = True
            self.wires.lay(self._where(batch=True))
            for stage in self._stages.values():
                _now(stage.grow())
            for stage in self._stages.values():
                stage.adopt()

    def transcribe(self, fence: Segment, from_sample: int, *, final: bool) -> None:
        """Recognize what was said; the place of the sound stands for the sound."""
        if final:
            self._begin(fence, spoken=False)
        try:
            sound = self._carry(fence, from_sample)
        except PlaneError as error:
            self._router.refuse("recognizer", fence, "capacity", str(error))
            return
        self._router.transcribe(Transcribe(fence, sound, RATE_HZ, final))

    def answer(self, think: Think, speak: Speak | None) -> None:
        self._begin(think.fence, spoken=speak is not None)
        self._router.answer(think, speak)

    def say(self, speak: Speak, text: str) -> None:
        self._router.say(speak, text)

    def prepare(self, stream: str, prompt: Prompt) -> None:
        self._router.prepare(Prepare(stream, prompt))

    def cancel(self, fence: Fence) -> None:
        self._waits.end(fence)
        self._router.cancel(fence)

    def pace(self, reply: Reply, plays_until: float) -> None:
        self._router.pace(reply, plays_until)

    def _begin(self, fence: Fence, *, spoken: bool) -> None:
        if fence.stream not in self._batch:
            self._waits.begin(fence, self._clock.now, spoken=spoken)

    def _carry(self, fence: Segment, from_sample: int) -> Blocks:
        """As `Engine` does. Raises `PlaneError`."""
        place = np.array((from_sample, fence.upto_sample), np.int64)
        plane = self._router.carrier("audio", "recognizer", fence.stream)
        if plane is None:
            return inline({"pcm": place})
        sender = self.wires.sender(plane)
        slot = sender.reserve(place.nbytes, 0.0)
        if isinstance(slot, Full):
            raise PlaneError("the sound of as many passes as there is room for waits already")
        return sender.put(slot, {"pcm": place}).ref

    # ---- what stages say ------------------------------------------------------------------------------------------

    def _listen(self, job: Transcribe) -> tuple[str, float]:
        if job.fence.stream not in self._speech:
            return "", 0.0
        assert isinstance(job.audio, Inline), "sound that was not opened"
        start, stop = (int(sample) for sample in unpack(job.audio)["pcm"])
        assert stop == job.fence.upto_sample, "the sound of another pass"
        return self._speech[job.fence.stream].words(start, stop), (stop - start) / RATE_HZ

    def _emitted(self, emit: Emitter, chunk: Chunk) -> None:
        self._waits.told(chunk, self._clock.now)
        if isinstance(chunk.payload, Failed):
            self.met[f"{chunk.role}: {chunk.payload.kind}"] += 1
            if chunk.payload.kind == "stage_failed":
                assert chunk.payload.message == RAISED, f"a stage fails by itself: {chunk.payload.message}"
        emit(chunk)

    def _begins(self, machine: Machine, turn: Turn) -> None:
        """No step of the batch lane begins while somebody waits for the first sound of an answer, and it was told."""
        if not self._batch:
            return
        batch = [item.fence for item in turn.work if item.fence.stream in self._batch]
        if batch and not machine.gates:
            assert not self._waits.any(self._clock.now), f"somebody waits, and the {machine.body.role} goes on {batch}"
        if batch:
            self.met["batch steps"] += 1


def _now(work: Coroutine[None, None, None]) -> None:
    """Do all of it; nothing of it has to wait."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise AssertionError("it waits for something")
