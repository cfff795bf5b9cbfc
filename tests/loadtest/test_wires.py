"""Tests how messages are written and read, in the Realtime protocol and in Pipecat's."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest

from loadtest.caller import Arrived
from loadtest.peers.pipecat_client import answer
from loadtest.peers.pipecat_wire import PipecatWire
from loadtest.wire import RealtimeWire, Wire

PCM = np.array([1, 32767], np.int16)
# Each was written by Pipecat 1.14.0's own frames_pb2.
AUDIO_IN = "120b1a040100ff7f20807d2801"
AUDIO_OUT = "12d90108071201611ac801" + "0100ff7f" * 50 + "20c0bb01280130ac02"
MESSAGE = "220e0a0c7b2274797065223a2278227d"
INTERRUPTION = "2a00"
TEXT = "0a041a026869"


def test_pipecats_sound_is_written_as_its_own_library_writes_it() -> None:
    assert PipecatWire().write(PCM).hex() == AUDIO_IN


def test_pipecats_frames_are_read() -> None:
    wire = PipecatWire()
    sound = wire.read(bytes.fromhex(AUDIO_OUT))
    assert sound.pcm is not None
    assert sound.pcm.tolist() == [1, 32767] * 50
    message = wire.read(bytes.fromhex(MESSAGE))
    assert (message.type, message.content, message.cuts) == ("x", {"type": "x"}, False)
    assert wire.read(bytes.fromhex(INTERRUPTION)).cuts
    other = wire.read(bytes.fromhex(TEXT))
    assert (other.type, other.pcm, other.cuts) == ("other", None, False)


@pytest.mark.parametrize(
    ("frame", "telling"),
    [
        ("hello", "this is text"),
        (bytes.fromhex(AUDIO_IN), "got 1 channels at 16000 Hz"),  # not the rate that its answers have
        (bytes.fromhex(AUDIO_OUT)[:40], "a message that ends after"),
        (b"\x80", "ends inside a number"),
        (b"\x0d\x00\x00\x00\x00", "has type 5"),
        (bytes.fromhex("2200"), "holds no data"),
    ],
)
def test_what_is_no_frame_is_refused(frame: str | bytes, telling: str) -> None:
    with pytest.raises(ValueError, match=telling):
        PipecatWire().read(frame)


def test_pipecats_answer_is_put_together() -> None:
    def arrived(kind: str, text: str) -> Arrived:
        return Arrived(0.0, kind, {"type": kind, "data": {"text": text}})

    told = [arrived("bot-llm-text", "Hello"), arrived("bot-output", "Hello."), arrived("bot-llm-text", ".")]
    assert answer([Arrived(0.0, "audio", {}), *told]) == "Hello."


def test_realtime_events_are_written_and_read() -> None:
    wire = RealtimeWire()
    sound = base64.b64encode(PCM.tobytes()).decode()
    assert json.loads(wire.write(PCM)) == {"type": "input_audio_buffer.append", "audio": sound}
    delta = wire.read(json.dumps({"type": "response.output_audio.delta", "delta": sound, "response_id": "r"}))
    assert delta.pcm is not None
    assert delta.pcm.tolist() == PCM.tolist()
    assert delta.content == {"type": "response.output_audio.delta", "response_id": "r"}
    assert wire.read('{"type": "input_audio_buffer.speech_started"}').cuts
    assert not wire.read('{"type": "input_audio_buffer.speech_stopped"}').cuts


def test_both_say_at_a_rate_of_their_own() -> None:
    wires: list[Wire] = [RealtimeWire(), PipecatWire()]
    assert [wire.rate_hz for wire in wires] == [24_000, 16_000]
