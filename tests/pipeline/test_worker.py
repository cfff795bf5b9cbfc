"""Tests the worker's main program, as a real process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from pipeline.chunk import End, Prompt, Reply, TextPart, Think
from pipeline.message import Emitted, FromWorker, Load, Loaded, LoadFailed, Stop, from_worker
from pipeline.scheduler import Submitted
from transport.pipe import BlockingPipe

ROOT = Path(__file__).parents[2]
DEADLINE_S = 30.0
THINKER = "tests.families.scripted.thinker"

# A server that is killed: it starts three workers, brings the thinker into a step, tells their ids, and waits.
SERVER = """
import asyncio, importlib, sys
import psutil
from pipeline.chunk import Prompt, Reply, Text, TextPart, Think
from pipeline.engine import Engine
from pipeline.spec import PipelineSpec, StageSpec

S = "tests.families.scripted"

async def main(words):
    spec = PipelineSpec(
        StageSpec(f"{S}.detector", "inline"),
        StageSpec(f"{S}.recognizer", "process"),
        StageSpec(f"{S}.thinker", "process", {"bound_ms": 100, "hang_s": 600.0}),
        StageSpec(f"{S}.talker", "process"),
    )
    engine = Engine(spec, lambda name: importlib.import_module(f"{name}.family").FAMILY)
    await engine.start(lambda line: None)
    began = asyncio.Event()
    engine.open("s", lambda chunk: began.set())
    engine.answer(Think(Reply("s", 1), Prompt((TextPart("i", "user", words),)), 10), None)
    await began.wait()
    print(*(child.pid for child in psutil.Process().children()), flush=True)
    await asyncio.Event().wait()

from pipeline import host
host.HANG_GRACE_S = 1000.0  # the server is to die before it notices
asyncio.run(main(sys.argv[1]))
"""


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT)}


@contextmanager
def worker(load: Load) -> Iterator[tuple[subprocess.Popen[str], BlockingPipe[FromWorker]]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "pipeline.worker", str(theirs.fileno())],
            pass_fds=(theirs.fileno(),),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        theirs.close()
        try:
            pipe = BlockingPipe(ours, from_worker)
            pipe.send(load)
            yield process, pipe
        finally:
            process.kill()
            process.communicate()


def load(family: str = THINKER, **options: bool) -> Load:
    return Load("thinker", family, dict(options), ahead_s=4.0)


def test_a_worker_serves_until_it_is_told_to_stop_and_its_output_is_only_a_log() -> None:
    with worker(load()) as (process, pipe):
        assert pipe.receive() == Loaded(bound_ms=1000)
        reply = Reply("s", 1)
        pipe.send(Submitted(Think(reply, Prompt((TextPart("i", "user", "say a b"),)), 10), 0.0))
        said: list[FromWorker | None] = []
        while not (said and isinstance(said[-1], Emitted) and said[-1].chunk.last):
            said.append(pipe.receive())
        last = said[-1]
        assert isinstance(last, Emitted)
        assert isinstance(last.chunk.payload, End)
        pipe.send(Stop())
        out, err = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0
        assert out == ""
        assert "prints to the standard output" in err


def test_a_worker_whose_stage_can_not_be_loaded_says_why() -> None:
    with worker(load("tests.families.scripted.recognizer", fails_to_load=True)) as (process, pipe):
        assert pipe.receive() == LoadFailed("the model file is missing: the test asked for it")
        assert process.wait(DEADLINE_S) == 1


def test_a_worker_whose_family_does_not_exist_says_why() -> None:
    with worker(load("tests.families.nothing")) as (process, pipe):
        said = pipe.receive()
        assert isinstance(said, LoadFailed)
        assert "ModuleNotFoundError" in said.message
        assert process.wait(DEADLINE_S) == 1


def test_signals_that_are_for_the_server_do_not_end_a_worker() -> None:
    with worker(load()) as (process, pipe):
        assert isinstance(pipe.receive(), Loaded)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        pipe.send(Stop())
        assert process.wait(DEADLINE_S) == 0


@pytest.mark.parametrize("words", ["please stall", "please hang", "please freeze"])
def test_no_worker_outlives_its_server(words: str) -> None:
    """Idle, in the middle of a step, and in a step that lets no other thread run."""
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, words], stdout=subprocess.PIPE, text=True, env=environment(), cwd=ROOT
    )
    assert server.stdout is not None
    with server, server.stdout:
        workers = [psutil.Process(int(pid)) for pid in server.stdout.readline().split()]
        assert len(workers) == 3
        server.kill()
    _, alive = psutil.wait_procs(workers, timeout=DEADLINE_S)
    for left in alive:
        left.kill()
    assert alive == []
