"""Tests what a terminal shows while the models are loaded."""

from __future__ import annotations

import asyncio
import io
import os
import shutil

import pytest

from duplex_server import progress
from duplex_server.progress import BAR, ERASE, line, shown
from pipeline.host import Phase, StageState
from pipeline.spec import FamilyRole

PATIENCE_S = 30.0
States = dict[FamilyRole, tuple[StageState, ...]]


class Terminal(io.StringIO):
    """A terminal of one row, of which a test may await a drawing."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn: list[str] = []
        self.news = asyncio.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.drawn.append(text)
        self.news.set()
        return len(text)

    @property
    def row(self) -> str:
        """What is seen at last: each control starts the row anew, or erases it."""
        row = ""
        for text in self.drawn:
            row = text.replace(ERASE, "").replace("\r", "") if ERASE in text else row + text
        return row

    async def shows(self, part: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while part not in self.row:
                self.news.clear()
                await self.news.wait()


def states(**phases: tuple[Phase, float]) -> States:
    return {role: (StageState(phase, since),) for role, (phase, since) in phases.items()}  # type: ignore[misc]  # roles, all


def test_the_line_counts_stages_and_names_the_one_that_has_been_loading_for_longest() -> None:
    found = states(
        detector=("ready", 1.0), recognizer=("loading", 3.0), thinker=("loading", 2.0), talker=("ready", 5.0)
    )
    assert line(found, 14.6) == f"[{'#' * (BAR // 2)}{'-' * (BAR // 2)}] 2 of 4 stages; thinker: loading for 13 s"


def test_how_far_it_is_stands_at_the_end() -> None:
    found: States = {"thinker": (StageState("loading", 0.0, progress="its model is loaded"),)}
    assert line(found, 1.0).endswith("] 0 of 1 stages; thinker: loading for 1 s, its model is loaded")


def test_a_stage_is_loaded_when_all_of_its_replicas_are() -> None:
    found: States = {"thinker": (StageState("ready", 0.0), StageState("loading", 2.0))}
    assert "0 of 1 stages; thinker: loading for 5 s" in line(found, 7.0)


def test_the_whole_and_nothing_are_lines_too() -> None:
    assert line(states(talker=("ready", 0.0)), 1.0) == f"[{'#' * BAR}] 1 of 1 stages"
    assert line({}, 1.0) == f"[{'-' * BAR}] 0 of 0 stages"


def test_the_line_is_drawn_again_over_itself_and_leaves_nothing() -> None:
    found = states(talker=("loading", 0.0))

    async def scene() -> Terminal:
        terminal = Terminal()
        async with shown(terminal, lambda: found):
            await terminal.shows("0 of 1 stages")
            found.update(states(talker=("ready", 0.0)))
            await terminal.shows("1 of 1 stages")
        return terminal

    terminal = asyncio.run(scene())
    assert terminal.row == ""
    assert len(terminal.drawn) >= 3
    assert not any("\n" in text for text in terminal.drawn)
    assert all(text.startswith(ERASE) for text in terminal.drawn)


def test_the_line_goes_when_the_load_fails() -> None:
    async def scene(terminal: Terminal) -> None:
        async with shown(terminal, dict):
            await terminal.shows("stages")
            raise RuntimeError("no such model")

    async def failing() -> Terminal:
        terminal = Terminal()
        with pytest.raises(RuntimeError, match="no such model"):
            await scene(terminal)
        return terminal

    assert asyncio.run(failing()).row == ""


def test_a_narrow_terminal_gets_a_line_that_does_not_wrap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: os.terminal_size((30, 5)))

    async def scene() -> Terminal:
        terminal = Terminal()
        async with shown(terminal, lambda: states(recognizer=("loading", 0.0))):
            await terminal.shows("0 of 1")
            assert len(terminal.row) == 29
        return terminal

    assert asyncio.run(scene()).drawn


def test_only_a_terminal_that_can_is_drawn_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert progress.is_terminal(Terminal())
    assert not progress.is_terminal(io.StringIO())
    monkeypatch.setenv("TERM", "dumb")
    assert not progress.is_terminal(Terminal())
