"""Tests the worker's main program, as a real process."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
import zmq

from pipeline.chunk import End, Prompt, Reply, TextPart, Think
from pipeline.message import Began, Emitted, Ended, FromWorker, Load, Loaded, LoadFailed, Loading, Stop, from_worker
from pipeline.scheduler import Cancelled, Submitted
from pipeline.spec import OptionValue
from transport.control import LoopEnd
from transport.door import Door
from transport.errors import ControlError
from transport.line import CONTROL, DATA, OWN, VERSION, Hello, frame

ROOT = Path(__file__).parents[2]
DEADLINE_S = 30.0
SCRIPTED = "tests.families.scripted"

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
        {
            "recognizer": StageSpec(f"{S}.recognizer", "process"),
            "thinker": StageSpec(f"{S}.thinker", "process", {"bound_ms": 100, "hang_s": 600.0}),
            "talker": StageSpec(f"{S}.talker", "process"),
        },
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

# A server that is killed while its worker loads, and keeps the interpreter's lock meanwhile.
LOADING_SERVER = """
import asyncio
from pipeline.message import Load
from pipeline.supervise import ProcessLink

class Listener:
    def loading(self, progress):
        if "model" in progress:
            print(link.pid, flush=True)

link = ProcessLink(Load("thinker", "tests.families.scripted.stubborn", {"trouble": "freeze"}, ahead_s=4.0))
asyncio.run(link.start(Listener()))
"""


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT)}


class Server:
    """The server's end of one worker."""

    def __init__(self, process: subprocess.Popen[str], control: LoopEnd[FromWorker]) -> None:
        self.process, self.control = process, control
        self.said: asyncio.Queue[FromWorker] = asyncio.Queue()

    async def receive(self) -> FromWorker:
        """What it says next, its progress left out."""
        async with asyncio.timeout(DEADLINE_S):
            while isinstance(said := await self.said.get(), Loading):
                pass
            return said

    async def exit_status(self) -> int:
        return await asyncio.to_thread(self.process.wait, DEADLINE_S)


def _spawn(lifeline: int, address: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "pipeline.worker", str(lifeline), address],
        pass_fds=(lifeline,),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )


@asynccontextmanager
async def worker(order: Load) -> AsyncIterator[Server]:
    ours, theirs = socket.socketpair()
    said: list[Callable[[FromWorker], None]] = []
    control = LoopEnd(ours, from_worker, lambda message: said[0](message), _no_error)
    with theirs:
        process = _spawn(theirs.fileno(), control.address)
    server = Server(process, control)
    said.append(server.said.put_nowait)
    try:
        control.send(order)
        yield server
    finally:
        control.close()
        process.kill()
        process.communicate()


def _no_error(error: ControlError | None) -> None:
    assert error is None


def play(scene: Callable[[], Awaitable[None]]) -> None:
    async def body() -> None:
        await scene()

    asyncio.run(body())
    assert psutil.Process().children() == []


def load(family: str = f"{SCRIPTED}.thinker", *, idle: bool = False, **options: OptionValue) -> Load:
    return Load("thinker", family, options, ahead_s=4.0, idle=idle)


def test_a_worker_serves_until_it_is_told_to_stop_and_its_output_is_only_a_log() -> None:
    async def scene() -> None:
        async with worker(load()) as server:
            assert await server.receive() == Loaded(bound_ms=1000)
            reply = Reply("s", 1)
            server.control.send(Submitted(Think(reply, Prompt((TextPart("i", "user", "say a b"),)), 10), 0.0))
            said: list[FromWorker] = []
            while not (said and isinstance(said[-1], Emitted) and said[-1].chunk.last):
                said.append(await server.receive())
            last = said[-1]
            assert isinstance(last, Emitted)
            assert isinstance(last.chunk.payload, End)
            server.control.send(Stop())
            out, err = await asyncio.to_thread(server.process.communicate, None, DEADLINE_S)
            assert server.process.returncode == 0
            assert out == ""
            assert "prints to the standard output" in err

    play(scene)


@pytest.mark.parametrize(
    ("order", "why"),
    [
        (load(f"{SCRIPTED}.recognizer", fails_to_load=True), "the model file is missing: the test asked for it"),
        (load(f"{SCRIPTED}.nothing"), f"ModuleNotFoundError: No module named '{SCRIPTED}.nothing'"),
        (
            load(f"{SCRIPTED}.stubborn", trouble="exhaust"),
            "memory ran out while it was loaded (a model of 100 GB): free some, or take a smaller model",
        ),
    ],
)
def test_a_worker_whose_stage_can_not_be_loaded_says_why_and_goes_when_that_was_heard(order: Load, why: str) -> None:
    async def scene() -> None:
        async with worker(order) as server:
            assert await server.receive() == LoadFailed(why)
            with pytest.raises(subprocess.TimeoutExpired):  # else it could be gone before its words were
                await asyncio.to_thread(server.process.wait, 0.5)
            server.control.close()
            await server.exit_status()

    play(scene)


