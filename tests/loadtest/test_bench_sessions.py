"""Tests the search for the most sessions, the account of late sound, and the null stages under a real session."""

from __future__ import annotations

import ast
import asyncio
import binascii
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray
from websockets.frames import Frame
from websockets.protocol import State
from websockets.server import ServerProtocol

from duplex_server.realtime import wire
from duplex_server.realtime.driver import Driver
from duplex_server.realtime.inputs import Voice
from duplex_server.realtime.playout import PIECE_MS
from duplex_server.realtime.turns import Paused, Started, Stopped, VadTurns
from loadtest.bench import sessions
from loadtest.bench.crowd import (
    REPLY_SAMPLES,
    SCRIPT_S,
    SILENCE_MS,
    SPEECH_FRAMES,
    TURN_ENDS,
    Ear,
    Late,
    Outcome,
    late,
    script,
)
from loadtest.bench.null import DELTAS, REPLY_MS
from loadtest.bench.null.detector.family import LEVEL, LoudDetector
from loadtest.bench.sessions import MOST_SESSIONS, STEP, Held, figures, search, trouble
from loadtest.loudspeaker import RATE_HZ
from loadtest.process import ROOT
from loadtest.report import Load, print_figures
from loadtest.wire import RealtimeWire
from models.registry import load_family
from pipeline.engine import Engine
from pipeline.spec import REQUIRED, PipelineSpec, StageSpec
from tests.duplex_server.test_driver import CONFIG, PATIENCE_S, Peer

QUIET = Load(2, 0.1, False)


# ---- the search ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [0, 1, 2, 5, 7, 8, 9, 37, 100, 255, 256, 257, 777, MOST_SESSIONS, 10_000])
def test_the_search_finds_the_highest_number_that_holds(most: int) -> None:
    tried: list[int] = []

    async def holds(number: int) -> bool:
        tried.append(number)
        return number <= most

    found = asyncio.run(search(holds))
    assert found <= most
    assert found >= min(most, MOST_SESSIONS) - max(1, most * STEP), (found, tried)
    assert found == 0 or found in tried, "a number that was not tried is not known to hold"
    assert len(tried) == len(set(tried)) <= 20
    if most < 1 / STEP:
        assert found == most


def outcome(**changes: object) -> Outcome:
    good = Outcome(100, Late(0.5, 3.0, 19.9), [], 2.0, 0.2, 0.8, QUIET)
    return msgspec.structs.replace(good, **changes)


def test_a_number_holds_when_sound_is_in_time_whole_and_measured_by_callers_in_time() -> None:
    assert trouble(outcome()) is None
    assert "late by" in str(trouble(outcome(late_ms=Late(0.5, 3.0, 20.1))))
    assert "late by None" in str(trouble(outcome(late_ms=None)))
    assert "2 faults, such as: gone" in str(trouble(outcome(faults=["gone", "too"])))
    assert "their core is the limit" in str(trouble(outcome(sent_late_ms=10.1)))


def test_the_figures_are_those_of_the_highest_number_with_the_worse_load(capsys: pytest.CaptureFixture[str]) -> None:
    busy = Load(2, 0.4, True)
    made = figures(Held(96, outcome(n=1700)), Held(16, outcome(n=800, load=busy)))
    print_figures(made, True)
    shown = json.loads(capsys.readouterr().out)
    assert set(shown) == {"sessions_per_core", "peer", "ratio", "n", "late_ms", "load"}
    assert shown["sessions_per_core"] == 96
    assert {key: shown["peer"][key] for key in ("name", "sessions_per_core")} == {
        "name": "pipecat 1.14.0",
        "sessions_per_core": 16,
    }
    assert (shown["ratio"], shown["n"], shown["load"]["busy"]) == (6.0, 1700, True)
    with pytest.raises(SystemExit, match="not a single session held"):
        figures(Held(0, None), Held(16, outcome()))


# ---- the callers --------------------------------------------------------------------------------------------------


def test_a_first_block_is_due_when_the_turn_ends_and_the_next_as_the_server_paces_them() -> None:
    ear = Ear(ahead_s=1.0)
    ear.turn(10.0, counted=True)
    block = RATE_HZ // 2
    for at in (10.1, 10.1, 10.2, 10.6, 11.3):  # the third may go at once; the fourth is due 0.5 s after the first
        ear.hear(block, at)
    assert ear.late_s == pytest.approx([0.1, 0.0, 0.1, 0.0, 0.2])


def test_only_the_replies_to_counted_turns_count() -> None:
    ear = Ear(ahead_s=1.0)
    ear.turn(1.0, counted=False)
    ear.hear(100, 1.5)
    ear.turn(5.0, counted=True)
    assert (ear.late_s, ear.faults) == ([], []), "what the turn before lacks is not counted either"
    ear.hear(REPLY_SAMPLES, 5.25)
    ear.turn(9.0, counted=False)
    ear.close()
    assert (ear.late_s, ear.faults) == ([0.25], [])


