"""Counts and times what the server does, for Prometheus; no label tells who somebody is or what was said."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, assert_never, get_args

from prometheus_client import CollectorRegistry, Counter, Histogram, Info, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder

from duplex_server import __version__
from duplex_server.realtime.driver import Ending
from duplex_server.realtime.input_buffer import DropReason
from duplex_server.realtime.milestones import FirstAudio, Milestone, Replied, Silenced, Truncated
from duplex_server.realtime.schema import ResponseStatus
from pipeline.chunk import StageRole
from pipeline.errors import FailureKind
from pipeline.host import Phase, StageState
from pipeline.spec import FamilyRole

Refusal = Literal[
    "stopping",
    "not_ready",
    "sessions_full",
    "invalid_api_key",
    "foreign_origin",
    "call_not_found",
    "unsupported_operation",
]
"""Why a peer got no session: the codes it is told."""

# Finest where a person begins to notice, with bounds at the round numbers that objectives are written in.
ANSWER_S = (0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)
SILENCE_S = (0.05, 0.075, 0.1, 0.125, 0.15, 0.175, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75, 1.0, 2.0, 5.0)
STAGE_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
TRANSPORT_S = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0)


class PipelineMetrics:
    """What the stages of a pipeline and the edges between them do; an `Observer`."""

    def __init__(self, registry: CollectorRegistry, stages: Iterable[StageRole]) -> None:
        self._wait = Histogram(
            "duplex_stage_wait_seconds",
            "How long a job was ready before a step took it, the wait for cores included.",
            ["stage"],
            buckets=STAGE_S,
            registry=registry,
        )
        self._step = Histogram(
            "duplex_stage_step_seconds", "How long a step took.", ["stage"], buckets=STAGE_S, registry=registry
        )
        self._cancel = Histogram(
            "duplex_stage_cancel_seconds",
            "How long after a cancel the stage had let go of the job.",
            ["stage"],
            buckets=STAGE_S,
            registry=registry,
        )
        self._restarts = Counter(
            "duplex_stage_restarts", "How often a stage came up again.", ["stage"], registry=registry
        )
        self._losses = Counter(
            "duplex_stage_losses", "How often a stage went down, by kind.", ["stage", "kind"], registry=registry
        )
        self._transport = Histogram(
            "duplex_stage_transport_seconds",
            "How long a chunk was under way from its stage to the server.",
            ["stage"],
            buckets=TRANSPORT_S,
            registry=registry,
        )
        self._stale = Counter(
            "duplex_stage_stale_chunks", "Chunks that came too late for their job.", ["stage"], registry=registry
        )
        self._chunks = Counter(
            "duplex_edge_chunks", "Chunks that went along an edge by its data plane.", ["edge"], registry=registry
        )
        self._bytes = Counter("duplex_edge_bytes", "Bytes of those chunks.", ["edge"], registry=registry)
        self._dropped = Counter(
            "duplex_edge_dropped_chunks",
            "Chunks that had to make room on an edge that drops the oldest.",
            ["edge"],
            registry=registry,
        )
        for role in stages:  # from zero, so that the first of a kind is seen as a change
            for one in (self._wait, self._step, self._cancel, self._transport, self._stale, self._restarts):
                one.labels(role)
            for kind in get_args(FailureKind):
                self._losses.labels(role, kind)

    def waited(self, role: StageRole, seconds: float) -> None:
        self._wait.labels(role).observe(seconds)

    def stepped(self, role: StageRole, seconds: float) -> None:
        self._step.labels(role).observe(seconds)

    def acknowledged(self, role: StageRole, seconds: float) -> None:
        self._cancel.labels(role).observe(seconds)

    def lost(self, role: StageRole, kind: str) -> None:
        self._losses.labels(role, kind).inc()

    def restarted(self, role: StageRole) -> None:
        self._restarts.labels(role).inc()

    def carried(self, role: StageRole, seconds: float) -> None:
        self._transport.labels(role).observe(seconds)

    def stale(self, role: StageRole) -> None:
        self._stale.labels(role).inc()

    def sent(self, edge: str, nbytes: int) -> None:
        self._chunks.labels(edge).inc()
        self._bytes.labels(edge).inc(nbytes)

    def dropped(self, edge: str, chunks: int) -> None:
        self._dropped.labels(edge).inc(chunks)


class SessionMetrics:
    """What sessions live through; a `Watcher`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._spoken = Histogram(
            "duplex_speech_stop_to_first_audio_seconds",
            "From the end of a spoken turn (speech_stopped) to the first sound of its answer.",
            buckets=ANSWER_S,
            registry=registry,
        )
        self._asked = Histogram(
            "duplex_request_to_first_audio_seconds",
            "From a client's response.create to the first sound of the answer.",
            buckets=ANSWER_S,
            registry=registry,
        )
        self._silence = Histogram(
            "duplex_speech_start_to_silence_seconds",
            "From the first sound of speech over an answer until the answer was cut.",
            buckets=SILENCE_S,
            registry=registry,
        )
        self._replies = Counter("duplex_replies", "Responses done, by status.", ["status"], registry=registry)
        self._truncations = Counter(
            "duplex_truncations", "Answers of which the client told how much was heard.", registry=registry
        )
        self._begun = Counter("duplex_sessions_begun", "Sessions begun.", registry=registry)
        self._ended = Counter("duplex_sessions_ended", "Sessions ended, by cause.", ["cause"], registry=registry)
        self._refused = Counter(
            "duplex_sessions_refused", "Peers that got no session, by reason.", ["reason"], registry=registry
        )
        for status in get_args(ResponseStatus):
            if status != "in_progress":
                self._replies.labels(status)
        for cause in get_args(Ending):
            self._ended.labels(cause)
        for reason in get_args(Refusal):
            self._refused.labels(reason)

    def reached(self, milestone: Milestone) -> None:
        match milestone:
            case FirstAudio(turn_id=turn_id, cause=cause, seconds=seconds):
                (self._spoken if cause == "speech" else self._asked).observe(seconds, {"turn_id": turn_id})
            case Silenced(turn_id=turn_id, seconds=seconds):
                self._silence.observe(seconds, {"turn_id": turn_id})
            case Replied(status=status):
                self._replies.labels(status).inc()
            case Truncated():
                self._truncations.inc()
            case _:
                assert_never(milestone)

    def begun(self) -> None:
        """A session has begun."""
        self._begun.inc()

    def ended(self, cause: Ending) -> None:
        """A session is over."""
        self._ended.labels(cause).inc()

    def refused(self, reason: Refusal) -> None:
        """A peer got no session."""
        self._refused.labels(reason).inc()


