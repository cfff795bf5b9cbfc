"""Tests what happens where a worker should be and something else is, or one that keeps no rule."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest

from pipeline import host, supervise
from pipeline.chunk import Chunk, Failed, Segment, Text, Transcribe
from pipeline.errors import StageError
from pipeline.message import Load
from tests.pipeline.solo import User, order, pid, play, using
from transport.base import inline
from transport.outbox import WINDOW

Spawn = Callable[[socket.socket, str, tuple[int, ...]], "subprocess.Popen[bytes]"]

# Programs that stand in for a worker. Each is given the descriptor of its lifeline and the address.
PEER = """
import sys, zmq
from pipeline.message import Began, Loaded
from transport.line import CONTROL, DATA, OWN, Hello, VERSION, frame
peer = zmq.Context().socket(zmq.PAIR)
peer.connect(sys.argv[2])
say = lambda kind, message: peer.send(bytes(frame(kind, message)))
"""
HALF_WAY = PEER + "say(OWN, Hello(VERSION)); say(CONTROL, Loaded(100)); peer.recv(); "
SPEAKS_ANOTHER_VERSION = PEER + "say(OWN, Hello(99)); peer.poll(600_000); peer.recv(); peer.poll(600_000)"
TALKS_GARBAGE = HALF_WAY + "peer.recv(); peer.recv(); peer.send(b'what is this'); [peer.recv() for _ in iter(int, 1)]"
RAVES_AT_ONCE = PEER + (
    "say(OWN, Hello(VERSION)); peer.recv(); peer.recv(); "
    "say(CONTROL, Loaded(100)); peer.send(b'what is this'); [peer.recv() for _ in iter(int, 1)]"
)
STOPS_READING = HALF_WAY + "import threading; threading.Event().wait(600)"
# Reads its first job, waits for a signal, then reads up to the first cancel and says how many inputs came before that.
READS_LATE = (
    HALF_WAY
    + """
import signal
from pipeline.chunk import Chunk, Reply, Text
from pipeline.message import Emitted, to_worker
from pipeline.scheduler import Cancelled, Fed
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
peer.recv()
say(CONTROL, Began(1, ()))
signal.sigwait({signal.SIGUSR1})
inputs = 0
while not isinstance(message := to_worker.decode(peer.recv()[1:]), Cancelled):
    inputs += isinstance(message, Fed)
say(DATA, Emitted(Chunk(Reply("s", 1), "thinker", 0, Text(str(inputs)))))
peer.poll(600_000)
"""
)


def once(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the first process be another program; those after it are workers again."""
    real: Spawn = supervise._spawn
    programs = [program]

    def spawn(lifeline: socket.socket, address: str, fds: tuple[int, ...] = ()) -> subprocess.Popen[bytes]:
        if not programs:
            return real(lifeline, address, fds)
        command = [sys.executable, "-c", programs.pop(), str(lifeline.fileno()), address]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.Popen(command, pass_fds=(lifeline.fileno(),), env=environment)

    monkeypatch.setattr(supervise, "_spawn", spawn)


def test_a_worker_of_another_release_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    once(SPEAKS_ANOTHER_VERSION, monkeypatch)

    async def scene() -> None:
        user = User(order())
        with pytest.raises(StageError, match=r"the peer speaks version 99, this side \d+: install the same release"):
            await user.host.start()
        await user.host.stop()

    play(scene)


def test_a_worker_that_is_lost_in_the_moment_it_is_loaded_does_not_count_as_up(monkeypatch: pytest.MonkeyPatch) -> None:
    once(RAVES_AT_ONCE, monkeypatch)

    async def scene() -> None:
        user = User(order())
        with pytest.raises(StageError, match="its process ended while loading: what it says can't be understood"):
            await user.host.start()
        await user.host.stop()

    play(scene)


def test_a_worker_that_talks_garbage_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    once(TALKS_GARBAGE, monkeypatch)

    async def scene() -> None:
        async with using(order()) as user:
            failure = await user.failure(user.ask(1, "say hello"))
            assert failure.kind == "stage_lost"
            assert "what it says can't be understood: a frame of kind 119 came" in failure.message
            await user.works(2)

    play(scene)


@pytest.mark.parametrize("found_by", ["the cancel", "the silence"])
def test_a_worker_that_stops_reading_is_refused_more_and_replaced(
    found_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sockets are open and its kernel takes bytes; nothing that waits for it grows without a bound."""
    once(STOPS_READING, monkeypatch)
    monkeypatch.setattr(host, "ACK_S", 0.2 if found_by == "the cancel" else 1000.0)
    monkeypatch.setattr(supervise, "SILENCE_S", 1000.0 if found_by == "the cancel" else 2.0)
    megabyte = inline({"pcm": np.zeros(1 << 19, np.int16)})

    async def scene() -> None:
        async with using(Load("recognizer", "tests.families.scripted.recognizer", {}, ahead_s=4.0)) as user:
            before = pid(user)
            for number in range(40):
                user.host.submit(Transcribe(Segment("s", number, 1), megabyte, 24_000, final=True), 0.0)
            failure = await user.failure(Segment("s", 39, 1))
            assert failure.kind == "capacity"
            assert "leaves too much unread" in failure.message
            refused = [chunk for chunk in user.chunks if isinstance(chunk.payload, Failed)]
            assert 20 < len(refused) < 30, "the bound is 16 MB"
            if found_by == "the cancel":
                user.host.cancel(Segment("s", 0, 1))
            failure = await user.failure(Segment("s", 1, 1))
            assert failure.kind == "stage_timeout"
            assert ("let go of a cancelled job" if found_by == "the cancel" else "silent") in failure.message
            await user.until(lambda: user.host.ready)
            assert pid(user) != before
            await user.until(lambda: user.host.idle)

    play(scene)


def test_a_cancel_overtakes_the_inputs_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    once(READS_LATE, monkeypatch)

    async def scene() -> None:
        async with using(order()) as user:
            reply, other = user.ask(1, "say hello"), user.ask(2, "say hello")
            await user.until(lambda: user.host.busy)
            for number in range(200):
                user.host.feed(Chunk(reply, "thinker", number, Text("word")))
            user.host.cancel(other)
            os.kill(pid(user), signal.SIGUSR1)
            await user.until(lambda: bool(user.chunks))
            [chunk] = user.chunks
            assert isinstance(chunk.payload, Text)
            assert int(chunk.payload.text) <= WINDOW

    play(scene)


def test_a_job_that_is_too_large_fails_and_costs_nobody_the_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "ACK_S", 0.0)

    async def scene() -> None:
        async with using(order(bound_ms=1)) as user:
            before = pid(user)
            failure = await user.failure(user.ask(1, "long " * 2_000_000))
            assert failure.kind == "capacity"
            assert "is over the bound of" in failure.message
            assert user.host.idle, "it waits for the stage to let go of what it never got"
            await user.works(2)
            assert pid(user) == before

    play(scene)
