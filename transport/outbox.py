"""Decides in which order the messages of one sender go onto the wire; a pure core without a socket or a clock."""

from __future__ import annotations

from collections import deque

from transport.errors import ControlError

WINDOW = 16  # data messages on the wire that the receiver has not taken off
MOST_BYTES = 16 << 20  # what the receiver may leave unread, on the wire or waiting for it
MESSAGE_BYTES = 256  # what a message weighs beside its content, so that the bound above bounds their number as well

Frame = bytes | bytearray


def weight(frame: Frame) -> int:
    """What a frame counts against the bound of what is unread, in bytes."""
    return len(frame) + MESSAGE_BYTES


class Outbox:
    """Two lanes of frames towards one receiver.

    A control frame goes out at once and overtakes the data frames that wait; nothing overtakes a control frame, and
    each lane keeps its order. So what was pushed after a control frame never arrives before it. A data frame needs one
    of `window` credits, which returns when the receiver has taken it off the wire. All that the receiver has not taken
    weighs against `most_bytes`.
    """

    def __init__(self, *, window: int = WINDOW, most_bytes: int = MOST_BYTES) -> None:
        self._credits = self._window = window
        self._most_bytes = most_bytes
        self._control: deque[Frame] = deque()  # both bounded by `most_bytes`
        self._data: deque[Frame] = deque()
        self._queued_bytes = 0
        self._wire_bytes = 0

    @property
    def unread_bytes(self) -> int:
        """What the receiver has not taken off, as far as it has told: on the wire and waiting for it."""
        return self._queued_bytes + self._wire_bytes

    def push(self, frame: Frame, *, data: bool) -> bool:
        """Queue a frame; false, and nothing is queued, when the receiver leaves too much unread."""
        if self.unread_bytes + weight(frame) > self._most_bytes:
            return False
        (self._data if data else self._control).append(frame)
        self._queued_bytes += weight(frame)
        return True

    def head(self) -> Frame | None:
        """The frame that may go onto the wire next; none while nothing waits, or only data without a credit."""
        if self._control:
            return self._control[0]
        return self._data[0] if self._data and self._credits > 0 else None

    def sent(self) -> None:
        """The frame that `head` gives is on the wire."""
        if self._control:
            frame = self._control.popleft()
        else:
            assert self._credits > 0, "data went onto the wire without a credit"
            frame = self._data.popleft()
            self._credits -= 1
        self._queued_bytes -= weight(frame)
        self._wire_bytes += weight(frame)

    def taken(self, data: int, nbytes: int) -> None:
        """The receiver took `data` data frames off the wire, and `nbytes` of weight in both lanes.

        Raises `ControlError` when that is more than was on it.
        """
        if not 0 <= data <= self._window - self._credits or not 0 <= nbytes <= self._wire_bytes:
            raise ControlError(
                f"the peer took {data} data messages and {nbytes} bytes off the wire, where there were "
                f"{self._window - self._credits} and {self._wire_bytes}"
            )
        self._credits += data
        self._wire_bytes -= nbytes
