"""Asks a running server one question from a sound file and keeps its spoken answer."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import numpy as np
import soundfile
import soxr
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import (
    ConnectionClosed,
    InvalidHandshake,
    InvalidProxy,
    InvalidStatus,
    ProxyError,
)
from websockets.http11 import Response

from duplex_server.client import RATE_HZ, ErrorBody, Event, Exchange, Pcm, voiced_span

FRAME_S = 0.02
FRAME_SAMPLES = int(RATE_HZ * FRAME_S)
LONGEST_QUESTION_S = 600.0
CONNECT_TIMEOUT_S = 10.0
QUIET_TIMEOUT_S = 30.0  # without a single event, once the question is over
TOTAL_TIMEOUT_S = 300.0  # from the end of the question to the end of its answer
TICK_S = 0.25  # how often a wait looks at its bounds
LOOPBACK = ("localhost", "127.0.0.1", "::1")

SETTINGS = (
    b'{"type":"session.update","session":{"type":"realtime","output_modalities":["audio"],"audio":{'
    b'"input":{"format":{"type":"audio/pcm","rate":24000},"transcription":{"model":"whisper-1"},'
    b'"turn_detection":{"type":"server_vad","create_response":true,"interrupt_response":true}},'
    b'"output":{"format":{"type":"audio/pcm","rate":24000}}}}}'
)


class CallError(Exception):
    """The call could not be made or ended without an answer; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question's sound: int16, shape (n,), 24 kHz mono; `voiced_end` is the first sample after its speech."""

    pcm: Pcm
    voiced_end: int


def load_question(file: Path) -> Question:
    """Read a WAV, FLAC, OGG or MP3 file of any rate and number of channels. Raises `CallError`."""
    try:
        info = soundfile.info(str(file))
        if info.duration > LONGEST_QUESTION_S:
            raise CallError(f"{file} lasts {info.duration:.0f} s; a question may last {LONGEST_QUESTION_S:.0f} s")
        samples, rate_hz = soundfile.read(str(file), dtype="float32", always_2d=True)
    except (OSError, soundfile.SoundFileError) as error:
        reason = "there is no such file" if not file.exists() else f"it is no sound file that can be read ({error})"
        raise CallError(f"{file}: {reason}") from error
    mono = soxr.resample(samples.mean(axis=1), rate_hz, RATE_HZ)
    pcm = np.clip(np.round(mono * 32767), -32768, 32767).astype(np.int16)
    span = voiced_span(pcm)
    if span is None:
        raise CallError(f"{file}: no speech in it; all of it is quieter than -50 dBFS")
    return Question(pcm, span[1])


def call(file: Path, out: Path, url: str, key: str | None) -> None:
    """Ask the question in `file`, write the answer to `out` and print both, with times. Raises `CallError`."""
    if out.exists() and out.samefile(file):
        raise CallError(f"{out} is the question itself: choose another name for the answer")
    question = load_question(file)
    if not out.absolute().parent.is_dir():
        raise CallError(f"{out}: there is no folder {out.absolute().parent}")
    if out.suffix.lstrip(".").upper() not in soundfile.available_formats():
        raise CallError(f"{out}: no known sound format; take a name that ends in .wav")
    exchange = asyncio.run(ask(question, url, key))
    answer = exchange.answer
    if exchange.failure is not None or answer is None:
        raise CallError(exchange.failure or "the connection ended without an answer")
    print(f"you:       {exchange.question or '(not transcribed)'}")
    print(f"assistant: {answer.text()}")
    pcm = answer.pcm()
    if not len(pcm):
        raise CallError("the answer has no audio")
    soundfile.write(str(out), pcm, RATE_HZ)
    print(f"\n{len(pcm) / RATE_HZ:.1f} s of speech written to {out}\n")
    print("\n".join(timing_lines(exchange)))


def timing_lines(exchange: Exchange) -> Iterator[str]:
    """Milliseconds after the question's last voiced sample: until the answer is heard, and each step on the way."""
    audible_s = exchange.answer.audible_at() if exchange.answer else None
    if audible_s is not None:
        yield f"{1000 * (audible_s - exchange.spoken_s):6.0f} ms from the end of speech to the first audible sound"
    for name, at_s in sorted(exchange.marks.items(), key=lambda mark: mark[1]):
        yield f"{1000 * (at_s - exchange.spoken_s):6.0f} ms {name}"


# ---- the socket ---------------------------------------------------------------------------------------------------