def test_all_else_overtakes_its_chunks() -> None:
    """Seen as frames, by a server that knows no more of the protocol than the kinds of frames."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    peer = context.socket(zmq.PAIR)
    peer.setsockopt(zmq.LINGER, 0)
    reply = Reply("s", 1)
    door = Door()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        peer.bind(door.address)
        process = _spawn(theirs.fileno(), door.address)
        try:
            peer.send(bytes(frame(OWN, Hello(VERSION))))
            peer.send(bytes(frame(CONTROL, load())))
            kinds = _kinds_until(peer, Loaded)
            think = Think(reply, Prompt((TextPart("i", "user", "say hello"),)), 10)
            peer.send(bytes(frame(CONTROL, Submitted(think, 0.0))))
            kinds |= _kinds_until(peer, Emitted)
            peer.send(bytes(frame(CONTROL, Cancelled(reply))))
            kinds |= _kinds_until(peer, Ended)
        finally:
            process.kill()
            process.communicate()
            peer.close()
            context.term()
            door.close()
    assert {kind for kind, message in kinds if message is Emitted} == {DATA}
    assert {kind for kind, message in kinds if message is not Emitted} == {CONTROL}
    assert {Loaded, Began, Ended, Emitted} <= {message for _, message in kinds}


def _kinds_until(peer: zmq.Socket[bytes], last: type[FromWorker]) -> set[tuple[int, type[FromWorker]]]:
    """The kinds of frames in which messages came, up to one of the type `last`."""
    kinds: set[tuple[int, type[FromWorker]]] = set()
    while last not in {message for _, message in kinds}:
        assert peer.poll(int(DEADLINE_S * 1000)), f"it says no {last.__name__}"
        kind, body = (arrived := peer.recv())[0], arrived[1:]
        if kind != OWN:
            kinds.add((kind, type(from_worker.decode(body))))
    return kinds


def test_it_says_how_far_it_is() -> None:
    async def scene() -> None:
        async with worker(load()) as server:
            async with asyncio.timeout(DEADLINE_S):
                said = [await server.said.get() for _ in range(3)]
            assert said == [
                Loading(f"{SCRIPTED}.thinker is imported"),
                Loading("its model is loaded"),
                Loaded(bound_ms=1000),
            ]

    play(scene)


def test_signals_that_are_for_the_server_do_not_end_a_worker() -> None:
    async def scene() -> None:
        async with worker(load()) as server:
            assert isinstance(await server.receive(), Loaded)
            server.process.send_signal(signal.SIGINT)
            server.process.send_signal(signal.SIGTERM)
            server.control.send(Stop())
            assert await server.exit_status() == 0

    play(scene)


def test_a_worker_that_can_not_understand_its_server_ends() -> None:
    """It is the server's fault, or another release; its log says so."""

    async def scene() -> None:
        async with worker(load()) as server:
            assert isinstance(await server.receive(), Loaded)
            server.control.send(load())  # a second order, which no server gives
            server.control.send(Loaded(1))  # nor anything that a worker says
            _, err = await asyncio.to_thread(server.process.communicate, None, DEADLINE_S)
            assert server.process.returncode == 1
            assert "is no message of this connection" in err

    play(scene)


@pytest.mark.skipif(not hasattr(os, "sched_getscheduler"), reason="this system has no idle scheduling class")
@pytest.mark.parametrize("idle", [True, False])
def test_the_stage_of_an_idle_worker_computes_when_nobody_else_does_and_its_control_at_any_time(idle: bool) -> None:
    async def scene() -> None:
        async with worker(load(idle=idle)) as server:
            assert isinstance(await server.receive(), Loaded)
            pid = server.process.pid
            classes = {int(one): os.sched_getscheduler(int(one)) for one in os.listdir(f"/proc/{pid}/task")}
            assert classes.pop(pid) == (os.SCHED_IDLE if idle else os.SCHED_OTHER)
            assert set(classes.values()) == {os.SCHED_OTHER}

    play(scene)


@pytest.mark.parametrize("words", ["please stall", "please hang", "please freeze"])
def test_f23_no_worker_outlives_its_server(words: str) -> None:
    """Idle, in the middle of a step, and in a step that lets no other thread run."""
    assert _survivors(SERVER, words, workers=3) == []


def test_no_worker_that_loads_outlives_its_server() -> None:
    assert _survivors(LOADING_SERVER, workers=1) == []


def _survivors(program: str, *arguments: str, workers: int) -> list[psutil.Process]:
    """Run a server that tells the ids of its workers, kill it, and see which workers are left."""
    server = subprocess.Popen(
        [sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, text=True, env=environment(), cwd=ROOT
    )
    assert server.stdout is not None
    with server, server.stdout:
        found = [psutil.Process(int(pid)) for pid in server.stdout.readline().split()]
        assert len(found) == workers
        server.kill()
    _, alive = psutil.wait_procs(found, timeout=DEADLINE_S)
    for left in alive:
        left.kill()
    return alive
