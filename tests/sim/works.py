"""Draws how the server of a run is built: its replicas and processes, its planes and connections, its batch lane."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Final

from msgspec.structs import asdict, replace

from pipeline.chunk import StageRole
from pipeline.graph import Graph
from pipeline.spec import SESSION, Carriage, EdgeSpec, Placement, Source
from pipeline.worker import STEP_BYTES
from transport.control import ROOM_BYTES
from transport.outbox import MOST_BYTES

SLOT_BYTES = 20_000
"""Room for one piece of codes that is too large for a message."""


@dataclass(frozen=True, slots=True)
class Manners:
    """How the ends of a control connection, and the wire between them, behave."""

    delay_s: float
    jitter_s: float
    window: int
    most_bytes: int
    locks: bool
    """Whether a stage's process reads nothing while a step runs."""
    busy: float
    """How likely an end is busy with something else when a message comes."""
    busy_s: float
    """For how long, at most."""

    @property
    def room_bytes(self) -> int:
        """With more unread than this, no step begins: in the proportion of `transport.control`."""
        return self.most_bytes * ROOM_BYTES // MOST_BYTES

    @property
    def step_bytes(self) -> int:
        """So much of what a step gives may ride inside messages: in the proportion of `pipeline.worker`."""
        return self.most_bytes * STEP_BYTES // MOST_BYTES


@dataclass(frozen=True, slots=True)
class Works:
    """What stands behind the sessions of a run."""

    processes: frozenset[StageRole]
    manners: Manners | None = None
    """None: messages pass as they are."""
    replicas: Mapping[StageRole, int] = field(default_factory=dict)
    batch_replicas: int = 0
    clerks: int = 0
    """How many users of the batch lane there are."""
    edges: tuple[EdgeSpec, ...] = ()
    """The edges that are not as a plain pipeline has them."""
    stutters: float = 0.0
    """How likely a stage says twice that it has let go of a job, and gives a credit back again."""

    @property
    def roles(self) -> tuple[StageRole, ...]:
        """The stages, in the order in which a turn passes them."""
        plain: tuple[StageRole, ...] = ("recognizer", "thinker", "talker")
        return (*plain, "vocoder") if any(edge.target == "vocoder" for edge in self.edges) else plain

    @property
    def graph(self) -> Graph:
        own = {(edge.port, edge.target): edge for edge in self.edges}
        edges = [own.pop((edge.port, edge.target), edge) for edge in PLAIN_EDGES]
        return Graph((*edges, *own.values()), voice=self.roles[-1])

    def place(self, role: StageRole, replica: int) -> Placement:
        """Where a replica of a stage lives; those of the batch lane are processes."""
        return "process" if role in self.processes or replica >= self.live(role) else "inline"

    @property
    def drops(self) -> bool:
        """Whether a vocoder that is too slow loses codes, instead of holding up its talker."""
        return any(edge.policy == "drop_oldest" for edge in self.edges)

    def live(self, role: StageRole) -> int:
        """How many replicas of a stage serve the live lane."""
        return self.replicas.get(role, 1)


PLAIN_EDGES: Final = (
    EdgeSpec(source=SESSION, port="audio", target="recognizer", transport="inline"),
    EdgeSpec(source=SESSION, port="prompt", target="thinker"),
    EdgeSpec(source="thinker", port="text", target="talker"),
)
PLAIN: Final = Works(frozenset(("thinker", "talker")))
"""One replica of each stage, and nothing that is late or lost."""


def draw_works(rng: Random) -> Works:
    """A pipeline with more to it than the plain one."""
    carriage = Carriage(
        transport=rng.choice(("auto", "auto", "shm")), slots=rng.choice((2, 4, 8)), slot_bytes=SLOT_BYTES
    )
    edges = [_edge(SESSION, "audio", "recognizer", carriage)]
    roles: tuple[StageRole, ...] = ("recognizer", "thinker", "talker")
    if rng.random() < 0.5:
        roles = (*roles, "vocoder")
        policy = rng.choice(("block", "block", "block", "drop_oldest"))
        carriage = replace(carriage, bound=rng.choice((1, 4, 16)), policy=policy)
        edges.append(_edge("talker", "codes", "vocoder", carriage))
    return Works(
        processes=frozenset(role for role in roles if rng.random() < 0.8),
        manners=_manners(rng) if rng.random() < 0.8 else None,
        replicas={role: rng.choice((1, 1, 2, 3)) for role in roles},
        batch_replicas=rng.choice((0, 0, 1)),
        clerks=rng.choice((0, 1, 2)),
        edges=tuple(edges),
        stutters=rng.choice((0.0, 0.2)),
    )


def _edge(source: Source, port: str, target: StageRole, carriage: Carriage) -> EdgeSpec:
    return EdgeSpec(source=source, port=port, target=target, **asdict(carriage))


def _manners(rng: Random) -> Manners:
    return Manners(
        delay_s=0.0002,
        jitter_s=rng.choice((0.0002, 0.0002, 0.003, 0.03)),
        window=rng.choice((1, 2, 16)),
        most_bytes=rng.choice((1 << 19, 1 << 21, MOST_BYTES)),
        locks=rng.random() < 0.4,
        busy=rng.choice((0.0, 0.02, 0.1)),
        busy_s=rng.choice((0.02, 0.2)),
    )
