"""Runs a pipeline for many streams: brings its stages up and down, and lets streams use them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import numpy as np
from numpy.typing import NDArray

from pipeline.build import make_options, make_stage
from pipeline.chunk import Fence, Prepare, Reply, Segment, Speak, StageRole, Think, Transcribe
from pipeline.errors import ConfigError, StageError
from pipeline.graph import complete
from pipeline.host import Host, StageState
from pipeline.lanes import Lanes, machine_cores
from pipeline.links import InlineLink, Link, ServedLink
from pipeline.message import Load
from pipeline.observer import Observer, Unobserved
from pipeline.replicas import Lane, Replicas
from pipeline.router import Emitter, Router
from pipeline.scheduler import AHEAD_S
from pipeline.spec import (
    SESSION,
    STAGES,
    Capabilities,
    Family,
    FamilyRole,
    PipelineSpec,
    Placement,
    Source,
    StageSpec,
)
from pipeline.stage import Detector, Served, Stepped
from pipeline.supervise import ProcessLink
from pipeline.wiring import Where, Wiring
from transport.base import Blocks, Full, inline
from transport.errors import PlaneError

log = logging.getLogger(__name__)

# Text runs further ahead than speech, so that a talker that wakes up finds its next clauses written.
THINKER_AHEAD_S = 2 * AHEAD_S


class Engine:
    """The stages of one pipeline, on the event loop's thread.

    Trouble never raises here after the start: it arrives at the stream as a `Failed` chunk, later. A fence that is
    used twice, or a stream that was not opened, is a bug of the caller and raises `AssertionError`.
    """

    def __init__(
        self,
        spec: PipelineSpec,
        load_family: Callable[[str], Family],
        *,
        cores: int | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._spec = spec
        self._load_family = load_family
        self._lanes = Lanes(cores or machine_cores())
        self._observer = observer or Unobserved()
        self._families: dict[StageRole, Family] = {}
        self._capabilities: dict[FamilyRole, Capabilities] = {}
        self._stages: dict[StageRole, Replicas] = {}
        self._detector: Detector | None = None
        self._detector_since = time.monotonic()
        self._wiring: Wiring | None = None
        self._router: Router | None = None
        self._growing: asyncio.Task[None] | None = None
        self._grown = False
        self._up = False

    # ---- life ----

    @property
    def ready(self) -> bool:
        """Whether every stage is up and answers."""
        return self._up and all(stage.ready for stage in self._stages.values())

    @property
    def states(self) -> Mapping[FamilyRole, tuple[StageState, ...]]:
        """How each stage is: one state for each of its live replicas."""
        found: dict[FamilyRole, tuple[StageState, ...]] = {
            "detector": (StageState("loading" if self._detector is None else "ready", self._detector_since),)
        }
        for role, stage in self._stages.items():
            found[role] = tuple(host.state for host in stage.live)
        return found

    @property
    def quiet(self) -> bool:
        """Whether no stage owes anything: no live job, no unacknowledged cancel, no audio kept."""
        return self._router is None or self._router.quiet

    @property
    def capabilities(self) -> Mapping[FamilyRole, Capabilities]:
        """What each stage can do; complete after `start`."""
        return self._capabilities

    @property
    def detector(self) -> Detector:
        """The voice activity detector, loaded."""
        assert self._detector is not None, "the engine was not started"
        return self._detector

    async def start(self, progress: Callable[[str], None]) -> None:
        """Load and warm all stages at once.

        Raises `StageError` naming the stage, or `ConfigError` for a graph that can't run; nothing is left running then.
        """
        try:
            await self._start(progress)
        except BaseException:
            await self.stop()
            raise

    async def _start(self, progress: Callable[[str], None]) -> None:
        """First all that is cheap to refuse, then the models."""
        detector = self._family("detector", self._spec.detector)
        for role, spec in self._spec.stages.items():
            self._families[role] = self._family(role, spec)
        graph = complete(self._spec, self._families)
        self._wiring = Wiring(graph)
        live = self._where("live")
        self._wiring.lay(live)
        # A stage without replicas for the batch lane serves it with those that are spawned now.
        self._wiring.lay(self._where("batch"), beside=[one for one in live if one[0] != SESSION])
        self._router = Router(graph, self._stages, self._wiring, asyncio.get_running_loop(), self._observer)
        for role in STAGES:
            if role in self._families:
                spec = self._spec.stages[role]
                self._stages[role] = Replicas(
                    role, partial(self._host, role), spec.replicas, self._batch_replicas(role)
                )
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._start_detector(detector, progress))
                for stage in self._stages.values():
                    for host in stage.live:
                        group.create_task(self._start_stage(host, progress))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        self._up = True

    async def _start_detector(self, family: Family, progress: Callable[[str], None]) -> None:
        with _named("detector", self._spec.detector):
            detector: Detector = make_stage(family, self._spec.detector.options)  # type: ignore[assignment]  # its role is detector
            await asyncio.to_thread(detector.load)
        self._detector, self._detector_since = detector, time.monotonic()
        progress(f"detector {family.name} is ready")

    async def _start_stage(self, host: Host, progress: Callable[[str], None]) -> None:
        began = time.monotonic()
        name = self._families[host.role].name
        progress(f"{host.role} {name} is loading")
        with _named(host.role, self._spec.stages[host.role]):
            await host.start()
        progress(f"{host.role} {name} is ready after {time.monotonic() - began:.1f} s")

    async def stop(self) -> None:
        """End everything, within a bound; afterwards no thread, no process and no arena of a stage is left."""
        if self._growing is not None:
            self._growing.cancel()
            await asyncio.gather(self._growing, return_exceptions=True)
        if self._router is not None:
            self._router.close_all()
        self._up = False
        hosts = [host for stage in self._stages.values() for host in stage.hosts]
        outcomes = await asyncio.gather(*(host.stop() for host in hosts), return_exceptions=True)
        for host, outcome in zip(hosts, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                log.error("the %s did not stop in order", host.role, exc_info=outcome)
        if self._wiring is not None:
            self._wiring.close()

    def _family(self, role: FamilyRole, spec: StageSpec) -> Family:
        with _named(role, spec):
            family = self._load_family(spec.family)
            if family.role != role:
                raise StageError(f"it is a {family.role}: name it there, or choose a family that is a {role}")
            if family.served and role not in ("recognizer", "thinker"):
                raise StageError("a served stage takes nothing while it works: choose a stepped one")
            if family.served and spec.replicas > 1:
                raise StageError("a served stage has no replicas here: it schedules itself")
            self._capabilities[role] = family.describe(make_options(family, spec.options))
            return family

    def _where(self, lane: Lane) -> Where:
        """Where the replicas of a lane are, for the data planes between them; batch replicas are processes."""
        where: dict[tuple[Source, int], Placement] = {(SESSION, 0): "inline"}
        for role, spec in self._spec.stages.items():
            batch = self._batch_replicas(role) if lane == "batch" else 0
            if batch:
                where |= {(role, spec.replicas + number): "process" for number in range(batch)}
            else:
                where |= {(role, number): spec.placement for number in range(spec.replicas)}
        return where

    def _batch_replicas(self, role: StageRole) -> int:
        return 0 if self._families[role].served else self._spec.stages[role].batch_replicas

    def _host(self, role: StageRole, replica: int) -> Host:
        return Host(
            role,
            self._link(role, replica),
            deliver=self._routed.delivered,
            taken=partial(self._routed.taken, role),
            over=partial(self._routed.over, role),
            stale=self._routed.stale,
            observer=self._observer,
        )

    def _link(self, role: StageRole, replica: int) -> Link:
        spec, family = self._spec.stages[role], self._families[role]
        ahead_s = THINKER_AHEAD_S if role == "thinker" else AHEAD_S
        idle = replica >= spec.replicas
        if family.served:
            return ServedLink(role, partial(_make_served, family, spec), self._wired.ends(role, replica))
        if spec.placement == "process" or idle:
            load = Load(
                role,
                spec.family,
                dict(spec.options),
                ahead_s,
                batch=spec.max_batch,
                planes=self._wired.inherited(role, replica),
                replica=replica,
                idle=idle,
            )
            return ProcessLink(load, lost=partial(self._wired.lost, role, replica))
        return InlineLink(
            role,
            partial(_make_stepped, family, spec),
            who=f"{role}#{replica}",
            lanes=self._lanes,
            planes=self._wired.ends(role, replica),
            ahead_s=ahead_s,
            batch=spec.max_batch,
        )

    @property
    def _routed(self) -> Router:
        assert self._router is not None, "the engine was not started"
        return self._router

    @property
    def _wired(self) -> Wiring:
        assert self._wiring is not None, "the engine was not started"
        return self._wiring

    # ---- streams ----

    def open(self, stream: str, emit: Emitter, lane: Lane = "live") -> None:
        """Let a stream in. `emit` gets its chunks, in order per job.

        A stream of the batch lane has no deadline: `grow` first, else it takes the live replicas when they are free.
        """
        self._routed.open(stream, emit, lane)

    def close(self, stream: str) -> None:
        """Cancel and forget everything of a stream; nothing is emitted from now on."""
        if self._router is not None:
            self._router.close(stream)

    async def grow(self) -> None:
        """Bring up the replicas of the batch lane, if that was not done yet. Raises `StageError`; none is left then."""
        if self._growing is None or (self._growing.done() and not self._grown):
            self._growing = asyncio.get_running_loop().create_task(self._grow(), name="batch-lane")
        await asyncio.shield(self._growing)

    async def _grow(self) -> None:
        """All of them or none: the lane is one chain, from replica to replica."""
        try:
            self._wired.lay(self._where("batch"))
            for role, stage in self._stages.items():
                with _named(role, self._spec.stages[role]):
                    await stage.grow()
        except ConfigError as error:  # its planes; all else was checked at the start
            raise StageError(f"the batch lane: {error}", "capacity") from error
        except BaseException:
            for stage in self._stages.values():
                await stage.shrink()
            raise
        for stage in self._stages.values():
            stage.adopt()
        self._grown = True

    # ---- jobs ----

    def transcribe(
        self,
        fence: Segment,
        pcm: NDArray[np.int16],
        rate_hz: int,
        *,
        final: bool,
        language: str | None,
        prompt: str | None,
    ) -> None:
        """Recognize `pcm` (int16, shape (n,), copied here); the answer is one `Transcript` chunk."""
        try:
            audio = self._carry(fence.stream, np.array(pcm, np.int16))
        except PlaneError as error:
            self._routed.refuse("recognizer", fence, "capacity", f"{len(pcm)} samples for one pass: {error}")
            return
        self._routed.transcribe(Transcribe(fence, audio, rate_hz, final, language, prompt))

    def answer(self, think: Think, speak: Speak | None) -> None:
        """Let the thinker write a reply and, with `speak` (of the same fence), the talker say it as it is written."""
        self._routed.answer(think, speak)

    def say(self, speak: Speak, text: str) -> None:
        """Let the talker say a text that stands already, without a thinker."""
        self._routed.say(speak, text)

    def prepare(self, ahead: Prepare) -> None:
        """Let the thinker prefill a prompt that is likely to come."""
        self._routed.prepare(ahead)

    def cancel(self, fence: Fence) -> None:
        """End a job in all stages; nothing of it is emitted from now on."""
        self._routed.cancel(fence)

    def pace(self, reply: Reply, plays_until: float) -> None:
        """Say when what was made of a reply so far will have been heard, in monotonic seconds."""
        self._routed.pace(reply, plays_until)

    def _carry(self, stream: str, pcm: NDArray[np.int16]) -> Blocks:
        """The sound as the recognizer of a stream gets it. Raises `PlaneError`."""
        plane = self._routed.carrier("audio", "recognizer", stream)
        if plane is None:
            return inline({"pcm": pcm})
        sender = self._wired.sender(plane)
        slot = sender.reserve(pcm.nbytes, 0.0)
        if isinstance(slot, Full):  # many passes wait: this one takes the longer way
            return inline({"pcm": pcm})
        self._observer.sent(f"{SESSION}.audio -> recognizer", pcm.nbytes)
        return sender.put(slot, {"pcm": pcm}).ref


def _make_stepped(family: Family, spec: StageSpec) -> Stepped:
    stage: Stepped = make_stage(family, spec.options)  # type: ignore[assignment]  # it is neither served nor a detector
    return stage


def _make_served(family: Family, spec: StageSpec) -> Served:
    stage: Served = make_stage(family, spec.options)  # type: ignore[assignment]  # the family says that it is served
    return stage


@contextmanager
def _named(role: FamilyRole, spec: StageSpec) -> Iterator[None]:
    """Say which stage an error is about."""
    try:
        yield
    except StageError as error:
        raise StageError(f"{role} ({spec.family}): {error.message}", error.kind) from error
