"""Routes the jobs of streams to their stages, and chunks from stage to stage and out."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from pipeline.carry import refs_of
from pipeline.chunk import (
    Audio,
    Chunk,
    End,
    Failed,
    Fence,
    Prepare,
    Reply,
    Speak,
    StageRole,
    Tensors,
    Text,
    Think,
    Transcribe,
    Transcript,
    port_of,
)
from pipeline.errors import FailureKind
from pipeline.flows import Flows, Moves
from pipeline.gate import Gate
from pipeline.graph import Graph
from pipeline.observer import Observer
from pipeline.replicas import Lane, Replicas
from pipeline.scheduler import NEVER
from pipeline.spec import SESSION, EdgeSpec
from transport.base import Ref

log = logging.getLogger(__name__)

PARTIAL_S = 1.0  # how much later the words of an unfinished turn may come than those of a finished one

Emitter = Callable[[Chunk], None]


class Carriers(Protocol):
    """The data planes between replicas, as far as a router must know them."""

    def plane(self, edge: EdgeSpec, source: int, target: int) -> str | None:
        """The plane from one replica to another; none where what goes there rides inside the message."""

    def withdraw(self, ref: Ref) -> None:
        """Take back what was put and will not be opened; too late is not an error."""


class Router:
    """All that is under way in a pipeline, on the event loop's thread.

    Of the loop it uses `time` and `call_at` alone, so that a simulator can drive it. Trouble never raises here: it
    arrives at the stream as a `Failed` chunk, later. A fence that is used twice, or a stream that was not opened, is a
    bug of the caller and raises `AssertionError`.
    """

    def __init__(
        self,
        graph: Graph,
        stages: Mapping[StageRole, Replicas],
        carriers: Carriers,
        loop: asyncio.AbstractEventLoop,
        observer: Observer,
    ) -> None:
        self._graph, self._stages, self._carriers = graph, stages, carriers
        self._loop, self._observer = loop, observer
        self._speech = ("talker", *graph.behind("talker"))  # the stages that take part in speaking, in order
        self._streams: dict[str, tuple[Emitter, Lane]] = {}
        self._flows = Flows()
        self._sounds: dict[Fence, Ref] = {}
        self._gate = Gate()
        self._gated = False
        self._gate_due: float | None = None
        self._gate_timer: asyncio.TimerHandle | None = None
        self._said: Counter[Fence] = Counter()  # chunks told of what several stages say together

    @property
    def quiet(self) -> bool:
        """Whether nothing is owed: no live job, no unacknowledged cancel, no sound kept, no edge in use."""
        return all(stage.idle for stage in self._stages.values()) and not self._sounds and self._flows.idle

    # ---- streams ----

    def open(self, stream: str, emit: Emitter, lane: Lane = "live") -> None:
        """Let a stream in. `emit` gets its chunks, in order per job."""
        assert stream not in self._streams, f"the stream {stream!r} is open"
        self._streams[stream] = emit, lane
        for stage in self._stages.values():
            stage.open(stream, lane)

    def close(self, stream: str) -> None:
        """Cancel and forget everything of a stream; nothing is emitted from now on."""
        if self._streams.pop(stream, None) is None:
            return
        for stage in self._stages.values():
            stage.forget(stream)
        for fence in self._flows.of(stream):
            self._move(self._flows.forget(fence))
        for fence in [fence for fence in self._said if fence.stream == stream]:
            del self._said[fence]
        self._gate.forget(stream)
        self._look_at_gate()

    def close_all(self) -> None:
        """Close every stream; the stages are about to stop."""
        for stream in list(self._streams):
            self.close(stream)
        if self._gate_timer is not None:
            self._gate_timer.cancel()

    # ---- jobs ----

    def carrier(self, port: str, role: StageRole, stream: str) -> str | None:
        """The plane for what a session gives a stage; none where it rides inside the message."""
        assert stream in self._streams, f"the stream {stream!r} is not open"
        for edge in self._graph.leaving(SESSION, port):
            if edge.target == role:
                return self._carriers.plane(edge, 0, self._stages[role].home(stream))
        return None

    def transcribe(self, job: Transcribe) -> None:
        """Recognize what was said; the answer is one `Transcript` chunk."""
        now, live = self._enter(job.fence)
        if isinstance(job.audio, Ref):
            self._sounds[job.fence] = job.audio
        if live and job.final:
            self._gate.begin(job.fence, now)
            self._look_at_gate()
        self._stages["recognizer"].submit(job, now + (0.0 if job.final else PARTIAL_S) if live else NEVER)

    def refuse(self, role: StageRole, fence: Fence, kind: FailureKind, message: str) -> None:
        """Fail a job that can't even be submitted; the chunk follows later."""
        self._enter(fence)
        self._stages[role].refuse(fence, kind, message)

    def answer(self, think: Think, speak: Speak | None) -> None:
        """Let the thinker write a reply and, with `speak` (of the same fence), the stages behind it say it."""
        assert speak is None or speak.fence == think.fence, f"{speak} would say another reply than {think.fence}"
        now, live = self._enter(think.fence)
        due = now if live else NEVER
        if speak is not None:
            self._speak(speak, due)
        if live:
            self._gate.begin(think.fence, now)
            self._look_at_gate()
        self._stages["thinker"].submit(think, due, self._routes("thinker", think.fence.stream) if speak else ())

    def say(self, speak: Speak, text: str) -> None:
        """Let the talker say a text that stands already, without a thinker."""
        now, live = self._enter(speak.fence)
        self._speak(speak, now if live else NEVER)
        if live:
            self._gate.begin(speak.fence, now)
            self._look_at_gate()
        self._move(self._flows.push(Chunk(speak.fence, "thinker", 0, Text(text))))
        self._move(self._flows.push(Chunk(speak.fence, "thinker", 1, End(), last=True)))

    def prepare(self, ahead: Prepare) -> None:
        """Let the thinker prefill a prompt that is likely to come; for a stream that is over it does nothing."""
        if ahead.stream in self._streams:
            self._stages["thinker"].prepare(ahead)

    def cancel(self, fence: Fence) -> None:
        """End a job in all stages; nothing of it is emitted from now on."""
        for stage in self._stages.values():
            stage.cancel(fence)
        self._move(self._flows.forget(fence))
        self._said.pop(fence, None)
        self._nobody_waits(fence)

    def pace(self, reply: Reply, plays_until: float) -> None:
        """Say when what was made of a reply so far will have been heard, in monotonic seconds."""
        for stage in self._stages.values():
            stage.pace(reply, plays_until)

    def _enter(self, fence: Fence) -> tuple[float, bool]:
        assert fence.stream in self._streams, f"{fence} belongs to a stream that is not open"
        return self._loop.time(), self._streams[fence.stream][1] == "live"

    def _speak(self, speak: Speak, due: float) -> None:
        """The last stage first, so that each finds the next one waiting."""
        for role in reversed(self._speech):
            self._flows.begin(speak.fence, role, self._graph.entering(role))
            self._stages[role].submit(speak, due, self._routes(role, speak.fence.stream))

    def _routes(self, role: StageRole, stream: str) -> tuple[tuple[str, str], ...]:
        here = self._stages[role].home(stream)
        found = []
        for edge in self._graph.leaving(role):
            plane = self._carriers.plane(edge, here, self._stages[edge.target].home(stream))
            if plane is not None:
                found.append((edge.port, plane))
        return tuple(found)

    # ---- what stages say ----

    def delivered(self, chunk: Chunk) -> None:
        """A stage gave a chunk: its stream goes first, whose next word may be a cancel."""
        awaited = self._is_awaited(chunk)
        if (told := self._told(chunk)) is not None:
            self._emit(told)
        self._move(self._flows.push(chunk))
        if awaited:
            self._nobody_waits(chunk.fence)

    def stale(self, chunk: Chunk) -> None:
        """A chunk came too late for its job."""
        self._observer.stale(chunk.role)
        self._give_back(chunk)

    def taken(self, role: StageRole, fence: Fence, count: int) -> None:
        """A stage took so many inputs of a job."""
        self._move(self._flows.taken(role, fence, count))

    def over(self, role: StageRole, fence: Fence) -> None:
        """A stage holds nothing of a job any more."""
        self._stages[role].over(fence)
        if role == "recognizer":
            self._withdraw(fence)
        else:
            self._move(self._flows.end(role, fence))

    def _told(self, chunk: Chunk) -> Chunk | None:
        """A chunk as its stream is told: all that is said comes from the talker, whatever stages it is made of."""
        if isinstance(chunk.payload, Tensors):
            return None
        if chunk.role not in self._speech or self._speech == ("talker",):
            return chunk
        fence, heard = chunk.fence, chunk.role == self._graph.voice
        last = isinstance(chunk.payload, Failed) or (chunk.last and heard)
        if last:
            for role in self._speech:  # there is nothing left to do for the others
                self._stages[role].cancel(fence)
        elif not heard and (chunk.last or isinstance(chunk.payload, Audio)):
            return None
        seq = self._said[fence]
        self._said[fence] += 1
        if last:
            del self._said[fence]
        return msgspec.structs.replace(chunk, role="talker", seq=seq)

    def _emit(self, chunk: Chunk) -> None:
        stream = chunk.fence.stream
        if stream not in self._streams:
            return
        try:
            self._streams[stream][0](chunk)
        except Exception:  # the root of a stage's reports: one stream's fault must not end the stage
            log.exception("the stream %r could not take a chunk: it is closed", stream)
            self.close(stream)

    def _move(self, moves: Moves) -> None:
        for role, chunk in moves.feed:
            for ref in refs_of(chunk):
                self._observer.sent(f"{chunk.role}.{port_of(chunk.payload)} -> {role}", ref.nbytes)
            if not self._stages[role].feed(chunk):
                self.stale(chunk)
        for chunk in moves.unseen:
            self._give_back(chunk)
        for edge, _ in moves.dropped:
            self._observer.dropped(edge.name, 1)
        for source, fence, stalled in moves.stall:
            if source != SESSION:
                self._stages[source].stall(fence, stalled)
        for role, fence, message in moves.full:
            self._stages[role].fail(fence, "capacity", message)

    def _give_back(self, chunk: Chunk) -> None:
        for ref in refs_of(chunk):
            self._carriers.withdraw(ref)

    def _withdraw(self, fence: Fence) -> None:
        if (ref := self._sounds.pop(fence, None)) is not None:
            self._carriers.withdraw(ref)

    # ---- the gate of the batch lane ----

    def _is_awaited(self, chunk: Chunk) -> bool:
        """Whether a chunk is what somebody waited for, or says that it will not come."""
        if chunk.role == "thinker":  # of a reply that is spoken, words are not the answer yet
            return not self._flows.knows(chunk.fence)
        if isinstance(chunk.payload, Transcript) and chunk.payload.text:
            self._gate.understood(chunk.fence, self._loop.time())
        if isinstance(chunk.payload, Audio) or chunk.last:
            return chunk.role in ("recognizer", self._graph.voice) or isinstance(chunk.payload, Failed)
        return False

    def _nobody_waits(self, fence: Fence) -> None:
        self._gate.end(fence)
        self._look_at_gate()

    def _look_at_gate(self) -> None:
        now = self._loop.time()
        closed = self._gate.closed(now)
        if closed != self._gated:
            self._gated = closed
            for stage in self._stages.values():
                stage.gate(closed)
        if (deadline := self._gate.deadline()) == self._gate_due:
            return
        self._gate_due = deadline
        if self._gate_timer is not None:
            self._gate_timer.cancel()
        self._gate_timer = None if deadline is None else self._loop.call_at(deadline, self._gate_rang)

    def _gate_rang(self) -> None:
        self._gate_due = self._gate_timer = None
        self._look_at_gate()
