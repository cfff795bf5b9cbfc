"""Defines how a pipeline is described: stages with their family, placement and options, and what they can do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from pipeline.stage import Detector, Stage

Placement = Literal["inline", "process"]
FamilyRole = Literal["detector", "recognizer", "thinker", "talker"]
OptionValue = str | int | float | bool | None


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


class StageSpec(msgspec.Struct, frozen=True):
    """One stage of a pipeline: `family` is the dotted name of its package, such as `models.piper`."""

    family: str
    placement: Placement
    options: Mapping[str, OptionValue] = {}


class PipelineSpec(msgspec.Struct, frozen=True):
    """The stages of a cascade, by role."""

    detector: StageSpec
    recognizer: StageSpec
    thinker: StageSpec
    talker: StageSpec
