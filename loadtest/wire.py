"""Says in the OpenAI Realtime protocol what a caller says, and reads what it hears."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

Pcm = NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a server: its type, its content without sound, its sound, whether it silences the listener's."""

    type: str
    content: dict[str, Any]  # as it came: a benchmark must not depend on our own types
    pcm: Pcm | None = None
    cuts: bool = False


class Wire(Protocol):
    """A protocol as a caller sees it; sound that is heard is int16 at 24 kHz, shape (n,)."""

    @property
    def rate_hz(self) -> int:
        """The rate of what is said."""

    def write(self, pcm: Pcm) -> str | bytes:
        """A frame of sound (int16, shape (n,)) as a message."""

    def read(self, frame: str | bytes) -> Message:
        """A message of the server."""


class RealtimeWire:
    """JSON events with base64 in them. The loudspeaker is cut at `speech_started`, as stock clients do."""

    rate_hz = 24_000

    def write(self, pcm: Pcm) -> str:
        """The event that appends a frame."""
        audio = base64.b64encode(pcm.tobytes()).decode()
        return self.event({"type": "input_audio_buffer.append", "audio": audio})

    def read(self, frame: str | bytes) -> Message:
        """An event; the sound of a delta is taken out of it."""
        event = msgspec.json.decode(frame)
        kind = str(event["type"])
        if kind == "response.output_audio.delta":
            return Message(kind, event, np.frombuffer(base64.b64decode(event.pop("delta")), "<i2"))
        return Message(kind, event, cuts=kind == "input_audio_buffer.speech_started")

    def event(self, event: dict[str, Any]) -> str:  # a benchmark must not depend on our own types
        """Any client event as a message."""
        return msgspec.json.encode(event).decode()
