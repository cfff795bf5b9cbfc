"""Turns defaults and what people wrote into one checked configuration."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast, get_args

import msgspec
from msgspec import Meta

from duplex_server.auth import check_keys
from duplex_server.config_sources import EDGES, Given, from_environment, from_file, from_flags
from duplex_server.origins import check_origins
from duplex_server.realtime.dialect import DialectSetting
from models.registry import dotted_name, load_family
from pipeline.chunk import StageRole
from pipeline.errors import ConfigError, StageError
from pipeline.graph import complete, nearest
from pipeline.spec import (
    SESSION,
    STAGES,
    Carriage,
    EdgeSpec,
    Family,
    FamilyRole,
    OptionValue,
    PipelineSpec,
    Placement,
    StageSpec,
)

DEFAULT_FAMILIES: Mapping[FamilyRole, str] = {
    "detector": "silero",
    "recognizer": "whisper",
    "thinker": "llama_cpp",
    "talker": "piper",
}
SECRET = ("key", "keys", "password", "secret")  # ends of names whose values are never shown
INSTRUCTIONS = (
    "You are a friendly voice assistant. What you write is spoken aloud: answer in one to three short sentences, "
    "without lists, markup or emoji."
)

Natural = Annotated[int, Meta(ge=1)]
Positive = Annotated[float, Meta(gt=0)]


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the server listens and what it allows."""

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8000  # 0: any free port
    tls_self_signed: bool = False  # true: HTTPS beside plain HTTP, with a certificate that is made and kept
    tls_cert_file: str | None = None  # HTTPS beside plain HTTP, with a certificate of one's own
    tls_key_file: str | None = None
    tls_host: str | None = None  # none: host
    tls_port: Annotated[int, Meta(ge=0, le=65535)] = 8443
    tls_names: tuple[str, ...] = ()  # what else a self-signed certificate is for
    state_dir: str | None = None  # none: the system's place for such
    api_keys: tuple[str, ...] = ()  # none: whoever reaches the port may use it
    open_to_all: bool = False  # true: without a key, even from other machines
    allowed_origins: tuple[str, ...] = ()  # web pages; none: with keys any, without keys those of this machine
    cors_origins: tuple[str, ...] | None = None  # pages that may read answers; none: those that may use the server
    max_sessions: Natural = 4
    session_minutes: Positive = 60.0
    dialect: DialectSetting = "auto"  # of the protocol; auto: as each client shows
    metrics_open: bool = False  # true: /metrics asks for no key
    shutdown_s: Annotated[float, Meta(ge=0)] = 5.0
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_content: bool = False
    journal_dir: str | None = None

    def __post_init__(self) -> None:
        check_keys(self.api_keys)
        check_origins("allowed_origins", self.allowed_origins)
        check_origins("cors_origins", self.cors_origins or ())
        if (self.tls_cert_file is None) != (self.tls_key_file is None):
            raise ValueError("tls_cert_file and tls_key_file need each other: name both files, or none")
        if self.tls_self_signed and self.tls_cert_file is not None:
            raise ValueError("tls_self_signed makes a certificate, and tls_cert_file names one: choose one of the two")

    @property
    def tls(self) -> bool:
        """Whether there is a listener for HTTPS beside the one for plain HTTP."""
        return self.tls_self_signed or self.tls_cert_file is not None

    @property
    def hosts(self) -> tuple[str, ...]:
        """All addresses that are listened on."""
        return (self.host, self.tls_host or self.host) if self.tls else (self.host,)

    def __repr__(self) -> str:
        shown = (f"{name}={_shown(name, getattr(self, name))}" for name in self.__struct_fields__)
        return f"ServerSettings({', '.join(shown)})"


