"""Runs one scenario to its end: everybody talks, everybody falls silent, everything comes to rest."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random

import msgspec

from duplex_server.realtime.schema import AudioInputPatch, AudioPatch, SessionPatch, TurnDetectionPatch
from pipeline.breaker import BACKOFF_FIRST_S, BACKOFF_MOST_S, STEADY_S
from tests.realtime.talk import DEFAULTS
from tests.sim.cascade import Cascade
from tests.sim.clerk import Clerk
from tests.sim.client import Client
from tests.sim.clock import Clock
from tests.sim.people import User
from tests.sim.scenario import Person, drawn
from tests.sim.seat import Watch
from tests.sim.works import PLAIN

DRAIN_S = 30.0
DRAINS = 20
"""Within so many stretches all that was due is said and heard."""
IDLE = 0.4
"""How many clients want a user to be asked who says nothing. It is no draw of the scenario: a seed stays as it was."""
IDLES = SessionPatch(audio=AudioPatch(input=AudioInputPatch(turn_detection=TurnDetectionPatch(idle_timeout_ms=5000))))
LAST_TURN_S = 5.0
"""Longer than any silence that ends a turn: the last sound, an echo perhaps, may just have been heard."""
SLOWEST_S = 12.5
"""No stage takes longer to come up."""
REST_S = 60.0
"""After the last peer has left, this is enough for every acknowledgement."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a run has lived through. `lived_s` sums over its conversations."""

    lived_s: float
    conversations: int
    answers: int
    moments: int
    met: Counter[str]
    """How often it met with what is rare."""


class World:
    """One run, a pure function of its seed."""

    def __init__(self, seed: int, watch: Watch | None = None) -> None:
        self._scenario = drawn(seed)
        self._clock = Clock()
        self._watch = watch
        self._cascade = Cascade(self._clock, seed, self._scenario)
        self._clients: list[tuple[Client, float]] = []
        self._seed = seed
        self._users = [self._user(number, person) for number, person in enumerate(self._scenario.people)]
        self._clerks = [
            Clerk(self._clock, Random(f"{seed} clerk {number}"), seed, f"b{number}", self._cascade)
            for number in range(self._scenario.works.clerks)
        ]

    def run(self) -> Report:
        try:
            return self._run()
        finally:
            self._cascade.shut()

    def _run(self) -> Report:
        for user in self._users:
            user.start()
        for clerk in self._clerks:
            clerk.start()
        until = self._scenario.length_s
        while self._clock.now < until:
            self._clock.run_until(min(until, self._clock.now + 1.0))
            self._look()
        self._drain()
        self._end()
        lived_s = sum((client.left_at or self._clock.now) - came for client, came in self._clients)
        answers = sum(client.audit.turns.answered for client, _ in self._clients)
        self._die_once_more()
        return Report(lived_s, len(self._clients), answers, self._clock.moments, self._cascade.met)

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
            start=IDLES if Random(f"{self._seed} {stream} idle").random() < IDLE else None,
        )
        client = Client(self._clock, rng, self._cascade, config, person, self._watch)
        self._clients.append((client, self._clock.now))
        return client

    def _look(self) -> None:
        """What is bounded is within its bound."""
        self._cascade.check()

    # ---- the end --------------------------------------------------------------------------------------------------

    def _drain(self) -> None:
        """Nobody says anything new and nothing breaks any more: what is due is answered and heard."""
        self._cascade.heal()
        for user in self._users:
            user.finish()
        for clerk in self._clerks:
            clerk.finish()
        here = [client for client, _ in self._clients if client.here]
        for _ in range(DRAINS):
            self._clock.run_until(self._clock.now + DRAIN_S)
            if self._rests(here):
                self._clock.run_until(self._clock.now + LAST_TURN_S)
                if self._rests(here):
                    break
        else:
            raise AssertionError(f"it does not come to rest: {self._cascade.left}")
        for client in here:
            client.audit.finish()

    def _rests(self, here: list[Client]) -> bool:
        self._look()
        busy = any(client.busy for client in here) or any(clerk.busy for clerk in self._clerks)
        return self._cascade.quiet and not busy

    def _end(self) -> None:
        for client, _ in self._clients:
            if client.here:
                client.leave(0.01)
        self._clock.run_until(self._clock.now + REST_S)
        assert self._cascade.quiet, f"work is left after the last peer has gone: {self._cascade.left}"
        for client, _ in self._clients:
            stream = client.stream
            for stand in self._cascade.stands:
                assert not stand.machine.holds(stream), f"the {stand.role} still holds something of {stream}"
                assert not stand.live(stream), f"somebody waits for the {stand.role} of {stream}"

    def _die_once_more(self) -> None:
        """A stage that has been steady for long is worth waiting for, whatever its past."""
        if self._scenario.works is PLAIN:
            return
        self._clock.run_until(self._clock.now + STEADY_S)
        for stand in self._cascade.stands:
            assert stand.ready, f"a {stand.role} has not come back"
            stand.machine.die()
        self._clock.run_until(self._clock.now + BACKOFF_FIRST_S)
        broken = [stand.role for stand in self._cascade.stands if stand.state.phase == "broken"]
        assert not broken, f"they were steady, and are given up at once: {broken}"
        self._clock.run_until(self._clock.now + BACKOFF_MOST_S + SLOWEST_S)
        down = [stand.role for stand in self._cascade.stands if not stand.ready]
        assert not down, f"they do not come back: {down}"
        assert self._cascade.quiet, f"work is left when all have died: {self._cascade.left}"


def run(seed: int, watch: Watch | None = None) -> Report:
    """Live through the scenario of a seed. Raises `AssertionError` at the first thing that is wrong."""
    return World(seed, watch).run()
