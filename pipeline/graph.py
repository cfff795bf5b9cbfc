"""Completes and checks the graph of a pipeline: which stage gives what to which."""

from __future__ import annotations

import difflib
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from pipeline.chunk import StageRole
from pipeline.errors import ConfigError
from pipeline.spec import (
    REQUIRED,
    ROLE_PORTS,
    SESSION,
    SESSION_PORTS,
    STAGES,
    WORDS,
    EdgeSpec,
    Family,
    PipelineSpec,
    Ports,
    Source,
)


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph that can run. `voice` is the stage whose speech is heard."""

    edges: tuple[EdgeSpec, ...]
    voice: StageRole

    def leaving(self, source: Source, port: str | None = None) -> tuple[EdgeSpec, ...]:
        """The edges that leave a stage, by one port or by any."""
        return tuple(edge for edge in self.edges if edge.source == source and port in (None, edge.port))

    def entering(self, target: StageRole) -> tuple[EdgeSpec, ...]:
        """The edges that end at a stage."""
        return tuple(edge for edge in self.edges if edge.target == target)

    def behind(self, role: StageRole) -> tuple[StageRole, ...]:
        """The stages that what a stage gives passes through, the nearest first."""
        found: list[StageRole] = []
        for edge in self.leaving(role):
            found += [stage for stage in (edge.target, *self.behind(edge.target)) if stage not in found]
        return tuple(found)


def ports_of(role: StageRole, family: Family) -> Ports:
    """What a family's stage takes and gives."""
    return family.ports or ROLE_PORTS[role]


def complete(spec: PipelineSpec, families: Mapping[StageRole, Family]) -> Graph:
    """The whole graph: the edges that the stages' ports imply, as far as `spec.edges` does not say otherwise.

    Raises `ConfigError` for one that can't run, with the dotted place and what is there instead.
    """
    for role in REQUIRED:
        if role not in families:
            raise ConfigError(f"a pipeline needs a {role}", role)
    ports: dict[Source, Ports] = {SESSION: SESSION_PORTS}
    ports |= {role: ports_of(role, families[role]) for role in STAGES if role in families}
    for edge in spec.edges:
        _check(edge, ports)
        _check_carriage(edge, spec, families)
    edges = tuple(edge for role in STAGES if role in families for edge in _into(role, spec.edges, ports))
    _look_for_circles(edges)
    _look_for_ends(edges, ports)
    graph = Graph(edges, _voice(edges, ports))
    _look_for_work(graph, families)
    _look_for_forks(graph)
    return graph


def _check(edge: EdgeSpec, ports: Mapping[Source, Ports]) -> None:
    place = f"edges.{edge.name}"
    if edge.source not in ports:
        raise ConfigError(f"there is no stage {edge.source!r}{nearest(edge.source, ports)}", place)
    if edge.target not in ports:
        raise ConfigError(f"there is no stage {edge.target!r}{nearest(edge.target, ports)}", place)
    gives, takes = ports[edge.source].gives, ports[edge.target].takes
    if edge.port not in gives:
        raise ConfigError(f"the {edge.source} gives no {edge.port!r}{nearest(edge.port, gives)}", place)
    if edge.port not in takes:
        raise ConfigError(f"the {edge.target} takes no {edge.port!r}{nearest(edge.port, takes)}", place)


def _check_carriage(edge: EdgeSpec, spec: PipelineSpec, families: Mapping[StageRole, Family]) -> None:
    """Whether an edge can carry as it is told to: nothing that somebody wrote is passed over."""
    place = f"edges.{edge.name}"
    if edge.policy != "block" and (edge.port in WORDS or edge.source == SESSION):
        what = "words are joined while they wait" if edge.port in WORDS else "a job is taken or refused as a whole"
        raise ConfigError(f"nothing of {edge.port!r} can be dropped, {what}: leave the policy out", place)
    if edge.port in WORDS and (edge.slots is not None or edge.transport not in ("auto", "inline")):
        raise ConfigError(f"{edge.port!r} rides inside the messages: leave transport and slots out", place)
    if edge.transport == "inproc":
        for role in (edge.source, edge.target):
            if role == SESSION or families[role].served:
                continue
            if spec.stages[role].placement == "process":
                how = f"the {role} is in one of its own"
            elif spec.stages[role].batch_replicas > 0:
                how = f"the batch lane has one of its own for the {role} (batch_replicas)"
            else:
                continue
            raise ConfigError(f"'inproc' joins stages of one process, and {how}: choose auto, inline or shm", place)


