"""Takes in what a peer sends: reads it as it comes, keeps its order, and holds back sound that is ahead of its time.

A client that sends faster than anybody speaks waits while its turns wait for their words, so that it loses nothing and
can't keep the recognizer from the others. It waits until real time has caught up with it, and no longer; whoever sends
in real time never waits. What is too much then is given up where it is known what it is: whole turns by the session,
and sound that this machine is too slow to listen to by going past the detector.
"""

from __future__ import annotations

import asyncio
import binascii
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from duplex_server.channels.base import Channel
from duplex_server.realtime import wire
from duplex_server.realtime.hearing import PASSES
from duplex_server.realtime.inputs import Event, Input, Rejected
from duplex_server.realtime.meter import Meter
from duplex_server.realtime.samples import Pcm
from duplex_server.realtime.schema import INPUT_RATE_HZ
from duplex_server.realtime.session import Session
from duplex_server.realtime.wire import Append, Fault

log = logging.getLogger(__name__)

SLICE_MS = 100
"""Sound is taken in such pieces, with a turn of the event loop between them, however large a frame is."""
_SLICE = SLICE_MS * INPUT_RATE_HZ // 1000
LEAST_MS = 10
"""Who speaks sends no less at once; what is shorter waits its turn in the inbox, so that many can't hold the loop."""
_LEAST = LEAST_MS * INPUT_RATE_HZ // 1000
_SLICE_BASE64 = 16 * 1024  # characters; a multiple of four
BIG_FRAME_BYTES = 64 * 1024
"""Frames beyond this are parsed off the event loop."""
INBOX_BYTES = 32 * 1024 * 1024
"""What a peer may have sent ahead of what was taken: eight minutes of sound. Beyond that its socket is not read."""
FRAME_BYTES = 1024
"""What a frame that waits costs besides its text."""
LATE_S = 3.0
"""Sound that is taken this much after its time is not listened to, until what has come is taken."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """An event in the inbox. `at` is when the first of its sound would have come in real time."""

    event: wire.AnyClientEvent | Fault
    size: int
    at: float


class Intake:
    """The way of a peer's frames to its session, on the event loop.

    `feed` takes an input, `listen` whole samples and whether they are too late to be listened to.
    """

    def __init__(
        self,
        stream: str,
        channel: Channel,
        session: Session,
        feed: Callable[[Input], None],
        listen: Callable[[Pcm, bool], None],
        clock: Callable[[], float],
    ) -> None:
        self._stream, self._channel, self._session = stream, channel, session
        self._feed, self._listen, self._clock = feed, listen, clock
        self._meter = Meter()
        self._inbox: deque[_Waiting] = deque()
        self._inbox_bytes = 0
        self._came, self._taken, self._recognized = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._spare = b""  # half a sample
        self._late = False
        self._swift = True  # taking sound takes less time than the sound lasts, as far as is known
        self._dropped_turns = 0

    @property
    def waiting_bytes(self) -> int:
        """How much has come and was not taken yet, with what its frames cost."""
        return self._inbox_bytes

    def recognized(self) -> None:
        """The recognizer has ended a pass."""
        self._recognized.set()

    # ---- reading --------------------------------------------------------------------------------------------------

    async def read(self) -> None:
        """Read what the peer sends until it is gone. A cancel of what is under way goes before all that waits."""
        while (frame := await self._channel.receive()) is not None:
            big = len(frame) > BIG_FRAME_BYTES
            event = await asyncio.to_thread(wire.decode, frame) if big else wire.decode(frame)
            if isinstance(event, Append) and self._take_live(event):
                continue
            if not isinstance(event, Append | Fault) and self._session.overtakes(event):
                self._feed(Event(event))
            else:
                await self._keep(event, len(frame) + FRAME_BYTES)

    async def _keep(self, event: wire.AnyClientEvent | Fault, size: int) -> None:
        """Put an event into the inbox, as soon as there is room for it."""
        while self._inbox and self._inbox_bytes + size > INBOX_BYTES:
            self._taken.clear()
            await self._taken.wait()
        samples = _samples(event.audio) if isinstance(event, Append) else 0
        self._inbox.append(_Waiting(event, size, self._meter.arrived(samples, self._clock())))
        self._inbox_bytes += size
        self._came.set()

    # ---- feeding --------------------------------------------------------------------------------------------------

    async def take(self) -> None:
        """Give the session what came, in its order; it never ends by itself."""
        while True:
            while not self._inbox:
                self._came.clear()
                await self._came.wait()
            waiting = self._inbox[0]
            await self._give(waiting.event, waiting.at)
            self._inbox.popleft()
            self._inbox_bytes -= waiting.size
            self._taken.set()
            if self._inbox:
                await asyncio.sleep(0)
            else:
                self._swift = True

    async def _give(self, event: wire.AnyClientEvent | Fault, at: float) -> None:
        match event:
            case Append():
                await self._append(event, at)
            case Fault():
                self._feed(Rejected(event))
            case _:
                self._feed(Event(event))
        self._tell_loss()

    async def _append(self, event: Append, at: float) -> None:
        sound = await _sound(event)
        if isinstance(sound, Fault):
            self._feed(Rejected(sound))
            return
        sound = self._whole(sound)
        for start in range(0, len(sound), 2 * _SLICE):
            if start:
                await asyncio.sleep(0)
            await self._hold(at)
            self._heed(sound[start : start + 2 * _SLICE], at)
            at += _SLICE / INPUT_RATE_HZ

    def _take_live(self, event: Append) -> bool:
        """Take a frame where it is read, which spares a turn of the loop. False unless somebody speaks it now."""
        samples, began = _samples(event.audio), self._clock()
        small = _LEAST <= samples <= _SLICE and self._meter.ahead_s(began) <= SLICE_MS / 1000
        if not small or self._inbox or not self._swift:
            return False
        at = self._meter.arrived(samples, began)
        sound = _unpacked(event, 0)
        if isinstance(sound, Fault):
            self._feed(Rejected(sound))
        else:
            self._heed(self._whole(sound), at)
        self._tell_loss()
        self._swift = self._clock() - began <= samples / INPUT_RATE_HZ
        return True

    def _whole(self, sound: bytes) -> bytes:
        """Whole samples; an odd byte waits for the next append."""
        if self._spare:
            sound = self._spare + sound
        whole = len(sound) - len(sound) % 2
        self._spare = sound[whole:]
        return sound[:whole]

    def _heed(self, sound: bytes, at: float) -> None:
        self._look_late(at)
        self._listen(np.frombuffer(sound, "<i2"), self._late)

    async def _hold(self, until: float) -> None:
        """Wait for the words of turns that wait for them, but for no longer than real time takes to catch up."""
        while self._session.passes_waiting >= PASSES and (wait_s := until - self._clock()) > 0:
            self._recognized.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await self._recognized.wait()
            except TimeoutError:
                return

    def _look_late(self, at: float) -> None:
        """Sound whose time has long passed shows that we can't keep up; then all that waits goes by the detector."""
        behind_s = self._clock() - at
        if not self._late and behind_s > LATE_S and self._session.detects:
            self._late = True
            message = f"The server is {behind_s:.1f} s behind. It does not listen to the sound that waits."
            self._feed(Rejected(Fault(type="server_error", code="overloaded", message=message, param="audio")))
        elif self._late and behind_s < SLICE_MS / 1000:
            self._late = False
            log.warning("%s has caught up; lost so far: %s", self._stream, self._session.input.dropped)

    def _tell_loss(self) -> None:
        if self._session.dropped_turns > self._dropped_turns:
            self._dropped_turns = self._session.dropped_turns
            log.warning("%s: turns given up by an overloaded recognizer: %d", self._stream, self._dropped_turns)


def _samples(base64: str) -> int:
    """How many samples a text of base64 holds, but for one."""
    return len(base64) * 3 // 8


async def _sound(event: Append) -> bytes | Fault:
    pieces: list[bytes] = []
    for start in range(0, len(event.audio), _SLICE_BASE64):
        if start:
            await asyncio.sleep(0)
        piece = _unpacked(event, start)
        if isinstance(piece, Fault):
            return piece
        pieces.append(piece)
    return b"".join(pieces)


def _unpacked(event: Append, start: int) -> bytes | Fault:
    """The sound of one piece of an append's base64."""
    try:
        return binascii.a2b_base64(event.audio[start : start + _SLICE_BASE64], strict_mode=True)
    except ValueError as error:  # binascii.Error, or characters that are not ASCII
        return Fault(
            code="invalid_value",
            message=f"Expected base64 with padding: {error}. Nothing of it was appended.",
            param="audio",
            event_id=event.event_id,
        )
