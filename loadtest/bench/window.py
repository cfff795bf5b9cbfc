"""Keeps the number of payloads that are sent and not read at a bound, by a count that two processes share."""

from __future__ import annotations

from transport import memory
from transport.patience import until

IN_FLIGHT = 8
WAIT_S = 10.0  # far beyond what a payload takes


class Window:
    """One word of shared memory, which the reader alone writes. An arena's own credits would do the same, were it as
    small as the window.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._word = memoryview(memory.attach(fd, memory.PAGE_BYTES)).cast("Q")

    @classmethod
    def create(cls) -> Window:
        return cls(memory.create("duplex-window", memory.PAGE_BYTES))

    def begin(self) -> None:
        self._word[0] = 0

    def read_one(self) -> None:
        self._word[0] += 1

    def wait(self, number: int) -> None:
        """Until payload `number` may be sent. Raises `TimeoutError`."""
        if until(lambda: number - self._word[0] < IN_FLIGHT or None, WAIT_S) is None:
            raise TimeoutError(f"payload {number} waited {WAIT_S:g} s for the {IN_FLIGHT} before it to be read")
