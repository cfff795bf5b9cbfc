"""Carries out what a client asks of the conversation's items: create, retrieve, truncate, delete."""

from __future__ import annotations

from collections.abc import Callable

from duplex_server.realtime import items, wire
from duplex_server.realtime.conversation import Conversation, Entry
from duplex_server.realtime.effects import Effect, LetGo, SendWithSound
from duplex_server.realtime.wire import AnyServerEvent, Fault

ITEMS = 4096
"""A conversation that has so many items takes no more from its client."""
CONVERSATION_BYTES = 16 * 1024 * 1024
"""What a client's items may have together, as JSON."""

NewId = Callable[[str], str]
Told = tuple[AnyServerEvent, ...] | Fault
"""What the client is told: the events of success, or the one fault for which nothing changed."""


def add(conversation: Conversation, entry: Entry, after: str | None, new_id: NewId) -> tuple[AnyServerEvent, ...]:
    """Put a complete item in."""
    previous = conversation.add(entry, after)
    return (
        wire.ItemAdded(event_id=new_id("event"), item=entry.item, previous_item_id=previous),
        wire.ItemDone(event_id=new_id("event"), item=entry.item, previous_item_id=previous),
    )


def accept(conversation: Conversation, event: wire.CreateItem, new_id: NewId) -> Entry | Fault:
    """A client's item that can be put in where it asks for."""
    entry = items.accept(event.item, new_id, "item")
    if isinstance(entry, Fault):
        return entry
    if entry.item.id in conversation:
        return Fault(
            code="item_create_duplicate_item_id",
            message=f"The conversation has an item {entry.item.id!r} already. Choose another id or delete that item.",
            param="item.id",
        )
    if len(conversation) >= ITEMS or conversation.size + entry.size > CONVERSATION_BYTES:
        message = (
            f"The conversation is full: it has {len(conversation)} items, and {conversation.size} bytes were given; "
            f"expected below {ITEMS} items and {CONVERSATION_BYTES} bytes. Delete some."
        )
        return Fault(code="invalid_value", message=message, param="item")
    after = event.previous_item_id
    if after is not None and after != "root" and after not in conversation:
        return Fault(
            code="invalid_value",
            message=f'There is no item {after!r} to insert after. Use a known id, "root" or null.',
            param="previous_item_id",
        )
    return entry


def retrieve(conversation: Conversation, event: wire.RetrieveItem, new_id: NewId, out: list[Effect]) -> Told:
    """The item as it stands, with its sound if it has any: the driver fills that in."""
    entry = conversation.get(event.item_id)
    if entry is None:
        return items.unknown(event.item_id, "item_retrieve_invalid_item_id")
    told = wire.ItemRetrieved(event_id=new_id("event"), item=entry.item)
    if not entry.kept_samples:
        return (told,)
    out.append(SendWithSound(told, entry.kept_samples))
    return ()


def truncate(conversation: Conversation, event: wire.TruncateItem, new_id: NewId, out: list[Effect]) -> Told:
    entry = conversation.get(event.item_id)
    if entry is None:
        return items.unknown(event.item_id, "item_truncate_invalid_item_id")
    if entry.track is None or event.content_index != 0:
        return Fault(
            code="unsupported_content_type",
            message="Only the speech of an assistant's message can be truncated (content_index 0).",
            param="item_id" if entry.track is None else "content_index",
        )
    cut_ms = conversation.truncate(entry, event.audio_end_ms)
    if entry.item.status != "in_progress":  # of one that is, the client may find out that it played more
        out.append(LetGo(event.item_id, entry.kept_samples))
    truncated = wire.ItemTruncated(
        event_id=new_id("event"), item_id=event.item_id, content_index=0, audio_end_ms=cut_ms
    )
    return (truncated,)


def delete(conversation: Conversation, event: wire.DeleteItem, new_id: NewId, out: list[Effect]) -> Told:
    if not conversation.delete(event.item_id):
        return items.unknown(event.item_id, "item_delete_invalid_item_id")
    out.append(LetGo(event.item_id))
    return (wire.ItemDeleted(event_id=new_id("event"), item_id=event.item_id),)
