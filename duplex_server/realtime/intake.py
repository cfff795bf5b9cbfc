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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from duplex_server.channels.base import Channel
from duplex_server.realtime import formats, given, wire
from duplex_server.realtime.formats import Inlet
from duplex_server.realtime.hearing import PASSES
from duplex_server.realtime.inputs import Event, Input, Rejected
from duplex_server.realtime.meter import Meter, lasts_s
from duplex_server.realtime.narrowband import DELAY
from duplex_server.realtime.samples import Pcm
from duplex_server.realtime.schema import INPUT_RATE_HZ, FormatType
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
GIVEN_S = 600
"""Of sound that comes inside an item: more than a frame holds but for G.711, which grows to six times its bytes."""
LATE_S = 3.0
"""Sound that is taken this much after its time is not listened to, until what has come is taken."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """An event in the inbox, and when it came."""

    event: wire.AnyClientEvent | Fault
    size: int
    came_at: float


class Feed(Protocol):
    """Takes an input, and the sounds that came inside the event."""

    def __call__(self, given: Input, sounds: Sequence[Pcm] = (), /) -> None: ...


class Intake:
    """The way of a peer's frames to its session, on the event loop.

    `feed` takes an input, `listen` whole samples and whether they are too late to be listened to. `decode` reads a
    frame, a large one in a thread, and never two at once.
    """

    def __init__(
        self,
        stream: str,
        channel: Channel,
        session: Session,
        feed: Feed,
        listen: Callable[[Pcm, bool], None],
        clock: Callable[[], float],
        decode: Callable[[str | bytes], wire.AnyClientEvent | Fault] = wire.decode,
    ) -> None:
        self._stream, self._channel, self._session = stream, channel, session
        self._feed, self._listen, self._clock, self._decode = feed, listen, clock, decode
        self._meter = Meter()
        self._inbox: deque[_Waiting] = deque()
        self._inbox_bytes = 0
        self._came, self._taken, self._recognized = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._inlet = Inlet()
        self._late = False
        self._swift = True  # taking sound takes less time than the sound lasts, as far as is known
        self._dropped_turns = 0

    @property
    def waiting_bytes(self) -> int:
        """How much has come and was not taken yet, with what its frames cost."""
        return self._inbox_bytes

    @property
    def _format(self) -> FormatType:
        """How sound that is taken now is read: a change of the settings counts from the next event on."""
        return self._session.settings.audio.input.format.type

    def recognized(self) -> None:
        """The recognizer has ended a pass."""
        self._recognized.set()

    # ---- reading --------------------------------------------------------------------------------------------------

    async def read(self) -> None:
        """Read what the peer sends until it is gone. A cancel of what is under way goes before all that waits."""
        while (frame := await self._channel.receive()) is not None:
            big = len(frame) > BIG_FRAME_BYTES
            event = await asyncio.to_thread(self._decode, frame) if big else self._decode(frame)
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
        self._inbox.append(_Waiting(event, size, self._clock()))
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
            await self._give(waiting.event, waiting.came_at)
            self._inbox.popleft()
            self._inbox_bytes -= waiting.size
            self._taken.set()
            if self._inbox:
                await asyncio.sleep(0)
            else:
                self._swift = True

    async def _give(self, event: wire.AnyClientEvent | Fault, came_at: float) -> None:
        match event:
            case Append():
                await self._append(event, came_at)
            case wire.Clear():
                self._inlet.clear()
                self._feed(Event(event))
            case Fault():
                self._feed(Rejected(event))
            case wire.CreateItem() | wire.CreateResponse():
                await self._bring(event)
            case _:
                self._feed(Event(event))
        self._tell_loss()

    async def _bring(self, event: given.HoldsItems) -> None:
        """An event that may hold sound; one that does waits until there is room for a turn that waits for its words."""
        sounds: list[Pcm] = []
        for path, base64 in given.sounds(event):
            sound = await _given_sound(base64, self._format, path, event.event_id)
            if isinstance(sound, Fault):
                self._feed(Rejected(sound))
                return
            sounds.append(sound)
        while sounds and self._session.passes_waiting >= PASSES:
            self._recognized.clear()
            await self._recognized.wait()
        self._feed(Event(given.without_sounds(event, [len(sound) for sound in sounds])), sounds)

    async def _append(self, event: Append, came_at: float) -> None:
        kind = self._format
        at = self._meter.arrived(_samples(event.audio, kind), came_at)
        sound = await _sound(event.audio, "audio", event.event_id)
        if isinstance(sound, Fault):
            self._feed(Rejected(sound))
            return
        for start, piece in enumerate(_slices(sound, kind)):
            if start:
                await asyncio.sleep(0)
            await self._hold(at)
            self._heed(self._inlet.push(piece, kind), at)
            at += lasts_s(_SLICE)

    def _take_live(self, event: Append) -> bool:
        """Take a frame where it is read, which spares a turn of the loop. False unless somebody speaks it now."""
        kind = self._format
        samples, began = _samples(event.audio, kind), self._clock()
        small = _LEAST <= samples <= _SLICE and self._meter.ahead_s(began) <= SLICE_MS / 1000
        if not small or self._inbox or not self._swift:
            return False
        at = self._meter.arrived(samples, began)
        sound = _unpacked(event.audio, 0, "audio", event.event_id)
        if isinstance(sound, Fault):
            self._feed(Rejected(sound))
        else:
            self._heed(self._inlet.push(sound, kind), at)
        self._tell_loss()
        self._swift = self._clock() - began <= samples / INPUT_RATE_HZ
        return True

    def _heed(self, pcm: Pcm, at: float) -> None:
        self._look_late(at)
        self._listen(pcm, self._late)

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


def _samples(base64: str, kind: FormatType) -> int:
    """How many samples at 24 kHz a text of base64 holds, but for a few."""
    return formats.samples(len(base64) * 3 // 4, kind)


def _slices(sound: bytearray, kind: FormatType) -> Iterator[memoryview]:
    """The sound in pieces of `SLICE_MS`, none of which is a copy."""
    whole, step = memoryview(sound), formats.size(SLICE_MS, kind)
    return (whole[start : start + step] for start in range(0, len(sound), step))


async def _sound(base64: str, param: str, event_id: str | None) -> bytearray | Fault:
    """All the bytes of a text, with a turn of the event loop after each piece of it."""
    sound, end = bytearray(len(base64) * 3 // 4), 0
    for start in range(0, len(base64), _SLICE_BASE64):
        if start:
            await asyncio.sleep(0)
        piece = _unpacked(base64, start, param, event_id)
        if isinstance(piece, Fault):
            return piece
        sound[end : end + len(piece)] = piece
        end += len(piece)
    del sound[end:]
    return sound


async def _given_sound(base64: str, kind: FormatType, param: str, event_id: str | None) -> Pcm | Fault:
    """A whole sound that came inside an item."""
    sound = await _sound(base64, param, event_id)
    if isinstance(sound, Fault):
        return sound
    samples, message = formats.samples(len(sound), kind), ""
    if samples > GIVEN_S * INPUT_RATE_HZ:
        message = f"Expected at most {GIVEN_S} s of sound, got {samples // INPUT_RATE_HZ} s. Append and commit it."
    elif not formats.is_whole(len(sound), kind):
        message = f"Expected whole samples of two bytes, got {len(sound)} bytes."
    if message:
        return Fault(code="invalid_value", message=message, param=param, event_id=event_id)
    taken, inlet, end = np.empty(samples + DELAY, np.int16), Inlet(), 0
    for piece in _slices(sound, kind):
        if end:
            await asyncio.sleep(0)
        pcm = inlet.push(piece, kind)
        taken[end : end + len(pcm)] = pcm
        end += len(pcm)
    rest = inlet.flush()
    taken[end : end + len(rest)] = rest
    return taken[len(rest) : len(rest) + samples]


def _unpacked(base64: str, start: int, param: str, event_id: str | None) -> bytes | Fault:
    """The sound of one piece of base64; `param` is where that stands."""
    try:
        return binascii.a2b_base64(base64[start : start + _SLICE_BASE64], strict_mode=True)
    except ValueError as error:  # binascii.Error, or characters that are not ASCII
        return Fault(
            code="invalid_value",
            message=f"Expected base64 with padding: {error}. Nothing of it was taken.",
            param=param,
            event_id=event_id,
        )
