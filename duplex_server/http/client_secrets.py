"""Hands out ephemeral keys, each bound to the settings that a session opened with it begins with."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from duplex_server.auth import Door
from duplex_server.config import Config
from duplex_server.ephemeral import Grant
from duplex_server.errors import HttpError, error_response
from duplex_server.http import bodies
from duplex_server.http.keys import ask_issuer
from duplex_server.http.starting import session_config
from duplex_server.realtime import wire
from duplex_server.realtime.beta_in import WrittenSession, nested_session
from duplex_server.realtime.beta_out import FlatSession, FlatTranscription, flat_session, flat_transcription
from duplex_server.realtime.dialect import ga_session
from duplex_server.realtime.schema import Session, SessionKind, ShownSession, Wire
from duplex_server.realtime.settings import opening
from duplex_server.realtime.wire import Fault
from pipeline.engine import Engine

MOST_BODY_BYTES = 1024 * 1024
"""Far more than all settings of a session may take together."""
LASTS_S = 600
RETRY_S = 2
NO_STORE = {"Cache-Control": "no-store"}
KINDS: tuple[SessionKind, ...] = ("realtime", "transcription")

T = TypeVar("T")


class Expiry(Wire, frozen=True, kw_only=True):
    """How long a key lasts."""

    anchor: Literal["created_at"] | UnsetType | None = UNSET
    seconds: Annotated[int, Meta(ge=10, le=7200)] | UnsetType | None = UNSET


class AskedSession(WrittenSession, frozen=True, kw_only=True):
    """The settings that a key is bound to; in a `session.update` the model would be ignored."""

    model: str | UnsetType | None = UNSET


class SecretRequest(Wire, frozen=True, kw_only=True):
    expires_after: Expiry | UnsetType | None = UNSET
    session: AskedSession | UnsetType | None = UNSET


class Lasting(Wire, frozen=True, kw_only=True):
    """The older dialect's; its sessions and its transcription sessions call it by different names."""

    expires_after: Expiry | UnsetType | None = UNSET
    expires_at: Expiry | UnsetType | None = UNSET


class FlatRequest(AskedSession, frozen=True, kw_only=True):
    """The older dialect's: the settings themselves are the body."""

    client_secret: Lasting | UnsetType | None = UNSET


class _TranslationSession(Wire, frozen=True, kw_only=True):
    model: str


class TranslationRequest(Wire, frozen=True, kw_only=True):
    session: _TranslationSession


class Secret(Wire, frozen=True, kw_only=True):
    value: str
    expires_at: int


class BoundSecret(Secret, frozen=True, kw_only=True):
    session: ShownSession


class FlatBoundSecret(FlatSession, frozen=True, kw_only=True):
    client_secret: Secret


class FlatTranscriptionSecret(FlatTranscription, frozen=True, kw_only=True):
    client_secret: Secret


