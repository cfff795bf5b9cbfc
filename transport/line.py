"""Speaks the protocol of a control connection for one of its ends; a pure core without a socket or a clock."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar, assert_never

import msgspec

from transport.errors import ControlError
from transport.outbox import MOST_BYTES, WINDOW, Frame, Outbox, weight

VERSION = 2
MAX_MESSAGE_BYTES = 8 << 20  # a minute and a half of 48 kHz speech; a longer message is a bug or an attack

# The first byte of a frame. A message of the connection itself, or one that it carries, in one of the two lanes.
OWN, CONTROL, DATA = 0, 1, 2

In = TypeVar("In")


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """The first message in each direction."""

    version: int


class Beat(msgspec.Struct, frozen=True, tag="beat"):
    """The sender lives, and reads."""


class Taken(msgspec.Struct, frozen=True, tag="taken"):
    """The sender took so many data messages off the wire, and so much weight in both lanes, since it last said so."""

    data: int
    nbytes: int


Own = Hello | Beat | Taken

_OWN: msgspec.msgpack.Decoder[Own] = msgspec.msgpack.Decoder(Own)
_ENCODER = msgspec.msgpack.Encoder()


def frame(kind: int, message: msgspec.Struct) -> Frame:
    """A message as it goes onto the wire: a byte for its kind, then msgpack. Raises `ControlError` when too long."""
    data = bytearray((kind,))
    _ENCODER.encode_into(message, data, 1)
    if len(data) > 1 + MAX_MESSAGE_BYTES:
        raise ControlError(f"a {type(message).__name__} of {len(data)} bytes is over the bound of {MAX_MESSAGE_BYTES}")
    return data


class Line(Generic[In]):
    """One end of a connection: messages are pushed in, frames come out for the wire, and the other way round.

    `decoder` decodes the union of what is received. Both ends are made with the same bounds.
    """

    def __init__(
        self, decoder: msgspec.msgpack.Decoder[In], *, window: int = WINDOW, most_bytes: int = MOST_BYTES
    ) -> None:
        self._decoder = decoder
        self._outbox = Outbox(window=window, most_bytes=most_bytes)
        self._own: deque[Frame] = deque([frame(OWN, Hello(VERSION))])  # at most one of each kind
        self._untold_data = 0
        self._untold_bytes = 0
        # Told in lots, yet early enough that a sender is never out of credits or room while nothing is unread.
        self._lot_data = max(1, window // 2)
        self._lot_bytes = most_bytes // 4
        self.greeted = False

    @property
    def unread_bytes(self) -> int:
        """What the other end has not taken, as far as it has told."""
        return self._outbox.unread_bytes

    def push(self, message: msgspec.Struct, *, data: bool) -> bool:
        """Queue a message; false when the other end leaves too much unread. Raises `ControlError` for one too long."""
        return self._outbox.push(frame(DATA if data else CONTROL, message), data=data)

    def beat(self) -> None:
        """Say that we live, unless there is something else to be said that says so."""
        if not self._own:
            self._own.append(frame(OWN, Beat()))

    def head(self) -> Frame | None:
        """The frame that may go onto the wire next, if one may."""
        if not self._own and (self._untold_data >= self._lot_data or self._untold_bytes >= self._lot_bytes):
            self._own.append(frame(OWN, Taken(self._untold_data, self._untold_bytes)))
            self._untold_data = self._untold_bytes = 0
        return self._own[0] if self._own else self._outbox.head()

    def sent(self) -> None:
        """The frame that `head` gives is on the wire."""
        if self._own:
            self._own.popleft()
        else:
            self._outbox.sent()

    def received(self, arrived: bytes) -> In | None:
        """The message in a frame from the wire, or none when it was for the connection. Raises `ControlError`."""
        if not arrived or len(arrived) > 1 + MAX_MESSAGE_BYTES:
            raise ControlError(f"a frame of {len(arrived)} bytes came; expected 1 to {1 + MAX_MESSAGE_BYTES}")
        kind, body = arrived[0], memoryview(arrived)[1:]
        try:
            if kind == OWN:
                self._heed(_OWN.decode(body))
                return None
            if kind not in (CONTROL, DATA) or not self.greeted:
                raise ControlError(f"a frame of kind {kind} came; expected a greeting first, then kinds 0 to 2")
            message = self._decoder.decode(body)
        except msgspec.DecodeError as error:
            raise ControlError(f"a frame of {len(arrived)} bytes is no message of this connection: {error}") from error
        self._untold_data += kind == DATA
        self._untold_bytes += weight(arrived)
        return message

    def _heed(self, own: Own) -> None:
        if isinstance(own, Hello) == self.greeted:
            raise ControlError(f"{own} came; expected one Hello, and that first")
        match own:
            case Hello(version):
                if version != VERSION:
                    raise ControlError(
                        f"the peer speaks version {version}, this side {VERSION}: install the same release on both"
                    )
                self.greeted = True
            case Taken(data, nbytes):
                self._outbox.taken(data, nbytes)
            case Beat():
                pass
            case _:
                assert_never(own)
