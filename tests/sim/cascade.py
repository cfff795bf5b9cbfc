"""Carries out what sessions ask of the pipeline, as `pipeline.engine` does, on machines in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

from pipeline.chunk import Chunk, Fence, Prepare, Prompt, Reply, Segment, Speak, StageRole, Think, Transcribe
from pipeline.edge import Edge, EdgeFull
from pipeline.engine import PARTIAL_S, THINKER_AHEAD_S
from pipeline.scheduler import AHEAD_S
from tests.sim.bodies import Body, Recognizer, Talker, Thinker
from tests.sim.clock import Clock
from tests.sim.machines import Machine, Stand
from tests.sim.scenario import Health, Scenario
from tests.sim.speech import RATE_HZ, Speech
from transport.base import inline

NO_SOUND = inline({})
"""A pass knows its sound by its place."""

Emitter = Callable[[Chunk], None]


class Cascade:
    """Three stages that all sessions of a run share."""

    def __init__(self, clock: Clock, seed: int, scenario: Scenario) -> None:
        self._clock = clock
        self._streams: dict[str, tuple[Emitter, Speech]] = {}
        self._edges: dict[Fence, Edge] = {}
        self._places: dict[Fence, int] = {}  # where in the input a pass begins
        self.machines: dict[StageRole, Machine] = {}
        self.hosts: dict[StageRole, Stand] = {}
        makes: tuple[tuple[StageRole, Callable[[], Body], float], ...] = (
            ("recognizer", lambda: Recognizer(self._listen), AHEAD_S),
            ("thinker", lambda: Thinker(seed), THINKER_AHEAD_S),
            ("talker", lambda: Talker(seed), AHEAD_S),
        )
        for role, make, ahead_s in makes:
            rng = Random(f"{seed} {role}")
            process = role != "recognizer"
            machine = Machine(clock, rng, make, scenario.health[role], ahead_s=ahead_s, process=process)
            host = Stand(role, machine, deliver=self._delivered, taken=self._taken, over=partial(self._over, role))
            self.machines[role], self.hosts[role] = machine, host
            host.begin(clock, machine)

    def heal(self) -> None:
        """No more trouble from now on."""
        for machine in self.machines.values():
            machine.health = Health(respawn_s=machine.health.respawn_s)

    @property
    def quiet(self) -> bool:
        """Whether no stage owes anything."""
        return all(host.idle for host in self.hosts.values()) and not self._edges and not self._places

    # ---- streams and jobs, as an engine has them ------------------------------------------------------------------

    def open(self, stream: str, emit: Emitter, speech: Speech) -> None:
        assert stream not in self._streams
        self._streams[stream] = emit, speech

    def close(self, stream: str) -> None:
        del self._streams[stream]
        for host in self.hosts.values():
            host.forget(stream)
        for fence in [fence for fence in self._edges if fence.stream == stream]:
            del self._edges[fence]

    def transcribe(self, fence: Segment, from_sample: int, *, final: bool) -> None:
        self._places[fence] = from_sample
        due = self._clock.now + (0.0 if final else PARTIAL_S)
        self.hosts["recognizer"].submit(Transcribe(fence, NO_SOUND, RATE_HZ, final), due)

    def answer(self, think: Think, speak: Speak | None) -> None:
        now = self._clock.now
        if speak is not None:
            self._edges[think.fence] = Edge(think.fence)
            self.hosts["talker"].submit(speak, now)
        self.hosts["thinker"].submit(think, now)

    def prepare(self, stream: str, prompt: Prompt) -> None:
        self.hosts["thinker"].prepare(Prepare(stream, prompt))

    def cancel(self, fence: Fence) -> None:
        self._edges.pop(fence, None)
        for host in self.hosts.values():
            host.cancel(fence)

    def pace(self, reply: Reply, plays_until: float) -> None:
        for host in self.hosts.values():
            host.pace(reply, plays_until)

    # ---- what stages say ------------------------------------------------------------------------------------------

    def _listen(self, job: Transcribe) -> tuple[str, float]:
        if job.fence.stream not in self._streams:
            return "", 0.0
        start, stop = self._places[job.fence], job.fence.upto_sample
        return self._streams[job.fence.stream][1].words(start, stop), (stop - start) / RATE_HZ

    def _delivered(self, chunk: Chunk) -> None:
        if chunk.role == "thinker" and (edge := self._edges.get(chunk.fence)) is not None:
            try:
                for part in edge.push(chunk):
                    self.hosts["talker"].feed(part)
            except EdgeFull as error:
                self.hosts["talker"].fail(chunk.fence, "capacity", str(error))
        if chunk.fence.stream in self._streams:
            self._streams[chunk.fence.stream][0](chunk)

    def _taken(self, fence: Fence, count: int) -> None:
        if (edge := self._edges.get(fence)) is not None:
            for part in edge.taken(count):
                self.hosts["talker"].feed(part)

    def _over(self, role: StageRole, fence: Fence) -> None:
        if role == "recognizer":
            self._places.pop(fence, None)
        elif role == "talker":
            self._edges.pop(fence, None)