class ClientSecrets:
    """The routes that make ephemeral keys, for whoever has one of the server's."""

    def __init__(self, config: Config, engine: Engine, door: Door, stopping: Callable[[], bool]) -> None:
        self._config, self._engine, self._door, self._stopping = config, engine, door, stopping

    def routes(self, root: str) -> list[Route]:
        """The four addresses below `root`, three of them of older clients or of sessions that are not served."""
        ways = {
            "client_secrets": self._bound,
            "sessions": self._flat,
            "transcription_sessions": self._flat_transcription,
            "translations/client_secrets": self._translation,
        }
        return [Route(f"{root}/{name}", answer, methods=["POST"]) for name, answer in ways.items()]

    async def _bound(self, request: Request) -> Response:
        wanted, size_bytes = await self._read(request, _secret_request)
        if not isinstance(wanted.session, AskedSession):
            grant, shown = Grant(), self._begin(Grant(), None, "")
        else:
            kind = _kind(wanted.session.type)
            grant, shown = self._bind(kind, wanted.session, "")
        value, expires_at = self._door.ephemeral.issue(grant, _seconds(wanted.expires_after), size_bytes)
        return _answer(BoundSecret(value=value, expires_at=expires_at, session=ga_session(shown)))

    async def _flat(self, request: Request) -> Response:
        wanted, size_bytes = await self._read(request, _flat_request)
        grant, shown = self._bind("realtime", wanted, "session.")
        assert isinstance(shown, Session)
        secret = self._issue_flat(grant, wanted, size_bytes)
        return _answer(FlatBoundSecret(client_secret=secret, **msgspec.structs.asdict(flat_session(shown))))

    async def _flat_transcription(self, request: Request) -> Response:
        wanted, size_bytes = await self._read(request, _flat_request)
        # Such a session speaks to nobody, and has no modalities to set.
        grant, shown = self._bind("transcription", msgspec.structs.replace(wanted, modalities=UNSET), "session.")
        assert not isinstance(shown, Session)
        secret = self._issue_flat(grant, wanted, size_bytes)
        fields = msgspec.structs.asdict(flat_transcription(shown))
        return _answer(FlatTranscriptionSecret(client_secret=secret, **fields))

    async def _translation(self, request: Request) -> Response:
        wanted, _ = await self._read(request, _translation_request)
        message = f"Translation sessions are not served, by {wanted.session.model[:80]!r} or any other model."
        return error_response(HTTPStatus.NOT_FOUND, message, code="unsupported_operation")

    async def _read(self, request: Request, decoder: msgspec.json.Decoder[T]) -> tuple[T, int]:
        """The body, and its size in bytes, of somebody who may make keys."""
        ask_issuer(request, self._door)
        body = await bodies.read(request, MOST_BODY_BYTES)
        found = bodies.parse(body, decoder)
        if self._stopping() or not self._engine.ready:
            message = f"The server is not ready. Try again in {RETRY_S} s."
            retry = {"Retry-After": str(RETRY_S)}
            raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, message, code="not_ready", headers=retry)
        return found, len(body)

    def _bind(self, kind: SessionKind, wanted: AskedSession, root: str) -> tuple[Grant, ShownSession]:
        """What a key is bound to, and how a session opened with it begins. `root` is what its own paths leave out."""
        patch, spelled = nested_session(wanted)
        grant = Grant(kind, wanted.model or None, msgspec.structs.replace(patch, type=kind))
        return grant, self._begin(grant, wire.SessionUpdate(session=patch, spelled=spelled), root)

    def _begin(self, grant: Grant, update: wire.SessionUpdate | None, root: str) -> ShownSession:
        shown = opening(session_config(self._config, self._engine.capabilities, grant, "none"))
        if isinstance(shown, Fault):
            fault = wire.in_its_words(shown, update) if update is not None else shown
            bodies.blame(msgspec.structs.replace(fault, param=(fault.param or "").removeprefix(root) or None))
        return shown

    def _issue_flat(self, grant: Grant, wanted: FlatRequest, size_bytes: int) -> Secret:
        lasting = wanted.client_secret if isinstance(wanted.client_secret, Lasting) else Lasting()
        expiry = lasting.expires_after if isinstance(lasting.expires_after, Expiry) else lasting.expires_at
        value, expires_at = self._door.ephemeral.issue(grant, _seconds(expiry), size_bytes)
        return Secret(value=value, expires_at=expires_at)


_secret_request = msgspec.json.Decoder(SecretRequest)
_flat_request = msgspec.json.Decoder(FlatRequest)
_translation_request = msgspec.json.Decoder(TranslationRequest)


def _kind(written: str | UnsetType | None) -> SessionKind:
    if not isinstance(written, str):
        return "realtime"
    for kind in KINDS:
        if written == kind:
            return kind
    message = f"Expected one of {', '.join(KINDS)}, got {written[:80]!r}."
    raise HttpError(HTTPStatus.BAD_REQUEST, message, code="invalid_value", param="session.type")


def _seconds(expiry: Expiry | UnsetType | None) -> int:
    wanted = expiry.seconds if isinstance(expiry, Expiry) else None
    return wanted if isinstance(wanted, int) else LASTS_S


def _answer(body: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(body), headers=NO_STORE, media_type="application/json")
