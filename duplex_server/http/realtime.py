"""Opens realtime sessions over WebSocket: who may, how many at once, and with which settings."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from duplex_server import auth
from duplex_server.auth import Door
from duplex_server.channels.websocket import WebSocketChannel
from duplex_server.config import Config
from duplex_server.ephemeral import EphemeralKeys, Grant
from duplex_server.errors import error_response
from duplex_server.http.keys import CHALLENGE, WRONG_KEY
from duplex_server.http.starting import asked_by, session_config
from duplex_server.metrics import Losses, Refusal, SessionMetrics
from duplex_server.origins import Origins, refusal
from duplex_server.realtime import wire
from duplex_server.realtime.dialect import open_codec
from duplex_server.realtime.driver import Driver
from pipeline.engine import Engine

log = logging.getLogger(__name__)

PATHS = ("/v1/realtime", "/realtime", "/openai/v1/realtime")
RETRY_FULL_S = 10
RETRY_LOADING_S = 2
CLOSE_UNAUTHORIZED = 3000


class Sessions:
    """The live sessions of the server; it lets no more in than there is room for."""

    def __init__(
        self, config: Config, engine: Engine, metrics: SessionMetrics, ephemeral: EphemeralKeys | None = None
    ) -> None:
        self._config, self._engine, self._metrics = config, engine, metrics
        settings = config.server
        self.door = Door(settings.api_keys, EphemeralKeys() if ephemeral is None else ephemeral)
        self._pages = Origins.of(settings.allowed_origins, keyless=not settings.api_keys)
        self._live: set[str] = set()
        self._drivers: dict[str, Driver] = {}
        self._past = Losses()  # of the sessions that are over
        self.stopping = False

    @property
    def live(self) -> int:
        """How many sessions are under way."""
        return len(self._drivers)

    @property
    def losses(self) -> Losses:
        """What was lost in all sessions so far."""
        return sum(map(_losses, self._drivers.values()), self._past)

    def routes(self) -> list[BaseRoute]:
        """Each address for a WebSocket, and for whoever comes there without asking for one."""
        return [
            *(WebSocketRoute(path, self.open) for path in PATHS),
            *(Route(path, _not_a_socket, methods=["GET", "POST"]) for path in PATHS),
        ]

    async def stop(self, within_s: float) -> None:
        """Take no more peers, and end those that are there: replies under way have so long to end."""
        self.stopping = True
        async with asyncio.TaskGroup() as tasks:
            for driver in self._drivers.values():
                tasks.create_task(driver.leave(within_s))

    async def open(self, socket: WebSocket) -> None:
        """Take one peer through its whole session."""
        offered = auth.offered_protocols(socket.headers)
        by_protocol = auth.protocol_key(offered)
        grant = self.door.admit(by_protocol if by_protocol is not None else auth.header_key(socket.headers))
        if not self._pages.admits(socket.headers):
            await self._deny(socket, HTTPStatus.FORBIDDEN, "foreign_origin", refusal(socket.headers))
            return
        if grant is None and by_protocol is None:
            await self._deny(socket, HTTPStatus.UNAUTHORIZED, "invalid_api_key", WRONG_KEY, headers=CHALLENGE)
            return
        if grant is not None and (await self._not_served(socket) or await self._refused(socket)):
            return
        stream = f"s{secrets.token_hex(8)}"
        self._live.add(stream)
        try:
            await socket.accept(auth.SUBPROTOCOL if auth.SUBPROTOCOL in offered else None)
            await (self._hold(socket, stream, grant) if grant is not None else self._turn_away(socket))
        finally:
            self._live.discard(stream)

    async def _not_served(self, socket: WebSocket) -> bool:
        """Kinds of session that are asked for by the address and can't be had here."""
        query = socket.query_params
        if call_id := query.get("call_id"):
            message = f"There is no call {call_id!r} to attach to."
            await self._deny(socket, HTTPStatus.NOT_FOUND, "call_not_found", message, param="call_id")
        elif (intent := query.get("intent", "conversation")) not in ("conversation", "transcription"):
            message = f"Sessions with intent={intent} are not served. Take intent=transcription, or leave it out."
            await self._deny(socket, HTTPStatus.BAD_REQUEST, "unsupported_operation", message, param="intent")
        else:
            return False
        return True

    async def _refused(self, socket: WebSocket) -> bool:
        code: Refusal
        if self.stopping:
            reason, code, retry_s = "The server is stopping.", "stopping", RETRY_FULL_S
        elif not self._engine.ready:
            reason, code, retry_s = "The models are not ready.", "not_ready", RETRY_LOADING_S
        elif len(self._live) >= self._config.server.max_sessions:
            reason = f"All {self._config.server.max_sessions} sessions of this server are taken."
            code, retry_s = "sessions_full", RETRY_FULL_S
        else:
            return False
        message = f"{reason} Try again in {retry_s} s."
        headers = {"Retry-After": str(retry_s)}
        await self._deny(socket, HTTPStatus.SERVICE_UNAVAILABLE, code, message, headers=headers)
        return True

    async def _deny(
        self,
        socket: WebSocket,
        status: HTTPStatus,
        code: Refusal,
        message: str,
        *,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Refuse the handshake."""
        self._metrics.refused(code)
        await socket.send_denial_response(error_response(status, message, code=code, param=param, headers=headers))

    async def _turn_away(self, socket: WebSocket) -> None:
        """A browser can't read a refused handshake, so it is told by an event."""
        self._metrics.refused("invalid_api_key")
        message = "Incorrect API key provided."
        body = wire.ErrorBody(
            type="invalid_request_error", code="invalid_api_key", message=message, param=None, event_id=None
        )
        await socket.send_text(wire.encode(wire.Error(event_id="event_1", error=body)).decode())
        await socket.close(CLOSE_UNAUTHORIZED, "invalid_api_key")

    async def _hold(self, socket: WebSocket, stream: str, grant: Grant) -> None:
        journal_dir = self._config.server.journal_dir
        codec = open_codec(self._config.server.dialect, socket.headers, auth.offered_protocols(socket.headers))
        channel = WebSocketChannel(socket, codec)
        driver = Driver(
            channel,
            self._engine,
            session_config(self._config, self._engine.capabilities, asked_by(socket.query_params, grant), stream),
            codec=codec,
            journal_dir=Path(journal_dir) if journal_dir else None,
            watcher=self._metrics,
        )
        self._metrics.begun()
        log.info("%s begins; %d live", stream, len(self._live))
        self._drivers[stream] = driver
        try:
            async with asyncio.TaskGroup() as tasks:
                writer = tasks.create_task(channel.run())
                await driver.run()
                writer.cancel()
        finally:
            del self._drivers[stream]
            self._past += _losses(driver)
            self._metrics.ended(driver.ending)
        log.info("%s is over; %d stale chunks were dropped", stream, driver.stale_chunks)


def _losses(driver: Driver) -> Losses:
    return Losses(driver.stale_chunks, driver.session.underruns, driver.dropped_turns, driver.dropped_samples)


async def _not_a_socket(request: Request) -> Response:
    message = f"{request.url.path} takes WebSockets: ask for an upgrade with GET. WebRTC calls are not served."
    return error_response(
        HTTPStatus.UPGRADE_REQUIRED, message, code="unsupported_operation", headers={"Upgrade": "websocket"}
    )
