"""Runs a cascade for many streams: brings its stages up, routes jobs to them and chunks between them and out."""

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
from pipeline.chunk import Chunk, End, Fence, Prepare, Reply, Segment, Speak, StageRole, Text, Think, Transcribe
from pipeline.edge import Edge, EdgeFull
from pipeline.errors import StageError
from pipeline.host import Host
from pipeline.lanes import Lanes, machine_cores
from pipeline.links import InlineLink, Link, ServedLink
from pipeline.message import Load
from pipeline.scheduler import AHEAD_S
from pipeline.spec import Capabilities, Family, FamilyRole, PipelineSpec, StageSpec
from pipeline.stage import Detector, Served, Stepped
from pipeline.supervise import ProcessLink
from transport.base import Blocks, Full, Ref, inline
from transport.errors import PlaneError
from transport.inproc import InprocPlane

log = logging.getLogger(__name__)

AUDIO_SLOTS = 64  # passes whose audio waits for an inline recognizer
AUDIO_BYTES = 4 << 20  # for one pass: 87 s at 24 kHz
PARTIAL_S = 1.0  # how much later the words of an unfinished turn may come than those of a finished one
# Text runs further ahead than speech, so that a talker that wakes up finds its next clauses written.
THINKER_AHEAD_S = 2 * AHEAD_S

Emitter = Callable[[Chunk], None]


