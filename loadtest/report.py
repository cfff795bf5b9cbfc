"""Gives a benchmark its server, its options, and its figures with the machine's load."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Sequence

import msgspec
import numpy as np
import psutil

from loadtest.process import started

BUSY_CORES = 0.25
"""Work of others beyond this share of a core spoils a figure; the run is marked."""


class Spread(msgspec.Struct, frozen=True):
    p50: float
    p95: float


class Load(msgspec.Struct, frozen=True):
    """What the machine did besides: mean cores that neither the server nor the client used."""

    cores: int
    other_cores: float
    busy: bool


def spread(values: Sequence[float]) -> Spread:
    return Spread(round(float(np.median(values)), 1), round(float(np.percentile(values, 95)), 1))


def arguments(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--url", help="a running server; without it one is started with its defaults")
    parser.add_argument("--key", help="its API key")
    parser.add_argument("--json", action="store_true", help="print one JSON object only")
    parser.add_argument("-n", type=int, default=20, help="how many counted turns (default 20)")
    return parser


class Watch:
    """Measures the load of other programs between two moments. `pids` are ours, with their children."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._ours = [psutil.Process(pid) for pid in pids]
        self._began = time.monotonic()
        self._busy, self._used = self._seconds()

    def load(self) -> Load:
        busy, used = self._seconds()
        others = ((busy - self._busy) - (used - self._used)) / (time.monotonic() - self._began)
        cores = max(0.0, round(others, 2))
        return Load(psutil.cpu_count() or 1, cores, cores > BUSY_CORES)

    def _seconds(self) -> tuple[float, float]:
        times = psutil.cpu_times()
        idle = times.idle + getattr(times, "iowait", 0.0)
        family = [one for process in self._ours for one in (process, *process.children(recursive=True))]
        used = sum(sum(one.cpu_times()[:2]) for one in family if one.is_running())
        return sum(times) - idle - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0), used


class Subject(msgspec.Struct):
    """The server that is measured: its address, its processes, and what it logged, if it was started for this."""

    url: str
    pids: list[int] = []
    log: list[str] = []


@contextlib.asynccontextmanager
async def server(url: str | None, *settings: str) -> AsyncIterator[Subject]:
    """The given server, or one that is started for the measurement, with its defaults but for `section.key=value`."""
    if url is not None:
        yield Subject(url)
        return
    flags = [part for setting in settings for part in ("--set", setting)]
    command = [sys.executable, "-P", "-m", "duplex_server", "serve", "--port", "0", *flags]
    async with started(command, "Realtime API at ") as process:
        yield Subject(process.told.rstrip(")"), [process.pid], process.log)


def print_figures(figures: msgspec.Struct, as_json: bool) -> None:
    plain = msgspec.to_builtins(figures)
    if as_json:
        print(msgspec.json.encode(plain).decode())
        return
    for name, value in plain.items():
        print(f"{name:>20}  {value}")
