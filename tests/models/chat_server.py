"""A real HTTP server on loopback that answers chat completion requests as a test tells it to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class Exchange:
    """One request, and the means to answer it. `number` counts the requests of its connection from 0."""

    path: str
    headers: dict[str, str]
    body: bytes
    number: int
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        """Write and flush."""
        self.writer.write(data)
        await self.writer.drain()

    async def plain(self, status: str, body: bytes, kind: str = "application/json") -> None:
        """A whole response; the connection is kept."""
        head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        await self.send(head.encode() + body)

    async def open_stream(self) -> None:
        """The head of a stream of events, chunked, so that the connection can be kept."""
        await self.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
        )

    async def chunk(self, data: bytes) -> None:
        """One chunk of the stream."""
        await self.send(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    async def events(self, *data: str) -> None:
        """One event for each, a chunk each."""
        for text in data:
            await self.chunk(f"data: {text}\n\n".encode())

    async def close_stream(self) -> None:
        """The end of a stream."""
        await self.send(b"0\r\n\r\n")


Answer = Callable[[Exchange], Awaitable[None]]


@dataclass(slots=True)
class ChatServer:
    """A running server: its address, what was asked of it, and which connections saw the client leave."""

    base_url: str
    exchanges: list[Exchange] = field(default_factory=list)
    connections: int = 0
    left: asyncio.Event = field(default_factory=asyncio.Event)


async def _exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> Exchange:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.strip().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Exchange(first.split()[1], headers, body, number, reader, writer)


@asynccontextmanager
async def chat_server(answer: Answer) -> AsyncIterator[ChatServer]:
    """Serve on a free port; an answer that returns keeps the connection, one that raises ConnectionError cuts it."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        running.connections += 1
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        number = 0
        try:
            while True:
                exchange = await _exchange(reader, writer, number)
                running.exchanges.append(exchange)
                await answer(exchange)
                number += 1
        except (ConnectionError, asyncio.IncompleteReadError):
            running.left.set()
        except asyncio.CancelledError:
            pass  # the test is over; asyncio's streams would report a cancelled handler
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    running = ChatServer(f"http://127.0.0.1:{port}/v1")
    try:
        yield running
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()
