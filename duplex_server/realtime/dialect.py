"""Translates between the events of a session and the frames of one connection, in the dialect that its client speaks.

The session knows the GA dialect alone. A client of the older one, beta, shows itself by a header, by a subprotocol, or
by how it writes its first `session.update`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from duplex_server.realtime import beta_in, beta_out, wire
from duplex_server.realtime.schema import Session, ShownSession
from duplex_server.realtime.wire import AnyClientEvent, AnyServerEvent, Fault

Dialect = Literal["ga", "beta"]
DialectSetting = Literal["auto", "ga", "beta"]
"""What is spoken to clients; `auto` goes by what each shows."""
BETA_HEADER = "realtime=v1"
BETA_PROTOCOL = "openai-beta.realtime-v1"


class Codec:
    """The dialect of one connection.

    `decode` may run in a thread, one frame at a time, while `encode` runs on the event loop. A connection of which
    nothing is known yet (`listens`) speaks as it is told to until the first update of its client shows which one it is.
    """

    def __init__(self, dialect: Dialect = "ga", *, listens: bool = False) -> None:
        self._listens = listens
        self._forms = _FORMS[dialect]
        self.conversation_id: str | None = None
        """Told to a client of the older dialect when its session begins."""

    def decode(self, frame: str | bytes) -> AnyClientEvent | Fault:
        """Read one frame, in either spelling. What can't be taken comes back as a `Fault`."""
        event = beta_in.read(frame)
        if self._listens and isinstance(event, wire.SessionUpdate | Fault):
            self._look(frame)
        return event

    def encode(self, event: AnyServerEvent) -> tuple[bytes, ...]:
        """The frames that tell an event, in their order; none for what the dialect does not tell."""
        form = self._forms.get(type(event))
        if form is None:
            return (wire.encode(event),)
        frames = form(event)
        if self._forms is beta_out.FORMS and self.conversation_id and isinstance(event, wire.SessionCreated):
            frames += beta_out.conversation_created(event, self.conversation_id)
        return frames

    def _look(self, frame: str | bytes) -> None:
        """Tell the client's dialect by its first update, even if that is refused."""
        beta = beta_in.written_in_beta(frame)
        if beta is not None:
            self._listens = False
        if beta:
            self._forms = beta_out.FORMS


def open_codec(setting: DialectSetting, headers: Mapping[str, str], offered: Iterable[str]) -> Codec:
    """The codec of a connection with these headers, which offers these subprotocols."""
    if setting != "auto":
        return Codec(setting)
    if BETA_HEADER in headers.get("openai-beta", "") or BETA_PROTOCOL in offered:
        return Codec("beta")
    return Codec("ga", listens=True)


# ---- the GA dialect -----------------------------------------------------------------------------------------------


def ga_session(session: ShownSession) -> ShownSession:
    """A session's settings as the GA dialect shows them."""
    if not isinstance(session, Session) or isinstance(session.temperature, UnsetType):
        return session
    return msgspec.structs.replace(session, temperature=UNSET)


def _with_session(event: wire.SessionCreated | wire.SessionUpdated) -> tuple[bytes, ...]:
    return (wire.encode(msgspec.structs.replace(event, session=ga_session(event.session))),)


def _with_response(event: wire.ResponseCreated | wire.ResponseDone) -> tuple[bytes, ...]:
    response = event.response
    if not isinstance(response.temperature, UnsetType):
        event = msgspec.structs.replace(event, response=msgspec.structs.replace(response, temperature=UNSET))
    return (wire.encode(event),)


_FORMS: Mapping[Dialect, Mapping[type[AnyServerEvent], beta_out.Form]] = {
    "ga": {
        wire.SessionCreated: _with_session,
        wire.SessionUpdated: _with_session,
        wire.ResponseCreated: _with_response,
        wire.ResponseDone: _with_response,
    },
    "beta": beta_out.FORMS,
}
