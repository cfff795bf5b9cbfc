"""Draws a load test over time: how long callers waited, how many there were, and what went wrong."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from loadtest.load.figures import Figures, open_calls, spoilt
from loadtest.load.records import Answered, Failed, Heard, Record, Refused, Stopped


def plot(records: Sequence[Record], found: Figures, began: float, path: Path) -> None:
    """Write a picture, in the format that the path's ending names; `began` is in seconds since the epoch."""
    figure = Figure(figsize=(11, 6), layout="constrained")
    times, below = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    for kind, name, colour in ((Answered, "voice to voice", "tab:blue"), (Stopped, "stop", "tab:green")):
        dots = [(one.at - began, _ms(one)) for one in records if isinstance(one, kind)]
        times.plot([at for at, _ in dots], [ms for _, ms in dots], ".", color=colour, label=name)
    times.set_ylabel("ms")
    times.set_ylim(bottom=0)
    steps = open_calls(records)
    calls = times.twinx()
    calls.step(
        [0.0, *(at - began for at, _ in steps), found.seconds],
        [0, *(count for _, count in steps), steps[-1][1] if steps else 0],
        where="post",
        color="tab:grey",
        alpha=0.6,
        label="open calls",
    )
    calls.set_ylabel("open calls")
    calls.set_ylim(bottom=0)
    calls.yaxis.set_major_locator(MaxNLocator(integer=True))
    rows = {
        "errors": ("tab:red", [one.at - began for one in records if isinstance(one, Failed)]),
        "refused": ("tab:orange", [one.at - began for one in records if isinstance(one, Refused)]),
        "underruns": (
            "tab:purple",
            [one.at - began for one in records if isinstance(one, Heard) if max(one.late_ms) > 0],
        ),
    }
    for row, (colour, at) in enumerate(rows.values()):
        below.plot(at, [row] * len(at), "|", color=colour, markersize=12)
    below.set_yticks(range(len(rows)), list(rows))
    below.set_ylim(len(rows) - 0.5, -0.5)
    below.set_xlim(0, found.seconds)
    below.set_xlabel("s")
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    told = [f"{found.turns} turns in {found.calls} calls", *(f"not to be quoted: {why}" for why in spoilt(found))]
    times.set_title("\n".join(told), loc="left", fontsize="medium")
    figure.savefig(path)


def _ms(record: Answered | Stopped) -> float:
    return record.voice_to_voice_ms if isinstance(record, Answered) else record.stop_ms
