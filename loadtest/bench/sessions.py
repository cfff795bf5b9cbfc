"""Measures how many sessions one core holds with stages that cost nothing, beside Pipecat with services of that kind.

The server has one core to itself, the callers (`loadtest.bench.crowd`) another. Each session speaks and listens in turn
without a pause in its sound. A number of sessions held when 99 % of the blocks of sound that came back were at most
20 ms late, every reply came whole and no line broke. Numbers are doubled until one does not hold, then halved between.
One that does not hold is tried once more, so that a neighbour's hiccup decides nothing.

Pipecat runs one pipeline for each connection, all in one process on the same core: its own WebSocket transport, its own
aggregators, and in place of services processors that answer at once. What its own bots would have besides is left out:
protocol messages to the client, metrics, turn tracking. Both detectors look for a loud sample in each 20 ms; both end a
turn after 0.5 s of silence; both speak the same seconds. What Pipecat does around any detector stays, unless
`--lean-peer` leaves that out too.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from loadtest.bench.crowd import SCRIPT_S, SILENCE_MS, Late, Outcome
from loadtest.bench.null import DELTAS, REPLY_MS
from loadtest.peers.pipecat_client import HERE, NAME, PYTHON
from loadtest.process import ROOT, started
from loadtest.report import Load, print_figures, server

MOST_LATE_MS = 20.0
MOST_SENT_LATE_MS = 10.0
"""Callers that are later than this measure themselves."""
FIRST = 8
MOST_SESSIONS = 2048
STEP = 1 / 24
"""The search ends when the number that held and the one that did not are this close."""
TRIES = 2
CROWD_S = 120.0
"""A crowd that is not done by then never will be."""
RUN_AHEAD_MS, CLIENT_BUFFER_MS = 2000, 100
SETTINGS = (
    f"server.max_sessions={MOST_SESSIONS}",
    "server.log_level=warning",
    f"session.run_ahead_ms={RUN_AHEAD_MS}",
    f"session.client_buffer_ms={CLIENT_BUFFER_MS}",
    *(f"{role}.family=loadtest.bench.null.{role}" for role in ("detector", "recognizer", "thinker", "talker")),
)
PIPECAT_AHEAD_MS = 40
"""It sends its second block together with the first, then keeps real time."""


class Peer(msgspec.Struct, frozen=True):
    """The same of another server."""

    name: str
    sessions_per_core: int
    n: int
    late_ms: Late | None


class Figures(msgspec.Struct, frozen=True):
    """`n` blocks of sound and their lateness are those of the highest number that held."""

    sessions_per_core: int
    peer: Peer
    ratio: float
    n: int
    late_ms: Late | None
    load: Load


@dataclass(frozen=True, slots=True)
class Target:
    """A server that is up: where it is, what it speaks, how far ahead of hearing it sends."""

    url: str
    pid: int
    wire: str
    ahead_ms: int


Start = Callable[[int], contextlib.AbstractAsyncContextManager[Target]]


@dataclass(frozen=True, slots=True)
class Held:
    """The highest number of sessions that held, and what was heard then."""

    sessions: int
    outcome: Outcome | None


# ---- the search ---------------------------------------------------------------------------------------------------


async def search(holds: Callable[[int], Awaitable[bool]]) -> int:
    """The highest number that holds, as nearly as `STEP` tells; 0 when not even one does."""
    held, failed = 0, MOST_SESSIONS + 1
    while failed - held > max(1.0, held * STEP):
        number = min(max(FIRST, 2 * held), MOST_SESSIONS) if failed > MOST_SESSIONS else (held + failed) // 2
        if await holds(number):
            held = number
        else:
            failed = number
    return held


def trouble(outcome: Outcome) -> str | None:
    """Why a number of sessions did not hold, if it did not."""
    if outcome.faults:
        return f"{len(outcome.faults)} faults, such as: {outcome.faults[0]}"
    if outcome.sent_late_ms > MOST_SENT_LATE_MS:
        return f"the callers themselves were {outcome.sent_late_ms} ms late: their core is the limit"
    if outcome.late_ms is None or outcome.late_ms.p99 > MOST_LATE_MS:
        return f"late by {outcome.late_ms}"
    return None


async def most_sessions(name: str, start: Start, seconds: float, cores: tuple[int, int]) -> Held:
    """Search one kind of server; each number gets a fresh one."""
    outcomes: dict[int, Outcome] = {}

    async def holds(number: int) -> bool:
        for _ in range(TRIES):
            async with start(cores[0]) as target:
                outcome = outcomes[number] = await crowd(target, number, seconds, cores[1])
            why = trouble(outcome)
            told = f"held, late by {outcome.late_ms}" if why is None else why
            shares = f"server {outcome.server_core_share:.0%}, callers {outcome.core_share:.0%} of a core"
            print(f"{name}: {number} sessions: {told}; {shares}; {outcome.load}", file=sys.stderr, flush=True)
            if why is None:
                return True
        return False

    number = await search(holds)
    return Held(number, outcomes.get(number))


async def crowd(target: Target, sessions: int, seconds: float, core: int) -> Outcome:
    """Let so many callers speak to a server. Raises `SystemExit` when the crowd itself fails."""
    options = {
        "url": target.url,
        "wire": target.wire,
        "sessions": sessions,
        "seconds": seconds,
        "ahead-ms": target.ahead_ms,
        "pid": target.pid,
    }
    flags = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    command = [sys.executable, "-P", "-m", "loadtest.bench.crowd", *flags]
    with on_core(core):
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, cwd=ROOT)
    try:
        async with asyncio.timeout(CROWD_S):
            told, _ = await process.communicate()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    if process.returncode:
        raise SystemExit(f"the callers ended with code {process.returncode}")
    return msgspec.json.decode(told, type=Outcome)


# ---- the servers --------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def on_core(core: int) -> Iterator[None]:
    """What is started within runs on this core alone, with all of its threads."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextlib.asynccontextmanager
