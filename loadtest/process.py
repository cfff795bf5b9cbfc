"""Starts a server for a measurement, waits until it says where it is, and ends it."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec

START_S = 180.0
STOP_S = 30.0
ROOT = Path(__file__).resolve().parent.parent


class Started(msgspec.Struct):
    """A running server: its process, what followed the awaited words, and what it logged."""

    pid: int
    told: str
    log: list[str]


@contextlib.asynccontextmanager
async def started(command: Sequence[str], words: str) -> AsyncIterator[Started]:
    """Run `command` until the block ends; the block begins once it has printed a line with `words`.

    Raises SystemExit, with its log, when it ends before.
    """
    pipe = subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe, cwd=ROOT)
    assert process.stdout is not None
    assert process.stderr is not None
    server = Started(process.pid, "", [])
    reading = [asyncio.create_task(_read(process.stderr, server.log))]
    try:
        async with asyncio.timeout(START_S):
            while words not in (line := (await process.stdout.readline()).decode(errors="replace")):
                if not line:
                    await reading[0]
                    raise SystemExit("\n".join([f"{command[0]} ended before it was ready:", *server.log]))
        server.told = line.partition(words)[2].strip()
        reading.append(asyncio.create_task(_read(process.stdout, [])))
        yield server
    finally:
        await _end(process)
        await asyncio.gather(*reading)


async def _read(stream: asyncio.StreamReader, lines: list[str]) -> None:
    """Keep the pipe empty: a full one would stop the server."""
    async for line in stream:
        lines.append(line.decode(errors="replace").rstrip())


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(STOP_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
