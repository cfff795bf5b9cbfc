"""Tests what a stage's user sees of a process that fails, and that nothing of it is left."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pipeline import host, links, supervise
from pipeline.chunk import Chunk, End, Failed, Text
from pipeline.errors import StageError
from tests.pipeline.solo import STUBBORN, User, order, pid, play, using
from transport import door

# ---- a worker that dies ---------------------------------------------------------------------------------------------


def test_a_worker_that_is_killed_in_mid_reply_is_brought_back() -> None:
    """By whatever: a SIGKILL that we did not send is what an exhausted machine sends."""

    async def scene() -> None:
        async with using(order()) as user:
            reply = user.ask(1, "please go on", max_tokens=1_000_000)
            await user.until(lambda: len(user.chunks) > 10)
            os.kill(pid(user), signal.SIGKILL)
            failure = await user.failure(reply)
            assert failure.kind == "stage_lost"
            assert "SIGKILL, as the system does when memory runs out; it is being restarted" in failure.message
            assert user.over == [reply]
            assert user.host.state.phase == "restarting"
            assert user.host.state.cause == failure.message
            held = user.ask(2, "say hello")
            assert isinstance(await user.last(held), End)
            await user.works(3)

    play(scene)


def test_f26_a_step_that_wants_too_much_memory_fails_its_job_alone() -> None:
    async def scene() -> None:
        async with using(order()) as user:
            before = pid(user)
            failure = await user.failure(user.ask(1, "please exhaust"))
            assert failure == Failed("capacity", "memory ran out in a step: it was asked to want 100 GB")
            await user.works(2)
            assert pid(user) == before

    play(scene)


def test_a_step_that_raises_fails_its_job_alone() -> None:
    async def scene() -> None:
        async with using(order()) as user:
            before = pid(user)
            assert await user.last(user.ask(1, "please raise")) == Failed(
                "stage_failed", "ValueError: it was asked to raise"
            )
            await user.works(2)
            assert pid(user) == before

    play(scene)


@pytest.mark.parametrize(
    ("trouble", "kind", "why"),
    [
        ("exit", "stage_lost", r"ended while loading: it exited with status 3; see its log"),
        ("exhaust", "stage_failed", r"memory ran out while it was loaded \(a model of 100 GB\)"),
    ],
)
def test_a_start_that_fails_says_why_and_leaves_nothing(trouble: str, kind: str, why: str) -> None:
    async def scene() -> None:
        user = User(order(STUBBORN, trouble=trouble))
        with pytest.raises(StageError, match=why) as raised:
            await user.host.start()
        assert raised.value.kind == kind
        assert not user.host.ready
        await user.host.stop()

    play(scene)


# ---- a worker that is silent ----------------------------------------------------------------------------------------


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short patience with silence: two beats and a half."""
    monkeypatch.setattr(supervise, "SILENCE_S", 2.5)
    monkeypatch.setattr(supervise, "SILENCE_GRACE_S", 0.5)


@pytest.mark.usefixtures("strict")
def test_a_worker_that_is_stopped_is_found_and_brought_back() -> None:
    async def scene() -> None:
        async with using(order()) as user:
            before = pid(user)
            stalled = user.ask(1, "please stall")
            await user.until(lambda: len(user.chunks) == 1 and not user.host.busy)
            os.kill(before, signal.SIGSTOP)
            failure = await user.failure(stalled)
            assert failure.kind == "stage_timeout"
            assert "it was silent for" in failure.message
            await user.works(2)
            assert pid(user) != before

    play(scene)


@pytest.mark.usefixtures("strict")
def test_a_step_that_keeps_the_lock_is_not_taken_for_silence() -> None:
    """It can't say that it lives, and is within its bound."""

    async def scene() -> None:
        async with using(order(bound_ms=60_000, hang_s=4.0)) as user:
            before = pid(user)
            assert isinstance(await user.last(user.ask(1, "please freeze", max_tokens=1)), End)
            await user.works(2)
            assert pid(user) == before

    play(scene)


