"""Tests when a WebSocket is read no further, over a real socket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket
from websockets.asyncio.client import ClientConnection, connect

from duplex_server.channels.eager import MOST_WAITING, SMALL_BYTES, EagerProtocol

PATIENCE_S = 30.0


class Desk:
    """A server that takes nothing until it is told to, then everything."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.taken: list[str] = []
        app = Starlette(routes=[WebSocketRoute("/", self._serve)])
        self.server = uvicorn.Server(uvicorn.Config(app, ws=EagerProtocol, log_config=None, lifespan="off"))

    async def _serve(self, websocket: WebSocket) -> None:
        await websocket.accept()
        await self.opened.wait()
        async for message in websocket.iter_text():
            self.taken.append(message)

    @property
    def line(self) -> EagerProtocol:
        (line,) = (one for one in self.server.server_state.connections if isinstance(one, EagerProtocol))
        return line


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110  # a protocol tells nobody what it has read
            await asyncio.sleep(0)


@asynccontextmanager
async def called() -> AsyncIterator[tuple[Desk, ClientConnection]]:
    desk = Desk()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(desk.server.serve([listener]))
        async with connect(f"ws://127.0.0.1:{listener.getsockname()[1]}/", compression=None) as client:
            yield desk, client
        desk.server.should_exit = True
        await serving


def play(scene: Callable[[Desk, ClientConnection], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with called() as (desk, client):
            await scene(desk, client)

    asyncio.run(asyncio.wait_for(whole(), PATIENCE_S))


def test_small_messages_are_read_ahead_up_to_a_bound_and_none_is_lost() -> None:
    async def scene(desk: Desk, client: ClientConnection) -> None:
        sent = [str(number) for number in range(3 * MOST_WAITING)]
        for number, message in enumerate(sent, start=1):
            await client.send(message)
            if number <= MOST_WAITING:
                await until(lambda number=number: desk.line.queue.qsize() == number)  # type: ignore[misc]  # its type
                assert desk.line.transport.is_reading()
            else:
                await until(lambda: not desk.line.transport.is_reading())
        assert desk.line.queue.qsize() == MOST_WAITING + 1
        desk.opened.set()
        await until(lambda: len(desk.taken) == len(sent))
        assert desk.taken == sent
        assert desk.line.transport.is_reading()

    play(scene)


def test_a_large_message_waits_alone() -> None:
    async def scene(desk: Desk, client: ClientConnection) -> None:
        sent = ["x" * (SMALL_BYTES + 1), "after it"]
        await client.send(sent[0])
        await until(lambda: desk.line.queue.qsize() == 1)
        assert not desk.line.transport.is_reading()
        await client.send(sent[1])
        desk.opened.set()
        await until(lambda: len(desk.taken) == 2)
        assert desk.taken == sent

    play(scene)
