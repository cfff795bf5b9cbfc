"""Says and reads sound in Pipecat's WebSocket protocol, which is protobuf.

Of its `Frame` (pipecat/frames/protobufs/frames.proto) this knows `audio` = 2 with `audio` = 3, `sample_rate` = 4 and
`num_channels` = 5, `message` = 4 with `data` = 1, and `interruption` = 5. Protobuf's encoding is a row of fields: a
varint of `number << 3 | type`, then a varint (type 0), or a length and so many bytes (type 2).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from loadtest.loudspeaker import RATE_HZ
from loadtest.wire import Message, Pcm

VARINT, BYTES = 0, 2
AUDIO, MESSAGE, INTERRUPTION = 2, 4, 5
SOUND, SAMPLE_RATE, CHANNELS = 3, 4, 5
DATA = 1


class PipecatWire:
    """Sound at Pipecat's own rates: 16 kHz in, 24 kHz out. An interruption cuts the loudspeaker, as its clients do."""

    rate_hz = 16_000

    def write(self, pcm: Pcm) -> bytes:
        """A `Frame` with a frame of sound."""
        sound = _bytes(SOUND, pcm.tobytes()) + _varint(SAMPLE_RATE << 3) + _varint(self.rate_hz)
        return _bytes(AUDIO, sound + _varint(CHANNELS << 3) + _varint(1))

    def read(self, frame: str | bytes) -> Message:
        """A `Frame`; messages are those of Pipecat's RTVI, known by their type. Raises ValueError."""
        if isinstance(frame, str):
            raise ValueError(f"Pipecat sends binary frames; this is text: {frame[:80]!r}")
        fields = dict(_fields(frame))
        if isinstance(body := fields.get(AUDIO), bytes):
            return Message("audio", {}, _sound(body))
        if isinstance(body := fields.get(MESSAGE), bytes):
            content = msgspec.json.decode(_data(body))
            return Message(str(content.get("type")), content)
        return Message("interruption", {}, cuts=True) if INTERRUPTION in fields else Message("other", {})


def _sound(body: bytes) -> Pcm:
    fields = dict(_fields(body))
    rate_hz, channels, sound = fields.get(SAMPLE_RATE), fields.get(CHANNELS), fields.get(SOUND)
    if (rate_hz, channels) != (RATE_HZ, 1) or not isinstance(sound, bytes):
        raise ValueError(f"expected mono sound at {RATE_HZ} Hz, got {channels!r} channels at {rate_hz!r} Hz")
    return np.frombuffer(sound, "<i2")


def _data(body: bytes) -> bytes:
    data = dict(_fields(body)).get(DATA)
    if not isinstance(data, bytes):
        raise ValueError("a message of Pipecat's holds no data")
    return data


# ---- protobuf -----------------------------------------------------------------------------------------------------


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def _bytes(number: int, body: bytes) -> bytes:
    return _varint(number << 3 | BYTES) + _varint(len(body)) + body


def _fields(body: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(body):
        key, at = _read_varint(body, at)
        value, at = _read_varint(body, at)
        match key & 7:
            case 0:
                yield key >> 3, value
            case 2:
                if at + value > len(body):
                    raise ValueError(f"a field of {value} bytes in a message that ends after {len(body) - at}")
                yield key >> 3, body[at : at + value]
                at += value
            case kind:
                raise ValueError(f"protobuf field {key >> 3} has type {kind}; Pipecat's frames use 0 and 2 alone")


def _read_varint(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at == len(body):
            raise ValueError("the message ends inside a number")
        value |= (body[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not body[at - 1] & 0x80:
            return value, at
