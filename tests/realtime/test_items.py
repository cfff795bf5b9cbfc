"""Tests the items of a conversation as clients create, read and delete them."""

from __future__ import annotations

import uuid

import msgspec
import pytest

from duplex_server.realtime import history, wire
from duplex_server.realtime.conversation import Conversation, Entry, to_part
from duplex_server.realtime.items import ITEM_BYTES
from duplex_server.realtime.schema import (
    FunctionCall,
    FunctionCallOutput,
    InputAudio,
    InputImage,
    InputText,
    Message,
    OutputAudio,
    OutputText,
)
from duplex_server.realtime.shelf import FRAME_BYTES
from pipeline.chunk import CallPart, ResultPart, TextPart
from tests.realtime.talk import Talk, kinds, texts

PIXEL = "data:image/png;base64,iVBORw0KGgo="


def message(role: str, *content: dict[str, object], **fields: object) -> dict[str, object]:
    return {"type": "message", "role": role, "content": content, **fields}


def user(text: str, **fields: object) -> dict[str, object]:
    return message("user", {"type": "input_text", "text": text}, **fields)


def create(talk: Talk, item: dict[str, object], **fields: object) -> list[str]:
    return kinds(talk.ask("conversation.item.create", item=item, **fields))


def order(talk: Talk) -> list[str]:
    return [entry.item.id for entry in talk.session.conversation]


def content(talk: Talk) -> tuple[object, ...]:
    """The content of the message that was added last."""
    item = talk.last(wire.ItemAdded).item
    assert isinstance(item, Message)
    return item.content


def test_check_097_an_item_keeps_its_id_or_gets_one(talk: Talk) -> None:
    create(talk, user("one"))
    assert talk.last(wire.ItemAdded).item.id.startswith("item_")
    create(talk, user("two", id="mine"))
    assert talk.last(wire.ItemAdded).item.id == "mine"


def test_check_098_an_item_is_added_and_done(talk: Talk) -> None:
    assert create(talk, user("one")) == ["conversation.item.added", "conversation.item.done"]
    added, done = talk.last(wire.ItemAdded), talk.last(wire.ItemDone)
    assert added.item == done.item
    assert (added.item.object, added.item.status) == ("realtime.item", "completed")


def test_check_099_an_item_goes_where_the_client_says(talk: Talk) -> None:
    for name in ("a", "b"):
        create(talk, user(name, id=name))
    create(talk, user("front", id="front"), previous_item_id="root")
    assert talk.last(wire.ItemAdded).previous_item_id is None
    create(talk, user("middle", id="middle"), previous_item_id="a")
    assert talk.last(wire.ItemAdded).previous_item_id == "a"
    create(talk, user("end", id="end"), previous_item_id="b")
    create(talk, user("last", id="last"), previous_item_id=None)
    assert order(talk) == ["front", "a", "middle", "b", "end", "last"]


def test_check_099_an_unknown_place_inserts_nothing(talk: Talk) -> None:
    assert create(talk, user("one"), previous_item_id="nowhere", event_id="e1") == ["error"]
    error = talk.last(wire.Error).error
    assert (error.code, error.param, error.event_id) == ("invalid_value", "previous_item_id", "e1")
    assert order(talk) == []


def test_check_100_an_id_is_used_once(talk: Talk) -> None:
    create(talk, user("one", id="mine"))
    assert create(talk, user("two", id="mine"), event_id="e2") == ["error"]
    assert talk.errors == ["item_create_duplicate_item_id"]
    assert talk.last(wire.Error).error.event_id == "e2"


@pytest.mark.parametrize("item_id", [uuid.UUID(int=7).hex, "x" * 64, "y" * 128])
def test_check_101_ids_of_all_clients_are_taken(talk: Talk, item_id: str) -> None:
    create(talk, user("one", id=item_id))
    assert order(talk) == [item_id]


@pytest.mark.parametrize("item_id", ["", "z" * 129])
def test_check_101_an_id_that_is_too_short_or_long_is_an_error(talk: Talk, item_id: str) -> None:
    assert create(talk, user("one", id=item_id)) == ["error"]
    assert talk.last(wire.Error).error.param == "item.id"


@pytest.mark.parametrize(
    "part",
    [
        {"type": "output_text", "text": "hi"},
        {"type": "text", "text": "hi"},
        {"type": "input_text", "text": "hi"},
        {"type": "output_audio", "transcript": "hi"},
        {"type": "audio", "transcript": "hi"},
        {"type": "output_audio", "text": "hi"},
        {"type": "input_audio", "transcript": "hi"},
    ],
)
@pytest.mark.parametrize("role", ["assistant", "system"])
def test_check_102_words_of_a_history_are_taken_as_text(talk: Talk, role: str, part: dict[str, object]) -> None:
    create(talk, message(role, part))
    assert content(talk) == ((OutputText if role == "assistant" else InputText)(text="hi"),)


