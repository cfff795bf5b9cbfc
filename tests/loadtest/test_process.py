"""Tests that a server for a measurement is awaited, heard and ended."""

from __future__ import annotations

import asyncio
import sys

import psutil
import pytest

from loadtest.process import Started, started


def test_a_server_is_ready_when_it_says_so_and_ends_with_the_block() -> None:
    code = (
        "import sys, time; print('hi', file=sys.stderr, flush=True); print('loading'); "
        "print('listening on 17 ', flush=True); time.sleep(600)"
    )

    async def scene() -> Started:
        async with started([sys.executable, "-c", code], "listening on ") as server:
            assert server.told == "17"
            assert psutil.pid_exists(server.pid)
        return server

    server = asyncio.run(scene())
    assert server.log == ["hi"]
    assert not psutil.pid_exists(server.pid)


def test_a_server_that_ends_early_shows_its_log() -> None:
    async def scene() -> None:
        async with started([sys.executable, "-c", "raise SystemExit('no model')"], "listening on "):
            raise AssertionError("it was never ready")

    with pytest.raises(SystemExit, match="ended before it was ready:\nno model"):
        asyncio.run(scene())
