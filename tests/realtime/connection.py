"""Is the wire between a client and a session: frames both ways, in either dialect."""

from __future__ import annotations

from typing import Any

import msgspec

from duplex_server.realtime.dialect import Codec
from duplex_server.realtime.inputs import Event, Rejected
from duplex_server.realtime.wire import Fault
from tests.conformance.realtime_validator import Validator
from tests.realtime.talk import Talk

Json = dict[str, Any]  # events as they stand on the wire


class Connection:
    """A client's view of a session that has begun: the frames that it was told in its dialect, and those it sent."""

    def __init__(self, talk: Talk, codec: Codec | None = None) -> None:
        self._talk = talk
        self._codec = codec or Codec("beta")
        self._codec.conversation_id = talk.session.conversation.id
        self._seen = 0
        self.frames: list[Json] = []
        self.sent: list[Json] = []
        self.hear()

    def ask(self, kind: str, **fields: object) -> list[Json]:
        """The client sends an event; gives the frames that came since, the answer last."""
        self.sent.append({"type": kind, **fields})
        event = self._codec.decode(msgspec.json.encode(self.sent[-1]).decode())
        self._talk.feed(Rejected(event) if isinstance(event, Fault) else Event(event))
        return self.hear()

    def update(self, **session: object) -> Json:
        """Change the settings; gives what the client is answered."""
        return self.ask("session.update", session=session)[-1]

    def hear(self) -> list[Json]:
        """The frames of all that was told since."""
        told = self._talk.told[self._seen :]
        self._seen += len(told)
        new = [msgspec.json.decode(frame) for event in told for frame in self._codec.encode(event)]
        self.frames += new
        return new

    def of(self, kind: str) -> list[Json]:
        return [frame for frame in self.frames if frame["type"] == kind]

    @property
    def kinds(self) -> list[str]:
        return [frame["type"] for frame in self.frames]


def problems(frames: list[Json], *, client: bool = False) -> list[str]:
    """What the types of the older dialect, and the order of events, do not allow."""
    validator = Validator(beta=True, client=client, sequence=True)
    found = [problem for frame in frames for problem in validator.feed(frame)]
    return [str(problem) for problem in found + validator.finish()]
