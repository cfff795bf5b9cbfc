"""Talks through the Python package `openai`, in the dialect that the third argument names: `ga` or `beta`."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from openai import AsyncOpenAI

from tests.clients.scripts.outcome import Outcome, run

Json = dict[str, Any]  # events as the package gives them
BETA = len(sys.argv) > 3 and sys.argv[3] == "beta"
AUDIO = "response.audio" if BETA else "response.output_audio"
HEARD = "conversation.item.input_audio_transcription.completed"
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Tells the weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
SETTINGS: Any = (  # in either dialect; the types of the package leave no room for both
    {"modalities": ["audio", "text"], "input_audio_transcription": {"model": "whisper-1"}}
    if BETA
    else {"type": "realtime", "audio": {"input": {"transcription": {"model": "whisper-1"}}}}
)


@dataclass(slots=True)
class Talk:
    """A connection, whose events are taken until those that are waited for have come."""

    connection: Any  # of either dialect: the package's two classes have no common one
    outcome: Outcome
    sound: bytearray = field(default_factory=bytearray)

    async def until(self, *kinds: str) -> dict[str, Json]:
        seen: dict[str, Json] = {}
        async for event in self.connection:
            told = event.to_dict(mode="json")
            seen[event.type] = told
            if event.type == "error":
                self.outcome.troubles.append(str(told["error"]))
            elif event.type == f"{AUDIO}.delta":
                self.sound += base64.b64decode(event.delta)
            if all(kind in seen for kind in kinds):
                return seen
        raise ConnectionError(f"closed before {kinds}; {list(seen)}")

    async def answer(self, *kinds: str) -> dict[str, Json]:
        """Events up to the end of an answer, whose words and sound are noted."""
        seen = await self.until("response.done", *kinds)
        self.outcome.said.append(words(seen["response.done"]))
        self.outcome.sound.append(self.sound)
        self.sound = bytearray()
        return seen

    async def speak(self, pieces: Iterable[bytes]) -> None:
        for piece in pieces:
            await self.connection.input_audio_buffer.append(audio=base64.b64encode(piece).decode())

    async def type(self, text: str, **response: object) -> None:
        content = [{"type": "input_text", "text": text}]
        await self.connection.conversation.item.create(item={"type": "message", "role": "user", "content": content})
        await self.connection.response.create(response=response)


def words(done: Json) -> str:
    parts = [part for item in done["response"]["output"] for part in item.get("content") or []]
    return " ".join(part.get("transcript") or part.get("text") or "" for part in parts)


async def use_tool(talk: Talk) -> None:
    tools: Json = {"tools": [WEATHER], "tool_choice": talk.outcome.tool_choice}
    await talk.connection.session.update(session=tools if BETA else {"type": "realtime", **tools})
    await talk.type("What is the weather in Paris?")
    seen = await talk.until("response.done")
    for item in seen["response.done"]["response"]["output"]:
        if item["type"] == "function_call":
            talk.outcome.called.append(json.loads(item["arguments"]))
            output = {"type": "function_call_output", "call_id": item["call_id"], "output": "It is sunny and warm."}
            await talk.connection.conversation.item.create(item=output)
    await talk.connection.response.create(response={"tool_choice": "none"})
    talk.outcome.after_tool = words((await talk.until("response.done"))["response.done"])


async def interrupt(talk: Talk) -> None:
    await talk.type("Tell me a very long story about the sea.", tool_choice="none")
    await talk.until(f"{AUDIO}.delta")
    await talk.speak(talk.outcome.interruption())
    seen = await talk.until("input_audio_buffer.speech_started", "response.done")
    talk.outcome.cut = seen["response.done"]["response"]["status"] == "cancelled"
    if not talk.outcome.cut:
        talk.outcome.notes["end"] = seen["response.done"]["response"]


async def converse(outcome: Outcome) -> None:
    url, ws_url = outcome.url, outcome.ws_url
    client = AsyncOpenAI(base_url=f"{url}/v1", websocket_base_url=f"{ws_url}/v1", api_key="none")
    realtime = client.beta.realtime if BETA else client.realtime
    async with client, realtime.connect(model="gpt-realtime") as connection:
        talk = Talk(connection, outcome)
        await connection.session.update(session=SETTINGS)
        await talk.speak(outcome.question())
        outcome.heard.append((await talk.answer(HEARD))[HEARD]["transcript"])
        await talk.type("Hello, how are you?")
        await talk.answer()
        await use_tool(talk)
        await interrupt(talk)


if __name__ == "__main__":
    run(converse)
