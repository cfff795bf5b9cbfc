"""Is a whole server in the test's own process: scripted stages, real sockets, a clock of the test's for its keys."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from starlette.applications import Starlette
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Origin, Subprotocol

from duplex_server.app import Secure, build, serving
from duplex_server.config import load_config
from duplex_server.ephemeral import EphemeralKeys
from duplex_server.http.realtime import Sessions
from duplex_server.metrics import Metrics
from models.registry import load_family
from pipeline.engine import Engine
from pipeline.spec import REQUIRED

PATIENCE_S = 30.0
STAGES = tuple(
    f"{role}.{setting}"
    for role in ("detector", *REQUIRED)
    for setting in (f"family=tests.families.scripted.{role}", "placement=inline")
)
Json = dict[str, Any]  # what came over the wire


@dataclass(slots=True)
class Clock:
    """Unix seconds, which pass when the test says so."""

    now: float = 1_000_000.0


@dataclass(slots=True)
class Served:
    """A server, and how to reach it."""

    url: str
    clock: Clock
    metrics: Metrics
    sessions: Sessions
    app: Starlette

    @property
    def ws_url(self) -> str:
        return f"{self.url.replace('http', 'ws', 1)}/v1/realtime"

    async def ask(
        self, path: str, body: object = None, *, method: str = "POST", key: str | None = None, **headers: str
    ) -> httpx.Response:
        """One HTTP request; underscores in the names of headers are dashes."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if key is not None:
            sent["Authorization"] = f"Bearer {key}"
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        async with httpx.AsyncClient(base_url=self.url, timeout=PATIENCE_S) as client:
            return await client.request(method, path, content=content, headers=sent)

    def socket(
        self,
        path: str = "/v1/realtime",
        *,
        key: str | None = None,
        protocols: tuple[str, ...] = (),
        origin: str | None = None,
    ) -> connect:
        """A WebSocket, to be entered."""
        return connect(
            f"{self.url.replace('http', 'ws', 1)}{path}",
            additional_headers={"Authorization": f"Bearer {key}"} if key is not None else {},
            subprotocols=[Subprotocol(name) for name in protocols] or None,
            origin=Origin(origin) if origin else None,
        )


async def first(connection: ClientConnection) -> Json:
    """The first event of a session, which must be its own."""
    event: Json = json.loads(await asyncio.wait_for(connection.recv(), PATIENCE_S))
    assert event["type"] == "session.created", event
    session: Json = event["session"]
    return session


@asynccontextmanager
async def served(
    *settings: str, tls: ssl.SSLContext | None = None, ping_s: float = 20.0, loaded: bool = True
) -> AsyncIterator[Served]:
    """A server with `section.key=value` settings; with a context it is `url` that speaks TLS."""
    config = load_config(flags=(*STAGES, "server.shutdown_s=0", *settings))
    clock, metrics = Clock(), Metrics(config.pipeline.stages)
    engine = Engine(config.pipeline, load_family, observer=metrics.pipeline)
    sessions = Sessions(config, engine, metrics.sessions, EphemeralKeys(lambda: clock.now))
    app = build(engine, sessions, metrics, config)
    plain, other = (socket.create_server(("127.0.0.1", 0)) for _ in range(2))
    server = serving(app, lambda: sessions.stop(0), Secure(other, tls) if tls else None, ping_s)
    running = asyncio.create_task(server.serve([plain]))
    try:
        if loaded:
            await engine.start(lambda _: None)
        address = (other if tls else plain).getsockname()
        yield Served(f"http{'s' if tls else ''}://127.0.0.1:{address[1]}", clock, metrics, sessions, app)
    finally:
        server.stop()
        await asyncio.wait_for(running, PATIENCE_S)
        await engine.stop()
        plain.close()
        other.close()


def play(scene: Callable[[Served], Awaitable[None]], *settings: str, loaded: bool = True) -> None:
    """Run a scene against a server with these settings."""

    async def run() -> None:
        async with served(*settings, loaded=loaded) as server:
            await scene(server)

    asyncio.run(run())
