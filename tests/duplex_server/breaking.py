"""Stands between a client and a real server, and makes the server deviate from the protocol in one way."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from tests.duplex_server.serving import Json

PASSED_ON = ("Authorization", "OpenAI-Beta")
_End = ClientConnection | ServerConnection
Fault = Callable[[Json], Iterable[Json]]
"""What a client is told in place of an event."""


def faithful(event: Json) -> Iterable[Json]:
    """No fault at all."""
    return (event,)


@contextlib.asynccontextmanager
async def deviating(
    upstream: str, told: Fault = faithful, heard: Fault = faithful, protocol: str | None = "realtime"
) -> AsyncIterator[str]:
    """The address of a server like the one whose WebSocket address begins with `upstream`.

    Its events go through `told`, those of the client through `heard`; `protocol` is what it selects when it is offered.
    """

    async def handle(client: ServerConnection) -> None:
        assert client.request is not None
        headers = {name: client.request.headers[name] for name in PASSED_ON if name in client.request.headers}
        offered = client.request.headers.get("Sec-WebSocket-Protocol", "")
        names = [Subprotocol(name.strip()) for name in offered.split(",") if name.strip()]
        address = f"{upstream}{client.request.path}"
        async with connect(
            address, additional_headers=headers, subprotocols=names or None, max_size=None, compression=None
        ) as server:
            passing = {
                asyncio.create_task(_pass(client, server, heard)),
                asyncio.create_task(_pass(server, client, told)),
            }
            await asyncio.wait(passing, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.gather(client.close(), server.close())
            await asyncio.gather(*passing)

    def select(_: ServerConnection, offered: Sequence[Subprotocol]) -> Subprotocol | None:  # what websockets asks for
        return Subprotocol(protocol) if protocol is not None and protocol in offered else None

    async with serve(handle, "127.0.0.1", 0, max_size=None, compression=None, select_subprotocol=select) as listening:
        yield f"ws://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1/realtime"


async def _pass(source: _End, to: _End, by: Fault) -> None:
    with contextlib.suppress(ConnectionClosed):
        async for frame in source:
            event = _event(frame)
            if event is None:
                await to.send(frame)
                continue
            for one in by(event):
                await to.send(json.dumps(one))


def _event(frame: str | bytes) -> Json | None:
    try:
        event = json.loads(frame)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None