@pytest.mark.parametrize("part", [{"type": "output_audio", "audio": "AAAA"}, {"type": "audio", "transcript": None}])
def test_check_102_speech_without_words_can_not_be_taken(talk: Talk, part: dict[str, object]) -> None:
    assert create(talk, message("assistant", {"type": "output_text", "text": "hi"}, part)) == ["error"]
    error = talk.last(wire.Error).error
    assert (error.code, error.param) == ("missing_required_parameter", "item.content[1].text")
    assert order(talk) == []


def test_check_103_all_roles_are_accepted(talk: Talk) -> None:
    for role in ("system", "developer"):
        create(talk, message(role, {"type": "input_text", "text": role}))
        item = talk.last(wire.ItemAdded).item
        assert isinstance(item, Message)
        assert item.role == "system"
    talk.ask("response.create")
    assert texts(talk.prompt) == ["system", "developer"]
    talk.end()


def test_check_104_an_image_is_kept_for_a_thinker_that_sees(talk: Talk) -> None:
    create(talk, message("user", {"type": "input_image", "image_url": PIXEL}, {"type": "input_text", "text": "this?"}))
    assert content(talk) == (InputImage(image_url=PIXEL), InputText(text="this?"))
    talk.ask("response.create")
    assert texts(talk.prompt) == ["this?"]
    talk.end()


def test_f19_an_image_of_the_assistant_is_refused_by_name(talk: Talk) -> None:
    assert create(talk, message("assistant", {"type": "input_image", "image_url": PIXEL})) == ["error"]
    assert talk.last(wire.Error).error.param == "item.content[0].type"


@pytest.mark.parametrize("image_chars", [0, 2 * 1024 * 1024])
def test_check_016_104_a_large_image_is_taken_without_being_echoed(talk: Talk, image_chars: int) -> None:
    url = PIXEL + "A" * image_chars
    create(talk, message("user", {"type": "input_image", "image_url": url}, {"type": "input_text", "text": "this?"}))
    assert content(talk)[0] == InputImage(image_url="" if image_chars else PIXEL)
    assert max(len(wire.encode(event)) for event in talk.told) < FRAME_BYTES


def test_check_016_an_item_that_does_not_fit_into_a_frame_is_refused_by_name(talk: Talk) -> None:
    assert create(talk, user("x" * ITEM_BYTES), event_id="big") == ["error"]
    error = talk.last(wire.Error).error
    assert (error.code, error.param, error.event_id) == ("invalid_value", "item", "big")
    assert order(talk) == []
    assert create(talk, user("x" * (ITEM_BYTES - 200)))[0] == "conversation.item.added"
    assert max(len(wire.encode(event)) for event in talk.told) < FRAME_BYTES


@pytest.mark.parametrize(
    "frame",
    [
        {"type": "x" * 2_000_000},
        {"type": "conversation.item.retrieve", "item_id": "x" * 2_000_000},
        {"type": "response.cancel", "response_id": "x" * 2_000_000, "event_id": "y" * 2_000_000},
        {"type": "conversation.item.create", "item": {"type": "y" * 2_000_000}},
        {
            "type": "conversation.item.create",
            "item": {"type": "message", "role": "user"},
            "previous_item_id": "é" * 900,
        },
    ],
)
def test_check_016_an_error_quotes_no_more_than_fits(talk: Talk, frame: dict[str, object]) -> None:
    told = talk.frame(msgspec.json.encode(frame).decode())
    assert kinds(told) == ["error"]
    assert len(wire.encode(told[0])) < 8192


def put(conversation: Conversation, item: dict[str, object]) -> str | None:
    """A client's item goes into a conversation alone; gives the message of its fault."""
    event = msgspec.convert({"type": "conversation.item.create", "item": item}, wire.CreateItem)
    entry = history.accept(conversation, event, lambda prefix: prefix)
    if isinstance(entry, wire.Fault):
        assert (entry.code, entry.param) == ("invalid_value", "item")
        return entry.message
    conversation.add(entry, None)
    return None


def test_a_full_conversation_takes_no_more_until_something_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "ITEMS", 3)
    conversation = Conversation("conv")
    assert [put(conversation, user(name, id=name)) for name in "abc"] == [None] * 3
    told = put(conversation, user("d", id="d"))
    assert told is not None
    assert "is full: it has 3 items" in told
    conversation.delete("a")
    assert put(conversation, user("d", id="d")) is None


def test_what_a_client_gives_is_bounded_in_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "CONVERSATION_BYTES", 3000)
    conversation = Conversation("conv")
    assert [put(conversation, user("x" * 1200, id=name)) for name in "ab"] == [None] * 2
    assert put(conversation, user("x" * 1200, id="c")) is not None
    conversation.delete("a")
    assert put(conversation, user("x" * 1200, id="c")) is None
    assert conversation.size <= 3000


