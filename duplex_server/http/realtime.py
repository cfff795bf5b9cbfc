"""Opens realtime sessions over WebSocket: who may, how many at once, and with which settings."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from http import HTTPStatus
from pathlib import Path

from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from duplex_server import auth
from duplex_server.channels.websocket import WebSocketChannel
from duplex_server.config import Config
from duplex_server.errors import error_response
from duplex_server.metrics import Losses, Refusal, SessionMetrics
from duplex_server.realtime import wire
from duplex_server.realtime.config import SessionConfig
from duplex_server.realtime.driver import Driver
from pipeline.engine import Engine

log = logging.getLogger(__name__)

PATHS = ("/v1/realtime", "/realtime", "/openai/v1/realtime")
DEFAULT_MODEL = "gpt-realtime"
DEFAULT_VOICE = "marin"
RETRY_FULL_S = 10
RETRY_LOADING_S = 2
CLOSE_UNAUTHORIZED = 3000


class Sessions:
    """The live sessions of the server; it lets no more in than there is room for."""

    def __init__(self, config: Config, engine: Engine, metrics: SessionMetrics) -> None:
        self._config, self._engine, self._metrics = config, engine, metrics
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

    def routes(self) -> list[WebSocketRoute]:
        return [WebSocketRoute(path, self.open) for path in PATHS]

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
        key = by_protocol if by_protocol is not None else auth.header_key(socket.headers)
        known = auth.allowed(key, self._config.server.api_keys)
        if not self._config.server.api_keys and auth.foreign(socket.headers):
            message = "A page of another host may use this server with a key only: set server.api_keys."
            await self._deny(socket, HTTPStatus.FORBIDDEN, "foreign_origin", message)
            return
        if not known and by_protocol is None:
            message = "Incorrect API key provided. Set Authorization: Bearer to one of the server's keys."
            await self._deny(socket, HTTPStatus.UNAUTHORIZED, "invalid_api_key", message)
            return
        if known and (await self._not_served(socket) or await self._refused(socket)):
            return
        stream = f"s{secrets.token_hex(8)}"
        self._live.add(stream)
        try:
            await socket.accept(auth.SUBPROTOCOL if auth.SUBPROTOCOL in offered else None)
            await (self._hold(socket, stream) if known else self._turn_away(socket))
        finally:
            self._live.discard(stream)

    async def _not_served(self, socket: WebSocket) -> bool:
        """Kinds of session that are asked for by the address and can't be had here."""
        query = socket.query_params
        if call_id := query.get("call_id"):
            message = f"There is no call {call_id!r} to attach to."
            await self._deny(socket, HTTPStatus.NOT_FOUND, "call_not_found", message, param="call_id")
        elif (intent := query.get("intent", "conversation")) != "conversation":
            message = f"Sessions with intent={intent} are not served. Open one with a model, and leave intent out."
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
        await self._deny(socket, HTTPStatus.SERVICE_UNAVAILABLE, code, message, retry_s=retry_s)
        return True

    async def _deny(
        self,
        socket: WebSocket,
        status: HTTPStatus,
        code: Refusal,
        message: str,
        *,
        param: str | None = None,
        retry_s: int | None = None,
    ) -> None:
        """Refuse the handshake."""
        self._metrics.refused(code)
        headers = {"Retry-After": str(retry_s)} if retry_s is not None else None
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

    async def _hold(self, socket: WebSocket, stream: str) -> None:
        journal_dir = self._config.server.journal_dir
        channel = WebSocketChannel(socket)
        driver = Driver(
            channel,
            self._engine,
            self._session_config(socket, stream),
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

    def _session_config(self, socket: WebSocket, stream: str) -> SessionConfig:
        defaults, lifetime_s = self._config.session, self._config.server.session_minutes * 60
        talker = self._engine.capabilities["talker"]
        query = socket.query_params
        return SessionConfig(
            stream=stream,
            id_seed=secrets.token_hex(16),
            model=query.get("model") or query.get("deployment") or DEFAULT_MODEL,
            instructions=defaults.instructions,
            voice=defaults.voice or DEFAULT_VOICE,
            temperature=defaults.temperature,
            expires_at=int(time.time() + lifetime_s),
            lifetime_s=lifetime_s,
            voices=talker.voices,
            talker_rate_hz=talker.rate_hz,
            run_ahead_ms=defaults.run_ahead_ms,
            client_buffer_ms=defaults.client_buffer_ms,
            speculate=defaults.speculate,
            echo_guard=defaults.echo_guard,
            answer_on=defaults.answer_on,
            answer_empty=defaults.answer_empty,
            max_reply_tokens=defaults.max_reply_tokens,
            max_reply_s=defaults.max_reply_s,
        )


def _losses(driver: Driver) -> Losses:
    return Losses(driver.stale_chunks, driver.session.underruns, driver.dropped_turns, driver.dropped_samples)
