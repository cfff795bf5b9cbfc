"""Runs the Silero voice activity network over the frames of a stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from models.registry import library
from models.sources import resolve
from pipeline.errors import StageError
from pipeline.stage import DetectorStream

RATE_HZ = 16_000
FRAME_SAMPLES = 512
CONTEXT_SAMPLES = 64  # of the frame before, in front of each frame; the network was trained so
STATE_SHAPE = (1, 1, 128)
INPUTS = {"input", "h", "c"}

# The recurrent state sinks in long quiet: after 30 s of it the network stayed below 0.5 through whole words, and onsets
# came up to 8 frames late. A fresh state every 2 s of quiet gives the onsets of the first word again.
QUIET_PROBABILITY = 0.15
QUIET_FRAMES = 62


class _Network(Protocol):
    """The part of onnxruntime's session that is used; the library ships no types."""

    def run(self, outputs: None, inputs: Mapping[str, NDArray[np.float32]]) -> Sequence[NDArray[np.float32]]: ...


class SileroDetector:
    """The loaded network; every stream has a state of its own. One frame costs about 0.1 ms on one core."""

    def __init__(self, source: str) -> None:
        """Take the model's source; `load` does the work."""
        self._source = source
        self._session: _Network | None = None

    @property
    def rate_hz(self) -> int:
        """16 kHz."""
        return RATE_HZ

    @property
    def frame_samples(self) -> int:
        """512 samples, 32 ms."""
        return FRAME_SAMPLES

    def load(self) -> None:
        """Load the network and run it once. Raises `StageError`."""
        onnxruntime: Any = library("onnxruntime", "silero")  # ships no types
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        # Threads that spin between frames would take the core the models need.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry("session.inter_op.allow_spinning", "0")
        options.log_severity_level = 3
        path = resolve(self._source)
        try:
            session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's errors have no common class of their own
            raise StageError(f"can't load the voice activity model {self._source!r}: {error}") from error
        names = {entry.name for entry in session.get_inputs()}
        if names != INPUTS:
            raise StageError(
                f"the voice activity model {self._source!r} takes {sorted(names)}, expected {sorted(INPUTS)}; "
                f"use the silero_vad_v6.onnx of faster-whisper"
            )
        self._session = session
        self.open().probability(np.zeros(FRAME_SAMPLES, np.int16))

    def open(self) -> DetectorStream:
        """A fresh state for one stream."""
        assert self._session is not None, "open before load"
        return _Stream(self._session)


class _Stream:
    """The network's memory of one stream: its recurrent state and the end of the frame before."""

    def __init__(self, session: _Network) -> None:
        self._session = session
        self._window = np.zeros((1, CONTEXT_SAMPLES + FRAME_SAMPLES), np.float32)
        self._quiet_frames = 0
        self._refresh()

    def _refresh(self) -> None:
        self._h = np.zeros(STATE_SHAPE, np.float32)
        self._c = np.zeros(STATE_SHAPE, np.float32)

    def probability(self, frame: NDArray[np.int16]) -> float:
        """The probability that the frame holds speech; int16, shape (512,). Raises ValueError for another length."""
        if frame.shape != (FRAME_SAMPLES,):
            raise ValueError(f"got a frame of shape {frame.shape}, expected ({FRAME_SAMPLES},)")
        window = self._window
        window[0, :CONTEXT_SAMPLES] = window[0, -CONTEXT_SAMPLES:]
        np.divide(frame, 32768, out=window[0, CONTEXT_SAMPLES:], casting="unsafe")
        speech, self._h, self._c = self._session.run(None, {"input": window, "h": self._h, "c": self._c})
        probability = float(speech[0])
        self._quiet_frames = self._quiet_frames + 1 if probability < QUIET_PROBABILITY else 0
        if self._quiet_frames >= QUIET_FRAMES:
            self._quiet_frames = 0
            self._refresh()
        return probability
