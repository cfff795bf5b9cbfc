"""Carries messages one way, late and in order, as TCP does."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Generic, TypeVar

from tests.sim.clock import Clock
from tests.sim.scenario import Network

M = TypeVar("M")


class Line(Generic[M]):
    """One direction of a connection."""

    def __init__(self, clock: Clock, rng: Random, network: Network, deliver: Callable[[M], None]) -> None:
        self._clock, self._rng, self._network, self._deliver = clock, rng, network, deliver
        self._last = 0.0
        self._cut = False
        self.under_way = 0
        self.worst_s = 0.0
        """The longest that a message was under way."""

    def send(self, message: M) -> None:
        network, rng, now = self._network, self._rng, self._clock.now
        late_s = network.delay_s + network.jitter_s * rng.expovariate(1.0)
        if network.spikes and rng.random() < network.spikes:
            late_s += network.spike_s
        self._last = max(self._last, now + late_s)
        self.worst_s = max(self.worst_s, self._last - now)
        self.under_way += 1
        self._clock.call_at(self._last, self._arrive, message)

    def cut(self) -> None:
        """The connection breaks; what is under way is lost."""
        self._cut = True

    def _arrive(self, message: M) -> None:
        self.under_way -= 1
        if not self._cut:
            self._deliver(message)
