"""Follows the events of one connection, and finds where one does not fit those before it.

It knows the protocol alone: it shares no line with any server, so that a mistake of one is not a mistake of the other.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field

import msgspec

from duplex_server.conformance.checks import Json, shorten
from duplex_server.conformance.shapes import BETA_NAMES, GRAMMAR, SHAPES, Finding, faults

LARGEST_FRAME_BYTES = 1024 * 1024
FRAMES, SPEECH, TURN_ITEMS, OFFSETS, AFTER_DONE, DELTAS = 16, 82, 77, 79, 139, 120
"""The numbers of the checks under which these findings are told."""
SOUND, WORDS = "response.output_audio", "response.output_audio_transcript"
TEXT, CALL = "response.output_text", "response.function_call_arguments"
ENDS = {WORDS: (SOUND, WORDS), TEXT: (TEXT,)}
"""What must be done before a part is."""


@dataclass(slots=True)
class _Item:
    """An output item as it grows. `joined` are its deltas, by the event that must repeat them whole."""

    id: str
    kind: str
    parts: set[int] = field(default_factory=set)
    open: set[int] = field(default_factory=set)
    joined: dict[tuple[str, int], str] = field(default_factory=dict)
    ended: set[tuple[str, int]] = field(default_factory=set)
    final: Json = None


@dataclass(slots=True)
class _Response:
    in_conversation: bool
    items: list[_Item] = field(default_factory=list)
    done: bool = False


class Grammar:
    """The state of one connection, as its events have told it; `found` is what was wrong with them."""

    def __init__(self) -> None:
        self.found: list[Finding] = []
        self.largest_bytes = 0
        self._count = 0
        self._ids: set[str] = set()
        self._items: dict[str, bool] = {}  # those of the conversation, and whether they are done
        self._gone: set[str] = set()
        self._announced: str | None = None
        self._reached_ms = 0
        self._responses: dict[str, _Response] = {}

    @property
    def unfinished(self) -> list[str]:
        """The responses that were created and not done."""
        return [key for key, response in self._responses.items() if not response.done]

    def read(self, frame: str | bytes) -> Json | None:
        """The event in a frame; None when it holds none."""
        size_bytes = len(frame.encode()) if isinstance(frame, str) else len(frame)
        self.largest_bytes = max(self.largest_bytes, size_bytes)
        if size_bytes >= LARGEST_FRAME_BYTES:
            self._wrong(f"a frame of {size_bytes} bytes; expected less than {LARGEST_FRAME_BYTES}", FRAMES)
        try:
            event = msgspec.json.decode(frame)
        except (msgspec.DecodeError, UnicodeDecodeError):
            event = None
        if not isinstance(event, dict) or not isinstance(event.get("type"), str):
            self._wrong(f"a frame that is no event: {shorten(frame if isinstance(frame, str) else repr(frame))}")
            return None
        self._follow(event)
        return event

    def _wrong(self, text: str, number: int = GRAMMAR) -> None:
        self.found.append(Finding(number, text))

    def _follow(self, event: Json) -> None:
        self._count += 1
        self._event_id(event)
        kind = BETA_NAMES.get(event["type"], event["type"])
        if self._count == 1 and kind not in ("session.created", "transcription_session.created", "error"):
            self._wrong(f"the first event is {kind}; expected session.created")
        wrong = list(faults({**event, "type": kind}))
        self.found += wrong
        if any(one.number == GRAMMAR for one in wrong):
            return  # what can't be read can't be followed
        if kind.startswith("input_audio_buffer."):
            self._input(kind.rpartition(".")[2], event)
        elif kind.startswith("conversation.item."):
            self._conversation(kind.removeprefix("conversation.item."), event)
        elif kind in ("response.created", "response.done"):
            self._response(kind, event["response"])
        elif kind.startswith("response.") and "response_id" in SHAPES[kind]:
            self._inside(kind, event)

    def _event_id(self, event: Json) -> None:
        event_id = event.get("event_id")
        if not isinstance(event_id, str) or not event_id:
            self._wrong(f"{event['type']}: no event_id")
        elif event_id in self._ids:
            self._wrong(f"{event['type']}: the event_id {event_id} was there before")
        else:
            self._ids.add(event_id)

    # ---- the user's side ------------------------------------------------------------------------------------------

    def _input(self, kind: str, event: Json) -> None:
        match kind:
            case "speech_started":
                if self._announced is not None:
                    self._wrong("speech_started, and the speech before it was never stopped", SPEECH)
                self._offset(event["audio_start_ms"], "audio_start_ms")
                self._announced = event["item_id"]
            case "speech_stopped":
                if self._announced != event["item_id"]:
                    self._wrong(f"speech_stopped of {event['item_id']}, but {self._announced} was started", TURN_ITEMS)
                self._offset(event["audio_end_ms"], "audio_end_ms")
            case "timeout_triggered":
                self._announced = event["item_id"]
            case "committed":
                if self._announced not in (None, event["item_id"]):
                    self._wrong(f"committed {event['item_id']}, but {self._announced} was started", TURN_ITEMS)
                self._known_before(event)
                self._announced = None
            case "cleared":
                self._announced = None

    def _offset(self, at_ms: int, name: str) -> None:
        if at_ms < self._reached_ms:
            self._wrong(f"{name} {at_ms} lies before {self._reached_ms}, which was told earlier", OFFSETS)
        self._reached_ms = max(self._reached_ms, at_ms)

    # ---- items ----------------------------------------------------------------------------------------------------

    def _known_before(self, event: Json) -> None:
        before = event["previous_item_id"]
        if before is not None and before not in self._items:
            self._wrong(f"{event['type']}: previous_item_id {before} is no item of the conversation")

    def _conversation(self, kind: str, event: Json) -> None:
        match kind:
            case "added":
                item_id = event["item"]["id"]
                if item_id in self._items:
                    self._wrong(f"{item_id} was added before")
                if item_id == self._announced:
                    self._wrong(f"{item_id} was added before it was committed")
                self._known_before(event)
                # In the older dialect an item is told once, and then stands.
                self._items[item_id] = event["type"] == "conversation.item.created"
            case "done":
                item_id = event["item"]["id"]
                if self._items.get(item_id) is not False:
                    self._wrong(f"{item_id} is done, but was not added just once before")
                if event["item"].get("status") == "in_progress":
                    self._wrong(f"{item_id} is done, and in progress")
                self._known_before(event)
                self._items[item_id] = True
            case "deleted":
                if self._items.pop(event["item_id"], None) is None:
                    self._wrong(f"{event['item_id']} is deleted, but was no item of the conversation")
                self._gone.add(event["item_id"])
            case _:
                item_id = event["item"]["id"] if "item" in event else event["item_id"]
                if item_id not in self._items and item_id not in (self._announced, *self._gone):
                    self._wrong(f"{event['type']} of {item_id}, which is no item of the conversation")

    # ---- responses ------------------------------------------------------------------------------------------------

    def _response(self, kind: str, response: Json) -> None:
        key = response["id"]
        known = self._responses.get(key)
        if kind == "response.created":
            if known is not None:
                self._wrong(f"{key} was created before")
            in_conversation = response.get("conversation_id") is not None
            if in_conversation and any(not one.done and one.in_conversation for one in self._responses.values()):
                self._wrong(f"{key} is created while another response of the conversation is open")
            self._responses[key] = _Response(in_conversation)
        elif known is None:
            self._wrong(f"{key} is done, but was never created")
        elif known.done:
            self._wrong(f"{key} is done a second time", AFTER_DONE)
        else:
            known.done = True
            self._whole(key, known, response)

    def _whole(self, key: str, known: _Response, response: Json) -> None:
        if response["status"] == "in_progress":
            self._wrong(f"{key} is done, and in progress")
        if left := [item.id for item in known.items if self._items.get(item.id) is False]:
            self._wrong(f"{key} is done without conversation.item.done of {', '.join(left)}")
        if left := [item.id for item in known.items if item.final is None]:
            self._wrong(f"{key} is done without response.output_item.done of {', '.join(left)}")
        elif [item.final for item in known.items] != response["output"]:
            self._wrong(f"the output of {key} differs from its items: {shorten(response['output'])}")

    def _inside(self, kind: str, event: Json) -> None:
        response = self._responses.get(event["response_id"])
        if response is None:
            self._wrong(f"{kind} of {event['response_id']}, which was never created")
        elif response.done:
            self._wrong(f"{kind} of {event['response_id']} after its response.done", AFTER_DONE)
        elif kind == "response.output_item.added":
            if event["output_index"] != len(response.items):
                self._wrong(f"{kind}: output_index {event['output_index']}, expected {len(response.items)}")
            if event["item"].get("status") != "in_progress":
                self._wrong(f"{kind}: an item with the status {event['item'].get('status')!r}, expected 'in_progress'")
            response.items.append(_Item(event["item"]["id"], event["item"]["type"]))
        else:
            self._in_item(kind, event, response)

    def _in_item(self, kind: str, event: Json, response: _Response) -> None:
        index = event["output_index"]
        item_id = event["item"]["id"] if "item" in event else event["item_id"]
        if not 0 <= index < len(response.items) or response.items[index].id != item_id:
            self._wrong(f"{kind}: {item_id} is not the item at output_index {index}")
            return
        item = response.items[index]
        if item.final is not None:
            self._wrong(f"{kind} of {item_id} after its response.output_item.done")
        elif kind == "response.output_item.done":
            item.final = event["item"]
            # Of a call that was cut off, clients must not be told that its arguments are done: some would act on it.
            whole = item.kind == "function_call" and item.final.get("status") == "completed"
            if whole and (CALL, 0) not in item.ended:
                self._wrong(f"{item_id} is done, but its arguments are not")
            if item.open:
                self._wrong(f"{item_id} is done, but its parts {sorted(item.open)} are not")
            if event["item"].get("status") not in ("completed", "incomplete"):
                self._wrong(f"{item_id} is done with the status {event['item'].get('status')!r}")
        elif kind.startswith(CALL):
            self._join(kind, event, item, 0)
        else:
            self._in_part(kind, event, item)

    def _in_part(self, kind: str, event: Json, item: _Item) -> None:
        part = event["content_index"]
        if kind == "response.content_part.added":
            if part in item.parts:
                self._wrong(f"{kind}: part {part} of {item.id} was added before")
            item.parts.add(part)
            item.open.add(part)
        elif part not in item.open:
            self._wrong(f"{kind}: part {part} of {item.id} is not open")
        elif kind == "response.content_part.done":
            item.open.remove(part)
            name, words = _words(event["part"])
            if left := [one for one in ENDS[name] if (one, part) not in item.ended]:
                self._wrong(f"{kind}: part {part} of {item.id} has no {' and no '.join(left)}.done")
            if words != item.joined.get((name, part), ""):
                self._wrong(f"{kind}: its words differ from the deltas: {shorten(words)}")
        else:
            self._join(kind, event, item, part)

    def _join(self, kind: str, event: Json, item: _Item, part: int) -> None:
        """Deltas add up to what `done` says."""
        name, _, end = kind.rpartition(".")
        if end == "delta":
            if name == SOUND:
                if not base64.b64decode(event["delta"]):
                    self._wrong(f"{kind}: no sound in it", DELTAS)
                return
            item.joined[name, part] = item.joined.get((name, part), "") + event["delta"]
            return
        item.ended.add((name, part))
        whole = next((event[one] for one in ("text", "transcript", "arguments") if one in event), None)
        if whole is not None and whole != item.joined.get((name, part), ""):
            self._wrong(f"{kind}: differs from the deltas: {shorten(whole)}")


def _words(part: Json) -> tuple[str, str]:
    if "transcript" in part:
        return WORDS, part["transcript"]
    return TEXT, part.get("text", "")