async def ours(core: int) -> AsyncIterator[Target]:
    """This project's server."""
    async with contextlib.AsyncExitStack() as stack:
        with on_core(core):
            subject = await stack.enter_async_context(server(None, *SETTINGS))
        yield Target(subject.url, subject.pids[0], "realtime", RUN_AHEAD_MS - CLIENT_BUFFER_MS)


def pipecat(python: Path, *, lean: bool) -> Start:
    """Pipecat's, run by the interpreter of its environment; a `lean` one does nothing around its detector."""

    @contextlib.asynccontextmanager
    async def start(core: int) -> AsyncIterator[Target]:
        options = ["--silence-ms", str(SILENCE_MS), "--reply-ms", str(REPLY_MS), "--deltas", str(len(DELTAS))]
        command = [str(python), "-P", f"{HERE}/pipecat_null_bot.py", *options, *(["--lean"] if lean else [])]
        async with contextlib.AsyncExitStack() as stack:
            with on_core(core):
                bot = await stack.enter_async_context(started(command, "listening on "))
            yield Target(f"ws://127.0.0.1:{bot.told}/", bot.pid, "pipecat", PIPECAT_AHEAD_MS)

    return start


# ---- all of it ----------------------------------------------------------------------------------------------------


def figures(held: Held, peer: Held) -> Figures:
    """What both held. Raises `SystemExit` when either held nothing."""
    if held.outcome is None or peer.outcome is None or not held.sessions or not peer.sessions:
        raise SystemExit(f"not a single session held: ours {held.sessions}, {NAME} {peer.sessions}")
    mine, theirs = held.outcome, peer.outcome
    return Figures(
        sessions_per_core=held.sessions,
        peer=Peer(NAME, peer.sessions, theirs.n, theirs.late_ms),
        ratio=round(held.sessions / peer.sessions, 2),
        n=mine.n,
        late_ms=mine.late_ms,
        load=max(mine.load, theirs.load, key=lambda load: load.other_cores),
    )


async def main() -> None:
    """Measure both, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object only")
    parser.add_argument(
        "--seconds", type=float, default=SCRIPT_S, help=f"counted turns begin within this time (default {SCRIPT_S:g})"
    )
    parser.add_argument("--peer-python", type=Path, default=PYTHON, help="Pipecat's interpreter; see `make peer-env`")
    parser.add_argument("--lean-peer", action="store_true", help="leave out what Pipecat does around any detector")
    options = parser.parse_args()
    if not options.peer_python.exists():
        parser.error(f"{NAME} is not installed at {options.peer_python}; run: make peer-env")
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise SystemExit("one core is for the server and one for the callers; this process may use one alone")
    pair = (cores[0], cores[1])
    theirs = await most_sessions(NAME, pipecat(options.peer_python, lean=options.lean_peer), options.seconds, pair)
    mine = await most_sessions("ours", ours, options.seconds, pair)
    print_figures(figures(mine, theirs), options.json)


if __name__ == "__main__":
    asyncio.run(main())
