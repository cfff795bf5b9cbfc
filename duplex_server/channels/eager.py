"""Is uvicorn's WebSocket protocol, but it goes on reading while small messages wait to be taken."""

from __future__ import annotations

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

MOST_WAITING = 16
"""Messages that may wait before the socket is not read any more."""
SMALL_BYTES = 64 * 1024
"""A larger message waits alone."""


class EagerProtocol(WebSocketsSansIOProtocol):
    """As it comes it stops reading at every message until that is taken, which costs a seventh of a session."""

    def send_receive_event_to_app(self) -> None:
        """Queue the message that is complete."""
        small = sum(map(len, self.frames)) <= SMALL_BYTES
        # It stops reading unless it believes that it has, and reads on, which may be no change, once all was taken.
        self.read_paused = small and self.queue.qsize() < MOST_WAITING
        super().send_receive_event_to_app()
