"""Defines how a pipeline is described: its stages, the edges between them, and what a family offers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from pipeline.chunk import StageRole
from pipeline.stage import Detector, Stage

Placement = Literal["inline", "process"]
FamilyRole = Literal["detector"] | StageRole
OptionValue = str | int | float | bool | None

SESSION: Literal["session"] = "session"
"""The end of an edge that is no stage: where speech and prompts come from, and where words and speech go."""
Source = Literal["session"] | StageRole
Policy = Literal["block", "drop_oldest"]
Transport = Literal["auto", "inline", "inproc", "shm"]

STAGES: tuple[StageRole, ...] = ("recognizer", "thinker", "talker", "vocoder")
"""The roles of stages, in the order in which a turn passes through them."""
REQUIRED: tuple[StageRole, ...] = ("recognizer", "thinker", "talker")

WORDS = ("text", "prompt", "transcript")
"""Ports whose payloads are small: they ride inside the messages."""

Natural = Annotated[int, Meta(ge=1)]
Count = Annotated[int, Meta(ge=0)]
Bound = Annotated[int, Meta(ge=1, le=128)]
"""What all edges into one job may have under way together stays within what its stage keeps for it."""
Slots = Annotated[int, Meta(ge=1, le=4096)]


class Part(msgspec.Struct, frozen=True):
    """Something a family brings along: a model or a library, where it comes from and under which licence."""

    name: str
    licence: str
    source: str
    note: str = ""


class Capabilities(msgspec.Struct, frozen=True):
    """What a loaded stage can do, as far as a session must know."""

    model: str
    note: str = ""  # said at start: what it is good for, and what not
    languages: tuple[str, ...] = ()  # recognizer: what it understands; empty: any
    rate_hz: int = 0  # talker: rate of its speech
    voices: tuple[str, ...] = ()  # talker: the voices it has, the default first
    context_tokens: int = 0  # thinker
    hears: bool = False  # thinker: takes AudioPart


class Ports(msgspec.Struct, frozen=True):
    """What a stage takes and what it gives, by the names of `pipeline.chunk.port_of`."""

    takes: tuple[str, ...]
    gives: tuple[str, ...]


ROLE_PORTS: Mapping[StageRole, Ports] = {
    "recognizer": Ports(("audio",), ("transcript",)),
    "thinker": Ports(("prompt",), ("text",)),
    "talker": Ports(("text",), ("audio",)),
    "vocoder": Ports(("codes",), ("audio",)),
}
"""What a family of a role takes and gives when it does not say otherwise."""
SESSION_PORTS = Ports(takes=("transcript", "text", "audio"), gives=("audio", "prompt"))


class Family(msgspec.Struct, frozen=True):
    """What a `models/<name>/family.py` exports as `FAMILY`.

    `options` is a msgspec struct type with a default for every field (and `forbid_unknown_fields`); `make` builds the
    stage from an instance of it, cheaply: loading happens in `load`. `describe` needs no model in memory.
    """

    name: str
    role: FamilyRole
    parts: tuple[Part, ...]
    options: type[msgspec.Struct]
    make: Callable[[msgspec.Struct], Stage | Detector]
    describe: Callable[[msgspec.Struct], Capabilities]
    placement: Placement = "inline"  # the default; an engine that can abort its process says "process"
    served: bool = False  # `make` gives a Served stage, which runs on the event loop
    ports: Ports | None = None  # none: those of its role


class StageSpec(msgspec.Struct, frozen=True):
    """One stage of a pipeline: `family` is the dotted name of its package, such as `models.piper`.

    A stream stays with its replica. `max_batch` bounds how many jobs one step takes, below the family's own bound.
    `batch_replicas` serve the batch lane, in processes of idle priority, from the first batch request on; with none,
    batch requests take the live replicas when no live job wants them.
    """

    family: str
    placement: Placement
    options: Mapping[str, OptionValue] = {}
    replicas: Natural = 1
    max_batch: Natural | None = None
    batch_replicas: Count = 1


class Carriage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How an edge carries what it is given.

    At most `bound` chunks of a reply lie untaken at the target. What comes on top waits: with its source (`block`), or
    up to `bound` chunks, of which the oldest is dropped and counted (`drop_oldest`). `transport` carries what is too
    large for a message; `auto` chooses by where the two ends are. Its plane has `slots` of `slot_bytes` for each pair
    of replicas, shared by all replies; without a number, 8 in shared memory and 64 elsewhere.
    """

    bound: Bound = 64
    policy: Policy = "block"
    transport: Transport = "auto"
    slots: Slots | None = None
    slot_bytes: Natural = 4 << 20


class EdgeSpec(Carriage, frozen=True, kw_only=True):
    """What `source` gives on `port` goes to `target`."""

    source: Source
    port: str
    target: StageRole

    @property
    def name(self) -> str:
        """How it is written in a configuration: `thinker.text -> talker`."""
        return f"{self.source}.{self.port} -> {self.target}"


class PipelineSpec(msgspec.Struct, frozen=True):
    """A pipeline: its detector, its stages by role, and the edges that differ from what the stages' ports imply."""

    detector: StageSpec
    stages: Mapping[StageRole, StageSpec]
    edges: tuple[EdgeSpec, ...] = ()

    @property
    def all(self) -> Mapping[FamilyRole, StageSpec]:
        """The stages and the detector, in the order in which a turn meets them."""
        return {"detector": self.detector, **{role: self.stages[role] for role in STAGES if role in self.stages}}
