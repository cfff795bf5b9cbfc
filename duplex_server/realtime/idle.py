"""Counts how long nobody has said anything since an answer was heard, by what the client is told."""

from __future__ import annotations

from duplex_server.realtime.schema import FunctionCall
from duplex_server.realtime.wire import (
    AnyServerEvent,
    Committed,
    ResponseCreated,
    ResponseDone,
    SpeechStarted,
    TimeoutTriggered,
)

IN_A_ROW = 3
"""Silences that are answered one after the other; then it stays quiet until the user or the client does something."""


class IdleTimer:
    """The wait for a user who says nothing.

    It runs from the end of a response, once that has been heard. Speech, a commit and the next response stop it. After
    one that calls a function it is the client who is waited for.
    """

    __slots__ = ("_in_a_row", "_timed_out", "since")

    def __init__(self) -> None:
        self.since: float | None = None  # when it began, or will begin; None while it does not run
        self._timed_out = False  # a silence has ended, and its answer is to come
        self._in_a_row = 0

    def told(self, event: AnyServerEvent, heard_until: float) -> None:
        """The client is told something; all that has been said will have been heard at `heard_until`."""
        match event:
            case SpeechStarted() | Committed():
                self.since = None
            case TimeoutTriggered():
                self._timed_out = True
                self._in_a_row += 1
            case ResponseCreated(response=response) if response.conversation_id is not None:
                self._in_a_row = self._in_a_row if self._timed_out else 0
                self.since, self._timed_out = None, False
            case ResponseDone(response=response) if response.conversation_id is not None:
                calls = any(isinstance(item, FunctionCall) for item in response.output)
                if self._in_a_row < IN_A_ROW and not calls:
                    self.since = heard_until
            case _:
                pass

    def reset(self, idle_ms: int | None, now: float) -> None:
        """The client changed how turns are found: a wait that goes on begins anew, or ends if none is wanted."""
        if self.since is not None:
            self.since = None if idle_ms is None else max(self.since, now)

    def due(self, idle_ms: int | None) -> float | None:
        """When the silence will have lasted so long; None while nobody waits for that."""
        return None if idle_ms is None or self.since is None else self.since + idle_ms / 1000


def silence_note(silent_s: float) -> str:
    """What the model is told of a turn in which nobody spoke, so that it says something that fits."""
    return (
        f"(The user has said nothing for {round(silent_s)} seconds. "
        "Ask in one short sentence whether they are still there.)"
    )
