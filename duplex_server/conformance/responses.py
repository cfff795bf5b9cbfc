"""Checks responses: the order of their events, what they hold, what a request may override, and what it costs."""

from __future__ import annotations

import base64
import itertools
import re

from duplex_server.conformance import calls, scenes
from duplex_server.conformance.checks import Json, NotApplicable, at, check, equal, expect
from duplex_server.conformance.peer import Peer
from duplex_server.conformance.run import Run
from duplex_server.conformance.scenes import (
    ANSWER_TOKENS,
    LONG_TEXT,
    LONG_TEXT_TOKENS,
    LONG_TOKENS,
    STORY,
    TEXT,
    input_tokens,
)

MOST_PIECE_BYTES = 250 * 48
TELEPHONE_BYTES_PER_MS = 8
_DONE = r"(conversation.item.done output_item.done|output_item.done conversation.item.done) "
_PARTS = {
    "audio": r"((output_audio_transcript|output_audio).delta )*"
    r"(output_audio.done output_audio_transcript.done|output_audio_transcript.done output_audio.done) ",
    "text": r"(output_text.delta )*output_text.done ",
}
_MESSAGE = "|".join(f"content_part.added {part}content_part.done " for part in _PARTS.values())
_CALL = r"(function_call_arguments.delta )*function_call_arguments.done "
ORDER = re.compile(
    r"created (output_item.added conversation.item.added "
    rf"({_MESSAGE}|{_CALL}){_DONE})*done "
)
"""The events of one response of the conversation, without "response.", each followed by a space."""


def events_of(peer: Peer, response: Json) -> str:
    """The events of a response and those of its items, as `ORDER` reads them."""
    items = {item["id"] for item in response["output"]}
    told = []
    for event in peer.events:
        kind = event["type"]
        if kind in ("response.created", "response.done"):
            mine = event["response"]["id"] == response["id"]
        elif kind in ("conversation.item.added", "conversation.item.done"):
            mine = event["item"]["id"] in items
        else:
            mine = event.get("response_id") == response["id"]
        if mine:
            told.append(kind.removeprefix("response."))
    return "".join(f"{kind} " for kind in told)


async def _in_order(run: Run, peer: Peer, response: Json) -> None:
    told = events_of(peer, response)
    runs = [f"{kind} ×{len(list(group))}" for kind, group in itertools.groupby(told.split())]
    expect(ORDER.fullmatch(told) is not None, "the order of the protocol", ", ".join(runs))


@check(113, "the events of a response keep their order, for audio, text and function items", last=True)
async def order(run: Run) -> str:
    scene = await run.once(scenes.spoken)
    await _in_order(run, scene.peer, scene.answer)
    await _in_order(run, *await run.once(scenes.written))
    try:
        called = await run.once(calls.called)
    except NotApplicable as error:
        return f"for audio and text: {error}"
    await _in_order(run, called.peer, called.done)
    return "for audio, text and a function"


@check(114, "response.created shows status in_progress, usage null and no output")
async def created(run: Run) -> None:
    peer, done = await run.once(scenes.written)
    response = peer.of("response.created")[0]["response"]
    equal("status", at(response, "status"), "in_progress")
    equal("usage", at(response, "usage"), None)
    equal("output", at(response, "output"), [])
    expect(done["id"].startswith("resp_"), "an id that begins with resp_", done["id"])


@check(116, "metadata is echoed in created and done; a value that is no string or 17 keys are an error")
async def metadata(run: Run) -> None:
    async with run.session() as peer:
        await peer.type("Say hello.")
        given = {"client_event_id": "mine"}
        done = await peer.respond(output_modalities=TEXT, max_output_tokens=8, metadata=given)
        equal("metadata in created", at(peer.of("response.created")[0], "response.metadata"), given)
        equal("metadata in done", at(done, "metadata"), given)
        since = len(peer.events)
        for wrong in ({"a": 1}, {f"key_{number}": "x" for number in range(17)}):
            await peer.refused("response.create", response={"output_modalities": TEXT, "metadata": wrong})
        await peer.settle()
        peer.without(("response.",), since)


