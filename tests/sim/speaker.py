"""Is the loudspeaker of a client: a buffer that plays in real time on its own clock, and knows what was heard."""

from __future__ import annotations

from collections import Counter, deque

from tests.sim.scenario import Person
from tests.sim.speech import RATE_HZ


class Speaker:
    """Plays the sound of the conversation's replies, one after the other."""

    def __init__(self, person: Person) -> None:
        self._hz = RATE_HZ * person.drift
        self._prebuffer_s = person.prebuffer_s
        self._waiting: deque[tuple[str, int]] = deque()
        self._head_at = 0.0  # when the first waiting sample begins to be heard
        self._heard: Counter[str] = Counter()
        self._latest: str | None = None
        self._before: set[str] = set()  # items that others have followed

    def put(self, item_id: str, samples: int, now: float) -> None:
        """Sound came. No two replies may take turns."""
        self._advance(now)
        assert item_id not in self._before, f"{item_id} goes on after another reply has begun"
        if self._latest not in (None, item_id):
            self._before.add(str(self._latest))
        self._latest = item_id
        if not self._waiting:
            self._head_at = now + self._prebuffer_s
        self._waiting.append((item_id, samples))

    def heard(self, item_id: str, now: float) -> int:
        """How many samples of an item were heard."""
        self._advance(now)
        return self._heard[item_id]

    def ahead_s(self, now: float) -> float:
        """How much sound waits."""
        self._advance(now)
        return sum(samples for _, samples in self._waiting) / RATE_HZ

    def playing(self, now: float) -> str | None:
        """The item that is being heard, or is about to be."""
        self._advance(now)
        return self._waiting[0][0] if self._waiting else None

    def cut(self, now: float, only: str | None = None) -> list[tuple[str, int]]:
        """Fall silent, or drop one item; gives the items that were cut, each with what was heard of it."""
        self._advance(now)
        gone = dict.fromkeys(item for item, _ in self._waiting if only in (None, item))
        self._waiting = deque(pair for pair in self._waiting if pair[0] not in gone)
        return [(item, self._heard[item]) for item in gone]

    def _advance(self, now: float) -> None:
        while self._waiting and now > self._head_at:
            item, samples = self._waiting[0]
            played = min(samples, int((now - self._head_at) * self._hz))
            if played == 0:
                return
            self._heard[item] += played
            self._head_at += played / self._hz
            if played < samples:
                self._waiting[0] = (item, samples - played)
                return
            self._waiting.popleft()
