"""Is one run of the checks: it opens connections to the server, and keeps what came over them."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, TypedDict, TypeVar, Unpack

import httpx
import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidMessage, InvalidStatus
from websockets.http11 import Response
from websockets.typing import Subprotocol

from duplex_server.conformance.checks import Deviation, Json, NotApplicable, at, expect, shorten
from duplex_server.conformance.peer import SOON_S, Peer
from duplex_server.conformance.report import Result
from duplex_server.conformance.sound import Pcm
from duplex_server.conformance.target import Target

CONNECT_S = 15.0
CLOSE_S = 1.0
ROOM_S, RETRY_S = 3.0, 0.1
"""A server may need a moment until the session that was closed last makes room for the next one."""
MOST_FRAME_BYTES = 64 * 1024 * 1024
"""Far more than a server may send, so that one that sends too much is told of, not hung up on."""
HOPELESS = 3
"""After so many openings in a row that led to nothing, no further one is tried."""

FULL = (429, 503)
"""What a server answers that takes no more sessions for now."""

NUMBER: ContextVar[int] = ContextVar("NUMBER", default=0)
"""The number of the check that is being made."""

T = TypeVar("T")


class Opening(TypedDict, total=False):
    """How a WebSocket is asked for. `headers` stand for those that say who we are."""

    path: str
    headers: Mapping[str, str]
    protocols: tuple[str, ...]


class Run:
    """What the checks share: the server, the speech, and all that has come so far."""

    def __init__(self, target: Target, speech: Pcm | None, patience_s: float) -> None:
        self.target, self._speech, self.patience_s = target, speech, patience_s
        self.peers: list[tuple[int, Peer]] = []  # with the number of the check that opened it
        self.refusals: list[tuple[str, int, Mapping[str, str], bytes]] = []
        self.asides: tuple[asyncio.Task[Result], ...] = ()
        self._made: dict[object, Any | Exception] = {}
        self._lost = 0

    @property
    def speech(self) -> Pcm:
        """Raises `NotApplicable` when there is none."""
        if self._speech is None:
            raise NotApplicable("it needs speech: --speech FILE")
        return self._speech

    async def once(self, make: Callable[[Run], Awaitable[T]]) -> T:
        """What several checks look at is made by the first of them; when that fails, it fails for all."""
        if make not in self._made:
            try:
                self._made[make] = await make(self)
            except Exception as error:
                self._made[make] = error
        made = self._made[make]
        if isinstance(made, Exception):
            raise made
        return made  # type: ignore[no-any-return]  # of the type that `make` gives

    def findings(self, number: int | None = None) -> list[str]:
        """What the grammar has found, of one number or of all, each with the check in which it came."""
        found: dict[str, str] = {}
        for where, peer in self.peers:
            for one in peer.grammar.found:
                if number in (None, one.number):
                    found.setdefault(one.text, f"{one.text} (in check {where})")
        return list(found.values())

    # ---- HTTP -----------------------------------------------------------------------------------------------------

    async def request(
        self, method: str, path: str, body: object = None, *, keyless: bool = False, **headers: str
    ) -> httpx.Response:
        """One HTTP request below the base path; underscores in names of headers are dashes."""
        sent = {} if keyless else dict(self.target.headers)
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            async with httpx.AsyncClient(
                timeout=SOON_S, verify=not self.target.local, trust_env=not self.target.local
            ) as client:
                answer = await client.request(method, self.target.route(path), json=body, headers=sent)
        except httpx.HTTPError as error:
            raise Deviation(f"an answer to {method} {path}", f"{type(error).__name__}: {error}") from error
        if answer.is_error:
            self.refusals.append((f"{method} {path}", answer.status_code, answer.headers, answer.content))
        return answer

    # ---- WebSocket ------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def session(self, query: str | None = None, **opening: Unpack[Opening]) -> AsyncIterator[Peer]:
        """An open session, whose first event has come; it is closed at the end."""
        async with self.connection(query, **opening) as peer:
            try:
                created = await peer.wait("session.created", errors=True)
            except Deviation:
                self._lost += 1
                raise
            self._lost = 0
            expect(peer.events[0] is created, "session.created first of all", peer.kinds())
            peer.kind = at(created, "session").get("type")
            yield peer

    @asynccontextmanager
    async def connection(self, query: str | None = None, **opening: Unpack[Opening]) -> AsyncIterator[Peer]:
        """A WebSocket, whatever comes over it."""
        socket = await self._open(query, opening)
        peer = Peer(socket, self.patience_s)
        self.peers.append((NUMBER.get(), peer))
        listening = asyncio.create_task(peer.listen())
        try:
            yield peer
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
            await socket.close()

    async def refusal(self, query: str | None = None, **opening: Unpack[Opening]) -> Response | None:
        """What the server answers to a handshake that it should refuse; None when it does not."""
        try:
            async with self.connection(query, **opening):
                return None
        except _Refused as refused:
            return refused.response

    async def _open(self, query: str | None, opening: Opening) -> ClientConnection:
        if self._lost >= HOPELESS:
            raise Deviation("a session", f"not tried: the last {HOPELESS} openings led to none")
        url = self.target.socket(query, opening.get("path"))
        ends_s = time.monotonic() + ROOM_S
        while True:
            try:
                return await self._connect(url, opening)
            except InvalidStatus as error:
                if error.response.status_code not in FULL or time.monotonic() > ends_s:
                    raise self._refusal(url, error) from error
                ends_s += await self._make_room()
            except (InvalidHandshake, InvalidMessage, OSError, EOFError, TimeoutError) as error:
                self._lost += 1
                raise Deviation("a WebSocket", f"{type(error).__name__}: {error}") from error

    async def _make_room(self) -> float:
        """Let a session end that takes up the room of the next one; gives the seconds that this took."""
        began_s = time.monotonic()
        waiting = [task for task in self.asides if not task.done()]
        if waiting and asyncio.current_task() not in waiting:
            await asyncio.wait(waiting)
        await asyncio.sleep(RETRY_S)
        return time.monotonic() - began_s if waiting else 0.0

    def _refusal(self, url: str, error: InvalidStatus) -> _Refused:
        answer = error.response
        headers = httpx.Headers(dict(answer.headers.raw_items()))
        self.refusals.append((f"WebSocket {url}", answer.status_code, headers, bytes(answer.body or b"")))
        return _Refused(answer)

    async def _connect(self, url: str, opening: Opening) -> ClientConnection:
        return await connect(
            url,
            additional_headers=opening.get("headers", self.target.headers),
            subprotocols=[Subprotocol(name) for name in opening.get("protocols", ())] or None,
            open_timeout=CONNECT_S,
            close_timeout=CLOSE_S,
            max_size=MOST_FRAME_BYTES,
            max_queue=None,
            compression=None,
            proxy=None if self.target.local else True,
            ssl=_trusting() if self.target.secure and self.target.local else None,
        )


def _trusting() -> ssl.SSLContext:
    """For this machine, whose certificate nobody has signed."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class _Refused(Deviation):
    """The server refused the handshake."""

    def __init__(self, response: Response) -> None:
        self.response = response
        body = bytes(response.body or b"").decode(errors="replace")
        super().__init__("a WebSocket", shorten(f"HTTP {response.status_code} {body}"))


def envelope(what: str, body: bytes | Json) -> Json:
    """The `error` in the body of a refusal. Raises `Deviation` when it is not in the form of all errors."""
    try:
        told = msgspec.json.decode(body) if isinstance(body, bytes | bytearray) else body
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Deviation(f"a JSON envelope from {what}", body) from None
    error = at(told, "error")
    for name in ("message", "type", "param", "code"):
        expect(isinstance(error, dict) and name in error, f"error.{name} from {what}", told)
    expect(isinstance(error["message"], str) and bool(error["message"]), f"a message from {what}", told)
    return error