@check(117, "the text modality gives no sound, and items with output_text")
async def text_alone(run: Run) -> None:
    peer, done = await run.once(scenes.written)
    peer.without(("response.output_audio",))
    equal("content.type", at(done, "output.0.content.0.type"), "output_text")
    expect(bool(at(done, "output.0.content.0.text").strip()), "words", done)
    equal("output_modalities", at(done, "output_modalities"), TEXT)


@check(118, "the audio modality gives transcript deltas and an output_audio item without its bytes")
async def audio_item(run: Run) -> None:
    scene = await run.once(scenes.spoken)
    part = at(scene.answer, "output.0.content.0")
    equal("content.type", at(part, "type"), "output_audio")
    expect("audio" not in part, "no sound in response.done", list(part))
    deltas = scene.peer.within(scene.answer["id"], "response.output_audio_transcript.delta")
    expect(bool(deltas), "transcript deltas", "none")
    equal("transcript", at(part, "transcript"), "".join(event["delta"] for event in deltas))
    expect(bool(part["transcript"].strip()), "words", part)


@check(120, "each audio delta has an even number of bytes, more than none, and at most 250 ms")
async def pieces(run: Run) -> str:
    scene = await run.once(scenes.spoken)
    deltas = scene.peer.within(scene.answer["id"], "response.output_audio.delta")
    sizes = [len(base64.b64decode(one["delta"])) for one in deltas]
    expect(bool(sizes), "audio deltas", "none")
    wrong = [size for size in sizes if size % 2 or not 0 < size <= MOST_PIECE_BYTES]
    expect(not wrong, f"even sizes up to {MOST_PIECE_BYTES}", wrong)
    return f"{len(sizes)} deltas, {max(sizes) // 48} ms at most"


@check(121, "a session with µ-law output gives µ-law deltas at 8 kHz")
async def telephone(run: Run) -> str:
    async with run.session() as peer:
        await peer.update(audio={"output": {"format": {"type": "audio/pcmu"}}})
        await peer.type("Say hello.")
        done = await peer.respond(max_output_tokens=16)
        equal("the response's format", at(done, "audio.output.format.type"), "audio/pcmu")
        sent_ms = peer.sound_bytes(done["id"]) / TELEPHONE_BYTES_PER_MS
        item = at(done, "output.0.id")
        await peer.send("conversation.item.truncate", item_id=item, content_index=0, audio_end_ms=10_000_000)
        since = len(peer.events)
        cut = await peer.wait("conversation.item.truncated", since, errors=True)
        expect(abs(at(cut, "audio_end_ms") - sent_ms) <= 1, f"an item of {sent_ms:.1f} ms, by its bytes", cut)
    return f"{sent_ms:.0f} ms"


@check(127, "tools, instructions and modalities of one response leave the session as it was")
async def overrides(run: Run) -> None:
    async with run.session() as peer:
        before = await peer.update()
        await peer.type("Say hello.")
        await peer.respond(
            output_modalities=TEXT,
            instructions="Be brief.",
            tools=[calls.WEATHER],
            tool_choice="none",
            max_output_tokens=8,
        )
        equal("the session afterwards", await peer.update(), before)


@check(128, "with conversation none: conversation_id null, no items in the conversation, history as it was")
async def out_of_band(run: Run) -> None:
    async with run.session() as peer:
        await peer.type("Say hello.")
        since = len(peer.events)
        done = await peer.respond(conversation="none", output_modalities=TEXT, max_output_tokens=8)
        equal("conversation_id", at(done, "conversation_id"), None)
        equal("conversation_id in created", at(peer.of("response.created")[0], "response.conversation_id"), None)
        peer.without(("conversation.item.",), since)
        error = await peer.refused("conversation.item.retrieve", item_id=at(done, "output.0.id"))
        equal("error.code", error.get("code"), "item_retrieve_invalid_item_id")


