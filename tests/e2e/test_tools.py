"""Lets the running server call functions: calls that must be made, their results spoken of, calls after words."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import jsonschema

from tests.e2e.client import Client, Json, session, transcript
from tests.e2e.server import Server
from tests.models.tool_schemas import SCHEMAS

TOOLS = [
    {"type": "function", "name": name, "description": words, "parameters": SCHEMAS[name]}
    for name, words in (("weather", "Tells the weather of a city."), ("light", "Turns a light on or off."))
]


def calls(response: Json) -> list[Json]:
    return [item for item in response["response"]["output"] if item["type"] == "function_call"]


async def answer(client: Client, call: Json, output: str, **response: object) -> Json:
    """Give the output of a call; the response that is made with it."""
    since = len(client.events)
    item = {"type": "function_call_output", "call_id": call["call_id"], "output": output}
    await client.connection.conversation.item.create(item=cast(Any, item))
    await client.wait("conversation.item.done", since)
    assert "response.created" not in client.kinds(since)
    await client.connection.response.create(response=cast(Any, response))
    return await client.wait("response.done", since)


def check_call(client: Client, done: Json, since: int, name: str) -> Json:
    """The one call of a response, which must be of that function, valid, and told as it should be."""
    (call,) = calls(done)
    assert (call["name"], call["status"]) == (name, "completed")
    jsonschema.validate(json.loads(call["arguments"]), SCHEMAS[name])
    kinds = client.kinds(since)
    assert kinds.index("response.output_item.added") < kinds.index("response.function_call_arguments.delta")
    told = "".join(event["delta"] for event in client.of("response.function_call_arguments.delta", since))
    assert told == client.of("response.function_call_arguments.done", since)[0]["arguments"] == call["arguments"]
    return call


def test_check_123_124_126_functions_are_called_and_their_results_spoken_of(eager: Server) -> None:
    async def talk() -> None:
        async with session(eager.url) as client:
            await client.configure(tools=TOOLS)
            since = len(client.events)
            asked = "What is the weather in Paris?"
            call = check_call(client, await client.ask(asked, tool_choice="required"), since, "weather")
            spoken = await answer(client, call, '{"sky": "sunny", "temperature": 31}', tool_choice="none")
            assert "sunny" in transcript(spoken) or "31" in transcript(spoken)
            assert len(client.heard(spoken["response"]["id"])) > 24_000 // 2
            since = len(client.events)
            named = await client.ask(asked, tool_choice={"type": "function", "name": "light"})
            check_call(client, named, since, "light")
            none = await client.ask(asked, tool_choice="none", output_modalities=["text"])
            assert calls(none) == []

    asyncio.run(talk())


def test_a_schema_that_the_thinker_can_not_keep_fails_the_response_and_nothing_else(eager: Server) -> None:
    async def talk() -> None:
        async with session(eager.url) as client:
            plate = {"type": "object", "properties": {"number": {"type": "string", "pattern": "^[A-Z]{2}$"}}}
            await client.configure(
                tools=[{"type": "function", "name": "plate", "parameters": plate}], output_modalities=["text"]
            )
            done = await client.ask("Find the car.", tool_choice="required")
            assert done["response"]["status"] == "failed"
            said = done["response"]["status_details"]["error"]["message"]
            assert "'plate'" in said
            assert "`pattern`" in said
            assert transcript(await client.ask("What is the capital of France?"))

    asyncio.run(talk())


def test_check_125_a_spoken_preamble_comes_before_the_call(scripted: Server) -> None:
    async def talk() -> None:
        async with session(scripted.url) as client:
            await client.configure(tools=TOOLS)
            since = len(client.events)
            done = await client.ask('say One moment and call light {"room": "hall", "on": true}')
            assert [item["type"] for item in done["response"]["output"]] == ["message", "function_call"]
            assert [event["output_index"] for event in client.of("response.output_item.added", since)] == [0, 1]
            (call,) = calls(done)
            assert json.loads(call["arguments"]) == {"room": "hall", "on": True}
            after = await answer(client, call, "done")
            assert after["response"]["status"] == "completed"

    asyncio.run(talk())
