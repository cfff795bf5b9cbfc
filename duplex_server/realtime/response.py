"""Writes the wire's account of one response: from `response.created` to its single `response.done`.

Every part that was added is closed before the response is done, in the order clients rely on, and the deltas of a part
join to the text that closes it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import msgspec
from msgspec import UNSET

from duplex_server.realtime import wire
from duplex_server.realtime.conversation import Conversation, Entry
from duplex_server.realtime.playout import Track
from duplex_server.realtime.schema import (
    Format,
    FunctionCall,
    Item,
    ItemStatus,
    Message,
    Modality,
    OutputAudio,
    OutputText,
    ResponseAudio,
    ResponseAudioOutput,
    ResponseObject,
    ResponseStatus,
    ResponseUsage,
    StatusDetails,
)
from duplex_server.realtime.wire import AnyServerEvent

CONTENT_INDEX = 0
"""An assistant's message has one content part: what is said, or what is written."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What a response was asked to be."""

    modality: Modality
    format: Format
    voice: str
    max_output_tokens: int | Literal["inf"]
    metadata: dict[str, str] | None
    temperature: float | None = None
    """None leaves it to the thinker."""


@dataclass(slots=True)
class _Open:
    """The message under way."""

    item_id: str
    text: str = ""


class Response:
    """One response on the wire. `conversation` is None for one that runs beside the conversation."""

    __slots__ = ("_call", "_conversation", "_entry", "_new_id", "_open", "_output", "_track", "id", "terms")

    def __init__(
        self, new_id: Callable[[str], str], terms: Terms, conversation: Conversation | None, track: Track | None
    ) -> None:
        self._new_id = new_id
        self._conversation = conversation
        self._track = track
        self._output: list[Item] = []
        self._open: _Open | None = None
        self._call: FunctionCall | None = None
        self._entry: Entry | None = None
        self.id = new_id("resp")
        self.terms = terms

    @property
    def in_conversation(self) -> bool:
        return self._conversation is not None

    @property
    def message_id(self) -> str | None:
        """The item of the message under way."""
        return self._open.item_id if self._open else None

    @property
    def output_index(self) -> int:
        return len(self._output)

    @property
    def is_kept(self) -> bool:
        """True while the message under way can be retrieved."""
        return self._is_there()

    def created(self) -> AnyServerEvent:
        return wire.ResponseCreated(event_id=self._new_id("event"), response=self._object("in_progress", None, None))

    def say(self, caption: str) -> list[AnyServerEvent]:
        """Words that are about to be heard."""
        events = self._ensure_open()
        message = self._message(caption)
        events.append(wire.TranscriptDelta(**self._place(), delta=caption))
        self._keep(message)
        return events

    def write(self, text: str) -> list[AnyServerEvent]:
        """Words that are read, not heard."""
        events = self._ensure_open()
        message = self._message(text)
        events.append(wire.TextDelta(**self._place(), delta=text))
        self._keep(message)
        return events

    def call(self, call_id: str, name: str) -> list[AnyServerEvent]:
        """A function call begins, after what there was before it."""
        events = self.close("completed")
        self._call = FunctionCall(
            id=self._new_id("item"), call_id=call_id, name=name, arguments="", status="in_progress"
        )
        return events + self._added(self._call)

    def add_arguments(self, delta: str) -> list[AnyServerEvent]:
        """More of the arguments of the call under way."""
        assert self._call is not None
        self._call = msgspec.structs.replace(self._call, arguments=self._call.arguments + delta)
        self._keep(self._call)
        return [wire.ArgumentsDelta(**self._call_place(self._call), delta=delta)]

    def close(self, status: ItemStatus) -> list[AnyServerEvent]:
        """Close the message or the call under way, if any."""
        if self._call is not None:
            return self._close_call(self._call, status)
        if self._open is None:
            return []
        events: list[AnyServerEvent] = []
        text = self._open.text
        if self.terms.modality == "audio":
            events.append(wire.AudioDone(**self._place()))
            events.append(wire.TranscriptDone(**self._place(), transcript=text))
            events.append(wire.PartDone(**self._place(), part=wire.SpokenPart(transcript=text)))
        else:
            events.append(wire.TextDone(**self._place(), text=text))
            events.append(wire.PartDone(**self._place(), part=wire.WrittenPart(text=text)))
        item = self._item(self._open, status)
        self._open = None
        return events + self._done(item)

    def _close_call(self, call: FunctionCall, status: ItemStatus) -> list[AnyServerEvent]:
        """One that is not complete has no `done` of its arguments: there are clients that act on it."""
        self._call = None
        events: list[AnyServerEvent] = []
        if status == "completed":
            events.append(wire.ArgumentsDone(**self._call_place(call), name=call.name, arguments=call.arguments))
        return events + self._done(msgspec.structs.replace(call, status=status))

    def done(self, status: ResponseStatus, details: StatusDetails | None, usage: ResponseUsage) -> list[AnyServerEvent]:
        """Close everything. Nothing of this response may follow."""
        events = self.close("completed" if status == "completed" else "incomplete")
        events.append(wire.ResponseDone(event_id=self._new_id("event"), response=self._object(status, details, usage)))
        return events

    def open_for_audio(self) -> list[AnyServerEvent]:
        """Announce the message before audio that comes without a caption."""
        return self._ensure_open()

    # ---- parts ----------------------------------------------------------------------------------------------------

    def _ensure_open(self) -> list[AnyServerEvent]:
        if self._open is not None:
            return []
        events = self.close("completed")
        self._open = _Open(self._new_id("item"))
        events += self._added(Message(id=self._open.item_id, role="assistant", content=(), status="in_progress"))
        part = wire.SpokenPart(transcript="") if self.terms.modality == "audio" else wire.WrittenPart(text="")
        events.append(wire.PartAdded(**self._place(), part=part))
        return events

    def _message(self, delta: str) -> Message:
        assert self._open is not None
        self._open.text += delta
        return self._item(self._open, "in_progress")

    def _item(self, message: _Open, status: ItemStatus) -> Message:
        content = (
            OutputAudio(transcript=message.text) if self.terms.modality == "audio" else OutputText(text=message.text)
        )
        return Message(id=message.item_id, role="assistant", content=(content,), status=status)

    def _keep(self, item: Item) -> None:
        if self._conversation is not None and self._is_there():
            self._conversation.replace(item)

    def _is_there(self) -> bool:
        """The last item is in the conversation: one that was deleted stays so, even if its id is used anew."""
        return (
            self._conversation is not None
            and self._entry is not None
            and self._conversation.get(self._entry.item.id) is self._entry
        )

    def _added(self, item: Item) -> list[AnyServerEvent]:
        events: list[AnyServerEvent] = [
            wire.OutputItemAdded(
                event_id=self._new_id("event"), response_id=self.id, output_index=self.output_index, item=item
            )
        ]
        if self._conversation is not None:
            track = self._track if isinstance(item, Message) else None
            self._entry = Entry(item, track=track)
            previous = self._conversation.add(self._entry, after=None)
            events.append(wire.ItemAdded(event_id=self._new_id("event"), item=item, previous_item_id=previous))
        return events

    def _done(self, item: Item) -> list[AnyServerEvent]:
        events: list[AnyServerEvent] = []
        if self._conversation is not None and self._is_there():
            self._conversation.replace(item)
            previous = self._conversation.previous_id(item.id)
            events.append(wire.ItemDone(event_id=self._new_id("event"), item=item, previous_item_id=previous))
        events.append(
            wire.OutputItemDone(
                event_id=self._new_id("event"), response_id=self.id, output_index=self.output_index, item=item
            )
        )
        self._output.append(item)
        return events

    def _place(self) -> wire.PlaceFields:
        assert self._open is not None
        return {
            "event_id": self._new_id("event"),
            "response_id": self.id,
            "item_id": self._open.item_id,
            "output_index": self.output_index,
            "content_index": CONTENT_INDEX,
        }

    def _call_place(self, call: FunctionCall) -> wire.CallFields:
        return {
            "event_id": self._new_id("event"),
            "response_id": self.id,
            "item_id": call.id,
            "output_index": self.output_index,
            "call_id": call.call_id,
        }

    def _object(
        self, status: ResponseStatus, details: StatusDetails | None, usage: ResponseUsage | None
    ) -> ResponseObject:
        return ResponseObject(
            id=self.id,
            status=status,
            status_details=details,
            output=tuple(self._output),
            conversation_id=self._conversation.id if self._conversation is not None else None,
            output_modalities=(self.terms.modality,),
            max_output_tokens=self.terms.max_output_tokens,
            audio=ResponseAudio(output=ResponseAudioOutput(format=self.terms.format, voice=self.terms.voice)),
            metadata=self.terms.metadata,
            usage=usage,
            temperature=UNSET if self.terms.temperature is None else self.terms.temperature,
        )