class Engine:
    """The stages of one cascade, on the event loop's thread.

    Trouble never raises here after the start: it arrives at the stream as a `Failed` chunk, later. A fence that is
    used twice, or a stream that was not opened, is a bug of the caller and raises `AssertionError`.
    """

    def __init__(self, spec: PipelineSpec, load_family: Callable[[str], Family], *, cores: int | None = None) -> None:
        self._spec = spec
        self._load_family = load_family
        self._lanes = Lanes(cores or machine_cores())
        self._plane = InprocPlane("recognizer", slots=AUDIO_SLOTS, slot_bytes=AUDIO_BYTES)
        self._hosts: dict[StageRole, Host] = {}
        self._capabilities: dict[FamilyRole, Capabilities] = {}
        self._detector: Detector | None = None
        self._streams: dict[str, Emitter] = {}
        self._edges: dict[Fence, Edge] = {}
        self._audio: dict[Fence, Ref] = {}
        self._by_reference = False  # whether audio reaches the recognizer through the plane

    # ---- life ----

    @property
    def ready(self) -> bool:
        """Whether every stage is up and answers."""
        return len(self._hosts) == 3 and all(host.ready for host in self._hosts.values())

    @property
    def quiet(self) -> bool:
        """Whether no stage owes anything: no live job, no unacknowledged cancel, no audio kept."""
        return all(host.idle for host in self._hosts.values()) and not self._audio and not self._edges

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
        """Load and warm all stages at once. Raises `StageError` naming the stage; nothing is left running then."""
        try:
            await self._start(progress)
        except BaseException:
            await self.stop()
            raise

    async def _start(self, progress: Callable[[str], None]) -> None:
        spec = self._spec
        stages: tuple[tuple[StageRole, StageSpec], ...] = (
            ("recognizer", spec.recognizer),
            ("thinker", spec.thinker),
            ("talker", spec.talker),
        )
        detector = self._family("detector", spec.detector)  # first all that is cheap to refuse, then the models
        families = [self._family(role, stage) for role, stage in stages]
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._start_detector(spec.detector, detector, progress))
                for (role, stage), family in zip(stages, families, strict=True):
                    group.create_task(self._start_stage(role, stage, family, progress))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _start_detector(self, spec: StageSpec, family: Family, progress: Callable[[str], None]) -> None:
        with _named("detector", spec):
            detector: Detector = make_stage(family, spec.options)  # type: ignore[assignment]  # its role is detector
            await asyncio.to_thread(detector.load)
        self._detector = detector
        progress(f"detector {family.name} is ready")

    async def _start_stage(
        self, role: StageRole, spec: StageSpec, family: Family, progress: Callable[[str], None]
    ) -> None:
        began = time.monotonic()
        progress(f"{role} {family.name} is loading")
        with _named(role, spec):
            link = self._link(role, spec, family)
            host = Host(role, link, deliver=self._delivered, taken=self._taken, over=partial(self._over, role))
            self._hosts[role] = host
            await host.start()
        progress(f"{role} {family.name} is ready after {time.monotonic() - began:.1f} s")

    async def stop(self) -> None:
        """End everything, within a bound; afterwards no thread and no process of a stage is left."""
        for stream in list(self._streams):
            self.close(stream)
        hosts = list(self._hosts.values())
        self._hosts.clear()
        outcomes = await asyncio.gather(*(host.stop() for host in hosts), return_exceptions=True)
        for host, outcome in zip(hosts, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                log.error("the %s did not stop in order", host.role, exc_info=outcome)
        for fence in list(self._audio):
            self._release(fence)
        self._edges.clear()

    def _family(self, role: FamilyRole, spec: StageSpec) -> Family:
        with _named(role, spec):
            family = self._load_family(spec.family)
            if family.role != role:
                raise StageError(f"it is a {family.role}: name it there, or choose a family that is a {role}")
            if family.served and role == "talker":
                raise StageError("a served stage takes no text while it speaks: choose a stepped talker")
            self._capabilities[role] = family.describe(make_options(family, spec.options))
            return family

    def _link(self, role: StageRole, spec: StageSpec, family: Family) -> Link:
        ahead_s = THINKER_AHEAD_S if role == "thinker" else AHEAD_S
        if family.served:
            return ServedLink(role, partial(_make_served, family, spec))
        if spec.placement == "process":
            return ProcessLink(Load(role, spec.family, dict(spec.options), ahead_s))
        self._by_reference = self._by_reference or role == "recognizer"
        planes = {self._plane.name: self._plane}
        return InlineLink(role, partial(_make_stepped, family, spec), lanes=self._lanes, planes=planes, ahead_s=ahead_s)

    # ---- streams ----

    def open(self, stream: str, emit: Emitter) -> None:
        """Let a stream in. `emit` gets its chunks, in order per job."""
        assert stream not in self._streams, f"the stream {stream!r} is open"
        self._streams[stream] = emit

    def close(self, stream: str) -> None:
        """Cancel and forget everything of a stream; nothing is emitted from now on."""
        if self._streams.pop(stream, None) is None:
            return
        for host in self._hosts.values():
            host.forget(stream)
        for fence in [fence for fence in self._edges if fence.stream == stream]:
            del self._edges[fence]

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
        host = self._host("recognizer", fence)
        if pcm.nbytes > AUDIO_BYTES:
            host.refuse(
                fence, "capacity", f"{len(pcm)} samples are too long for one pass, which takes {AUDIO_BYTES // 2}"
            )
            return
        try:
            audio = self._carry(np.array(pcm, np.int16))
        except PlaneError as error:
            host.refuse(fence, "capacity", str(error))
            return
        if isinstance(audio, Ref):
            self._audio[fence] = audio
        due = time.monotonic() + (0.0 if final else PARTIAL_S)
        host.submit(Transcribe(fence, audio, rate_hz, final, language, prompt), due)

    def answer(self, think: Think, speak: Speak | None) -> None:
        """Let the thinker write a reply and, with `speak` (of the same fence), the talker say it as it is written."""
        assert speak is None or speak.fence == think.fence, f"{speak} would say another reply than {think.fence}"
        now = time.monotonic()
        if speak is not None:
            self._edges[think.fence] = Edge(think.fence)
            self._host("talker", think.fence).submit(speak, now)
        self._host("thinker", think.fence).submit(think, now)

    def say(self, speak: Speak, text: str) -> None:
        """Let the talker say a text that stands already, without a thinker."""
        talker = self._host("talker", speak.fence)
        talker.submit(speak, time.monotonic())
        talker.feed(Chunk(speak.fence, "thinker", 0, Text(text)))
        talker.feed(Chunk(speak.fence, "thinker", 1, End(), last=True))

    def prepare(self, ahead: Prepare) -> None:
        """Let the thinker prefill a prompt that is likely to come."""
        if (thinker := self._hosts.get("thinker")) is not None:
            thinker.prepare(ahead)

    def cancel(self, fence: Fence) -> None:
        """End a job in all stages; nothing of it is emitted from now on."""
        self._edges.pop(fence, None)
        for host in self._hosts.values():
            host.cancel(fence)

    def pace(self, reply: Reply, plays_until: float) -> None:
        """Say when what was made of a reply so far will have been heard, in monotonic seconds."""
        for host in self._hosts.values():
            host.pace(reply, plays_until)

    def _host(self, role: StageRole, fence: Fence) -> Host:
        assert fence.stream in self._streams, f"{fence} belongs to a stream that is not open"
        return self._hosts[role]

    def _carry(self, pcm: NDArray[np.int16]) -> Blocks:
        """By reference to a recognizer in this process, inside the message to one elsewhere. Raises `PlaneError`."""
        if not self._by_reference:
            return inline({"pcm": pcm})
        slot = self._plane.reserve(pcm.nbytes, 0.0)
        if isinstance(slot, Full):
            raise PlaneError(f"the audio of {AUDIO_SLOTS} passes waits for the recognizer: try again later")
        return self._plane.put(slot, {"pcm": pcm}).ref

    # ---- what stages say ----

    def _delivered(self, chunk: Chunk) -> None:
        if chunk.role == "thinker" and (edge := self._edges.get(chunk.fence)) is not None:
            self._forward(chunk, edge)
        emit = self._streams.get(chunk.fence.stream)
        if emit is None:
            return
        try:
            emit(chunk)
        except Exception:  # the root of a stage's reports: one stream's fault must not end the stage
            log.exception("the stream %r could not take a chunk: it is closed", chunk.fence.stream)
            self.close(chunk.fence.stream)

    def _forward(self, chunk: Chunk, edge: Edge) -> None:
        talker = self._hosts["talker"]
        try:
            for part in edge.push(chunk):
                talker.feed(part)
        except EdgeFull as error:
            talker.fail(chunk.fence, "capacity", str(error))

    def _taken(self, fence: Fence, count: int) -> None:
        if (edge := self._edges.get(fence)) is not None:
            for part in edge.taken(count):
                self._hosts["talker"].feed(part)

    def _over(self, role: StageRole, fence: Fence) -> None:
        if role == "recognizer":
            self._release(fence)
        elif role == "talker":
            self._edges.pop(fence, None)

    def _release(self, fence: Fence) -> None:
        """Return the credit of audio that nobody opened."""
        if (ref := self._audio.pop(fence, None)) is not None:
            self._plane.withdraw(ref)


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
