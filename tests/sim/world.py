"""Runs one scenario to its end: everybody talks, everybody falls silent, everything comes to rest."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import msgspec

from tests.realtime.talk import DEFAULTS
from tests.sim.cascade import Cascade
from tests.sim.client import Client
from tests.sim.clock import Clock
from tests.sim.people import User
from tests.sim.scenario import Person, draw
from tests.sim.seat import Watch

DRAIN_S = 30.0
DRAINS = 20
"""Within so many stretches all that was due is said and heard."""
LAST_TURN_S = 5.0
"""Longer than any silence that ends a turn: the last sound, an echo perhaps, may just have been heard."""
REST_S = 60.0
"""After the last peer has left, this is enough for every acknowledgement."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a run has lived through. `lived_s` sums over its conversations."""

    lived_s: float
    conversations: int
    answers: int
    moments: int


class World:
    """One run, a pure function of its seed."""

    def __init__(self, seed: int, watch: Watch | None = None) -> None:
        self._rng = Random(f"{seed} world")
        self._scenario = draw(self._rng)
        self._clock = Clock()
        self._watch = watch
        self._cascade = Cascade(self._clock, seed, self._scenario)
        self._clients: list[tuple[Client, float]] = []
        self._seed = seed
        self._users = [self._user(number, person) for number, person in enumerate(self._scenario.people)]

    def run(self) -> Report:
        for user in self._users:
            user.start()
        until = self._scenario.length_s
        while self._clock.now < until:
            self._clock.run_until(min(until, self._clock.now + 1.0))
            self._look()
        self._drain()
        self._end()
        lived_s = sum((client.left_at or self._clock.now) - came for client, came in self._clients)
        answers = sum(client.audit.turns.answered for client, _ in self._clients)
        return Report(lived_s, len(self._clients), answers, self._clock.moments)

    def _user(self, number: int, person: Person) -> User:
        rng = Random(f"{self._seed} user {number}")
        return User(self._clock, rng, person, f"u{number}", lambda: self._connect(person, rng))

    def _connect(self, person: Person, rng: Random) -> Client:
        stream = f"s{len(self._clients) + 1}"
        config = msgspec.structs.replace(
            DEFAULTS,
            stream=stream,
            id_seed=f"{self._seed} {stream}",
            run_ahead_ms=self._scenario.run_ahead_ms,
            speculate=self._scenario.speculate,
            echo_guard=self._scenario.echo_guard,
            answer_on=self._scenario.answer_on,
        )
        client = Client(self._clock, rng, self._cascade, config, person, self._watch)
        self._clients.append((client, self._clock.now))
        return client

    def _look(self) -> None:
        """What is bounded is within its bound."""
        for machine in self._cascade.machines.values():
            machine.check()

    # ---- the end --------------------------------------------------------------------------------------------------

    def _drain(self) -> None:
        """Nobody says anything new and nothing breaks any more: what is due is answered and heard."""
        self._cascade.heal()
        for user in self._users:
            user.finish()
        here = [client for client, _ in self._clients if client.here]
        for _ in range(DRAINS):
            self._clock.run_until(self._clock.now + DRAIN_S)
            if self._rests(here):
                self._clock.run_until(self._clock.now + LAST_TURN_S)
                if self._rests(here):
                    break
        else:
            raise AssertionError("it does not come to rest")
        for client in here:
            client.audit.finish()

    def _rests(self, here: list[Client]) -> bool:
        self._look()
        return self._cascade.quiet and not any(client.busy for client in here)

    def _end(self) -> None:
        for client, _ in self._clients:
            if client.here:
                client.leave(0.01)
        self._clock.run_until(self._clock.now + REST_S)
        assert self._cascade.quiet, "work is left after the last peer has gone"
        for client, _ in self._clients:
            stream = client.stream
            for role, machine in self._cascade.machines.items():
                assert not machine.holds(stream), f"the {role} still holds something of {stream}"
                assert not self._cascade.hosts[role].live(stream), f"somebody waits for the {role} of {stream}"


def run(seed: int, watch: Watch | None = None) -> Report:
    """Live through the scenario of a seed. Raises `AssertionError` at the first thing that is wrong."""
    return World(seed, watch).run()
