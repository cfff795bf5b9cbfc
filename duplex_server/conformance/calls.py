"""Checks calls of functions: how they are made, refused, answered and cut off."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from duplex_server.conformance.checks import Deviation, Json, NotApplicable, at, check, equal, expect
from duplex_server.conformance.peer import Peer
from duplex_server.conformance.run import Run
from duplex_server.conformance.scenes import ANSWER_TOKENS, LONG_TEXT, LONG_TEXT_TOKENS, LONG_TOKENS, TEXT, met

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Tells the weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}

ESSAY = {
    "type": "function",
    "name": "write_essay",
    "description": "Keeps an essay of many words.",
    "parameters": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}


@dataclass(frozen=True, slots=True)
class Called:
    """A function that the model was made to call."""

    peer: Peer
    done: Json
    call: Json


async def with_tools(peer: Peer, *tools: Json, **session: object) -> None:
    """Give the session tools. Raises `NotApplicable` when the server says that it has no use for any."""
    told = await peer.update(tools=list(tools), **session)
    if not at(told, "tools"):
        raise NotApplicable("the server keeps no tools: session.updated shows none of those that were set")


async def call_function(peer: Peer) -> Called:
    """Make the model call the function that it has."""
    await peer.type("What is the weather in Paris?")
    done = await peer.respond(output_modalities=["text"], tool_choice="required")
    calls = [item for item in done["output"] if item["type"] == "function_call"]
    if not calls:
        raise Deviation("a function_call, as tool_choice is required", done)
    return Called(peer, done, calls[0])


async def called(run: Run) -> Called:
    """A question that is answered by a call of a function."""
    async with run.session() as peer:
        await with_tools(peer, WEATHER)
        found = await call_function(peer)
        await peer.settle()
    return found


@check(123, "a function call is added with call_id and name before its arguments are done; they are JSON")
async def function_call(run: Run) -> None:
    made = await run.once(called)
    call_id, item_id = at(made.call, "call_id"), made.call["id"]
    added = next(one for one in made.peer.of("conversation.item.added") if one["item"]["id"] == item_id)
    done = made.peer.within(made.done["id"], "response.function_call_arguments.done")
    expect(len(done) == 1, "one function_call_arguments.done", done)
    expect(made.peer.events.index(added) < made.peer.events.index(done[0]), "item.added before it", "after it")
    for event, path in ((added, "item.call_id"), (done[0], "call_id")):
        equal(path, at(event, path), call_id)
    for event, path in ((added, "item.name"), (done[0], "name"), (made.call, "name")):
        equal(path, at(event, path), WEATHER["name"])
    equal("status", at(made.call, "status"), "completed")
    equal("arguments", at(done[0], "arguments"), at(made.call, "arguments"))
    try:
        arguments = msgspec.json.decode(made.call["arguments"])
    except msgspec.DecodeError:
        raise Deviation("arguments in JSON", made.call) from None
    expect(isinstance(arguments, dict), "an object as arguments", arguments)


@check(124, "a function's output starts no response; a response.create uses it")
async def function_output(run: Run) -> None:
    async with run.session() as peer:
        await with_tools(peer, WEATHER)
        made = await call_function(peer)
        since = len(peer.events)
        await peer.add({"type": "function_call_output", "call_id": made.call["call_id"], "output": LONG_TEXT})
        await peer.quiet(("response.",), since)
        done = await peer.respond(output_modalities=TEXT, tool_choice="none", max_output_tokens=ANSWER_TOKENS)
        more = at(done, "usage.input_tokens") - at(made.done, "usage.input_tokens")
        expect(more >= LONG_TEXT_TOKENS, f"at least {LONG_TEXT_TOKENS} input tokens more, of the output", more)


@check(126, "tool_choice none gives no call, required gives one, a named function is that one")
async def tool_choices(run: Run) -> None:
    async with run.session() as peer:
        other = {**WEATHER, "name": "get_time", "description": "Tells the time in a city."}
        await with_tools(peer, WEATHER, other)
        for choice in ("none", "required", {"type": "function", "name": "get_time"}):
            await peer.type("What is the weather in Paris?")
            done = await peer.respond(output_modalities=TEXT, tool_choice=choice, max_output_tokens=200)
            names = [item["name"] for item in done["output"] if item["type"] == "function_call"]
            if choice == "none":
                equal("calls with tool_choice none", names, [])
            elif choice == "required":
                expect(bool(names), "a call with tool_choice required", done)
            else:
                expect(set(names) == {"get_time"}, "a call of get_time, which was named", names)


@check(153, "a function call that was cancelled is incomplete")
async def cancelled_call(run: Run) -> str:
    async def attempt(peer: Peer) -> Json | None:
        since = len(peer.events)
        await peer.type("Write an essay about rivers and keep it.")
        wanted = {"output_modalities": TEXT, "tool_choice": "required", "max_output_tokens": LONG_TOKENS}
        response = await peer.begin(**wanted)

        def is_call(event: Json) -> bool:
            return bool(event["response_id"] == response["id"] and at(event, "item.type") == "function_call")

        await peer.wait("response.output_item.added", since, where=is_call, within_s=peer.patience_s)
        await peer.send("response.cancel")
        done = await peer.done(response["id"])
        await peer.settle()
        if at(done, "status") != "cancelled":
            return None
        equal("status of the call", at(done, "output.0.status"), "incomplete")
        return done

    async with run.session() as peer:
        await with_tools(peer, ESSAY)
        return await met(peer, attempt, "the call was complete before the cancel")
