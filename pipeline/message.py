"""Defines the messages between the server and a worker, as they cross a thread or a process."""

from __future__ import annotations

import msgspec

from pipeline.chunk import Chunk, Fence, StageRole, Struct
from pipeline.scheduler import Request
from pipeline.spec import OptionValue


class Load(Struct, frozen=True, tag="load"):
    """The first message to a worker process: import `<family>.family`, make its stage with `options`, load it."""

    role: StageRole
    family: str
    options: dict[str, OptionValue]
    ahead_s: float


class Stop(Struct, frozen=True, tag="stop"):
    """Finish the running turn, then exit."""


class Loaded(Struct, frozen=True, tag="loaded"):
    """The stage is ready; what its steps may take."""

    bound_ms: int


class LoadFailed(Struct, frozen=True, tag="load_failed"):
    """The stage can't be used."""

    message: str


class Began(Struct, frozen=True, tag="began"):
    """A turn runs from now on; `took` says how many inputs of which jobs it consumes."""

    turn: int
    took: tuple[tuple[Fence, int], ...]


class Ended(Struct, frozen=True, tag="ended"):
    """The turn is over."""

    turn: int


class Emitted(Struct, frozen=True, tag="emitted"):
    """A chunk of a job."""

    chunk: Chunk


class Acknowledged(Struct, frozen=True, tag="acknowledged"):
    """A cancelled job is out of the stage."""

    fence: Fence


ToWorker = Load | Stop | Request
Report = Began | Ended | Emitted | Acknowledged
FromWorker = Loaded | LoadFailed | Report

to_worker: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)
from_worker: msgspec.msgpack.Decoder[FromWorker] = msgspec.msgpack.Decoder(FromWorker)
