"""Puts the server together and runs it: the only place that knows all of its parts."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import ssl
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware

from duplex_server import progress, tls
from duplex_server.channels.eager import EagerProtocol
from duplex_server.config import Config, ServerSettings
from duplex_server.http import calls, demo, guard, health, metrics
from duplex_server.http.client_secrets import ClientSecrets
from duplex_server.http.cors import Cors
from duplex_server.http.realtime import PATHS, Sessions
from duplex_server.metrics import Metrics, Snapshot
from duplex_server.origins import Origins
from duplex_server.preflight import is_loopback
from duplex_server.realtime.settings import ALIAS_VOICES
from models.registry import load_family
from pipeline.engine import Engine
from pipeline.errors import ConfigError

log = logging.getLogger(__name__)

MAX_FRAME_BYTES = 32 * 1024 * 1024
"""15 MiB of sound are 20 MiB of base64."""
PING_S = 20.0
BACKLOG = 128
"""Connections that may wait to be taken."""
HANDSHAKE_S = 10.0
"""How long a peer may take to agree on TLS."""
CLOSE_S = 2
"""How long connections may take to close once their sessions have ended."""


def build(engine: Engine, sessions: Sessions, measured: Metrics, config: Config) -> Starlette:
    """The application over a pipeline that is, or will be, started."""

    def shot() -> Snapshot:
        return Snapshot(sessions.live, sessions.losses, engine.states)

    secrets = ClientSecrets(config, engine, sessions.door, lambda: sessions.stopping)
    keyless = not config.server.api_keys
    users = Origins.of(config.server.allowed_origins, keyless=keyless)
    readers = config.server.cors_origins
    return Starlette(
        routes=[
            *health.routes(engine, lambda: sessions.stopping),
            *metrics.routes(measured, shot, config.server),
            *sessions.routes(),
            *(route for root in PATHS for route in (*secrets.routes(root), *calls.routes(sessions.door, root))),
            *demo.routes(),
        ],
        middleware=[
            Middleware(guard.Guard),
            Middleware(Cors, PATHS, users, users if readers is None else Origins.only(readers)),
        ],
        exception_handlers=guard.HANDLERS,
    )


def run(config: Config) -> int:
    """Serve until told to stop; gives the exit code. Raises `StageError` when a model can't be loaded."""
    settings = config.server
    _check_journals(settings.journal_dir)
    with contextlib.ExitStack() as open_sockets:
        listeners = [open_sockets.enter_context(_listen(settings.host, settings.port))]
        secure: Secure | None = None
        if settings.tls:
            certificate = _certificate(settings)
            context = tls.context(certificate)
            listeners.append(open_sockets.enter_context(_listen(settings.hosts[-1], settings.tls_port)))
            secure = Secure(listeners[-1], context, certificate.cert if settings.tls_self_signed else None)
        return asyncio.run(_serve(config, listeners[0], secure))


@dataclass(frozen=True, slots=True)
class Secure:
    """A listener for TLS; `trust` is the certificate that clients must be told of."""

    listener: socket.socket
    context: ssl.SSLContext
    trust: Path | None = None


def _certificate(settings: ServerSettings) -> tls.Certificate:
    if settings.tls_cert_file is not None and settings.tls_key_file is not None:
        return tls.Certificate(Path(settings.tls_cert_file), Path(settings.tls_key_file))
    folder = (Path(settings.state_dir) if settings.state_dir else tls.state_dir()) / "tls"
    return tls.self_signed(folder, settings.hosts[-1], settings.tls_names)


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


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=BACKLOG)


def serving(
    app: Starlette, leave: Callable[[], Awaitable[None]], secure: Secure | None = None, ping_s: float = PING_S
) -> Server:
    """What serves the application, once it is given a listener; `leave` ends the sessions before it ends."""
    config = uvicorn.Config(
        app,
        ws=EagerProtocol,
        ws_max_size=MAX_FRAME_BYTES,
        ws_ping_interval=ping_s,
        ws_ping_timeout=ping_s,
        ws_per_message_deflate=False,
        lifespan="off",
        log_config=None,
        access_log=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=CLOSE_S,
    )
    return Server(config, leave, secure)


async def _serve(config: Config, listener: socket.socket, secure: Secure | None) -> int:
    measured = Metrics(config.pipeline.stages)
    engine = Engine(config.pipeline, load_family, observer=measured.pipeline)
    sessions = Sessions(config, engine, measured.sessions)
    app = build(engine, sessions, measured, config)
    server = serving(app, lambda: sessions.stop(config.server.shutdown_s), secure)
    with on_signals(server.stop):
        running = asyncio.create_task(server.serve([listener]))
        loading = asyncio.create_task(_load(config, engine, listener, secure))
        try:
            await asyncio.wait({running, loading}, return_when=asyncio.FIRST_COMPLETED)
            if loading.done():
                loading.result()
                await running
            return 0
        finally:
            server.should_exit = True
            loading.cancel()
            await asyncio.gather(loading, return_exceptions=True)
            await running
            await engine.stop()


@contextlib.contextmanager
def on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` on the event loop for each SIGINT and SIGTERM.

    The loop's own way hears of a signal by a byte in a pipe, into which the stages' threads write too: when that is
    full, the signal is lost.
    """
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


async def _load(config: Config, engine: Engine, listener: socket.socket, secure: Secure | None) -> None:
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
    if not config.server.api_keys and not all(map(is_loopback, config.server.hosts)):
        _tell("anybody who reaches this address may use the server: set DUPLEX_API_KEYS to ask for keys")
    address = _address(listener)
    _tell(f"ready on http://{address} (Realtime API at ws://{address}/v1/realtime)")
    if secure is not None:
        address = _address(secure.listener)
        _tell(f"and on https://{address} (Realtime API at wss://{address}/v1/realtime)")
        if secure.trust is not None:
            _tell(f"its certificate, to be trusted by clients (NODE_EXTRA_CA_CERTS, SSL_CERT_FILE): {secure.trust}")


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _tell(line: str) -> None:
    print(line, file=sys.stdout, flush=True)


class Server(uvicorn.Server):
    """Uvicorn, stopped by us: its own signal handling would end the process before the models are released."""

    def __init__(self, config: uvicorn.Config, leave: Callable[[], Awaitable[None]], secure: Secure | None) -> None:
        super().__init__(config)
        self._leave, self._secure = leave, secure
        self._leaving: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen; with TLS on a socket of its own, beside the others."""
        await super().startup(sockets)
        if self._secure is not None:
            listening = await asyncio.get_running_loop().create_server(
                self._connected,
                sock=self._secure.listener,
                ssl=self._secure.context,
                ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=CLOSE_S,
                backlog=BACKLOG,
            )
            self.servers.append(listening)

    def _connected(self) -> asyncio.Protocol:
        # As Uvicorn does for its own listeners.
        protocol: Callable[..., asyncio.Protocol] = self.config.http_protocol_class
        return protocol(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)

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
        try:
            await self._leave()
        except Exception:
            log.exception("the sessions did not end as they should; the server ends all the same")
        finally:
            self.should_exit = True