async def ask(question: Question, url: str, key: str | None) -> Exchange:
    """Hold the conversation in real time; returns once it is over. Raises `CallError`."""
    opening = connect(
        url,
        additional_headers={"Authorization": f"Bearer {key}"} if key else {},
        open_timeout=CONNECT_TIMEOUT_S,
        compression=None,
        # A proxy that the environment names does not reach this machine.
        proxy=None if _host(url) in LOOPBACK else True,
    )
    try:
        async with opening as socket:
            return await _converse(socket, question)
    except InvalidStatus as error:
        raise CallError(_refused(error.response, url)) from error
    except (InvalidHandshake, InvalidProxy, ProxyError) as error:
        raise CallError(f"what answers at {url} does not speak WebSocket: {error}") from error
    except ConnectionClosed as error:
        raise CallError(f"the server closed the connection: {error}") from error
    except TimeoutError as error:
        raise CallError(f"nothing answered at {url} within {CONNECT_TIMEOUT_S:.0f} s") from error
    except OSError as error:
        raise CallError(f"no server at {url} ({error.strerror or error}); start one with: make serve") from error


def _host(url: str) -> str:
    try:
        parts = urlsplit(url)
        if parts.scheme in ("ws", "wss") and parts.hostname and parts.port != 0:
            return parts.hostname
    except ValueError:
        pass  # no number where the port should be
    raise CallError(f"{url!r} is no WebSocket address; expected ws://host:port/v1/realtime")


class _Refusal(msgspec.Struct, frozen=True):
    """The body of a refused request, in OpenAI's form."""

    error: ErrorBody


def _refused(response: Response, url: str) -> str:
    match response.status_code:
        case 401:
            return f"the server at {url} wants a valid key: pass --key or set DUPLEX_API_KEY"
        case 403 | 404:
            return f"the server at {url} has no such route; the path is /v1/realtime"
    try:
        said = f": {msgspec.json.decode(response.body or b'', type=_Refusal).error.message}"
    except msgspec.DecodeError:
        said = ""  # not one of ours; its status must do
    return f"the server at {url} refused the call with HTTP {response.status_code}{said}"


async def _converse(socket: ClientConnection, question: Question) -> Exchange:
    await _until(socket, "session.created")
    await socket.send(SETTINGS.decode())
    await _until(socket, "session.updated")
    started_s = time.monotonic()
    exchange = Exchange(started_s + question.voiced_end / RATE_HZ)
    microphone = asyncio.create_task(_speak(socket, question.pcm, started_s))
    try:
        await _listen(socket, exchange, started_s + len(question.pcm) / RATE_HZ)
    finally:
        microphone.cancel()
        # A lost connection shows in `_listen` too, where it is told.
        await asyncio.gather(microphone, return_exceptions=True)
    return exchange


async def _until(socket: ClientConnection, wanted: str) -> None:
    """Read events up to the one of type `wanted`."""
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            while (event := _decode(await socket.recv())).type != wanted:
                if event.type == "error":
                    raise CallError(f"the server says: {event.error.message if event.error else 'error'}")
    except TimeoutError as error:
        raise CallError(f"the server sent no {wanted} within {CONNECT_TIMEOUT_S:.0f} s") from error


async def _speak(socket: ClientConnection, pcm: Pcm, started_s: float) -> None:
    """Send `pcm` as a microphone would, and silence from its end until cancelled."""
    at_sample = 0
    while True:
        frame = np.zeros(FRAME_SAMPLES, "<i2")
        piece = pcm[at_sample : at_sample + FRAME_SAMPLES]
        frame[: len(piece)] = piece
        at_sample += FRAME_SAMPLES
        # A frame exists once its last sample has been spoken.
        await asyncio.sleep(max(0.0, started_s + at_sample / RATE_HZ - time.monotonic()))
        audio = base64.b64encode(frame.tobytes()).decode()
        await socket.send(f'{{"type":"input_audio_buffer.append","audio":"{audio}"}}')


async def _listen(socket: ClientConnection, exchange: Exchange, asked_s: float) -> None:
    """Feed events to `exchange` until it is over; `asked_s` is when the question's file ends."""
    seen: list[str] = []
    heard_s = asked_s
    while not exchange.over(now := time.monotonic()):
        if now > max(heard_s, asked_s) + QUIET_TIMEOUT_S or now > asked_s + TOTAL_TIMEOUT_S:
            if not any(name.startswith("input_audio_buffer.speech") for name in seen):
                raise CallError("the server heard no speech in the question")
            raise CallError(f"no complete answer in time; events so far: {', '.join(seen)}")
        try:
            async with asyncio.timeout(TICK_S):
                event = _decode(await socket.recv())
        except TimeoutError:
            continue
        heard_s = time.monotonic()
        exchange.feed(event, heard_s)
        if event.type not in seen:
            seen.append(event.type)


def _decode(text: str | bytes) -> Event:
    try:
        return msgspec.json.decode(text, type=Event)
    except msgspec.DecodeError as error:
        raise CallError(f"the server sent something that is no Realtime event: {error}") from error