@pytest.mark.parametrize("words", ["please hang", "please freeze", "stop me"])
def test_a_turn_over_its_limit_is_ended_whatever_it_does(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a step that never ends, in one that lets no other thread run, and when the whole process is stopped."""
    monkeypatch.setattr(host, "HANG_GRACE_S", 0.1)
    monkeypatch.setattr(supervise, "SILENCE_S", 1000.0)

    async def scene() -> None:
        async with using(order(bound_ms=200, hang_s=600.0)) as user:
            reply = user.ask(1, "please hang" if words == "stop me" else words)
            await user.until(lambda: len(user.chunks) == 1 and user.host.busy)
            if words == "stop me":
                os.kill(pid(user), signal.SIGSTOP)
            failure = await user.failure(reply)
            assert failure.kind == "stage_timeout"
            assert "twice its bound" in failure.message
            await user.works(2)

    play(scene)


def test_a_cancel_reaches_a_running_step_at_once() -> None:
    """However much that can wait is on its way before it: the step would go on for half a minute."""

    async def scene() -> None:
        async with using(order(bound_ms=60_000)) as user:
            reply = user.ask(1, "please wait")
            await user.until(lambda: len(user.chunks) == 1 and user.host.busy)
            for number in range(200):
                user.host.feed(Chunk(reply, "thinker", number, Text("word")))
            user.host.cancel(reply)
            await user.until(lambda: user.over == [reply])
            assert len(user.chunks) == 1, "something of a cancelled job was delivered"
            await user.works(2)

    play(scene)


# ---- a worker that fails again and again ----------------------------------------------------------------------------


def test_a_stage_that_keeps_failing_is_broken_until_it_stays_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(supervise, "FAILURES", 3)
    monkeypatch.setattr(supervise, "BACKOFF_FIRST_S", 0.01)
    monkeypatch.setattr(supervise, "BACKOFF_MOST_S", 0.02)
    monkeypatch.setattr(host, "HOLD_S", 1000.0)  # so that no job fails for having waited
    flag = tmp_path / "flag"

    async def scene() -> None:
        async with using(order(STUBBORN, trouble="exit", flag=str(flag))) as user:
            first = user.ask(1, "please stall")
            await user.until(lambda: len(user.chunks) == 1)
            flag.touch()
            os.kill(pid(user), signal.SIGKILL)
            await user.failure(first)
            held = user.ask(2, "say hello")
            failure = await user.failure(held)
            assert failure.kind == "stage_lost"
            assert "the thinker is broken: it could not be restarted:" in failure.message
            assert "it exited with status 3" in failure.message
            state = user.host.state
            assert state.phase == "broken"
            assert state.cause in failure.message
            refused = user.ask(3, "say hello")
            assert refused not in user.over, "a job fails later, never within the call"
            for _ in range(2):
                await asyncio.sleep(0)
            assert user.over[-1] == refused, "it waits"
            assert (await user.failure(refused)).message == failure.message
            assert user.host.idle
            flag.unlink()
            await user.until(lambda: user.host.ready)
            assert user.host.state.since >= state.since
            await user.works(4)

    play(scene)


# ---- a machine that is in the way -----------------------------------------------------------------------------------


def test_a_start_without_a_private_directory_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def open_to_all(prefix: str) -> str:
        folder = tmp_path / f"{prefix}x"
        folder.mkdir(mode=0o755)
        return str(folder)

    monkeypatch.setattr(tempfile, "mkdtemp", open_to_all)

    async def scene() -> None:
        user = User(order())
        with pytest.raises(StageError, match=r"could not be reached: .* has the mode 0755 .*set TMPDIR"):
            await user.host.start()
        await user.host.stop()

    play(scene)
    assert list(tmp_path.iterdir()) == []


def test_f24_a_start_removes_what_a_killed_server_left(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left = Path(tempfile.gettempdir()) / f"duplex-{dead.pid}-left"
    left.mkdir()
    (left / door.SOCKET).touch()

    async def scene() -> None:
        async with using(order()):
            assert not left.exists()

    play(scene)


def test_a_load_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even while it keeps the interpreter's lock."""
    monkeypatch.setattr(supervise, "LOAD_S", 3.0)

    async def scene() -> None:
        user = User(order(STUBBORN, trouble="freeze"))
        with pytest.raises(StageError, match="it was not loaded within 3 s") as raised:
            await user.host.start()
        assert raised.value.kind == "stage_timeout"
        assert user.host.state.progress == "its model is loaded"
        await user.host.stop()

    assert links.LOAD_S > 3.0
    play(scene)
