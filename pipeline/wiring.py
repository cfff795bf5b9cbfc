"""Lays the data planes of a pipeline: for each edge that needs them, one between each pair of replicas."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from pipeline.carry import Planes
from pipeline.chunk import StageRole
from pipeline.errors import ConfigError
from pipeline.graph import Graph
from pipeline.message import PlaneEnd
from pipeline.spec import SESSION, WORDS, EdgeSpec, Placement, Source
from transport.base import Receiver, Ref, Sender
from transport.errors import PlaneError
from transport.inproc import InprocPlane
from transport.shm import FILLED, LEASED, ShmArena, ShmReceiver, ShmSender

LOCAL_SLOTS = 64
"""Slots of a plane inside the server that has no number of its own: they are references, and cost nothing."""
SHARED_SLOTS = 8
"""Slots of one in shared memory, all of which is there from the start."""
Where = Mapping[tuple[Source, int], Placement]
"""Where each replica of a stage lives; the session, replica 0, lives inline."""


@dataclass(frozen=True, slots=True)
class _Plane:
    """One plane with both of its ends. In this process an end is an object, elsewhere a descriptor."""

    source: tuple[Source, int]
    target: tuple[StageRole, int]
    sender: Sender
    receiver: Receiver
    arena: ShmArena | None


class _Sent:
    """What a receiver's slots held at one moment: put for it, or read by it."""

    def __init__(self, arena: ShmArena) -> None:
        self._arena = arena
        states = [arena.state(index) for index in range(arena.slots)]
        self._slots = [(index, now) for index, (now, state) in enumerate(states) if state in (FILLED, LEASED)]

    def give_back(self) -> None:
        for index, generation in self._slots:
            self._arena.give_back(index, generation, FILLED, LEASED)


class Wiring:
    """The planes between the replicas that were laid so far, by name."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._planes: dict[str, _Plane] = {}

    def lay(self, where: Where, beside: Collection[tuple[Source, int]] | None = None) -> None:
        """Lay the planes into the replicas of `where`, from each other and from the session.

        With `beside`, only those of which one of these replicas has an end. To be called before a replica is spawned:
        what a process inherits is settled then. Raises `ConfigError` when there is no memory for an arena.
        """
        for edge in self._graph.edges:
            for source in [one for one in where if one[0] == edge.source]:
                for target in [one for one in where if one[0] == edge.target]:
                    if beside is None or source in beside or target in beside:
                        self._join(edge, source, (edge.target, target[1]), where)

    def plane(self, edge: EdgeSpec, source: int, target: int) -> str | None:
        """The plane from one replica to another; none where what goes there rides inside the message."""
        name = _name(edge, source, target)
        return name if name in self._planes else None

    def sender(self, name: str) -> Sender:
        """This process's sending end of a plane."""
        return self._planes[name].sender

    def withdraw(self, ref: Ref) -> None:
        """Take back what was put and will not be opened; too late is not an error."""
        if (plane := self._planes.get(ref.plane)) is not None:
            plane.sender.withdraw(ref)

    def ends(self, role: StageRole, replica: int) -> Planes:
        """The planes that begin and end at a replica in this process."""
        here = (role, replica)
        return Planes(
            receivers={name: plane.receiver for name, plane in self._planes.items() if plane.target == here},
            senders={name: plane.sender for name, plane in self._planes.items() if plane.source == here},
        )

    def inherited(self, role: StageRole, replica: int) -> tuple[PlaneEnd, ...]:
        """The planes that begin and end at a replica in a process of its own."""
        here = (role, replica)
        return tuple(
            PlaneEnd(plane.arena.fd, sends=plane.source == here)
            for plane in self._planes.values()
            if plane.arena is not None and here in (plane.source, plane.target)
        )

    def lost(self, role: StageRole, replica: int) -> Callable[[], None]:
        """Note what a process had been sent that went down. What is returned gives back what it held, once it is gone.

        In between others go on: what they put into its planes from now on is for the process that follows.
        """
        here = (role, replica)
        sent = [_Sent(plane.arena) for plane in self._planes.values() if plane.target == here and plane.arena]

        def give_back() -> None:
            for one in sent:
                one.give_back()
            for plane in self._planes.values():
                if plane.arena is not None and plane.source == here:
                    plane.arena.reclaim("sender")

        return give_back

    def close(self) -> None:
        """Release all arenas; nobody uses them any more."""
        for plane in self._planes.values():
            if plane.arena is not None:
                plane.arena.close()
        self._planes.clear()

    def _join(self, edge: EdgeSpec, source: tuple[Source, int], target: tuple[StageRole, int], where: Where) -> None:
        apart = "process" in (where[source], where[target])
        transport = edge.transport
        if transport == "auto":
            transport = "inline" if edge.port in WORDS else "shm" if apart else "inproc"
        name = _name(edge, source[1], target[1])
        if transport == "inline" or name in self._planes:
            return
        if transport == "shm":
            try:
                arena = ShmArena.create(name, edge.slots or SHARED_SLOTS, edge.slot_bytes)
            except PlaneError as error:
                raise ConfigError(str(error), f"edges.{edge.name}") from error
            self._planes[name] = _Plane(source, target, ShmSender(arena), ShmReceiver(arena), arena)
            return
        assert not apart, f"{edge.name} goes between processes, where there is no {transport}"  # the graph was checked
        plane = InprocPlane(name, slots=edge.slots or LOCAL_SLOTS, slot_bytes=edge.slot_bytes)
        self._planes[name] = _Plane(source, target, plane, plane, None)


def _name(edge: EdgeSpec, source: int, target: int) -> str:
    left = edge.source if edge.source == SESSION else f"{edge.source}#{source}"
    return f"{left}.{edge.port}>{edge.target}#{target}"