@check(129, "input [] leaves the history out; an item_reference brings its item in")
async def given_input(run: Run) -> None:
    async with run.session() as peer:
        item = await peer.type(LONG_TEXT)
        whole = await input_tokens(peer)
        empty = await input_tokens(peer, input=[])
        referred = await input_tokens(peer, input=[{"type": "item_reference", "id": item["id"]}])
        expect(whole - empty >= LONG_TEXT_TOKENS, "far fewer input tokens with input []", (whole, empty))
        expect(referred - empty >= LONG_TEXT_TOKENS, "far more of them with the item", (referred, empty))


@check(130, "an unknown item_reference is an error with the event_id, and gives no response")
async def unknown_reference(run: Run) -> None:
    async with run.session() as peer:
        since = len(peer.events)
        wanted = {"input": [{"type": "item_reference", "id": "nobody"}], "output_modalities": TEXT}
        error = await peer.refused("response.create", response=wanted)
        equal("error.param", error.get("param"), "response.input[0].id")
        await peer.settle()
        peer.without(("response.",), since)


@check(131, "a second response during one is conversation_already_has_active_response, with the event_id")
async def second(run: Run) -> None:
    async with run.session() as peer:
        await peer.type(STORY)
        first = await peer.begin(max_output_tokens=LONG_TOKENS)
        error = await peer.refused("response.create")
        equal("error.code", error.get("code"), "conversation_already_has_active_response")
        await peer.send("response.cancel")
        await peer.done(first["id"])


@check(132, "two responses beside the conversation run in parallel, and their ids do not mix")
async def parallel(run: Run) -> None:
    async with run.session() as peer:
        await peer.type("What is a river?")
        wanted = {"conversation": "none", "output_modalities": TEXT, "max_output_tokens": ANSWER_TOKENS}
        first = await peer.begin(**wanted, metadata={"name": "first"})
        second = await peer.begin(**wanted, metadata={"name": "second"})
        for name, response in (("first", first), ("second", second)):
            done = await peer.done(response["id"])
            equal("metadata", at(done, "metadata"), {"name": name})
            expect(at(done, "status") in ("completed", "incomplete"), "a response that completes", done)
            items = {event["item_id"] for event in peer.within(response["id"]) if "item_id" in event}
            equal("its items", items, {item["id"] for item in done["output"]})


@check(133, "a response that reaches max_output_tokens is incomplete, and so is its item")
async def token_bound(run: Run) -> None:
    async with run.session() as peer:
        await peer.type(STORY)
        done = await peer.respond(output_modalities=TEXT, max_output_tokens=8)
        equal("status", at(done, "status"), "incomplete")
        equal("reason", at(done, "status_details.reason"), "max_output_tokens")
        equal("status of the item", at(done, "output.0.status"), "incomplete")


@check(137, "response.create works before there is any item")
async def from_nothing(run: Run) -> None:
    async with run.session() as peer:
        done = await peer.respond(output_modalities=TEXT, max_output_tokens=16)
        expect(bool(done["output"]), "an item", done)


@check(115, "response.done always follows response.created", last=True)
async def always_done(run: Run) -> str:
    scene, cut = await run.once(scenes.spoken), await run.once(scenes.barge_in)
    for peer in (scene.peer, cut.peer, (await run.once(scenes.written))[0]):
        expect(not peer.grammar.unfinished, "an end of every response", peer.grammar.unfinished)
    counted = sum(len(peer.of("response.done")) for _, peer in run.peers)
    return f"{counted} responses ended in this run"


@check(122, "part.type is audio or text", last=True)
async def part_types(run: Run) -> None:
    await run.once(scenes.spoken)
    await run.once(scenes.written)
    expect(not run.findings(122), "audio or text", run.findings(122))


@check(134, "usage counts are integers, total is input and output, also of cancelled responses", last=True)
async def usage(run: Run) -> None:
    await run.once(scenes.spoken)
    at((await run.once(scenes.barge_in)).done, "usage.total_tokens")
    expect(not run.findings(134), "whole counts", run.findings(134))


@check(135, "each response has exactly one rate_limits.updated, of requests and tokens only", last=True)
async def limits(run: Run) -> None:
    for peer in ((await run.once(scenes.spoken)).peer, (await run.once(scenes.written))[0]):
        equal("rate_limits.updated", len(peer.of("rate_limits.updated")), len(peer.of("response.done")))
