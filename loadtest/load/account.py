"""Holds what one call hears to account: do its events come in order and join, does it fall silent, how late is it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from loadtest.wire import Message

# The events of one item in their order. Sound and words run side by side.
_PLACES = {
    "response.output_item.added": 0,
    "response.content_part.added": 1,
    "response.output_audio.delta": 2,
    "response.output_audio.done": 2,
    "response.output_audio_transcript.delta": 2,
    "response.output_audio_transcript.done": 2,
    "response.content_part.done": 3,
    "response.output_item.done": 4,
}
_ENDED = _PLACES["response.output_item.done"]


@dataclass(frozen=True, slots=True)
class Problem:
    """What was wrong. The message holds no ids, so that equal problems look equal."""

    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class Cut:
    """The loudspeaker was cut at `at`, in monotonic seconds, and lost so much sound that it had not played."""

    at: float
    lost_s: float


@dataclass(slots=True)
class _Item:
    last: str
    words: dict[int, str] = field(default_factory=dict)  # by content index
    closed: set[tuple[str, int]] = field(default_factory=set)


@dataclass(slots=True)
class _Response:
    items: dict[str, _Item] = field(default_factory=dict)
    sounded: bool = False
    silenced: bool = False
    done: bool = False


class Account:
    """Fed with each message as it arrives, before the loudspeaker has it.

    A server is held to the order of the Realtime protocol, and to sending no more sound of a response once it has told
    that the user speaks over it.
    """

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.late_ms: list[float] = []
        """Of each piece of sound but a response's first: its arrival minus when all sound before it was played."""
        self.cuts: list[Cut] = []
        self._responses: dict[str, _Response] = {}

    def take(self, message: Message, now: float, free_at: float) -> None:
        """A message arrived at `now`; what came before it will have been played at `free_at`.

        Raises KeyError for an event that lacks a field.
        """
        event = message.content
        match message.type:
            case "error":
                self._wrong("error_event", f"{event['error'].get('code')}: {event['error']['message']}")
            case "input_audio_buffer.speech_started":
                self.cuts.append(Cut(now, max(0.0, free_at - now)))
                for response in self._responses.values():
                    response.silenced = True
            case "response.created":
                self._responses[event["response"]["id"]] = _Response()
            case "response.done":
                self._done(event["response"])
            case kind if "response_id" in event:
                self._part(kind, event, now - free_at)

    def _part(self, kind: str, event: dict[str, Any], late_s: float) -> None:
        response = self._responses.get(event["response_id"])
        if response is None:
            self._wrong("order", f"{kind} before response.created")
            return
        if response.done:
            self._wrong("order", f"{kind} after response.done")
        if kind in _PLACES:
            self._place(response, kind, event)
        if kind == "response.output_audio.delta":
            if response.silenced:
                self._wrong("not_stopped", "sound of a response after speech_started had ended it")
            elif response.sounded:
                self.late_ms.append(late_s * 1000)
            response.sounded = True

    def _place(self, response: _Response, kind: str, event: dict[str, Any]) -> None:
        name = event["item"]["id"] if "item" in event else event["item_id"]
        if name not in response.items:
            if _PLACES[kind]:
                self._wrong("order", f"{kind} before response.output_item.added")
            response.items[name] = _Item(kind)
        item = response.items[name]
        # A second content part begins where the first one has ended.
        again = item.last == "response.content_part.done" and kind == "response.content_part.added"
        if _PLACES[kind] < _PLACES[item.last] and not again:
            self._wrong("order", f"{kind} after {item.last}")
        item.last = kind
        index = event.get("content_index", 0)
        stream, _, end = kind.rpartition(".")
        if _PLACES[kind] == 2:
            if (stream, index) in item.closed:
                self._wrong("order", f"{kind} after {stream}.done")
            if end == "done":
                item.closed.add((stream, index))
        if kind == "response.output_audio_transcript.delta":
            item.words[index] = item.words.get(index, "") + event["delta"]
        elif kind == "response.output_audio_transcript.done":
            self._joined(item, index, event["transcript"])

    def _done(self, said: dict[str, Any]) -> None:
        response = self._responses.get(said["id"])
        if response is None or response.done:
            self._wrong("order", f"response.done {'before response.created' if response is None else 'twice'}")
            return
        response.done = True
        if any(_PLACES[item.last] != _ENDED for item in response.items.values()):
            self._wrong("order", "response.done before response.output_item.done")
        details = said.get("status_details") or {}
        if said["status"] not in ("completed", "cancelled") and details.get("reason") != "max_output_tokens":
            self._wrong("failed_response", f"{said['status']}: {details}")
        if said["status"] == "completed":
            for output in said["output"]:
                for index, part in enumerate(output.get("content", ())):
                    if "transcript" in part:
                        self._joined(response.items.get(output["id"], _Item("")), index, part["transcript"])

    def _joined(self, item: _Item, index: int, whole: str) -> None:
        if item.words.get(index, "") != whole:
            self._wrong("transcript", "the transcript's deltas do not join to its whole")

    def _wrong(self, kind: str, message: str) -> None:
        self.problems.append(Problem(kind, message))
