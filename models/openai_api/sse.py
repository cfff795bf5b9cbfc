"""Splits a byte stream into the data of its server-sent events."""

from __future__ import annotations

MAX_EVENT_BYTES = 4 * 1024 * 1024  # of one event, its lines together


class EventTooLong(Exception):
    """An event outgrew `MAX_EVENT_BYTES`."""


class EventSplitter:
    """Fed with bytes as they come, gives the data of each event that became complete.

    Lines end with LF, CR or CR LF and nothing else (JSON may hold U+2028), comments and other fields are skipped:
    https://html.spec.whatwg.org/multipage/server-sent-events.html
    """

    def __init__(self) -> None:
        """Begin before the first byte."""
        self._rest = b""
        self._data: list[bytes] = []
        self._held = 0
        self._after_cr = False

    def feed(self, received: bytes) -> list[bytes]:
        """The data of the events completed by `received`. Raises `EventTooLong`."""
        if self._after_cr and received.startswith(b"\n"):
            received = received[1:]
        self._after_cr = received.endswith(b"\r") if received else self._after_cr
        *lines, self._rest = (self._rest + received).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        events = [event for line in lines if (event := self._line(line)) is not None]
        if len(self._rest) + self._held > MAX_EVENT_BYTES:
            raise EventTooLong(f"an event of the stream is longer than {MAX_EVENT_BYTES} bytes")
        return events

    def _line(self, line: bytes) -> bytes | None:
        if line:
            field, _, value = line.partition(b":")
            if field == b"data":
                self._data.append(value.removeprefix(b" "))
                self._held += len(value)
            return None
        event = b"\n".join(self._data) if self._data else None
        self._data.clear()
        self._held = 0
        return event
