"""Talks through Pipecat's service for the Realtime protocol, inside a pipeline of Pipecat's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from loguru import logger
from pipecat.adapters.schemas.function_schema import FunctionSchema
from pipecat.frames.frames import (
    EndFrame,
    ErrorFrame,
    Frame,
    InputAudioRawFrame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMRunFrame,
    LLMUpdateSettingsFrame,
    TranscriptionFrame,
    TTSAudioRawFrame,
    TTSTextFrame,
)
from pipecat.observers.base_observer import BaseObserver, FramePushed
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.services.llm_service import FunctionCallParams
from pipecat.services.openai.realtime import events
from pipecat.services.openai.realtime.llm import OpenAIRealtimeLLMService
from pipecat.workers.runner import WorkerRunner

from tests.clients.scripts.outcome import Outcome, run

RATE_HZ = 24_000
WEATHER = FunctionSchema(
    name="get_weather",
    description="Tells the weather of a city.",
    properties={"city": {"type": "string", "maxLength": 20}},
    required=["city"],
)


class Watch(BaseObserver):  # type: ignore[misc]  # checked where Pipecat is not installed
    """Sees each frame once, and wakes whoever waits for one."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self.outcome = outcome
        self.kinds: list[str] = []
        self.text = ""
        self.sound = bytearray()
        self._seen: set[int] = set()
        self._news = asyncio.Condition()

    async def on_push_frame(self, data: FramePushed) -> None:
        if data.frame.id in self._seen:
            return
        self._seen.add(data.frame.id)
        self._note(data.frame)
        async with self._news:
            self.kinds.append(type(data.frame).__name__)
            self._news.notify_all()

    def _note(self, frame: Frame) -> None:
        match frame:
            case ErrorFrame(error=error):
                self.outcome.troubles.append(error)
            case TranscriptionFrame(text=text):
                self.outcome.heard.append(text)
            case LLMFullResponseStartFrame():
                self.text, self.sound = "", bytearray()
            case TTSTextFrame(text=text):
                self.text += text
            case TTSAudioRawFrame(audio=audio):
                self.sound += audio

    async def until(self, kind: type[Frame], since: int) -> int:
        """The number of the first frame of a kind from the number `since` on."""
        async with self._news:
            await self._news.wait_for(lambda: kind.__name__ in self.kinds[since:])
            return self.kinds.index(kind.__name__, since)


class Talk:
    """What the user does, as frames that come from the pipeline's transport."""

    def __init__(self, worker: PipelineWorker, watch: Watch, outcome: Outcome) -> None:
        self.worker = worker
        self.watch = watch
        self.outcome = outcome

    async def speak(self, pieces: Iterable[bytes]) -> None:
        await self.worker.queue_frames([InputAudioRawFrame(piece, RATE_HZ, 1) for piece in pieces])

    async def answered(self, since: int) -> None:
        """Note the spoken answer that begins after the frame number `since`."""
        begun = await self.watch.until(TTSAudioRawFrame, since)
        await self.watch.until(LLMFullResponseEndFrame, begun)
        self.outcome.said.append(self.watch.text)
        self.outcome.sound.append(self.watch.sound)


async def talk_through(talk: Talk) -> None:
    """A typed turn, which takes the tool; a spoken one, whose answer is interrupted; the answer to the interruption."""
    watch, outcome = talk.watch, talk.outcome
    await talk.worker.queue_frame(LLMRunFrame())
    await talk.answered(0)
    outcome.after_tool = watch.text

    since = len(watch.kinds)
    await talk.speak(outcome.question())
    await watch.until(TranscriptionFrame, since)
    await watch.until(TTSAudioRawFrame, since)

    since = len(watch.kinds)
    await talk.speak(outcome.interruption())
    cut = await watch.until(InterruptionFrame, since)
    outcome.cut = True
    heard = await watch.until(TranscriptionFrame, cut)
    await talk.answered(heard)
    outcome.notes["frames"] = {kind: watch.kinds.count(kind) for kind in watch.kinds}
    await talk.worker.queue_frame(EndFrame())


def settings(tool_choice: str) -> OpenAIRealtimeLLMService.Settings:
    properties = events.SessionProperties(
        instructions="You are a teller of tales. Whatever you are told, go on with a long story about it.",
        audio=events.AudioConfiguration(
            input=events.AudioInput(
                transcription=events.InputAudioTranscription(model="whisper-1"),
                turn_detection=events.TurnDetection(),
            )
        ),
        tools=[WEATHER],
        tool_choice=tool_choice,
    )
    return OpenAIRealtimeLLMService.Settings(model="gpt-realtime", session_properties=properties)


async def converse(outcome: Outcome) -> None:
    logger.remove()
    logger.add(lambda line: outcome.troubles.append(str(line)), level="WARNING")
    ws_url, chosen = outcome.ws_url, settings(outcome.tool_choice)
    service = OpenAIRealtimeLLMService(base_url=f"{ws_url}/v1/realtime", api_key="none", settings=chosen)

    async def get_weather(call: FunctionCallParams) -> None:
        outcome.called.append(dict(call.arguments))
        await service.queue_frame(LLMUpdateSettingsFrame(delta=settings("none")))
        await call.result_callback({"weather": "sunny and warm"})

    service.register_function("get_weather", get_weather)
    pair = LLMContextAggregatorPair(LLMContext([{"role": "user", "content": "What is the weather in Paris?"}]))
    watch = Watch(outcome)
    worker = PipelineWorker(
        Pipeline([pair.user(), service, pair.assistant()]),
        params=PipelineParams(audio_in_sample_rate=RATE_HZ, audio_out_sample_rate=RATE_HZ),
        observers=[watch],
    )
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    talking = asyncio.create_task(talk_through(Talk(worker, watch, outcome)))
    await runner.run()
    await talking


if __name__ == "__main__":
    run(converse)