@pytest.mark.parametrize("samples", [0, 1, REPLY_SAMPLES - 1, REPLY_SAMPLES + 1])
def test_a_reply_that_is_not_whole_is_a_fault(samples: int) -> None:
    ear = Ear(ahead_s=1.0)
    ear.turn(1.0, counted=True)
    if samples:
        ear.hear(samples, 1.0)
    ear.close()
    assert ear.faults == [f"of a reply {samples} samples came, not {REPLY_SAMPLES}"]


def test_lateness_is_told_in_quantiles() -> None:
    assert late([]) is None
    assert late([n / 1000 for n in range(101)]) == Late(50.0, 95.0, 99.0)


def spoken() -> list[str]:
    """The frames of the script as a server reads them from its socket."""
    socket = ServerProtocol(state=State.OPEN, max_size=None)
    for framed in script(RealtimeWire()):
        socket.receive_data(framed)
    return [bytes(event.data).decode() for event in socket.events_received() if isinstance(event, Frame)]


def sound(frame: str) -> NDArray[np.int16]:
    event = wire.decode(frame)
    assert isinstance(event, wire.Append)
    return np.frombuffer(binascii.a2b_base64(event.audio), "<i2")


def test_the_script_is_one_turn_that_ends_where_the_callers_think_it_does() -> None:
    stream, turns = LoudDetector().open(), VadTurns(0.5, SILENCE_MS)
    events = {}
    for number, frame in enumerate(spoken()):
        pcm = sound(frame)
        probability = stream.probability(pcm)
        assert probability == float(number < SPEECH_FRAMES)
        voice = Voice(number * len(pcm), (number + 1) * len(pcm), probability)
        if (event := turns.observe(voice)) is not None:
            events[number] = type(event)
    assert len(pcm) == LoudDetector.frame_samples
    assert list(events.values()) == [Started, Paused, Stopped]
    assert list(events)[-1] == TURN_ENDS


# ---- the stages ---------------------------------------------------------------------------------------------------


@asynccontextmanager
async def conversation() -> AsyncIterator[Peer]:
    """A session over null stages, spoken to as fast as it listens."""
    stages = {role: StageSpec(f"loadtest.bench.null.{role}", "inline") for role in REQUIRED}
    engine = Engine(PipelineSpec(StageSpec("loadtest.bench.null.detector", "inline"), stages), load_family)
    await engine.start(lambda _: None)
    try:
        peer = Peer()
        running = asyncio.create_task(Driver(peer, engine, CONFIG).run())
        yield peer
        peer.frames.put_nowait(None)
        await asyncio.wait_for(running, PATIENCE_S)
    finally:
        await engine.stop()


def test_a_turn_of_the_script_is_answered_with_the_whole_reply() -> None:
    async def talk() -> Peer:
        async with conversation() as peer:
            for frame in spoken()[: TURN_ENDS + 1]:
                peer.frames.put_nowait(frame)
            await peer.wait_for(wire.ResponseDone)
            return peer

    peer = asyncio.run(talk())
    said = [event.delta for event in peer.events if isinstance(event, wire.TranscriptDelta)]
    assert "".join(said) == "".join(DELTAS)
    assert len(said) > 1, "it streams"
    assert len(peer.sound) == 2 * REPLY_SAMPLES == 2 * RATE_HZ * REPLY_MS // 1000
    assert np.abs(np.frombuffer(peer.sound, np.int16)).max() > LEVEL


def test_the_peer_hears_as_we_do_and_sends_whole_blocks() -> None:
    bot = ast.parse((ROOT / "loadtest/peers/pipecat_null_bot.py").read_text())
    values = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in bot.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    assert values["LEVEL"] == LEVEL
    assert values["FRAME_MS"] == 1000 * LoudDetector.frame_samples // LoudDetector.rate_hz
    assert values["RATE_OUT_HZ"] == RATE_HZ
    assert REPLY_MS % sessions.PIPECAT_AHEAD_MS == 0, "it fills its last block with silence"


# ---- all of it ----------------------------------------------------------------------------------------------------


def test_what_is_started_on_a_core_stays_there_and_we_do_not() -> None:
    before = os.sched_getaffinity(0)
    core = max(before)
    with sessions.on_core(core):
        told = subprocess.run(
            [sys.executable, "-c", "import os; print(os.sched_getaffinity(0))"], capture_output=True, check=True
        )
    assert told.stdout.decode().strip() == str({core})
    assert os.sched_getaffinity(0) == before


@pytest.mark.slow  # a crowd speaks in real time
def test_a_few_callers_are_all_answered_by_a_real_server() -> None:
    async def measure() -> Outcome:
        core = min(os.sched_getaffinity(0))
        async with sessions.ours(core) as target:
            return await sessions.crowd(target, 3, SCRIPT_S, core)

    heard = asyncio.run(measure())
    assert heard.faults == []
    assert heard.n >= 3 * REPLY_MS / PIECE_MS
    assert heard.late_ms is not None