@dataclass(frozen=True, slots=True)
class Losses:
    """What sessions lost; `samples` are of input at 24 kHz."""

    stale_chunks: int = 0
    underruns: int = 0
    turns: int = 0
    samples: Mapping[DropReason, int] = field(default_factory=dict)

    def __add__(self, other: Losses) -> Losses:
        reasons = {**self.samples, **other.samples}
        return Losses(
            self.stale_chunks + other.stale_chunks,
            self.underruns + other.underruns,
            self.turns + other.turns,
            {reason: self.samples.get(reason, 0) + other.samples.get(reason, 0) for reason in reasons},
        )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is looked at only when somebody asks: it costs nothing as long as nobody does.

    `losses` are those of all sessions so far, those under way included.
    """

    live_sessions: int = 0
    losses: Losses = field(default_factory=Losses)
    states: Mapping[FamilyRole, tuple[StageState, ...]] = field(default_factory=dict)


class _Snapshots:
    """Gives the newest snapshot to the registry, which may ask from another thread."""

    def __init__(self) -> None:
        self.newest = Snapshot()

    def collect(self) -> Iterator[Metric]:
        shot = self.newest
        yield GaugeMetricFamily("duplex_sessions_live", "Sessions under way.", shot.live_sessions)
        replicas = GaugeMetricFamily(
            "duplex_stage_replicas", "Replicas of a stage, by state.", labels=["stage", "state"]
        )
        for role, states in shot.states.items():
            for phase in get_args(Phase):
                replicas.add_metric([role, phase], sum(state.phase == phase for state in states))
        yield replicas
        losses = shot.losses
        yield CounterMetricFamily(
            "duplex_session_stale_chunks",
            "Chunks that reached their session when it did not want them any more.",
            losses.stale_chunks,
        )
        yield CounterMetricFamily(
            "duplex_playout_underruns", "How often a client ran dry in the middle of an answer.", losses.underruns
        )
        yield CounterMetricFamily(
            "duplex_turns_given_up",
            "Spoken turns whose words were given up, because too many waited for the recognizer.",
            losses.turns,
        )
        samples = CounterMetricFamily(
            "duplex_input_dropped_samples",
            "Input samples, at 24 kHz, that were lost to the conversation, by reason.",
            labels=["reason"],
        )
        for reason in get_args(DropReason):
            samples.add_metric([reason], losses.samples.get(reason, 0))
        yield samples


class Metrics:
    """All metrics of one server, in a registry of its own: several servers may live in one process."""

    def __init__(self, stages: Iterable[StageRole]) -> None:
        self._registry = CollectorRegistry()
        self._snapshots = _Snapshots()
        self.pipeline = PipelineMetrics(self._registry, stages)
        self.sessions = SessionMetrics(self._registry)
        self._registry.register(self._snapshots)
        ProcessCollector(registry=self._registry)
        Info("duplex_build", "The server's version.", registry=self._registry).info({"version": __version__})

    async def render(self, accept: str, shot: Snapshot) -> tuple[bytes, str]:
        """All metrics as text, with its content type: OpenMetrics where `accept` (a header) names it, else classic.

        It is written in a thread: some hundred lines take longer than the event loop may be held.
        """
        self._snapshots.newest = shot
        encode, content_type = choose_encoder(accept)
        return await asyncio.to_thread(encode, self._registry), content_type
