"""Synthesises text with a Piper voice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from models.registry import library
from pipeline.errors import StageError

STRESS_TEXT = "The five boxing wizards jump quickly over the lazy brown dog, again and again, until it is late."


class Card(msgspec.Struct, frozen=True):
    """What a voice's configuration says of it, without its model. The first of `voices` is the default."""

    voices: tuple[str, ...]
    rate_hz: int
    language: str


class _Audio(msgspec.Struct):
    sample_rate: int


class _Espeak(msgspec.Struct):
    voice: str


class _Config(msgspec.Struct):
    audio: _Audio
    espeak: _Espeak
    speaker_id_map: dict[str, int] = {}


def read_card(config: Path) -> Card:
    """Read `<voice>.onnx.json`. Raises `StageError` when it is no configuration of a Piper voice."""
    try:
        told = msgspec.json.decode(config.read_bytes(), type=_Config)
    except (OSError, msgspec.DecodeError) as error:
        raise StageError(f"{config} is no configuration of a Piper voice: {error}") from error
    speakers = sorted(told.speaker_id_map, key=lambda name: told.speaker_id_map[name])
    # Files are named language-name-quality, such as en_US-joe-medium.
    parts = config.name.removesuffix(".json").removesuffix(".onnx").split("-")
    name = parts[1] if len(parts) == 3 else parts[0]
    return Card(tuple(speakers) or (name,), told.audio.sample_rate, told.espeak.voice)


class _Session(Protocol):
    def run(self, outputs: None, inputs: dict[str, NDArray[Any]], options: object) -> list[NDArray[np.float32]]: ...


class Voice:
    """A loaded voice. One thread uses it, except for `interrupt`. Raises `StageError` when it can't be loaded."""

    def __init__(self, model: Path, threads: int) -> None:
        config_path = model.with_name(model.name + ".json")
        self.card = read_card(config_path)
        # Both libraries are Any until what they give is put into arrays: they are imported when asked for.
        piper: Any = library("piper", "piper")
        self._onnx: Any = library("onnxruntime", "piper")
        errors = self._onnx.capi.onnxruntime_pybind11_state
        self._fail: type[Exception] = errors.Fail
        options = self._onnx.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        # Threads that spin while they wait would take the other stages' cores.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            session = self._onnx.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
            config = piper.PiperConfig.from_dict(json.loads(config_path.read_text(encoding="utf-8")))
        except (errors.Fail, errors.InvalidProtobuf, errors.InvalidGraph, KeyError, ValueError) as error:
            raise StageError(f"{model} is no Piper voice that works here: {error}") from error
        self._session: _Session = session
        self._config = config
        self._piper = piper.PiperVoice(config=config, session=session)
        self._run: Any = None

    def speak(self, text: str, voice: str, speed: float) -> NDArray[np.float32] | None:
        """The sound of `text`: float32 (n,) in [-1, 1] at the card's rate; None when `interrupt` ended it.

        A speaker the voice doesn't have is spoken by the first.
        """
        sounds = []
        for phonemes in self._piper.phonemize(text):
            sound = self._sound(self._piper.phonemes_to_ids(phonemes), voice, speed) if phonemes else None
            if phonemes and sound is None:
                return None
            if sound is not None:
                sounds.append(sound)
        return np.concatenate(sounds) if sounds else np.zeros(0, np.float32)

    def _sound(self, ids: list[int], voice: str, speed: float) -> NDArray[np.float32] | None:
        config = self._config
        inputs: dict[str, NDArray[Any]] = {
            "input": np.array([ids], np.int64),
            "input_lengths": np.array([len(ids)], np.int64),
            "scales": np.array([config.noise_scale, config.length_scale / speed, config.noise_w_scale], np.float32),
        }
        if config.num_speakers > 1:
            inputs["sid"] = np.array([config.speaker_id_map.get(voice, config.default_speaker_id)], np.int64)
        run = self._onnx.RunOptions()
        self._run = run
        try:
            return self._session.run(None, inputs, run)[0].reshape(-1)
        except self._fail:
            if run.terminate:
                return None
            raise
        finally:
            self._run = None

    def interrupt(self) -> None:
        """End the running `speak`; without one, nothing. Called from any thread."""
        run = self._run
        if run is not None:
            run.terminate = True
