"""Shows on a terminal how far the models are loaded: one line, drawn again and again."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TextIO

from pipeline.host import StageState
from pipeline.spec import FamilyRole

REDRAW_S = 0.2
BAR = 20
"""Characters of the bar."""
ERASE = "\r\x1b[K"
"""To the start of the line, and nothing behind it."""

States = Mapping[FamilyRole, tuple[StageState, ...]]


def is_terminal(stream: TextIO) -> bool:
    """Whether a line on it can be drawn again."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def line(states: States, now: float) -> str:
    """A bar, how many stages are loaded, and the one that has been loading for longest. `now` in monotonic seconds."""
    waiting = [(role, one) for role, those in states.items() for one in those if one.phase != "ready"]
    done, of = len(states) - len({role for role, _ in waiting}), len(states)
    bar = "#" * (done * BAR // of if of else 0)
    text = f"[{bar:-<{BAR}}] {done} of {of} stages"
    if not waiting:
        return text
    role, slowest = min(waiting, key=lambda one: one[1].since)
    told = f"{text}; {role}: {slowest.phase} for {now - slowest.since:.0f} s"
    return f"{told}, {slowest.progress}" if slowest.progress else told


@asynccontextmanager
async def shown(stream: TextIO, look: Callable[[], States]) -> AsyncIterator[None]:
    """Keep the line on a terminal for as long as the block lasts; nothing of it is left afterwards."""
    drawing = asyncio.create_task(_draw(stream, look))
    try:
        yield
    finally:
        drawing.cancel()
        await asyncio.gather(drawing, return_exceptions=True)
        stream.write(ERASE)
        stream.flush()


async def _draw(stream: TextIO, look: Callable[[], States]) -> None:
    clock = asyncio.get_running_loop().time
    while True:
        room = shutil.get_terminal_size().columns - 1  # a line that wraps can't be drawn over
        # The cursor goes back to the start, so that what others log meanwhile is written over the line.
        stream.write(f"{ERASE}{line(look(), clock())[:room]}\r")
        stream.flush()
        await asyncio.sleep(REDRAW_S)
