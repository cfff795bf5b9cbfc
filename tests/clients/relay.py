"""Stands between clients and a server, passes every frame on as it is, and keeps them for the validator."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from tests.conformance.realtime_validator import Problem, Validator

Json = dict[str, Any]  # events as they stand on the wire
PASSED_ON = ("Authorization", "OpenAI-Beta", "User-Agent", "X-OpenAI-Agents-SDK")
MAX_FRAME = 2**20  # of a server's frames: the least that a client allows
PATIENCE_S = 30.0
_End = ClientConnection | ServerConnection


@dataclass(slots=True)
class Wire:
    """All that one connection carried, and with which headers it began."""

    headers: dict[str, str] = field(default_factory=dict)
    sent: list[Json] = field(default_factory=list)
    received: list[Json] = field(default_factory=list)

    def of(self, kind: str) -> list[Json]:
        return [event for event in self.received if event["type"] == kind]

    def problems(self, *, beta: bool = False) -> list[str]:
        """What is wrong with either side."""
        server = Validator(beta=beta, portable=not beta, sequence=True)
        client = Validator(beta=beta, client=True)
        found: list[Problem] = [problem for event in self.received for problem in server.feed(event)]
        found += server.finish()
        mine = [f"sent: {problem}" for event in self.sent for problem in client.feed(event)]
        return [*map(str, found), *mine]


@dataclass(slots=True)
class Relay:
    """Where it listens, and the connections that it has passed on."""

    url: str
    wires: list[Wire] = field(default_factory=list)


@contextmanager
def relaying(upstream: str) -> Iterator[Relay]:
    """A relay on a free port before the server whose WebSocket address begins with `upstream`."""
    relay = Relay("")
    ready = threading.Event()
    loop = asyncio.new_event_loop()
    stopped = asyncio.Event()

    async def handle(client: ServerConnection) -> None:
        assert client.request is not None
        wire = Wire({name: client.request.headers[name] for name in PASSED_ON if name in client.request.headers})
        relay.wires.append(wire)
        address = f"{upstream}{client.request.path}"
        async with connect(address, additional_headers=wire.headers, max_size=MAX_FRAME) as server:
            up = asyncio.create_task(_pass(client, server, wire.sent))
            down = asyncio.create_task(_pass(server, client, wire.received))
            await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.gather(client.close(), server.close())
            await asyncio.gather(up, down)

    async def main() -> None:
        async with serve(handle, "127.0.0.1", 0, max_size=None) as listening:
            relay.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
            ready.set()
            await stopped.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(main(),))
    thread.start()
    try:
        assert ready.wait(PATIENCE_S), "the relay does not listen"
        yield relay
    finally:
        loop.call_soon_threadsafe(stopped.set)
        thread.join(PATIENCE_S)
        loop.close()


async def _pass(source: _End, to: _End, kept: list[Json]) -> None:
    """Until either end closes: a frame that the other does not take any more is not kept."""
    with contextlib.suppress(ConnectionClosed):
        async for frame in source:
            await to.send(frame)
            kept.append(json.loads(frame))
