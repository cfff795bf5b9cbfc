"""Defines the messages between the server and a worker, as they cross a thread or a process."""

from __future__ import annotations

import msgspec

from pipeline.chunk import Chunk, Fence, StageRole, Struct
from pipeline.scheduler import Request
from pipeline.spec import OptionValue


class PlaneEnd(Struct, frozen=True):
    """A shared-memory plane of which a worker holds an end; `fd` is its arena, inherited at the spawn."""

    fd: int
    sends: bool


class Load(Struct, frozen=True, tag="load"):
    """The first message to a worker process: import `<family>.family`, make its stage with `options`, load it."""

    role: StageRole
    family: str
    options: dict[str, OptionValue]
    ahead_s: float
    batch: int | None = None  # jobs a step takes at most, below the stage's own bound
    planes: tuple[PlaneEnd, ...] = ()
    replica: int = 0
    idle: bool = False  # compute only what nobody else on the machine wants to


class Stop(Struct, frozen=True, tag="stop"):
    """Finish the running turn, then exit."""


class Loading(Struct, frozen=True, tag="loading"):
    """How far the stage is on its way up."""

    progress: str


class Loaded(Struct, frozen=True, tag="loaded"):
    """The stage is ready; what its steps may take."""

    bound_ms: int


class LoadFailed(Struct, frozen=True, tag="load_failed"):
    """The stage can't be used."""

    message: str


class Began(Struct, frozen=True, tag="began"):
    """A turn runs from now on; `took` says how many inputs of which jobs it consumes.

    `waits` are the seconds for which its jobs were ready, the wait for cores included.
    """

    turn: int
    took: tuple[tuple[Fence, int], ...]
    waits: tuple[float, ...] = ()


class Ended(Struct, frozen=True, tag="ended"):
    """The turn is over."""

    turn: int


class Emitted(Struct, frozen=True, tag="emitted"):
    """A chunk of a job. `at` is when it left its stage, in monotonic seconds, which all processes here share."""

    chunk: Chunk
    at: float = 0.0


class Acknowledged(Struct, frozen=True, tag="acknowledged"):
    """A cancelled job is out of the stage."""

    fence: Fence


ToWorker = Load | Stop | Request
Report = Began | Ended | Emitted | Acknowledged
FromWorker = Loading | Loaded | LoadFailed | Report

to_worker: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)
from_worker: msgspec.msgpack.Decoder[FromWorker] = msgspec.msgpack.Decoder(FromWorker)
