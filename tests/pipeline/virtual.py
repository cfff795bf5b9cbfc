"""Runs a pipeline of scripted stages behind the real router in virtual time: every step takes as long as it is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from pipeline.build import make_stage
from pipeline.carry import Leases, Planes
from pipeline.chunk import Caption, Chunk, Failed, Fence, Reply, Segment, Speak, StageRole, Think, Transcribe
from pipeline.errors import FailureKind
from pipeline.graph import complete
from pipeline.host import Host
from pipeline.links import Listener
from pipeline.message import Began, Ended, Loaded, Report
from pipeline.observer import Observer, Unobserved
from pipeline.replicas import Replicas
from pipeline.router import Router
from pipeline.runner import StageRunner
from pipeline.scheduler import Event, Fed, Request, StageScheduler, Turn, Wait
from pipeline.spec import SESSION, PipelineSpec, Placement, Source
from pipeline.stage import Stepped
from pipeline.wiring import Where, Wiring
from tests.pipeline.scenes import load_family, prompt, sound
from tests.sim.clock import Clock, Timer
from transport.base import Slot, inline
from transport.inproc import InprocPlane

STEP_S = 0.01
WAY_S = 0.001
"""How long a message is under way, in either direction."""


class VirtualLink:
    """A stage in virtual time. In a "process" it can die, and what it is sent in the meantime is lost."""

    def __init__(
        self,
        clock: Clock,
        role: StageRole,
        make: Callable[[], Stepped],
        planes: Planes,
        lost: Callable[[], Callable[[], None]],
    ) -> None:
        self._clock, self._role, self._make, self._planes, self._lost = clock, role, make, planes, lost
        self.step_s = STEP_S
        self.began: list[tuple[float, Turn]] = []
        self.life = 0
        self.up = False
        self.full = False  # it leaves so much unread that no input goes there any more

    async def start(self, listener: Listener) -> Loaded:
        return self.begin(listener)

    async def stop(self) -> None:
        self.up = False

    def begin(self, listener: Listener) -> Loaded:
        self._listener = listener
        stage = self._make()
        self.scheduler = StageScheduler(self._role, stage.batch)
        self.runner = StageRunner(stage, self.scheduler, self._say, planes=self._planes, clock=self._clock.time)
        self.up, self._busy, self._number = True, False, 0
        self.life += 1
        self._timer: Timer | None = None
        return Loaded(60_000)

    def send(self, request: Request) -> bool:
        if self.full and isinstance(request, Fed):
            return False
        self._clock.call_later(WAY_S, self._take, self.life, request)
        return True

    def kill(self, kind: FailureKind, reason: str) -> bool:
        self.die(kind)
        return True

    def die(self, kind: FailureKind = "stage_lost", *, away_s: float = 0.5) -> None:
        """End it now; that is noticed, then understood, then it is back."""
        if self.up:
            self.up = False
            self._clock.call_later(WAY_S, self._gone, kind, away_s)

    def _gone(self, kind: FailureKind, away_s: float) -> None:
        reclaim = self._lost()
        self._listener.down()
        self._clock.call_later(away_s / 2, self._reaped, reclaim, kind)
        self._clock.call_later(away_s, self._back)

    def _reaped(self, reclaim: Callable[[], None], kind: FailureKind) -> None:
        reclaim()
        self._listener.lost(kind, f"the {self._role} is lost")

    def _back(self) -> None:
        self._listener.back(self.begin(self._listener))

    def _take(self, life: int, request: Request) -> None:
        if self.up and life == self.life:
            self.runner.feed(request)
            self._next(life)

    def _say(self, report: Report) -> None:
        self._clock.call_later(WAY_S, self._said, self.life, report)

    def _said(self, life: int, report: Report) -> None:
        """What it said before it died arrives; nothing does once that was noticed."""
        if life == self.life:
            self._listener.reported(report)

    def _next(self, life: int) -> None:
        if self._busy or not self.up or life != self.life:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.runner._put_kept()
        match self.scheduler.next(self._clock.now):
            case Turn() as turn:
                self._busy = True
                self._number += 1
                self.began.append((self._clock.now, turn))
                self._say(Began(self._number, tuple((w.fence, len(w.inputs)) for w in turn.work if w.inputs)))
                leases = Leases(self._planes.receivers)
                end: Event
                try:
                    end = self.runner._perform(turn, leases)
                except Exception as error:  # as `StageRunner.run` does
                    end = self.runner._failed(turn, error)
                self._clock.call_later(self.step_s, self._over, life, end, leases)
            case Wait(until):
                self._timer = self._clock.call_at(until, self._next, life)
        if self.runner._outgoing.kept and not self._busy:
            self._timer = self._clock.call_later(STEP_S, self._next, life)

    def _over(self, life: int, end: Event, leases: Leases) -> None:
        if not self.up or life != self.life:
            return
        leases.release()
        self.runner._over(end)
        self._say(Ended(self._number))
        self._busy = False
        self._next(life)


class VirtualHost(Host):
    """A host whose timers run in virtual time."""

    def begin(self, clock: Clock, link: VirtualLink) -> None:
        self._loop = clock  # type: ignore[assignment]  # of the loop a host uses `time`, `call_later` and `call_soon` alone
        self.back(link.begin(self))

    async def start(self) -> None:
        assert isinstance(self._link, VirtualLink)
        self.begin(self._link._clock, self._link)


class Stage:
    """All that a test may want of the replicas of a stage."""

    def __init__(self) -> None:
        self.links: list[VirtualLink] = []
        self.hosts: list[VirtualHost] = []


class Pipeline:
    """The stages of `spec`. Those placed in a process may die; planes are real ones, as the spec says."""

    def __init__(self, spec: PipelineSpec, observer: Observer | None = None) -> None:
        self.clock = Clock()
        self._spec = spec
        self._families = {role: load_family(stage.family) for role, stage in spec.stages.items()}
        graph = complete(spec, self._families)
        self.wiring = Wiring(graph)
        self.wiring.lay(self._where("live"))
        self.stages: dict[StageRole, Replicas] = {}
        self.parts: dict[StageRole, Stage] = {role: Stage() for role in spec.stages}
        self.router = Router(
            graph,
            self.stages,
            self.wiring,
            self.clock,  # type: ignore[arg-type]  # of a loop it uses `time` and `call_at` alone
            observer or Unobserved(),
        )
        for role, stage in spec.stages.items():
            self.stages[role] = Replicas(role, partial(self._host, role), stage.replicas, stage.batch_replicas)
            for host, link in zip(self.parts[role].hosts, self.parts[role].links, strict=True):
                host.begin(self.clock, link)

    def open(self, stream: str, *, batch: bool = False) -> list[Chunk]:
        """A new stream; what it is told is appended to the list."""
        heard: list[Chunk] = []
        self.router.open(stream, heard.append, "batch" if batch else "live")
        return heard

    def grow(self) -> None:
        """Bring the batch lane up, at once."""
        self.wiring.lay(self._where("batch"))
        for stage in self.stages.values():
            growing = stage.grow()
            try:
                growing.send(None)
            except StopIteration:
                stage.adopt()

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.run_until(self.clock.now + seconds)

    def credits(self) -> Mapping[str, tuple[int, int]]:
        """Of each data plane: how many slots are free, and how many there are."""
        found = {}
        for name, plane in self.wiring._planes.items():
            if plane.arena is not None:
                found[name] = plane.arena.credits, plane.arena.slots
            elif isinstance(plane.sender, InprocPlane):
                found[name] = plane.sender.credits, len(plane.sender._cells)
        return found

    def shut(self) -> None:
        """Let go of the planes; see before that every credit is back."""
        assert self.router.quiet
        assert all(free == whole for free, whole in self.credits().values()), self.credits()
        self.wiring.close()

    def _where(self, lane: str) -> Where:
        where: dict[tuple[Source, int], Placement] = {(SESSION, 0): "inline"}
        for role, stage in self._spec.stages.items():
            if lane == "batch" and stage.batch_replicas:
                where |= {(role, stage.replicas + n): "process" for n in range(stage.batch_replicas)}
            else:
                where |= {(role, n): stage.placement for n in range(stage.replicas)}
        return where

    def _host(self, role: StageRole, replica: int) -> VirtualHost:
        family, options = self._families[role], self._spec.stages[role].options

        def make() -> Stepped:
            stage: Stepped = make_stage(family, options)  # type: ignore[assignment]  # none of them is served or a detector
            stage.load()
            return stage

        planes, lost = self.wiring.ends(role, replica), partial(self.wiring.lost, role, replica)
        link = VirtualLink(self.clock, role, make, planes, lost)
        host = VirtualHost(
            role,
            link,
            deliver=self.router.delivered,
            taken=partial(self.router.taken, role),
            over=partial(self.router.over, role),
            stale=self.router.stale,
        )
        self.parts[role].links.append(link)
        self.parts[role].hosts.append(host)
        return host


# ---- what tests do with it ------------------------------------------------------------------------------------------

LARGE = 40_000
"""Bytes of codes that do not ride inside a message where there is a plane."""
LONG_S = 60.0


def ask(pipeline: Pipeline, epoch: int, text: str, stream: str = "s", *, aloud: bool = True) -> Reply:
    reply = Reply(stream, epoch)
    pipeline.router.answer(Think(reply, prompt(text), 1000), Speak(reply) if aloud else None)
    return reply


def recognize(pipeline: Pipeline, number: int, stream: str = "s", *, words: int = 2, final: bool = True) -> Segment:
    """Ask for a pass as the engine does: over a plane, where there is one."""
    fence = Segment(stream, number, 12_000 * words)
    plane = pipeline.router.carrier("audio", "recognizer", stream)
    pcm = {"pcm": sound(words)}
    if plane is None:
        pipeline.router.transcribe(Transcribe(fence, inline(pcm), 24_000, final))
        return fence
    sender = pipeline.wiring.sender(plane)
    slot = sender.reserve(pcm["pcm"].nbytes, 0.0)
    assert isinstance(slot, Slot)
    pipeline.router.transcribe(Transcribe(fence, sender.put(slot, pcm).ref, 24_000, final))
    return fence


def of(heard: list[Chunk], fence: Fence, role: StageRole = "talker") -> list[Chunk]:
    return [chunk for chunk in heard if chunk.fence == fence and chunk.role == role]


def captions(chunks: list[Chunk]) -> str:
    return "".join(chunk.payload.text for chunk in chunks if isinstance(chunk.payload, Caption))


def failure(chunks: list[Chunk]) -> Failed:
    """What a job failed with; it is told once, and last."""
    (failed,) = [chunk for chunk in chunks if chunk.last]
    assert chunks[-1] is failed
    assert isinstance(failed.payload, Failed)
    return failed.payload


def codes(**options: str | int) -> dict[str, str | int]:
    return {"code_bytes": LARGE, **options}
