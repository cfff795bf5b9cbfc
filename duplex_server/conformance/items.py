"""Checks the items of a conversation: how they come in, where they stand, how they are shown and deleted."""

from __future__ import annotations

import base64

from duplex_server.conformance import scenes
from duplex_server.conformance.checks import Json, at, check, equal, expect
from duplex_server.conformance.grammar import LARGEST_FRAME_BYTES
from duplex_server.conformance.peer import Peer
from duplex_server.conformance.run import Run
from duplex_server.conformance.sound import encoded, silence

PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAA"
    "DUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def _message(text: str, **fields: object) -> Json:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}], **fields}


async def _accepted(run: Run, *items: Json) -> None:
    async with run.session() as peer:
        for item in items:
            await peer.add(item)


@check(97, "an item without id gets one that begins with item_; one with an id keeps it")
async def item_ids(run: Run) -> None:
    async with run.session() as peer:
        item = await peer.add(_message("One."))
        expect(item["id"].startswith("item_"), "an id that begins with item_", item)
        item = await peer.add(_message("Two.", id="two"))
        equal("item.id", item["id"], "two")


@check(98, 'create emits added, then done, with equal ids and object "realtime.item"')
async def added_then_done(run: Run) -> None:
    async with run.session() as peer:
        since = len(peer.events)
        await peer.send("conversation.item.create", item=_message("One."))
        await peer.settle()
        wanted = ["conversation.item.added", "conversation.item.done", "session.updated"]
        equal("the events", peer.kinds(since), wanted)
        added, done = (at(event, "item") for event in peer.events[since : since + 2])
        equal("item.id in done", done["id"], added["id"])
        for item in (added, done):
            equal("item.object", at(item, "object"), "realtime.item")
        equal("item.status in done", at(done, "status"), "completed")


@check(99, 'previous_item_id "root" puts an item first; an unknown one is an error, and nothing is inserted')
async def places(run: Run) -> None:
    async with run.session() as peer:
        await peer.add(_message("Two.", id="two"))
        await peer.add(_message("One.", id="one"), previous_item_id="root")
        equal("previous_item_id of the first", at(peer.of("conversation.item.added")[-1], "previous_item_id"), None)
        await peer.add(_message("One and a half.", id="between"), previous_item_id="one")
        equal("previous_item_id", at(peer.of("conversation.item.added")[-1], "previous_item_id"), "one")
        since = len(peer.events)
        error = await peer.refused("conversation.item.create", item=_message("No."), previous_item_id="nobody")
        equal("error.param", error.get("param"), "previous_item_id")
        await peer.settle()
        peer.without(("conversation.",), since)


@check(100, "an id that is taken is item_create_duplicate_item_id")
async def duplicate(run: Run) -> None:
    async with run.session() as peer:
        await peer.add(_message("One.", id="one"))
        error = await peer.refused("conversation.item.create", item=_message("Again.", id="one"))
        equal("error.code", error.get("code"), "item_create_duplicate_item_id")


@check(101, "ids of clients of 32 hexadecimal digits and of 64 characters are accepted")
async def client_ids(run: Run) -> None:
    await _accepted(run, _message("One.", id="0123456789abcdef" * 2), _message("Two.", id="x" * 64))


@check(102, "an assistant's history is accepted as output_text, and as text")
async def assistant_history(run: Run) -> None:
    def said(kind: str) -> Json:
        return {"type": "message", "role": "assistant", "content": [{"type": kind, "text": "Hello."}]}

    await _accepted(run, said("output_text"), said("text"))


@check(103, "the roles system and developer are accepted")
async def instructing_roles(run: Run) -> None:
    await _accepted(run, _message("Be brief.", role="system"), _message("Be kind.", role="developer"))


@check(104, "an input_image as a data URI is accepted")
async def image(run: Run) -> str:
    content = [{"type": "input_text", "text": "Look."}, {"type": "input_image", "image_url": PIXEL}]
    await _accepted(run, {"type": "message", "role": "user", "content": content})
    return "whether the model sees it is not judged"


@check(105, "a function_call_output with an unknown call_id is accepted")
async def foreign_output(run: Run) -> None:
    await _accepted(run, {"type": "function_call_output", "call_id": "call_nobody", "output": "42"})


@check(106, "a message without content is accepted")
async def empty_message(run: Run) -> None:
    await _accepted(run, {"type": "message", "role": "user", "content": []})


@check(107, "delete emits deleted; a second delete is item_delete_invalid_item_id")
async def delete(run: Run) -> None:
    async with run.session() as peer:
        await peer.add(_message("One.", id="one"))
        await _delete(peer, "one")
        error = await peer.refused("conversation.item.delete", item_id="one")
        equal("error.code", error.get("code"), "item_delete_invalid_item_id")


async def _delete(peer: Peer, item_id: str) -> None:
    since = len(peer.events)
    await peer.send("conversation.item.delete", item_id=item_id)
    deleted = await peer.wait("conversation.item.deleted", since)
    equal("item_id", at(deleted, "item_id"), item_id)


@check(108, "retrieve gives the sound of user and assistant while the frame stays below 1 MiB")
async def retrieved_sound(run: Run) -> str:
    scene = await run.once(scenes.spoken)
    told = []
    for who, item in (("the user", scene.user_item), ("the assistant", scene.answer_item)):
        audio = at(item, "content.0").get("audio")
        answer_bytes = sum(
            len(one["delta"]) for one in scene.peer.within(scene.answer["id"], "response.output_audio.delta")
        )
        if audio is None and who == "the assistant" and answer_bytes >= LARGEST_FRAME_BYTES - 2048:
            continue  # it does not fit
        expect(isinstance(audio, str) and len(base64.b64decode(audio)) > 0, f"the sound of {who}", item)
        told.append(f"{len(base64.b64decode(audio))} bytes of {who}")
    return ", ".join(told)


@check(109, "retrieve of an unknown id is item_retrieve_invalid_item_id, with the event_id")
async def retrieve_unknown(run: Run) -> None:
    async with run.session() as peer:
        error = await peer.refused("conversation.item.retrieve", item_id="nobody")
        equal("error.code", error.get("code"), "item_retrieve_invalid_item_id")


@check(112, "after a delete, the same id can be created again")
async def again(run: Run) -> None:
    async with run.session() as peer:
        await peer.add(_message("One.", id="one"))
        await _delete(peer, "one")
        item = await peer.add(_message("One, again.", id="one"))
        equal("item.id", item["id"], "one")
        equal("its text", at(await peer.retrieve("one"), "content.0.text"), "One, again.")


@check(110, "no item holds a null for status, name, call_id, arguments, role or content", last=True)
async def no_nulls(run: Run) -> None:
    await run.once(scenes.spoken)
    await run.once(scenes.written)
    expect(not run.findings(110), "keys that are left out", run.findings(110))


@check(111, "input_audio parts always have a transcript key", last=True)
async def transcript_keys(run: Run) -> None:
    async with run.session() as peer:
        content = [{"type": "input_audio", "audio": encoded(silence(200))}]
        await peer.add({"type": "message", "role": "user", "content": content})
    await run.once(scenes.spoken)
    expect(not run.findings(111), "a transcript in each", run.findings(111))
