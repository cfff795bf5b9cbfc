"""Knows what a user really heard, what the client has claimed of it, and how far an estimate of it may be off."""

from __future__ import annotations

from collections import Counter

from duplex_server.realtime import wire
from duplex_server.realtime.effects import PlayAudio
from duplex_server.realtime.wire import AnyClientEvent, AnyServerEvent
from tests.sim.network import Line
from tests.sim.scenario import Person
from tests.sim.speaker import Speaker

Told = AnyServerEvent | PlayAudio
"""What a client is sent."""
Up = int | AnyClientEvent
"""What a client sends: samples of sound, or an event."""
ROUNDING_S = 0.012
LONGEST_S = 60.0
"""No loudspeaker here plays for longer without a rest; its clock drifts meanwhile."""


class Ear:
    """One user's ear, and the words of their client about it."""

    def __init__(self, person: Person, speaker: Speaker, client_buffer_s: float) -> None:
        self._person, self._speaker, self._client_buffer_s = person, speaker, client_buffer_s
        self.down: Line[Told] | None = None
        self.up: Line[Up] | None = None
        self._claims: dict[str, tuple[str, int | None]] = {}  # truncations under way: the item, what was heard if true
        self._under_way: Counter[str] = Counter()
        self._true: dict[str, int | None] = {}  # what claims have settled
        self._by_hand: set[str] = set()
        self._stopped: set[str] = set()  # responses that the client plays no more of

    def heard(self, item_id: str, now: float) -> int:
        """How many samples of an item were heard."""
        return self._speaker.heard(item_id, now)

    def error_s(self, item_id: str) -> float:
        """How much more than was heard the server may believe: what it can't know of the network and the client."""
        assert self.down is not None
        assert self.up is not None
        person = self._person
        error_s = self.down.worst_s + max(0.0, person.prebuffer_s - self._client_buffer_s) + ROUNDING_S
        error_s += abs(person.drift - 1) * LONGEST_S
        return error_s + (self.up.worst_s if item_id in self._by_hand else 0.0)

    # ---- claims ---------------------------------------------------------------------------------------------------

    def stopped(self, response_ids: set[str]) -> None:
        """The client will play no more of these; it can't yet name an item of which nothing has come."""
        self._stopped |= response_ids

    def by_hand(self, item_id: str) -> None:
        """The client fell silent without the server."""
        self._by_hand.add(item_id)

    def claim(self, event: wire.TruncateItem, heard: int | None) -> None:
        """The client will say where it cut; `heard` None says that this is not true."""
        assert event.event_id is not None
        self._claims[event.event_id] = event.item_id, heard
        self._under_way[event.item_id] += 1

    def settled(self, event: AnyClientEvent) -> None:
        """The server has taken a truncation."""
        assert event.event_id is not None
        item_id, heard = self._claims.pop(event.event_id)
        self._under_way[item_id] -= 1
        if item_id not in self._true or heard is None:
            self._true[item_id] = heard

    def claimed(self, item_id: str, response_id: str | None) -> bool:
        """Whether what the server believes of an item is the client's doing: a claim is under way, or was not true."""
        if response_id in self._stopped and item_id not in self._true:
            return True
        return self._under_way[item_id] > 0 or (item_id in self._true and self._true[item_id] is None)

    def exact(self, item_id: str) -> int | None:
        """What a true claim has settled."""
        return self._true.get(item_id)
