"""Defines what a channel is: a peer's connection as the session's driver sees it."""

from __future__ import annotations

from typing import Protocol

from duplex_server.realtime.effects import PlayAudio
from duplex_server.realtime.wire import AnyServerEvent
from pipeline.chunk import Reply


class SlowPeer(Exception):
    """The peer reads more slowly than it is spoken to; its connection is to be cut."""


class Channel(Protocol):
    """Text events both ways and sound out. Nothing but `receive` and `close` ever waits."""

    async def receive(self) -> str | bytes | None:
        """The peer's next frame; None once it is gone."""

    def send(self, event: AnyServerEvent) -> None:
        """Queue an event. Raises `SlowPeer` when too much waits already."""

    def play(self, place: PlayAudio, pcm: bytes) -> None:
        """Give the peer sound of a reply: int16 at 24 kHz, with nothing in it that has no room in `place.format`."""

    def clear(self, reply: Reply) -> None:
        """Fall silent, as far as the channel plays by itself."""

    async def close(self, code: int, reason: str) -> None:
        """Send what is queued, then end the connection."""
