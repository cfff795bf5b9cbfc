"""Talks through LiveKit's plugin for OpenAI, `livekit-plugins-openai`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable

from livekit import rtc
from livekit.agents import llm
from livekit.plugins.openai import realtime

from tests.clients.scripts.outcome import Outcome, run

RATE_HZ = 24_000


class Watch:
    """Takes the plugin's events, and what it makes of each answer."""

    def __init__(self, session: realtime.RealtimeSession, outcome: Outcome) -> None:
        self.outcome = outcome
        self.session = session
        self.answers: asyncio.Queue[llm.GenerationCreatedEvent] = asyncio.Queue(16)
        self.transcribed = asyncio.Event()
        self.speaking = asyncio.Event()
        self.metrics: set[str] = set()
        session.on("generation_created", self.answers.put_nowait)
        session.on("error", lambda event: outcome.troubles.append(repr(event.error)))
        session.on("input_audio_transcription_completed", self._heard)
        session.on("input_speech_started", lambda _event: self.speaking.set())
        session.on("metrics_collected", lambda event: self.metrics.add(type(event).__name__))

    def _heard(self, event: llm.InputTranscriptionCompleted) -> None:
        if event.is_final:
            self.outcome.heard.append(event.transcript)
            self.transcribed.set()

    def speak(self, pieces: Iterable[bytes]) -> None:
        for piece in pieces:
            self.session.push_audio(rtc.AudioFrame(piece, RATE_HZ, 1, len(piece) // 2))

    async def listen(self, begun: asyncio.Event | None = None) -> tuple[str, bytearray, list[llm.FunctionCall]]:
        """The words, the sound and the calls of the next answer; `begun` is set at its first sound."""
        answer = await self.answers.get()
        text, sound = "", bytearray()
        async for message in answer.message_stream:
            reading = asyncio.create_task(joined(message))
            async for frame in message.audio_stream:
                sound += bytes(frame.data)
                if begun is not None:
                    begun.set()
            text += await reading
        return text, sound, [call async for call in answer.function_stream]


async def joined(message: llm.MessageGeneration) -> str:
    return "".join([str(part) async for part in message.text_stream])


async def use_tool(watch: Watch) -> None:
    @llm.function_tool  # type: ignore[untyped-decorator]  # checked where the package is not installed
    async def get_weather(city: str) -> str:
        """Tells the weather of a city."""
        return "It is sunny and warm."

    session = watch.session
    await session.update_tools([get_weather])
    session.generate_reply(instructions="Look up the weather in Paris.", tool_choice=watch.outcome.tool_choice)
    _text, _sound, calls = await watch.listen()
    context = session.chat_ctx.copy()
    for call in calls:
        arguments = json.loads(call.arguments)
        watch.outcome.called.append(arguments)
        result = await get_weather(**arguments)
        context.items.append(
            llm.FunctionCallOutput(name=call.name, call_id=call.call_id, output=result, is_error=False)
        )
    await session.update_chat_ctx(context)
    session.generate_reply(tool_choice="none")
    watch.outcome.after_tool = (await watch.listen())[0]


async def interrupt(watch: Watch) -> None:
    begun = asyncio.Event()
    watch.speaking.clear()
    reply = watch.session.generate_reply(instructions="Tell a very long story about the sea.", tool_choice="none")
    listening = asyncio.create_task(watch.listen(begun))
    await begun.wait()
    watch.speak(watch.outcome.interruption())
    await watch.speaking.wait()
    watch.session.interrupt()
    await listening
    watch.outcome.cut = reply.done()


async def converse(outcome: Outcome) -> None:
    url = outcome.url
    model = realtime.RealtimeModel(base_url=f"{url}/v1", api_key="none", model="gpt-realtime")
    session = model.session()
    watch = Watch(session, outcome)
    await session.update_instructions("Be brief.")
    context = llm.ChatContext.empty()
    context.add_message(role="user", content="My name is Ada.")
    context.add_message(role="assistant", content="Nice to meet you, Ada.")
    await session.update_chat_ctx(context)

    watch.speak(outcome.question())
    text, sound, _calls = await watch.listen()
    outcome.said.append(text)
    outcome.sound.append(sound)
    await watch.transcribed.wait()

    context = session.chat_ctx.copy()
    context.add_message(role="user", content="Hello, how are you?")
    await session.update_chat_ctx(context)
    await session.generate_reply()
    text, sound, _calls = await watch.listen()
    outcome.said.append(text)
    outcome.sound.append(sound)

    await use_tool(watch)
    await interrupt(watch)
    outcome.notes["metrics"] = sorted(watch.metrics)
    outcome.notes["history"] = [item.type for item in session.chat_ctx.items]
    await session.aclose()
    await model.aclose()


if __name__ == "__main__":
    run(converse)