def _into(role: StageRole, written: Iterable[EdgeSpec], ports: Mapping[Source, Ports]) -> Iterable[EdgeSpec]:
    """One edge for each port that a stage takes."""
    for port in ports[role].takes:
        own = [edge for edge in written if (edge.port, edge.target) == (port, role)]
        if len(own) > 1:
            names = " and ".join(edge.name for edge in own)
            raise ConfigError(
                f"the {role} takes {port!r} from one stage, not from two: {names}", f"edges.{own[1].name}"
            )
        if own:
            yield own[0]
            continue
        givers = [source for source, one in ports.items() if port in one.gives and source != role]
        givers = [SESSION] if SESSION in givers else givers
        if not givers:
            raise ConfigError(f"the {role} takes {port!r}, which no other stage gives: choose another family", role)
        if len(givers) > 1:
            choices = " or ".join(f"{source}.{port} -> {role}" for source in givers)
            raise ConfigError(f"the {role} can take {port!r} from {' or '.join(givers)}: write {choices}", "edges")
        yield EdgeSpec(source=givers[0], port=port, target=role)


def _look_for_circles(edges: Iterable[EdgeSpec]) -> None:
    following: dict[Source, list[EdgeSpec]] = {}
    for edge in edges:
        following.setdefault(edge.source, []).append(edge)

    def walk(source: Source, passed: tuple[Source, ...]) -> None:
        for edge in following.get(source, ()):
            if edge.target in passed:
                circle = " -> ".join((*passed[passed.index(edge.target) :], edge.target))
                raise ConfigError(f"the stages wait for each other in a circle: {circle}", f"edges.{edge.name}")
            walk(edge.target, (*passed, edge.target))

    for source in list(following):
        walk(source, (source,))


def _look_for_ends(edges: tuple[EdgeSpec, ...], ports: Mapping[Source, Ports]) -> None:
    taken = {(edge.source, edge.port) for edge in edges}
    for source, one in ports.items():
        for port in one.gives:
            if source != SESSION and port not in SESSION_PORTS.takes and (source, port) not in taken:
                raise ConfigError(f"nobody takes the {port!r} that the {source} gives: add a stage that does", source)


def _look_for_work(graph: Graph, families: Container[StageRole]) -> None:
    """The session asks for recognizing and for thinking; those who speak are asked by what the thinker wrote."""
    for edge in graph.edges:
        if edge.target in ("recognizer", "thinker") and edge.source != SESSION:
            message = f"the {edge.target} takes what the session gives, nothing of the {edge.source}"
            raise ConfigError(f"{message}: choose another family", edge.target)
    chain: tuple[tuple[StageRole, StageRole], ...] = (("thinker", "talker"), ("talker", "vocoder"))
    for source, role in chain:
        if role in families and role not in graph.behind(source):
            raise ConfigError(f"nothing that the {source} gives comes to the {role}: choose another family", role)


def _look_for_forks(graph: Graph) -> None:
    """What lies in a plane can be read at its one end only."""
    for edge in graph.edges:
        if edge.source == SESSION or edge.port in WORDS or edge.transport == "inline":
            continue
        if others := [one.name for one in graph.leaving(edge.source, edge.port) if one != edge]:
            raise ConfigError(
                f"{edge.port!r} goes along {' and '.join(others)} too, and a plane has one end: "
                "write `transport: inline` for each of them",
                f"edges.{edge.name}",
            )


def _voice(edges: tuple[EdgeSpec, ...], ports: Mapping[Source, Ports]) -> StageRole:
    """The last stage behind the thinker that gives speech."""
    behind: list[StageRole] = ["thinker"]
    for role in behind:
        behind += [edge.target for edge in edges if edge.source == role and edge.target not in behind]
    speaking = [role for role in behind if "audio" in ports[role].gives]
    if not speaking:
        raise ConfigError(
            "nothing behind the thinker gives speech: choose a talker that does, or add a vocoder", "talker"
        )
    return speaking[-1]


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for a name that is not known: the one it was meant to be, or all there are."""
    known = tuple(known)
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; there are: {', '.join(known)}"
