"""Finds in what a session was fed and did the moments that are worth counting or timing; it tells no words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from duplex_server.realtime.effects import ClearAudio, Effect, PlayAudio, Send
from duplex_server.realtime.inputs import Event, Input
from duplex_server.realtime.schema import ResponseStatus
from duplex_server.realtime.wire import (
    CreateResponse,
    ItemTruncated,
    ResponseCreated,
    ResponseDone,
    SpeechStarted,
    SpeechStopped,
)

Cause = Literal["speech", "request"]
"""What an answer is counted from: `speech_stopped`, or the client's `response.create`."""


@dataclass(frozen=True, slots=True)
class FirstAudio:
    """The first sound of an answer went out, so long after its cause.

    `turn_id` is the spoken item's id, or the response's where a request is answered.
    """

    turn_id: str
    cause: Cause
    seconds: float


@dataclass(frozen=True, slots=True)
class Silenced:
    """Speech cut what was being said, so long after it began; `turn_id` is the id of the item it becomes."""

    turn_id: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Replied:
    """A response is done."""

    status: ResponseStatus


@dataclass(frozen=True, slots=True)
class Truncated:
    """The client told how much of an item was heard."""


Milestone = FirstAudio | Silenced | Replied | Truncated


class Watcher(Protocol):
    """Whoever counts. Told on the event loop's thread; nothing here may raise or take long."""

    def reached(self, milestone: Milestone) -> None:
        """A session has come so far."""


class Unwatched:
    """A watcher for sessions that nobody watches."""

    def reached(self, milestone: Milestone) -> None: ...


@dataclass(frozen=True, slots=True)
class _Since:
    turn_id: str
    cause: Cause
    at: float


class Milestones:
    """Follows one session. It keeps the end of the newest turn, and a start for each response under way."""

    def __init__(self) -> None:
        self._stopped: _Since | None = None
        self._open: dict[str, _Since] = {}

    @property
    def waiting(self) -> int:
        """How many responses under way have no sound yet."""
        return len(self._open)

    def note(self, now: float, given: Input, effects: tuple[Effect, ...], speech_began: float) -> tuple[Milestone, ...]:
        """Take in what a session was fed and did by now; `speech_began` is when the newest speech of its user did."""
        found: list[Milestone] = []
        cleared = False
        for effect in effects:
            match effect:
                case ClearAudio():  # it comes before the event that explains it
                    cleared = True
                case PlayAudio(response_id=response_id) if (since := self._open.pop(response_id, None)) is not None:
                    found.append(FirstAudio(since.turn_id, since.cause, now - since.at))
                case Send(event=SpeechStarted(item_id=item_id)) if cleared:
                    found.append(Silenced(item_id, now - speech_began))
                case Send(event=SpeechStopped(item_id=item_id)):
                    self._stopped = _Since(item_id, "speech", now)
                case Send(event=ResponseCreated(response=response)):
                    self._begin(response.id, now, given)
                case Send(event=ResponseDone(response=response)):
                    self._open.pop(response.id, None)
                    found.append(Replied(response.status))
                case Send(event=ItemTruncated()):
                    found.append(Truncated())
        return tuple(found)

    def _begin(self, response_id: str, now: float, given: Input) -> None:
        """A response that nobody asked for answers the turn before it."""
        if isinstance(given, Event) and isinstance(given.event, CreateResponse):
            self._open[response_id] = _Since(response_id, "request", now)
        elif self._stopped is not None:
            self._open[response_id], self._stopped = self._stopped, None
