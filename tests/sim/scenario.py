"""Draws what a simulated run is like: its people, their connections and clocks, and the health of the stages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random

from duplex_server.realtime.echo import ECHO_AFTER_S
from duplex_server.realtime.playout import ECHO_S
from pipeline.chunk import StageRole
from tests.sim.works import PLAIN, Works, draw_works

WORKS = 0.35
"""How many runs have more behind them than a plain pipeline."""


@dataclass(frozen=True, slots=True)
class Network:
    """One connection, the same both ways. A spike holds up all that follows, as a lost packet does."""

    delay_s: float
    jitter_s: float
    spikes: float
    """How likely a message is to meet a spike."""
    spike_s: float


@dataclass(frozen=True, slots=True)
class Health:
    """How a stage fares. The rates are per turn of the stage."""

    slowness: float = 1.0
    raises: float = 0.0
    refuses: float = 0.0
    stalls: float = 0.0
    dies: float = 0.0
    respawn_s: float = 2.0
    fails_to_load: float = 0.0
    """How likely it does not come up when it is tried again."""
    mute: float = 0.0
    """How likely it forgets to say that it has let go of a job."""


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who talks, with the client they use."""

    network: Network
    drift: float
    """How fast their sound card's clock runs; 1 is right."""
    frame_ms: int
    """How much sound their client sends at once."""
    prebuffer_s: float
    """How much sound their client waits for before it plays."""
    patience_s: float
    """How long they are quiet on average, when nothing happens."""
    interrupts: float
    """How likely they are to speak over the assistant."""
    hesitates: float
    """How likely they are to pause after a word."""
    odd: float
    """How likely an act of theirs is not plain speech."""
    truncates: float
    """How likely their client tells where it cut."""
    transcribed: bool
    partials: bool
    """Whether their client wants words while they are spoken."""
    uncut: bool
    """Whether their client lets replies go on when they speak."""
    echo_s: float | None
    """How late their loudspeaker comes back through their microphone; None with headphones."""
    soft_onset_s: float
    """How much of the beginning of their speech the detector misses."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One run."""

    people: tuple[Person, ...]
    length_s: float
    health: Mapping[StageRole, Health]
    run_ahead_ms: int
    speculate: bool
    echo_guard: bool
    answer_on: bool
    works: Works = PLAIN


def drawn(seed: int) -> Scenario:
    """The scenario of a seed."""
    return draw(Random(f"{seed} world"))


def draw(rng: Random) -> Scenario:
    """A scenario; most are ordinary, some are not."""
    count = rng.choices((1, 2, 3, 4), (55, 25, 12, 8))[0]
    echo_guard = rng.random() < 0.7
    ill = rng.random() < 0.35
    roles: tuple[StageRole, ...] = ("recognizer", "thinker", "talker")
    plain = Scenario(
        people=tuple(_person(rng, echo_guard) for _ in range(count)),
        length_s=rng.uniform(25.0, 75.0),
        health={role: _health(rng) if ill else Health(slowness=rng.uniform(0.7, 1.6)) for role in roles},
        run_ahead_ms=rng.choice((800, 2000, 2000, 4000)),
        speculate=rng.random() < 0.8,
        echo_guard=echo_guard,
        answer_on=rng.random() < 0.7,
    )
    if rng.random() >= WORKS:
        return plain
    works = draw_works(rng)
    healths = {role: _worse(rng, health) for role, health in plain.health.items()} if ill else dict(plain.health)
    if "vocoder" in works.roles:
        healths["vocoder"] = _worse(rng, _health(rng)) if ill else Health(slowness=rng.uniform(0.7, 1.6))
    return replace(plain, health=healths, works=works)


def _person(rng: Random, echo_guard: bool) -> Person:
    network, frame_ms, prebuffer_s = (
        _network(rng),
        rng.choice((20, 40, 40, 100, 250)),
        rng.choice((0.02, 0.06, 0.1, 0.2)),
    )
    # The server knows an echo for what it is only if it is back in time.
    way_s = 2 * (network.delay_s + 4 * network.jitter_s) + frame_ms / 1000 + prebuffer_s
    room_s = 0.0 if network.spikes else rng.choice((ECHO_S, ECHO_S, ECHO_AFTER_S)) - way_s
    echoes = echo_guard and room_s > 0.05 and rng.random() < 0.6
    return Person(
        network=network,
        drift=1 + rng.uniform(-3e-4, 3e-4),
        frame_ms=frame_ms,
        prebuffer_s=prebuffer_s,
        patience_s=rng.choice((1.0, 2.5, 5.0)),
        interrupts=rng.choice((0.1, 0.5, 0.9)),
        hesitates=rng.choice((0.0, 0.1, 0.3)),
        odd=rng.choice((0.1, 0.3, 0.6)),
        truncates=rng.choice((0.0, 0.5, 1.0)),
        transcribed=rng.random() < 0.7,
        partials=rng.random() < 0.3,
        uncut=rng.random() < 0.2,
        echo_s=rng.uniform(0.02, room_s) if echoes else None,
        soft_onset_s=rng.uniform(0.03, 0.1),
    )


def _network(rng: Random) -> Network:
    match rng.random():
        case near if near < 0.4:
            return Network(0.001, 0.001, 0.0, 0.0)
        case usual if usual < 0.8:
            return Network(rng.uniform(0.01, 0.12), rng.uniform(0.002, 0.03), rng.choice((0.0, 0.002)), 0.3)
        case _:
            return Network(rng.uniform(0.08, 0.3), rng.uniform(0.02, 0.1), 0.01, rng.uniform(0.5, 2.0))


def _health(rng: Random) -> Health:
    return Health(
        slowness=rng.choice((0.7, 1.0, 2.0, 5.0, 20.0)),
        raises=rng.choice((0.0, 0.0, 0.002, 0.03)),
        refuses=rng.choice((0.0, 0.0, 0.05)),
        stalls=rng.choice((0.0, 0.0, 0.002, 0.01)),
        dies=rng.choice((0.0, 0.0, 0.002, 0.02)),
        respawn_s=rng.choice((0.3, 2.0, 12.0)),
    )


def _worse(rng: Random, health: Health) -> Health:
    """With troubles of its process as well."""
    return replace(
        health,
        dies=max(health.dies, rng.choice((0.0, 0.02, 0.06))),
        fails_to_load=rng.choice((0.0, 0.3, 0.8)),
        mute=rng.choice((0.0, 0.0, 0.05)),
    )
