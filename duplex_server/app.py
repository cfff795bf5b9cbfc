"""Puts the server together and runs it: the only place that knows all of its parts."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import uvicorn
from starlette.applications import Starlette

from duplex_server import progress
from duplex_server.auth import LOOPBACK
from duplex_server.channels.eager import EagerProtocol
from duplex_server.config import Config, ServerSettings
from duplex_server.http import demo, health, metrics
from duplex_server.http.realtime import Sessions
from duplex_server.metrics import Metrics, Snapshot
from duplex_server.realtime.settings import ALIAS_VOICES
from models.registry import load_family
from pipeline.engine import Engine
from pipeline.errors import ConfigError

log = logging.getLogger(__name__)

MAX_FRAME_BYTES = 32 * 1024 * 1024
"""15 MiB of sound are 20 MiB of base64."""
PING_S = 20.0
CLOSE_S = 2
"""How long connections may take to close once their sessions have ended."""


def build(engine: Engine, sessions: Sessions, measured: Metrics, settings: ServerSettings) -> Starlette:
    """The application over a pipeline that is, or will be, started."""

    def shot() -> Snapshot:
        return Snapshot(sessions.live, sessions.losses, engine.states)

    return Starlette(
        routes=[
            *health.routes(engine, lambda: sessions.stopping),
            *metrics.routes(measured, shot, settings),
            *sessions.routes(),
            *demo.routes(),
        ]
    )


def run(config: Config) -> int:
    """Serve until told to stop; gives the exit code. Raises `StageError` when a model can't be loaded."""
    _check_journals(config.server.journal_dir)
    with _listen(config) as listener:
        return asyncio.run(_serve(config, listener))


def _check_journals(folder: str | None) -> None:
    """Find out now, not when a journal is to be written, that it can't be."""
    if folder is None:
        return
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigError(f"no journal can be written to {folder!r}: {error.strerror}", "server.journal_dir") from error


def _listen(config: Config) -> socket.socket:
    family = socket.AF_INET6 if ":" in config.server.host else socket.AF_INET
    return socket.create_server((config.server.host, config.server.port), family=family, backlog=128)


async def _serve(config: Config, listener: socket.socket) -> int:
    measured = Metrics(config.pipeline.stages)
    engine = Engine(config.pipeline, load_family, observer=measured.pipeline)
    sessions = Sessions(config, engine, measured.sessions)
    server = _Server(
        uvicorn.Config(
            build(engine, sessions, measured, config.server),
            ws=EagerProtocol,
            ws_max_size=MAX_FRAME_BYTES,
            ws_ping_interval=PING_S,
            ws_ping_timeout=PING_S,
            ws_per_message_deflate=False,
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=CLOSE_S,
        ),
        lambda: sessions.stop(config.server.shutdown_s),
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
        server.should_exit = True
        loading.cancel()
        await asyncio.gather(loading, return_exceptions=True)
        await serving
        await engine.stop()


async def _load(config: Config, engine: Engine, listener: socket.socket) -> None:
    """Bring the models up, and tell whoever started the server what it can do."""
    if progress.is_terminal(sys.stdout):
        async with progress.shown(sys.stdout, lambda: engine.states):
            await engine.start(lambda _: None)
    else:
        _tell("loading the models ...")
        await engine.start(lambda line: _tell(f"  {line}"))
    gc.collect()
    gc.freeze()  # what was loaded stays: a collection that looks at all of it holds up every session
    voice, voices = config.session.voice, engine.capabilities["talker"].voices
    if voice is not None and voices and voice not in (*voices, *ALIAS_VOICES):
        raise ConfigError(f"the talker has no voice {voice!r}; it has {', '.join(voices)}", "session.voice")
    for role, can in engine.capabilities.items():
        _tell(f"{role:>10}: {can.model}{f' - {can.note}' if can.note else ''}")
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    if host not in LOOPBACK and not config.server.api_keys:
        _tell("anybody who reaches this address may use the server: set DUPLEX_API_KEYS to ask for keys")
    _tell(f"ready on http://{shown}:{port} (Realtime API at ws://{shown}:{port}/v1/realtime)")


def _tell(line: str) -> None:
    print(line, file=sys.stdout, flush=True)


class _Server(uvicorn.Server):
    """Uvicorn, stopped by us: its own signal handling would end the process before the models are released."""

    def __init__(self, config: uvicorn.Config, leave: Callable[[], Awaitable[None]]) -> None:
        super().__init__(config)
        self._leave = leave
        self._leaving: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop(self) -> None:
        """Take no more calls, and let replies under way end; a second time, without waiting for them."""
        if self._leaving is None:
            self._leaving = asyncio.create_task(self._end())
        else:
            self.should_exit = self.force_exit = True

    async def _end(self) -> None:
        await self._leave()
        self.should_exit = True
