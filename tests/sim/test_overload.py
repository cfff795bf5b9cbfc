"""Lets one person talk for minutes to a recognizer that is slower than they are, and then lets it recover."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import msgspec
import pytest

from duplex_server.realtime import wire
from duplex_server.realtime.effects import Effect, Send
from duplex_server.realtime.hearing import PASSES
from duplex_server.realtime.inputs import Input
from pipeline.chunk import Transcribe
from pipeline.stage import Step, Work
from tests.realtime.talk import DEFAULTS
from tests.sim import cascade as stages
from tests.sim.bodies import Did, Listen, Recognizer
from tests.sim.client import Client
from tests.sim.clock import Clock
from tests.sim.scenario import Health, Network, Person, Scenario
from tests.sim.speech import RATE_HZ

SLOWNESS = 3.0
LOAD_S, AFTER_S = 240.0, 60.0
TURN_WORDS, WORD_S = (3, 6), 0.35
LONGEST_PASS_S = SLOWNESS * 1.3 * (TURN_WORDS[1] * WORD_S + 1.5)
"""A turn with the silence around it, on a machine at its slowest."""
LATEST_S = 3 * LONGEST_PASS_S
"""Words are there, or given up, this much after the end of their turn: a pass that nobody wants any more may be under
way, then the oldest turn's, then its own."""

PERSON = Person(
    network=Network(0.02, 0.005, 0.0, 0.0),
    drift=1.0,
    frame_ms=20,
    prebuffer_s=0.06,
    patience_s=1.0,
    interrupts=1.0,
    hesitates=0.0,
    odd=0.0,
    truncates=0.0,
    transcribed=True,
    partials=True,
    uncut=False,
    echo_s=None,
    soft_onset_s=0.05,
)


class Slow(Recognizer):
    """Takes a multiple of the time that it took to say it."""

    slowness = SLOWNESS

    def __init__(self, listen: Listen) -> None:
        super().__init__(listen)
        self._listen_to = listen

    def step(self, work: Sequence[Work]) -> Did:
        job = self._jobs[work[0].fence]
        assert isinstance(job, Transcribe)
        did: tuple[Step, float] = super().step(work)
        return did[0], did[1] if self.slowness == 0 else self.slowness * self._listen_to(job)[1]


@dataclass(slots=True)
class Log:
    """What became of each turn, and when."""

    committed: dict[str, float] = field(default_factory=dict)
    heard: dict[str, float] = field(default_factory=dict)
    failed: dict[str, float] = field(default_factory=dict)
    answered: list[float] = field(default_factory=list)

    def watch(self, now: float, _: str, given: Input, effects: tuple[Effect, ...]) -> None:
        for effect in effects:
            match effect:
                case Send(event=wire.Committed(item_id=item_id)):
                    self.committed[item_id] = now
                case Send(event=wire.TranscriptionCompleted(item_id=item_id)):
                    self.heard[item_id] = now
                case Send(event=wire.TranscriptionFailed(item_id=item_id, error=error)):
                    assert error.code == "overloaded"
                    self.failed[item_id] = now
                case Send(event=wire.ResponseDone(response=response)) if response.status == "completed":
                    self.answered.append(now)
                case _:
                    pass


def talk(client: Client, clock: Clock, rng: Random, until: float) -> int:
    """One turn after the other, with just enough silence between that each is one; gives how many."""
    turns = 0
    while clock.now < until:
        for number in range(rng.randint(*TURN_WORDS)):
            client.say(0.0 if number else 0.7, WORD_S, f"w{turns}n{number}")
        turns += 1
        clock.run_until(clock.now + (client.speech.end - client.sent) / RATE_HZ)
    return turns


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_minutes_of_overload_lose_turns_that_are_told_and_nothing_else_and_then_it_recovers(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    monkeypatch.setattr(stages, "Recognizer", Slow)
    monkeypatch.setattr(Slow, "slowness", SLOWNESS)
    scenario = Scenario(
        people=(PERSON,),
        length_s=LOAD_S,
        health={"recognizer": Health(), "thinker": Health(), "talker": Health()},
        run_ahead_ms=2000,
        speculate=True,
        echo_guard=True,
        answer_on=False,
    )
    log, rng = Log(), Random(7)
    client = Client(
        clock, rng, stages.Cascade(clock, 7, scenario), msgspec.structs.replace(DEFAULTS), PERSON, log.watch
    )
    client.open()
    session = client.seat.session
    loaded = talk(client, clock, rng, LOAD_S)
    clock.run_until(clock.now + LATEST_S)
    assert not session.passes_waiting, "the words of the last turn are there once it is silent"
    # Under load: all of the turns are there, some without their words, none of them late.
    assert len(log.committed) == loaded
    assert not client.seat.behind, "no sound waits"
    ends = log.heard | log.failed
    assert ends.keys() == log.committed.keys()
    assert log.heard.keys().isdisjoint(log.failed)
    assert max(ends[item] - at for item, at in log.committed.items()) <= LATEST_S
    assert len(log.failed) == session.dropped_turns
    assert loaded / (2 * SLOWNESS) <= len(log.heard) <= loaded / (SLOWNESS / 2), "the recognizer is never idle"
    assert list(log.committed)[-1] in log.heard, "the newest is heard"
    assert len(log.answered) >= 1
    assert session.input.dropped["overloaded"] == session.input.unheard > 0
    # The load ends: everything is heard again.
    monkeypatch.setattr(Slow, "slowness", 0)
    lost, before = session.dropped_turns, len(log.committed)
    talk(client, clock, rng, clock.now + AFTER_S)
    clock.run_until(clock.now + LATEST_S)
    assert session.dropped_turns == lost
    after = list(log.committed)[before:]
    assert len(after) > AFTER_S / 5
    assert log.heard.keys() >= set(after)
    assert max(log.heard[item] - log.committed[item] for item in after) <= 1.0
    assert PASSES == 2, "what is said here of the oldest and the newest is of two"
    client.audit.finish()
