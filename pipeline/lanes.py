"""Grants the cores of this machine to the steps that run inside the server, by deadline."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pipeline.errors import StageError

STARVE_S = 2.0  # how long a request may be overtaken by more urgent ones
WAIT_S = 30.0  # no step waits longer for its cores; steps are bounded, so this means that one of them hangs


def machine_cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class _Request:
    who: str
    threads: int
    due: float
    since: float


class CoreTokens:
    """Who may compute now: a pure core with one token per core.

    Requests are granted strictly in the order of their deadlines, those that waited `starve_s` before all others. The
    first in line is never overtaken, not even by one that would fit: so a wide step can't starve behind narrow ones.
    """

    def __init__(self, cores: int, *, starve_s: float = STARVE_S) -> None:
        if cores < 1:
            raise ValueError(f"a machine has at least one core, not {cores}")
        self.cores = cores
        self._starve_s = starve_s
        self._waiting: dict[str, _Request] = {}
        self._held: dict[str, int] = {}

    @property
    def free(self) -> int:
        return self.cores - sum(self._held.values())

    def ask(self, who: str, threads: int, due: float, now: float) -> None:
        """Ask for `threads` cores, or for all when there are fewer. One request per `who` at a time."""
        assert who not in self._waiting, f"{who} asked twice"
        assert who not in self._held, f"{who} asks for cores while it holds some"
        self._waiting[who] = _Request(who, min(max(threads, 1), self.cores), due, now)

    def release(self, who: str) -> None:
        """Give back what `who` holds, and take back what it asked; nothing of either is not an error."""
        self._waiting.pop(who, None)
        self._held.pop(who, None)

    def grant(self, now: float) -> tuple[str, ...]:
        """Those who may compute from now on, as far as the tokens go."""
        granted = []
        for request in sorted(self._waiting.values(), key=lambda request: self._urgency(request, now)):
            if request.threads > self.free:
                break
            del self._waiting[request.who]
            self._held[request.who] = request.threads
            granted.append(request.who)
        return tuple(granted)

    def _urgency(self, request: _Request, now: float) -> tuple[int, float]:
        if now - request.since >= self._starve_s:
            return 0, request.since
        return 1, request.due


class Lanes:
    """The blocking shell around `CoreTokens`, shared by the threads of the inline stages."""

    def __init__(self, cores: int) -> None:
        self._tokens = CoreTokens(cores)
        self._granted: set[str] = set()
        self._changed = threading.Condition()

    @property
    def free(self) -> int:
        with self._changed:
            return self._tokens.free

    @contextmanager
    def held(self, who: str, threads: int, due: float, timeout_s: float = WAIT_S) -> Iterator[None]:
        """Hold cores while the block runs. Raises `StageError` when none came free within `timeout_s`."""
        with self._changed:
            self._tokens.ask(who, threads, due, time.monotonic())
            self._grant()
            if not self._changed.wait_for(lambda: who in self._granted, timeout_s):
                self._tokens.release(who)
                self._grant()
                raise StageError(
                    f"{who} got no core within {timeout_s:g} s: another stage of this process hangs or is overloaded",
                    "stage_timeout",
                )
            self._granted.discard(who)
        try:
            yield
        finally:
            self.release(who)

    def release(self, who: str) -> None:
        """Take the cores of `who` back, even while its step still runs: a hung step must not stop the others."""
        with self._changed:
            self._tokens.release(who)
            self._grant()

    def _grant(self) -> None:
        granted = self._tokens.grant(time.monotonic())
        if granted:
            self._granted.update(granted)
            self._changed.notify_all()


def yield_to_server(nice: int) -> None:
    """Give this process a lower priority than the server's, so that its event loop keeps its pace."""
    if hasattr(os, "nice"):
        os.nice(nice)