class SessionDefaults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a session starts with, and the bounds it keeps to."""

    instructions: str = INSTRUCTIONS
    voice: str | None = None  # none: the talker's first
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None  # none: the thinker's own
    run_ahead_ms: Annotated[int, Meta(ge=100, le=60_000)] = 2000
    client_buffer_ms: Annotated[int, Meta(ge=0, le=5000)] = 100
    speculate: bool = True
    echo_guard: bool = True
    answer_on: bool = True
    answer_empty: bool = False
    strict_settings: bool = False  # true: a setting that can't be honoured is refused, not replaced
    max_reply_tokens: Natural = 400
    max_reply_s: Positive = 60.0


class Explained(msgspec.Struct, frozen=True):
    """One effective setting as it may be shown, and where it came from."""

    path: str
    value: str
    origin: str


class Config(msgspec.Struct, frozen=True):
    """A whole, checked configuration."""

    server: ServerSettings
    session: SessionDefaults
    pipeline: PipelineSpec
    explained: tuple[Explained, ...]

    def __repr__(self) -> str:
        """Without keys, which the options of a stage may hold too."""
        return f"Config({', '.join(f'{one.path}={one.value}' for one in self.explained)})"


SECTIONS = ("server", "session", "detector", *STAGES, EDGES)
STAGE_KEYS = ("family", "placement", "replicas", "max_batch", "batch_replicas")
"""The settings of a stage that are not options of its family."""

Section = TypeVar("Section", bound=msgspec.Struct)

_EDGE = re.compile(r"(\w+)\.(\w+) -> (\w+)")
_STAGE_FIELDS: Mapping[str, Any] = {
    "placement": Placement | None,
    **{field.name: field.type for field in msgspec.structs.fields(StageSpec) if field.name not in ("placement",)},
}


def load_config(
    file: Path | None = None, flags: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> Config:
    """The configuration from the defaults, then `file`, then `environment`, then `flags` (`section.key=value`).

    Raises `ConfigError`, which names the setting's dotted path and the place where it was written.
    """
    given: dict[str, Given] = {} if file is None else from_file(file)
    given |= from_environment(environment or {})
    given |= from_flags(flags)
    for path, one in given.items():
        section = path.partition(".")[0]
        if section not in SECTIONS:
            raise ConfigError(f"there is no section {section!r}{nearest(section, SECTIONS)} ({one.origin})", path)
        # A section whose settings are all commented out reads as null.
        if path == section and one.value is not None:
            raise ConfigError(f"expected `key: value` lines under it, got {one.value!r} ({one.origin})", path)
    explained: list[Explained] = []
    server = _section("server", ServerSettings, _part("server", given), explained)
    session = _section("session", SessionDefaults, _part("session", given), explained)
    pipeline = _pipeline(given, explained)
    return Config(server, session, pipeline, tuple(explained))


def _part(section: str, given: Mapping[str, Given]) -> dict[str, Given]:
    prefix = f"{section}."
    return {path.removeprefix(prefix): one for path, one in given.items() if path.startswith(prefix)}


def _shown(name: str, value: object) -> str:
    """A value as it may be shown: of keys only how many there are."""
    if name.endswith(SECRET) and value:
        return f"({len(value)} set)" if isinstance(value, tuple) else "(set)"
    return msgspec.json.encode(value).decode()


# ---- checking -----------------------------------------------------------------------------------------------------


def _section(
    section: str, kind: type[Section], given: Mapping[str, Given], explained: list[Explained], known: Iterable[str] = ()
) -> Section:
    """`kind` with the given fields; adds a line to `explained` for each. `known` are further keys the section has."""
    fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
    for name, one in given.items():
        if name not in fields:
            raise ConfigError(f"no such setting{nearest(name, (*known, *fields))} ({one.origin})", f"{section}.{name}")
    values = {name: _value(f"{section}.{name}", one, fields[name]) for name, one in given.items()}
    try:
        # A rule between fields is checked by the struct itself, which raises ValueError.
        made = kind(**values)
    except ValueError as error:
        raise ConfigError(str(error), section) from error
    for name in fields:
        origin = given[name].origin if name in given else "default"
        explained.append(Explained(f"{section}.{name}", _shown(name, getattr(made, name)), origin))
    return made


def _value(path: str, one: Given, kind: Any) -> Any:  # noqa: ANN401 (msgspec takes and gives what a type form says)
    try:
        # Not strict: "8000" in quotes is a number where a number is wanted.
        return msgspec.convert(one.value, kind, strict=False)
    except msgspec.ValidationError as error:
        choices = ", ".join(_choices(kind)) if "enum value" in str(error) else ""
        raise ConfigError(f"{error}{'; there are: ' if choices else ''}{choices} ({one.origin})", path) from error


def _choices(kind: object) -> Iterator[str]:
    """The strings that a `Literal` allows, inside an optional too."""
    for part in get_args(kind):
        if isinstance(part, str):
            yield part
        else:
            yield from _choices(part)


def _pipeline(given: Mapping[str, Given], explained: list[Explained]) -> PipelineSpec:
    families: dict[StageRole, Family] = {}
    stages: dict[StageRole, StageSpec] = {}
    detector, _ = _stage("detector", _part("detector", given), explained)
    for role in STAGES:
        own = _part(role, given)
        if role in DEFAULT_FAMILIES or own:
            stages[role], families[role] = _stage(role, own, explained)
    edges = {_edge(name, one): one.origin for name, one in _part(EDGES, given).items() if one.value is not None}
    spec = PipelineSpec(detector, stages, tuple(edges))
    try:
        graph = complete(spec, families)
    except ConfigError as error:
        family = given.get(f"{error.path}.family")
        origins = {f"{EDGES}.{edge.name}": origin for edge, origin in edges.items()}
        origin = origins.get(error.path) or (family.origin if family else "")
        raise ConfigError(f"{error.message}{origin and f' ({origin})'}", error.path) from error
    for edge in graph.edges:
        path, origin = f"{EDGES}.{edge.name}", edges.get(edge, "default")
        values = {name: getattr(edge, name) for name in Carriage.__struct_fields__}
        explained.append(Explained(path, msgspec.json.encode(values).decode(), origin))
    return spec


def _edge(name: str, one: Given) -> EdgeSpec:
    """An edge as it is written: `thinker.text -> talker: {bound: 64}`."""
    path = f"{EDGES}.{name}"
    found = _EDGE.fullmatch(name)
    if found is None:
        raise ConfigError(f"expected the name of an edge, such as `thinker.text -> talker` ({one.origin})", path)
    source, port, target = found.groups()
    if not isinstance(one.value, dict):
        raise ConfigError(f"expected settings such as {{bound: 64}}, got {one.value!r} ({one.origin})", path)
    carriage = _section(path, Carriage, {str(key): Given(value, one.origin) for key, value in one.value.items()}, [])
    settings = {key: getattr(carriage, key) for key in Carriage.__struct_fields__}
    try:
        return msgspec.convert({"source": source, "port": port, "target": target, **settings}, EdgeSpec)
    except msgspec.ValidationError as error:
        ends = (SESSION, *STAGES)
        wrong = source if source not in ends else target
        raise ConfigError(f"there is no stage {wrong!r}{nearest(wrong, ends)} ({one.origin})", path) from error


def _stage(role: FamilyRole, given: Mapping[str, Given], explained: list[Explained]) -> tuple[StageSpec, Family]:
    if "family" not in given and role not in DEFAULT_FAMILIES:
        origin = next(iter(given.values())).origin
        raise ConfigError(f"the {role} has no default family: choose one ({origin})", f"{role}.family")
    chosen = given.get("family") or Given(DEFAULT_FAMILIES[role], "default")
    name: str = _value(f"{role}.family", chosen, str)
    family = _family(role, name, chosen.origin)
    keys = STAGE_KEYS if role != "detector" else ("family", "placement")
    own = {key: one for key, one in given.items() if key in keys and key != "family"}
    values = {key: _value(f"{role}.{key}", one, _STAGE_FIELDS[key]) for key, one in own.items()}
    values["placement"] = values.get("placement") or family.placement
    if family.served and values["placement"] == "process":
        origin = own["placement"].origin
        raise ConfigError(f"{name!r} schedules itself in the server: inline only ({origin})", f"{role}.placement")
    for key, why in (("replicas", "it has one replica here"), ("max_batch", "it has no steps here")):
        if family.served and values.get(key) not in (None, 1):
            raise ConfigError(f"{name!r} schedules itself: {why} ({own[key].origin})", f"{role}.{key}")
    spec = StageSpec(family=dotted_name(name), **values)
    explained.append(Explained(f"{role}.family", _shown("family", name), chosen.origin))
    for key in keys[1:]:
        origin = own[key].origin if key in own else "default"
        explained.append(Explained(f"{role}.{key}", _shown(key, getattr(spec, key)), origin))
    rest = {key: one for key, one in given.items() if key not in keys}
    options = _section(role, family.options, rest, explained, known=keys)
    # The family's contract: every option is a scalar.
    chosen_options = {key: cast(OptionValue, getattr(options, key)) for key in rest}
    return msgspec.structs.replace(spec, options=chosen_options), family


def _family(role: FamilyRole, name: str, origin: str) -> Family:
    path = f"{role}.family"
    try:
        family = load_family(name)
    except (ConfigError, StageError) as error:
        raise ConfigError(f"{error.message} ({origin})", path) from error
    if family.role != role:
        raise ConfigError(f"{name!r} is a {family.role}, not a {role} ({origin})", path)
    return family