def test_check_105_calls_and_results_of_an_older_history_are_accepted(talk: Talk) -> None:
    create(talk, {"type": "function_call_output", "call_id": "call_1", "output": "12:00"})
    create(talk, {"type": "function_call", "name": "clock", "arguments": "{}"})
    call = talk.last(wire.ItemAdded).item
    assert isinstance(call, FunctionCall)
    assert call.call_id.startswith("call_")
    create(talk, {"type": "function_call", "name": "clock", "arguments": "{}", "call_id": "call_2"})
    talk.ask("response.create")
    result, _, second = talk.prompt[1:]
    assert result == ResultPart(order(talk)[0], "call_1", "12:00")
    assert second == CallPart(order(talk)[2], "call_2", "clock", "{}")
    talk.end()


def test_check_106_an_empty_message_is_accepted_and_tells_nothing(talk: Talk) -> None:
    create(talk, message("user"))
    assert content(talk) == ()
    talk.ask("response.create")
    assert texts(talk.prompt) == []
    talk.end()


def test_check_107_an_item_is_deleted_once(talk: Talk) -> None:
    create(talk, user("one", id="mine"))
    assert kinds(talk.ask("conversation.item.delete", item_id="mine")) == ["conversation.item.deleted"]
    assert kinds(talk.ask("conversation.item.delete", item_id="mine", event_id="again")) == ["error"]
    assert talk.errors == ["item_delete_invalid_item_id"]
    assert talk.last(wire.Error).error.event_id == "again"


def test_check_109_an_unknown_item_can_not_be_read(talk: Talk) -> None:
    talk.ask("conversation.item.retrieve", item_id="nobody", event_id="rci_nobody")
    error = talk.last(wire.Error).error
    assert (error.code, error.event_id, error.param) == ("item_retrieve_invalid_item_id", "rci_nobody", "item_id")


def test_check_110_no_field_of_an_item_is_null(talk: Talk) -> None:
    create(talk, user("one"))
    create(talk, {"type": "function_call", "name": "f", "arguments": "{}"})
    create(talk, {"type": "function_call_output", "call_id": "c", "output": ""})
    for event in talk.events(wire.ItemAdded):
        assert None not in msgspec.to_builtins(event.item).values()


def test_check_111_the_transcript_of_speech_is_written_even_as_null() -> None:
    written = msgspec.json.decode(msgspec.json.encode(Message(id="m", role="user", content=(InputAudio(),))))
    assert written["content"] == [{"type": "input_audio", "transcript": None}]


def test_check_112_an_id_that_was_deleted_is_free(talk: Talk) -> None:
    create(talk, user("one", id="mine"))
    talk.ask("conversation.item.delete", item_id="mine")
    create(talk, user("two", id="mine"))
    talk.ask("response.create")
    assert texts(talk.prompt) == ["two"]
    talk.end()


def test_a_reply_that_is_deleted_in_mid_speech_goes_on_and_does_not_come_back(talk: Talk) -> None:
    talk.say("hello")
    talk.speak(("Hello to you. ", 500), end=False)
    item_id = talk.last(wire.OutputItemAdded).item.id
    talk.ask("conversation.item.delete", item_id=item_id)
    create(talk, user("another", id=item_id))
    talk.caption("And good day. ")
    talk.end()
    assert talk.last(wire.ResponseDone).response.output[0].status == "completed"
    entry = talk.session.conversation.get(item_id)
    assert entry is not None
    assert entry.item == Message(id=item_id, role="user", content=(InputText(text="another"),))


# ---- the conversation alone ---------------------------------------------------------------------------------------


def test_a_changed_text_raises_its_revision() -> None:
    conversation = Conversation("conv")
    conversation.add(Entry(Message(id="m", role="user", content=(InputText(text="a"),))), None)
    before = conversation.parts()
    conversation.replace(Message(id="m", role="user", content=(InputText(text="b"),)))
    assert before == (TextPart("m", "user", "a", 0),)
    assert conversation.parts() == (TextPart("m", "user", "b", 1),)


def test_an_unfinished_call_is_not_told_to_the_model() -> None:
    call = FunctionCall(id="c", call_id="call", name="f", arguments="{", status="incomplete")
    assert to_part(Entry(call)) is None
    assert to_part(Entry(FunctionCallOutput(id="o", call_id="call", output="1"))) == ResultPart("o", "call", "1")


def test_all_parts_of_a_message_are_told() -> None:
    spoken = Message(
        id="m", role="assistant", content=(OutputAudio(transcript="Hi."), OutputText(text="there"), OutputText(text=""))
    )
    assert to_part(Entry(spoken)) == TextPart("m", "assistant", "Hi.\nthere")


def test_an_item_that_is_gone_stays_gone() -> None:
    conversation = Conversation("conv")
    conversation.replace(Message(id="m", role="user", content=()))
    assert list(conversation) == []
    assert conversation.last_id is None
