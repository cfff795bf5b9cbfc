"""Makes the figures of a load test from what its callers told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import assert_never

import msgspec
import numpy as np

from loadtest.load.records import Answered, Closed, Failed, Heard, Opened, Record, Refused, Spoke, Stopped
from loadtest.report import Load

CLIENT_LATE_MS = 20.0
"""A client whose turns had a later frame than this, more often than one in twenty, has spoiled the figures."""


class Tail(msgspec.Struct, frozen=True):
    """A median and what is beyond it."""

    n: int
    p50: float
    p95: float
    p99: float
    most: float


class Client(msgspec.Struct, frozen=True):
    """How late the client itself was: of each turn, the latest frame of its microphone."""

    late_ms: Tail | None
    late: bool


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What `docs/load-tests.md` describes."""

    seconds: float
    callers: int
    calls: int
    refused: int
    turns: int
    voice_to_voice_ms: Tail | None
    stop_ms: Tail | None
    frame_late_ms: Tail | None
    underruns: int
    errors: dict[str, int]
    examples: dict[str, str]
    client: Client
    load: Load


def tail(values: Sequence[float]) -> Tail | None:
    """The percentiles of some values, or None without any."""
    if not values:
        return None
    p50, p95, p99, most = (round(float(one), 1) for one in np.percentile(values, (50, 95, 99, 100)))
    return Tail(len(values), p50, p95, p99, most)


def open_calls(records: Iterable[Record]) -> list[tuple[float, int]]:
    """When the number of open calls changed, in seconds since the epoch, and what it was then."""
    talking: set[int] = set()
    steps = []
    for record in sorted(records, key=lambda one: one.at):
        if isinstance(record, Opened):
            talking.add(record.user)
        elif isinstance(record, Closed) and record.user in talking:
            talking.remove(record.user)
        else:
            continue
        steps.append((record.at, len(talking)))
    return steps


def figures(records: Sequence[Record], seconds: float, load: Load) -> Figures:
    """The figures of a run that took `seconds`."""
    answers: list[float] = []
    stops: list[float] = []
    frames: list[float] = []
    own: list[float] = []
    failed: list[Failed] = []
    calls = refused = 0
    for record in records:
        match record:
            case Opened():
                calls += 1
            case Answered(voice_to_voice_ms=ms):
                answers.append(ms)
            case Stopped(stop_ms=ms):
                stops.append(ms)
            case Heard(late_ms=late):
                frames += late
            case Spoke(late_ms=late_ms):
                own.append(late_ms)
            case Failed():
                failed.append(record)
            case Refused():
                refused += 1
            case Closed():
                pass
            case _:
                assert_never(record)
    client = tail(own)
    return Figures(
        seconds=round(seconds, 1),
        callers=max((count for _, count in open_calls(records)), default=0),
        calls=calls,
        refused=refused,
        turns=len(answers),
        voice_to_voice_ms=tail(answers),
        stop_ms=tail(stops),
        frame_late_ms=tail(frames),
        underruns=sum(late > 0 for late in frames),
        errors=dict(Counter(one.kind for one in failed).most_common()),
        examples={one.kind: one.message for one in reversed(failed)},
        client=Client(client, client is not None and client.p95 > CLIENT_LATE_MS),
        load=load,
    )


def spoilt(found: Figures) -> list[str]:
    """Why these figures are not to be quoted; none when they are."""
    why = []
    if found.load.busy:
        why.append(f"the machine was busy: other programs used {found.load.other_cores} of {found.load.cores} cores")
    if found.client.late and found.client.late_ms is not None:
        why.append(f"the client was late: in one turn of twenty by more than {found.client.late_ms.p95} ms")
    return why


def table(found: Figures) -> str:
    """The figures as a person reads them."""
    columns = ("n", "p50", "p95", "p99", "most")
    lines = [f"{'':<20}" + "".join(f"{name:>10}" for name in columns)]
    tails = {
        "voice to voice, ms": found.voice_to_voice_ms,
        "stop, ms": found.stop_ms,
        "frame lateness, ms": found.frame_late_ms,
        "client lateness, ms": found.client.late_ms,
    }
    for name, one in tails.items():
        values = msgspec.structs.astuple(one) if one else ("-",) * len(columns)
        lines.append(f"{name:<20}" + "".join(f"{value:>10}" for value in values))
    lines += [
        "",
        f"{found.turns} turns in {found.calls} calls, at most {found.callers} at once, in {found.seconds:.0f} s",
        f"{found.refused} calls refused (503), {found.underruns} underruns, {sum(found.errors.values())} errors",
    ]
    lines += [f"  {count} x {kind}: {found.examples[kind]}" for kind, count in found.errors.items()]
    lines += [f"NOT TO BE QUOTED: {why}" for why in spoilt(found)]
    return "\n".join(lines)
