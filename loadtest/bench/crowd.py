"""Is many callers in one process: all speak in real time over WebSockets, and tell how late the replies' sound came.

Each caller follows the same script, shifted, so that at any moment as many speak, wait and listen as at any other:
speech, the silence that ends a turn, the reply, a pause. A reply's first block of sound is due when the frame that ends
the turn leaves the caller; a later one when the server's own pacing would send it, counted from the arrival of the
first, so that sound which a server sends ahead of hearing counts as late although nobody would hear that. Callers that
send late themselves would spoil this: how late they were is told too.

It is run by `loadtest.bench.sessions`, on a core of its own, and prints one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Self

import msgspec
import numpy as np
import psutil
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.uri import parse_uri

from loadtest.bench.null import REPLY_MS
from loadtest.loudspeaker import RATE_HZ
from loadtest.microphone import FRAME_S, ROOM
from loadtest.peers.pipecat_wire import PipecatWire
from loadtest.report import Load, Watch
from loadtest.wire import RealtimeWire, Wire

SPEECH_FRAMES = 40
SILENCE_MS = 500
SILENCE_FRAMES = round(SILENCE_MS / 1000 / FRAME_S)
PAUSE_FRAMES = 35
"""Long enough for the last echo of a reply to be over."""
SCRIPT_FRAMES = SPEECH_FRAMES + SILENCE_FRAMES + round(REPLY_MS / 1000 / FRAME_S) + PAUSE_FRAMES
SCRIPT_S = SCRIPT_FRAMES * FRAME_S
TURN_ENDS = SPEECH_FRAMES + SILENCE_FRAMES - 1
"""The frame after which the silence is long enough."""
REPLY_SAMPLES = REPLY_MS * RATE_HZ // 1000
OPEN_S = 30.0
OPEN_AT_ONCE = 8
"""Calls that are opened side by side."""
TAIL_S = REPLY_MS / 1000 + 1.0
"""Counted replies are listened to for so long after the last counted turn."""
COARSE_S = 0.001
"""Frames that are due within this time leave together."""
VOICE_HZ, VOICE_LEVEL, SYLLABLE_HZ = 140.0, 6000.0, 4.0

WIRES: dict[str, type[Wire]] = {"realtime": RealtimeWire, "pipecat": PipecatWire}


class Late(msgspec.Struct, frozen=True):
    """Quantiles of lateness, in ms."""

    p50: float
    p95: float
    p99: float


class Outcome(msgspec.Struct, frozen=True):
    """What a crowd heard. Without a single block there are no quantiles."""

    n: int
    late_ms: Late | None
    faults: list[str]
    sent_late_ms: float
    """The 99th percentile of how late the callers themselves sent."""
    core_share: float
    """Of the callers, on their core."""
    server_core_share: float
    load: Load


@dataclass(slots=True)
class Ear:
    """Judges the replies that one caller hears, of a server that sends up to `ahead_s` ahead of hearing."""

    ahead_s: float
    late_s: list[float] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    _due: float = 0.0
    _first: float = 0.0
    _samples: int = REPLY_SAMPLES
    _counted: bool = False

    def turn(self, now: float, *, counted: bool) -> None:
        """A turn ends now; the reply to the one before must be there."""
        self.close()
        self._due, self._samples, self._counted = now, 0, counted

    def hear(self, samples: int, now: float) -> None:
        """A block of a reply arrived."""
        if self._samples == 0:
            self._first = now
            late_s = now - self._due
        else:
            late_s = now - self._first - max(0.0, self._samples / RATE_HZ - self.ahead_s)
        self._samples += samples
        if self._counted:
            self.late_s.append(late_s)

    def close(self) -> None:
        """No more is heard of the newest turn."""
        if self._counted and self._samples != REPLY_SAMPLES:
            self.faults.append(f"of a reply {self._samples} samples came, not {REPLY_SAMPLES}")
        self._counted = False


class Line(asyncio.Protocol):
    """One caller's connection. What it says is framed beforehand, so that it costs the crowd little."""

    def __init__(self, url: str, wire: Wire, ear: Ear) -> None:
        self.ear = ear
        self._wire = wire
        self._socket = ClientProtocol(parse_uri(url), max_size=None)
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def open(cls, url: str, wire: Wire, ear: Ear) -> Self:
        """Connect. Raises `OSError` or `TimeoutError`."""
        loop, address = asyncio.get_running_loop(), parse_uri(url)
        async with asyncio.timeout(OPEN_S):
            _, line = await loop.create_connection(lambda: cls(url, wire, ear), address.host, address.port)
            await line._opened
        return line

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._socket.send_request(self._socket.connect())
        self._flush()

    def data_received(self, data: bytes) -> None:
        now = time.monotonic()
        assert self._transport is not None
        # On the loopback device a window of sound would else wait, half read, for the caller's next frame.
        self._transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        self._socket.receive_data(data)
        for event in self._socket.events_received():
            if isinstance(event, Response):
                self._answered()
            elif isinstance(event, Frame) and event.opcode in (Opcode.TEXT, Opcode.BINARY):
                pcm = self._wire.read(bytes(event.data)).pcm
                if pcm is not None:
                    self.ear.hear(len(pcm), now)
        self._flush()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._refuse(ConnectionError("the server hung up"))
        self.ear.faults.append(f"the server hung up: {error or self._socket.close_reason}")

    def say(self, frame: bytes) -> None:
        """Send a frame that is framed and masked already."""
        if self._transport is not None:
            self._transport.write(frame)

    def hang_up(self) -> None:
        """Close; what is lost from here on is no fault."""
        self.ear = Ear(0.0)
        if self._transport is not None:
            self._socket.send_close()
            self._flush()
            self._transport.close()

    def _answered(self) -> None:
        if (trouble := self._socket.handshake_exc) is not None:
            self._refuse(ConnectionError(f"the server refused the call: {trouble}"))
        elif not self._opened.done():
            self._opened.set_result(None)

    def _refuse(self, error: Exception) -> None:
        if not self._opened.done():
            self._opened.set_exception(error)

    def _flush(self) -> None:
        assert self._transport is not None
        self._transport.writelines(data for data in self._socket.data_to_send() if data)


