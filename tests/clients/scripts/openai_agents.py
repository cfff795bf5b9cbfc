"""Talks through the Python package `openai-agents`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from agents import function_tool, set_tracing_disabled
from agents.realtime import (
    RealtimeAgent,
    RealtimeItem,
    RealtimeModelConfig,
    RealtimeModelEvent,
    RealtimeModelSendSessionUpdate,
    RealtimeRunner,
    RealtimeSession,
    RealtimeSessionModelSettings,
)

from tests.clients.scripts.outcome import Outcome, run

set_tracing_disabled(True)


class Watch:
    """Takes the session's events, and wakes whoever waits for one."""

    def __init__(self, session: RealtimeSession, outcome: Outcome) -> None:
        self.session = session
        self.outcome = outcome
        self.kinds: list[str] = []
        self.said = ""
        self.sound = bytearray()
        self._news = asyncio.Condition()

    async def listen(self) -> None:
        async for event in self.session:
            if event.type == "audio":
                self.sound += event.audio.data
            elif event.type == "history_updated":
                self.said = last_answer(event.history)
            elif event.type == "error":
                self.outcome.troubles.append(str(event.error))
            elif event.type == "raw_model_event":
                self._model(event.data)
            async with self._news:
                self.kinds.append(event.type)
                self._news.notify_all()

    def _model(self, event: RealtimeModelEvent) -> None:
        if event.type == "input_audio_transcription_completed":
            self.outcome.heard.append(event.transcript)
        elif event.type == "exception":
            self.outcome.troubles.append(str(event.exception))

    async def until(self, kind: str, since: int) -> int:
        """The number of the first event of a kind from the number `since` on."""
        async with self._news:
            await self._news.wait_for(lambda: kind in self.kinds[since:])
            return self.kinds.index(kind, since)

    async def answered(self, begin: Callable[[], Any]) -> None:
        """A spoken answer from what begins it up to its end."""
        since, self.sound = len(self.kinds), bytearray()
        await begin()
        await self.until("agent_end", await self.until("audio", since))
        self.outcome.sound.append(self.sound)
        self.outcome.said.append(self.said)


def last_answer(history: Sequence[RealtimeItem]) -> str:
    """The words of the assistant's last message."""
    answers = [item for item in history if item.type == "message" and item.role == "assistant"]
    parts = answers[-1].content if answers else ()
    return " ".join((part.transcript if part.type == "audio" else part.text) or "" for part in parts)


async def use_tool(watch: Watch) -> None:
    session, outcome = watch.session, watch.outcome

    @function_tool  # type: ignore[untyped-decorator]  # checked where the package is not installed
    async def get_weather(city: str) -> str:
        """Tells the weather of a city."""
        outcome.called.append({"city": city})
        await choose("none")
        return "It is sunny and warm."

    async def choose(tool_choice: str) -> None:
        settings: RealtimeSessionModelSettings = {"tools": [get_weather], "tool_choice": tool_choice}
        await session.model.send_event(RealtimeModelSendSessionUpdate(session_settings=settings))

    await session.update_agent(RealtimeAgent(name="assistant", instructions="Be brief.", tools=[get_weather]))
    await choose(outcome.tool_choice)
    await watch.answered(lambda: session.send_message("What is the weather in Paris?"))
    outcome.after_tool = outcome.said[-1]


async def interrupt(watch: Watch) -> None:
    since = len(watch.kinds)
    await watch.session.send_message("Tell me a very long story about the sea.")
    await watch.until("audio", since)
    for piece in watch.outcome.interruption():
        await watch.session.send_audio(piece)
    await watch.until("audio_interrupted", since)
    watch.outcome.cut = True
    await watch.until("agent_end", since)


async def converse(outcome: Outcome) -> None:
    ws_url = outcome.ws_url
    agent = RealtimeAgent(name="assistant", instructions="Be brief.")
    address: RealtimeModelConfig = {"url": f"{ws_url}/v1/realtime?model=gpt-realtime", "api_key": "none"}
    session = await RealtimeRunner(agent).run(model_config=address)
    async with session:
        watch = Watch(session, outcome)
        listening = asyncio.create_task(watch.listen())

        async def speak() -> None:
            for piece in outcome.question():
                await session.send_audio(piece)

        await watch.answered(speak)
        await watch.answered(lambda: session.send_message("Hello, how are you?"))
        await use_tool(watch)
        await interrupt(watch)
        outcome.notes["events"] = {kind: watch.kinds.count(kind) for kind in watch.kinds}
        listening.cancel()


if __name__ == "__main__":
    run(converse)
