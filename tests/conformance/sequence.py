"""Holds the events of one connection against the order that the protocol gives them."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.conformance.schema import Finding, Json


@dataclass(slots=True)
class _Part:
    text: str = ""
    transcript: str = ""
    done: bool = False


@dataclass(slots=True)
class _Item:
    parts: dict[int, _Part] = field(default_factory=dict)
    arguments: str = ""
    done: bool = False


@dataclass(slots=True)
class _Response:
    items: dict[str, _Item] = field(default_factory=dict)
    done: bool = False


class Sequence:
    """The state of one connection, as its events have told it."""

    def __init__(self) -> None:
        self._count = 0
        self._ids: set[str] = set()
        self._items: dict[str, str] = {}
        self._deleted: set[str] = set()
        self._responses: dict[str, _Response] = {}
        self._active: str | None = None
        self._speech: str | None = None
        self._committed: set[str] = set()
        self._found: list[Finding] = []

    def feed(self, event: dict[str, Json]) -> list[Finding]:
        """What the next event breaks."""
        self._found = []
        self._count += 1
        kind = event["type"]
        if self._count == 1 and kind not in ("session.created", "transcription_session.created", "error"):
            self._bad("type", "first event must be session.created")
        event_id = event.get("event_id")
        if event_id in self._ids:
            self._bad("event_id", f"duplicate {event_id}")
        self._ids.add(event_id or "")
        if kind.startswith("input_audio_buffer."):
            self._input(kind, event)
        elif kind.startswith("conversation.item."):
            self._conversation(kind, event)
        elif kind == "response.created":
            self._created(event["response"])
        elif kind == "response.done":
            self._done(event["response"])
        elif kind.startswith("response.") and "response_id" in event:
            self._inside(kind, event)
        return self._found

    def finish(self) -> list[Finding]:
        """What is missing now that the connection is over."""
        return [
            Finding("sequence", "response.id", f"response {response_id} never finished")
            for response_id, response in self._responses.items()
            if not response.done
        ]

    def _bad(self, path: str, message: str) -> None:
        self._found.append(Finding("sequence", path, message))

    # ---- input ----------------------------------------------------------------------------------------------------

    def _input(self, kind: str, event: dict[str, Json]) -> None:
        item_id = event.get("item_id")
        match kind.removeprefix("input_audio_buffer."):
            case "speech_started":
                if self._speech:
                    self._bad("type", "speech_started while speech already active")
                self._speech = item_id
            case "speech_stopped":
                if self._speech != item_id:
                    self._bad("item_id", "speech_stopped does not match the open speech_started")
                self._speech = None
            case "committed":
                self._committed.add(item_id or "")
                self._speech = None if self._speech == item_id else self._speech
            case "cleared":
                self._speech = None

    # ---- items ----------------------------------------------------------------------------------------------------

    def _conversation(self, kind: str, event: dict[str, Json]) -> None:
        item = event.get("item")
        match kind.removeprefix("conversation.item."):
            case "added" | "created" if isinstance(item, dict):
                self._item_added(kind, item, event.get("previous_item_id"))
            case "done" if isinstance(item, dict):
                if item.get("id") not in self._items:
                    self._bad("item.id", "done before added")
                if item.get("status") == "in_progress":
                    self._bad("item.status", "done item still in_progress")
                self._items[item.get("id", "")] = "done"
            case "deleted":
                item_id = event.get("item_id", "")
                if item_id not in self._items:
                    self._bad("item_id", "deleting an unknown item")
                self._items.pop(item_id, None)
                self._deleted.add(item_id)
            case what if what.startswith("input_audio_transcription."):
                # Words may come while they are spoken: `speech_started` has announced their item.
                known = {*self._items, *self._deleted, *self._committed, self._speech}
                if event.get("item_id") not in known:
                    self._bad("item_id", "transcription for an unknown item")

    def _item_added(self, kind: str, item: dict[str, Json], previous: str | None) -> None:
        item_id = item.get("id", "")
        if self._items.get(item_id) == "added" and kind == "conversation.item.added":
            self._bad("item.id", "item added twice")
        self._items.setdefault(item_id, "added")
        self._deleted.discard(item_id)
        if previous is not None and previous not in self._items:
            self._bad("previous_item_id", f"unknown item {previous}")
        spoken = item.get("role") == "user" and any(
            part.get("type") == "input_audio" for part in item.get("content") or []
        )
        if spoken and self._committed and item_id not in self._committed and item.get("status") != "completed":
            self._bad("item.id", "audio item was never committed")

    # ---- responses ------------------------------------------------------------------------------------------------

    def _created(self, response: dict[str, Json]) -> None:
        response_id = response.get("id", "")
        if response_id in self._responses:
            self._bad("response.id", "response created twice")
        if response.get("status") != "in_progress":
            self._bad("response.status", "response.created must be in_progress")
        if response.get("conversation_id") is not None:
            if self._active:
                self._bad("response.id", f"default-conversation response {self._active} still open")
            self._active = response_id
        self._responses[response_id] = _Response()

    def _done(self, response: dict[str, Json]) -> None:
        known = self._responses.get(response.get("id", ""))
        if known is None:
            self._bad("response.id", "response.done without response.created")
        else:
            if known.done:
                self._bad("response.id", "response.done twice")
            known.done = True
            for item_id, item in known.items.items():
                if not item.done:
                    self._bad("response.output", f"item {item_id} has no response.output_item.done")
        if response.get("status") in (None, "in_progress"):
            self._bad("response.status", "terminal status required")
        if self._active == response.get("id"):
            self._active = None

    def _inside(self, kind: str, event: dict[str, Json]) -> None:
        response = self._responses.get(event["response_id"])
        if response is None:
            self._bad("response_id", "unknown response")
            return
        if response.done:
            self._bad("response_id", f"{kind} after response.done")
            return
        if kind == "response.output_item.added":
            response.items[event["item"].get("id")] = _Item()
            return
        item = response.items.get(event.get("item_id") or (event.get("item") or {}).get("id", ""))
        if item is None:
            self._bad("item_id", f"{kind} before response.output_item.added")
        elif item.done:
            self._bad("item_id", f"{kind} after response.output_item.done")
        else:
            self._in_item(kind, event, item)

    def _in_item(self, kind: str, event: dict[str, Json], item: _Item) -> None:
        match kind:
            case "response.output_item.done":
                item.done = True
                if event["item"].get("status") == "in_progress":
                    self._bad("item.status", "done item still in_progress")
                for number, part in item.parts.items():
                    if not part.done:
                        self._bad("content_index", f"content part {number} never got response.content_part.done")
            case "response.function_call_arguments.delta":
                item.arguments += event.get("delta") or ""
            case "response.function_call_arguments.done":
                if item.arguments and item.arguments != event.get("arguments"):
                    self._bad("arguments", "differs from the concatenated deltas")
            case "response.content_part.added":
                item.parts[event["content_index"]] = _Part()
            case _ if "content_index" in event:
                self._in_part(kind, event, item)

    def _in_part(self, kind: str, event: dict[str, Json], item: _Item) -> None:
        part = item.parts.get(event["content_index"])
        if part is None:
            self._bad("content_index", f"{kind} before response.content_part.added")
            return
        if part.done:
            self._bad("content_index", f"{kind} after response.content_part.done")
            return
        match kind.replace("response.output_", "response."):
            case "response.text.delta":
                part.text += event.get("delta") or ""
            case "response.audio_transcript.delta":
                part.transcript += event.get("delta") or ""
            case "response.text.done" if event.get("text") != part.text:
                self._bad("text", "differs from the concatenated deltas")
            case "response.audio_transcript.done" if event.get("transcript") != part.transcript:
                self._bad("transcript", "differs from the concatenated deltas")
            case "response.content_part.done":
                part.done = True
