"""Breaks each stage under a session that talks, with real processes, and sees what the session is told."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import numpy as np
import psutil
import pytest

from duplex_server.realtime import wire
from duplex_server.realtime.driver import Driver
from duplex_server.realtime.schema import ErrorDetail
from models.registry import load_family
from pipeline import host, supervise
from pipeline.chunk import StageRole
from pipeline.engine import Engine
from pipeline.spec import REQUIRED, PipelineSpec, StageSpec
from pipeline.supervise import ProcessLink
from tests.duplex_server.test_driver import CONFIG, PATIENCE_S, Peer

SCRIPTED = "tests.families.scripted"
SPEECH = (8000 * np.sin(np.arange(24_000) / 20)).astype("<i2").tobytes()
SILENCE = bytes(2 * 36_000)


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Find silent and hanging stages soon."""
    monkeypatch.setattr(supervise, "SILENCE_S", 2.5)  # they say every second that they live
    monkeypatch.setattr(supervise, "SILENCE_GRACE_S", 0.1)
    monkeypatch.setattr(host, "HANG_GRACE_S", 0.1)


@asynccontextmanager
async def talking(
    thinker: dict[str, str | int | float | bool | None] | None = None,
) -> AsyncIterator[tuple[Peer, Engine]]:
    """A session over stages that have processes of their own."""
    stages = {role: StageSpec(f"{SCRIPTED}.{role}", "process") for role in REQUIRED}
    if thinker:
        stages["thinker"] = StageSpec(f"{SCRIPTED}.thinker", "process", thinker)
    engine = Engine(PipelineSpec(StageSpec(f"{SCRIPTED}.detector", "inline"), stages), load_family)
    await engine.start(lambda _: None)
    try:
        peer = Peer()
        running = asyncio.create_task(Driver(peer, engine, CONFIG).run())
        yield peer, engine
        peer.frames.put_nowait(None)
        await asyncio.wait_for(running, PATIENCE_S)
        await until(lambda: engine.quiet)
    finally:
        await engine.stop()


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110  # what is waited for tells nobody
            await asyncio.sleep(0.005)


def pid(engine: Engine, role: StageRole) -> int:
    link = engine._stages[role].live[0]._link
    assert isinstance(link, ProcessLink)
    assert link.pid is not None
    return link.pid


def ask(peer: Peer, text: str) -> None:
    content = [{"type": "input_text", "text": text}]
    peer.say(type="conversation.item.create", item={"type": "message", "role": "user", "content": content})
    peer.say(type="response.create")


def done(peer: Peer) -> list[wire.ResponseDone]:
    return [event for event in peer.events if isinstance(event, wire.ResponseDone)]


def message(event: wire.ResponseDone) -> str:
    details = event.response.status_details
    assert details is not None
    assert isinstance(details.error, ErrorDetail)
    assert details.error.message is not None
    return details.error.message


def play(scene: Callable[[], Awaitable[None]]) -> None:
    """Run a scene; no process of a stage, no descriptor and no directory of one is left."""
    process = psutil.Process()
    descriptors = process.num_fds()

    async def body() -> None:
        await scene()

    asyncio.run(body())
    assert process.children(recursive=True) == []
    assert process.num_fds() <= descriptors


async def works(peer: Peer) -> None:
    """The session goes on: the next turn is answered aloud, from the history that it had."""
    before, heard = len(done(peer)), len(peer.sound)
    ask(peer, "say hello")
    await until(lambda: len(done(peer)) > before)
    assert done(peer)[-1].response.status == "completed"
    assert len(peer.sound) == heard + 2 * 7200


BLOWS = pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])


@BLOWS
@pytest.mark.parametrize("role", ["thinker", "talker"])
def test_f21_a_stage_that_goes_in_mid_reply_fails_that_reply_alone(role: StageRole, blow: signal.Signals) -> None:
    async def scene() -> None:
        async with talking() as (peer, engine):
            if role == "thinker":
                ask(peer, "please stall")  # one word, and no end
                await peer.wait_for(wire.ResponseCreated)
            else:
                ask(peer, "please go on")  # fifteen seconds of speech
                await until(lambda: peer.sound)
            os.kill(pid(engine, role), blow)
            await until(lambda: done(peer))
            (only,) = done(peer)
            assert only.response.status == "failed"
            assert "lost" in message(only)
            await works(peer)
            created = [event for event in peer.events if isinstance(event, wire.ResponseCreated)]
            assert len(created) == len(done(peer)) == 2

    play(scene)


@BLOWS
def test_a_recognizer_that_goes_in_mid_pass_costs_the_words_of_that_turn(blow: signal.Signals) -> None:
    async def scene() -> None:
        async with talking() as (peer, engine):
            os.kill(pid(engine, "recognizer"), signal.SIGSTOP)  # so that the pass is surely under way
            peer.append(SPEECH + SILENCE)
            await peer.wait_for(wire.Committed)
            if blow == signal.SIGKILL:
                os.kill(pid(engine, "recognizer"), blow)
            await until(lambda: done(peer))
            (only,) = done(peer)
            assert only.response.status == "failed"
            assert "lost" in message(only)
            await until(lambda: engine.ready)
            peer.append(SPEECH + SILENCE)
            await until(lambda: len(done(peer)) == 2)
            assert done(peer)[-1].response.status == "completed"
            await works(peer)

    play(scene)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("please raise", "asked to raise"),
        ("please hang", "twice its bound"),
        ("please exhaust", "memory"),
        ("please abort", "lost"),
    ],
)
def test_a_thinker_that_breaks_in_mid_reply_says_how(words: str, told: str) -> None:
    async def scene() -> None:
        async with talking({"bound_ms": 200}) as (peer, _):
            ask(peer, words)
            await until(lambda: done(peer))
            (only,) = done(peer)
            assert only.response.status == "failed"
            assert told in message(only)
            await works(peer)

    play(scene)


def test_a_reply_is_silenced_by_a_barge_in_also_while_its_stage_is_frozen() -> None:
    """Nobody waits for a cancel to be acknowledged before falling silent."""

    async def scene() -> None:
        async with talking() as (peer, engine):
            ask(peer, "please go on")
            await until(lambda: peer.sound)
            os.kill(pid(engine, "talker"), signal.SIGSTOP)
            peer.append(SPEECH)
            await until(lambda: done(peer))
            assert done(peer)[0].response.status == "cancelled"
            assert peer.cleared
            peer.append(SILENCE)
            await until(lambda: len(done(peer)) == 2)
            assert done(peer)[1].response.status == "failed"  # it was in the talker that was lost
            await works(peer)

    play(scene)
