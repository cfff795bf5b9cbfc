"""Is a Pipecat bot whose services cost nothing; it runs in Pipecat's own environment: `make peer-env`.

It is the bot of `pipecat_bot.py` with null services: recognition, language model and speech are processors that answer
at once, and the detector's model looks for a loud sample in each 20 ms. What a pipeline can do without is left out, in
Pipecat's favour: its protocol for clients, metrics, turn tracking, idle detection. What Pipecat does around every
detector stays, unless it is started with `--lean`: a thread for each, and measuring the loudness of the last 0.4 s. It
prints `listening on PORT`, and takes WebSocket connections at `/`.
"""

from __future__ import annotations

import argparse
import socket
import sys

import numpy as np
import uvicorn
from fastapi import FastAPI, WebSocket
from loguru import logger
from pipecat.audio.vad.vad_analyzer import VADAnalyzer, VADParams, VADState
from pipecat.frames.frames import (
    Frame,
    LLMContextFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TranscriptionFrame,
    TTSAudioRawFrame,
    TTSStartedFrame,
    TTSStoppedFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair, LLMUserAggregatorParams
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.serializers.protobuf import ProtobufFrameSerializer
from pipecat.transports.websocket.fastapi import FastAPIWebsocketParams, FastAPIWebsocketTransport
from pipecat.turns.user_stop import SpeechTimeoutUserTurnStopStrategy
from pipecat.turns.user_turn_strategies import UserTurnStrategies
from pipecat.workers.runner import WorkerRunner

STOP_MS = 200
"""The detector reports after this silence, as its documentation recommends; a timer takes the rest of the turn's."""
LEVEL = 1000
"""A sample beyond this is speech, as in our null detector."""
FRAME_MS = 20
RATE_OUT_HZ = 24_000


class LoudAnalyzer(VADAnalyzer):  # type: ignore[misc]  # the peer's environment is not the one that is checked
    """Judges each frame by its loudest sample; all else is Pipecat's."""

    def num_frames_required(self) -> int:
        return int(self.sample_rate * FRAME_MS / 1000)

    def voice_confidence(self, buffer: bytes) -> float:
        frame = np.frombuffer(buffer, np.int16)
        return 1.0 if frame[frame.argmax()] > LEVEL else 0.0


class LeanAnalyzer(LoudAnalyzer):
    """The same on the event loop, without measuring loudness: faster than any detector of Pipecat's can be."""

    def _get_smoothed_volume(self, audio: bytes) -> float:
        return 1.0

    async def analyze_audio(self, buffer: bytes) -> VADState:
        return self._run_analyzer(buffer)


class NullRecognizer(FrameProcessor):  # type: ignore[misc]  # see above
    """Hears the same words in whatever is said, as soon as the detector reports a silence."""

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        await self.push_frame(frame, direction)
        if isinstance(frame, VADUserStoppedSpeakingFrame):
            await self.push_frame(TranscriptionFrame("Tell me something, please.", "user", "", finalized=True))


class NullThinker(FrameProcessor):  # type: ignore[misc]  # see above
    """Writes the same answer to everything, in pieces."""

    def __init__(self, deltas: int) -> None:
        super().__init__()
        self._deltas = deltas

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if not isinstance(frame, LLMContextFrame):
            await self.push_frame(frame, direction)
            return
        await self.push_frame(LLMFullResponseStartFrame())
        for _ in range(self._deltas):
            await self.push_frame(LLMTextFrame(" a few more words"))
        await self.push_frame(LLMFullResponseEndFrame())


class NullTalker(FrameProcessor):  # type: ignore[misc]  # see above
    """Speaks a tone for each piece of text, as long as its words would take."""

    def __init__(self, piece_ms: float) -> None:
        super().__init__()
        at = np.arange(round(RATE_OUT_HZ * piece_ms / 1000)) / RATE_OUT_HZ
        self._piece = (8000 * np.sin(2 * np.pi * 200 * at)).astype("<i2").tobytes()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        match frame:
            case LLMFullResponseStartFrame():
                await self.push_frame(TTSStartedFrame())
            case LLMTextFrame():
                await self.push_frame(TTSAudioRawFrame(self._piece, RATE_OUT_HZ, 1))
            case LLMFullResponseEndFrame():
                await self.push_frame(TTSStoppedFrame())
        await self.push_frame(frame, direction)


async def talk(websocket: WebSocket, options: argparse.Namespace) -> None:
    """Hold one conversation, in a pipeline of its own."""
    await websocket.accept()
    transport = FastAPIWebsocketTransport(
        websocket=websocket,
        params=FastAPIWebsocketParams(
            audio_in_enabled=True, audio_out_enabled=True, add_wav_header=False, serializer=ProtobufFrameSerializer()
        ),
    )
    analyzer = LeanAnalyzer if options.lean else LoudAnalyzer
    timer_s = (options.silence_ms - STOP_MS) / 1000
    listening, speaking = LLMContextAggregatorPair(
        LLMContext(),
        user_params=LLMUserAggregatorParams(
            vad_analyzer=analyzer(params=VADParams(stop_secs=STOP_MS / 1000)),
            user_turn_strategies=UserTurnStrategies(
                stop=[SpeechTimeoutUserTurnStopStrategy(user_speech_timeout=timer_s)]
            ),
        ),
    )
    stages = [
        transport.input(),
        NullRecognizer(),
        listening,
        NullThinker(options.deltas),
        NullTalker(options.reply_ms / options.deltas),
        transport.output(),
        speaking,
    ]
    worker = PipelineWorker(
        Pipeline(stages),
        params=PipelineParams(),
        enable_rtvi=False,
        enable_turn_tracking=False,
        idle_timeout_secs=None,
    )

    async def leave(_transport: object, _client: object) -> None:
        await worker.cancel()

    transport.add_event_handler("on_client_disconnected", leave)
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    await runner.run()


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--silence-ms", type=int, required=True, help="that ends a turn")
    parser.add_argument("--reply-ms", type=int, required=True)
    parser.add_argument("--deltas", type=int, required=True, help="pieces that a reply is written and spoken in")
    parser.add_argument("--lean", action="store_true", help="leave out what Pipecat does around a detector")
    options = parser.parse_args()
    logger.remove()
    logger.add(sys.stderr, level="ERROR")
    app = FastAPI()

    async def connected(websocket: WebSocket) -> None:
        await talk(websocket, options)

    app.add_api_websocket_route("/", connected)
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        print(f"listening on {listener.getsockname()[1]}", flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="error", ws_per_message_deflate=False)).run(sockets=[listener])


if __name__ == "__main__":
    main()