def script(wire: Wire) -> list[bytes]:
    """The frames of one turn as they cross the wire: something like a voice, then a room."""
    frame = round(wire.rate_hz * FRAME_S)
    at = np.arange(SPEECH_FRAMES * frame) / wire.rate_hz
    voice = sum(np.sin(2 * np.pi * VOICE_HZ * n * at) / n for n in range(1, 8))
    voice *= VOICE_LEVEL * (0.6 + 0.4 * np.sin(2 * np.pi * SYLLABLE_HZ * at))
    sound = np.random.default_rng(0).normal(0, ROOM, SCRIPT_FRAMES * frame)
    sound[: len(voice)] += voice
    pcm = np.clip(sound, -32768, 32767).astype("<i2").reshape(SCRIPT_FRAMES, frame)
    return [_framed(wire.write(one)) for one in pcm]


def _framed(message: str | bytes) -> bytes:
    opcode, data = (Opcode.TEXT, message.encode()) if isinstance(message, str) else (Opcode.BINARY, message)
    return Frame(opcode, data).serialize(mask=True)


@dataclass(slots=True)
class Crowd:
    """Callers on open lines, evenly shifted against each other."""

    lines: Sequence[Line]
    frames: Sequence[bytes]
    sent_late_s: list[float] = field(default_factory=list)

    async def talk(self, settle_s: float, counted_s: float) -> None:
        """Speak until every turn that began in the counted time, after `settle_s`, has its reply."""
        start = time.monotonic()
        shifts = [round(index * SCRIPT_FRAMES / len(self.lines)) for index in range(len(self.lines))]
        for tick in count():
            since_s = tick * FRAME_S
            if since_s > settle_s + counted_s + TAIL_S:
                break
            counted = settle_s <= since_s < settle_s + counted_s
            await asyncio.sleep(0)  # so that a crowd that is behind still listens
            for index, line in enumerate(self.lines):
                due = start + (tick + index / len(self.lines)) * FRAME_S
                if (early_s := due - time.monotonic()) > COARSE_S:
                    await asyncio.sleep(early_s)
                at = (tick + shifts[index]) % SCRIPT_FRAMES
                line.say(self.frames[at])
                now = time.monotonic()
                if at == TURN_ENDS:
                    line.ear.turn(now, counted=counted)
                if counted:
                    self.sent_late_s.append(now - due)
        for line in self.lines:
            line.ear.close()


async def gather(options: argparse.Namespace) -> Outcome:
    """Open the lines, talk, and tell what was heard."""
    wire = WIRES[options.wire]()
    lines: list[Line] = []
    faults: list[str] = []
    while len(lines) < options.sessions:
        group = [
            Line.open(options.url, wire, Ear(options.ahead_ms / 1000))
            for _ in range(min(OPEN_AT_ONCE, options.sessions - len(lines)))
        ]
        opened = await asyncio.gather(*group, return_exceptions=True)
        faults += [f"a call was not opened: {one!r}" for one in opened if isinstance(one, BaseException)]
        lines += [one for one in opened if isinstance(one, Line)]
        if faults:
            break
    crowd = Crowd(lines, script(wire))
    me, server = psutil.Process(), psutil.Process(options.pid)
    watch, before = Watch([os.getpid(), options.pid]), (_used_s(me), _used_s(server), time.monotonic())
    if lines and not faults:
        await crowd.talk(SCRIPT_S, options.seconds)
    spent_s = time.monotonic() - before[2]
    shares = [round((_used_s(one) - used) / spent_s, 2) for one, used in zip((me, server), before, strict=False)]
    load = watch.load()
    for line in lines:
        faults += line.ear.faults
    late_s = [late for line in lines for late in line.ear.late_s]
    for line in lines:
        line.hang_up()
    return Outcome(len(late_s), late(late_s), faults, round(_p99(crowd.sent_late_s), 1), shares[0], shares[1], load)


def late(late_s: Sequence[float]) -> Late | None:
    """The quantiles of latenesses in seconds, if there are any."""
    if not late_s:
        return None
    return Late(*(round(1000 * float(np.percentile(late_s, q)), 1) for q in (50, 95, 99)))


def _p99(seconds: Sequence[float]) -> float:
    return 1000 * float(np.percentile(seconds, 99)) if seconds else 0.0


def _used_s(process: psutil.Process) -> float:
    return float(sum(process.cpu_times()[:2]))


def main() -> None:
    """Call, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--url", required=True)
    parser.add_argument("--wire", choices=list(WIRES), required=True)
    parser.add_argument("--sessions", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True, help="counted turns begin within this time")
    parser.add_argument("--ahead-ms", type=float, required=True, help="how far the server sends ahead of hearing")
    parser.add_argument("--pid", type=int, required=True, help="the server's process")
    options = parser.parse_args()
    gc.disable()  # a collection would count as lateness of the server
    print(msgspec.json.encode(asyncio.run(gather(options))).decode())


if __name__ == "__main__":
    main()
