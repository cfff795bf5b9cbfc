"""Puts the server together and runs it: the only place that knows all of its parts."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import sys
from collections.abc import Iterator

import uvicorn
from starlette.applications import Starlette

from duplex_server.config import Config
from duplex_server.http import health
from duplex_server.http.realtime import Sessions
from models.registry import load_family
from pipeline.engine import Engine

log = logging.getLogger(__name__)

MAX_FRAME_BYTES = 32 * 1024 * 1024
"""15 MiB of sound are 20 MiB of base64."""
PING_S = 20.0


def build(config: Config, engine: Engine) -> Starlette:
    """The application over a pipeline that is, or will be, started."""
    sessions = Sessions(config, engine)
    return Starlette(routes=[*health.routes(engine), *sessions.routes()])


def run(config: Config) -> int:
    """Serve until told to stop; gives the exit code. Raises `StageError` when a model can't be loaded."""
    with _listen(config) as listener:
        return asyncio.run(_serve(config, listener))


def _listen(config: Config) -> socket.socket:
    family = socket.AF_INET6 if ":" in config.server.host else socket.AF_INET
    return socket.create_server((config.server.host, config.server.port), family=family, backlog=128)


async def _serve(config: Config, listener: socket.socket) -> int:
    engine = Engine(config.pipeline, load_family)
    server = _Server(
        uvicorn.Config(
            build(config, engine),
            ws="websockets-sansio",
            ws_max_size=MAX_FRAME_BYTES,
            ws_ping_interval=PING_S,
            ws_ping_timeout=PING_S,
            ws_per_message_deflate=False,
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=max(1, round(config.server.shutdown_s)),
        )
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, server.stop)
    serving = asyncio.create_task(server.serve([listener]))
    loading = asyncio.create_task(_load(config, engine, listener))
    try:
        await asyncio.wait({serving, loading}, return_when=asyncio.FIRST_COMPLETED)
        if loading.done():
            loading.result()
            await serving
        return 0
    finally:
        server.stop()
        loading.cancel()
        await asyncio.gather(loading, return_exceptions=True)
        await serving
        await engine.stop()


async def _load(config: Config, engine: Engine, listener: socket.socket) -> None:
    """Bring the models up, and tell whoever started the server what it can do."""
    _tell("loading the models ...")
    await engine.start(lambda line: _tell(f"  {line}"))
    for role, can in engine.capabilities.items():
        _tell(f"{role:>10}: {can.model}{f' - {can.note}' if can.note else ''}")
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    _tell(f"ready on http://{shown}:{port} (Realtime API at ws://{shown}:{port}/v1/realtime)")


def _tell(line: str) -> None:
    print(line, file=sys.stdout, flush=True)


class _Server(uvicorn.Server):
    """Uvicorn, stopped by us: its own signal handling would end the process before the models are released."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop(self) -> None:
        """Stop taking calls and end those that are there; a second time, without waiting for them."""
        self.force_exit = self.should_exit
        self.should_exit = True
