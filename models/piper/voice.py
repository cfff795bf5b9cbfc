"""Synthesises text with a Piper voice."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from models.piper.alignment import Sounds, SpokenWord, spoken_words, word_ends
from models.piper.graph import with_lengths
from models.registry import library
from pipeline.errors import StageError

STRESS_TEXT = "The five boxing wizards jump quickly over the lazy brown dog, again and again, until it is late."
KNOWN_WORDS = 4096
"""So many words are remembered with their sounds; asking for those of a new one takes 0.2 ms."""
BEGINNING, BLANK = "^", "_"  # as Piper's tables of phoneme ids name them


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


@dataclass(frozen=True, slots=True)
class Utterance:
    """What was said for a text: `sound` is float32 (n,) in [-1, 1] at the card's rate.

    `word_ends` tells for each word of the text, between blanks, after how many samples it has been said; it is None
    when the voice can't tell.
    """

    sound: NDArray[np.float32]
    word_ends: tuple[int, ...] | None


class Voice:
    """A loaded voice. One thread uses it, except for `interrupt`. Raises `StageError` when it can't be loaded.

    `aligned` says whether it knows when each word is said.
    """

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
            config = piper.PiperConfig.from_dict(json.loads(config_path.read_text(encoding="utf-8")))
            # Only phonemes of espeak-ng are spoken a symbol at a time, so that their lengths can be told apart.
            espeak = config.phoneme_type == piper.config.PhonemeType.ESPEAK
            told = with_lengths(model.read_bytes()) if espeak else None
            source = str(model) if told is None else told
            session = self._onnx.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        except (errors.Fail, errors.InvalidProtobuf, errors.InvalidGraph, LookupError, OSError, ValueError) as error:
            raise StageError(f"{model} is no Piper voice that works here: {error}") from error
        self.aligned = told is not None
        self._session: _Session = session
        self._config = config
        self._piper = piper.PiperVoice(config=config, session=session)
        self._run: Any = None
        self._alone = lru_cache(KNOWN_WORDS)(self._sounds_alone)

    def speak(self, text: str, voice: str, speed: float) -> Utterance | None:
        """Say `text`; None when `interrupt` ended it. A speaker the voice doesn't have is spoken by the first."""
        sounds = [np.zeros(0, np.float32)]
        said: list[SpokenWord] = []
        length = 0
        for phonemes in filter(None, self._piper.phonemize(text)):
            made = self._synthesise(phonemes, voice, speed)
            if made is None:
                return None
            sound, ends = made
            said += spoken_words(phonemes, [length + end for end in ends])
            sounds.append(sound)
            length += len(sound)
        found = tuple(word_ends(text.split(), self._alone, said)) if self.aligned else None
        return Utterance(np.concatenate(sounds), found)

    def _sounds_alone(self, word: str) -> tuple[Sounds, ...]:
        """What is spoken for a word by itself."""
        sentences = self._piper.phonemize(word)
        return tuple(part.sounds for sentence in sentences for part in spoken_words(sentence, [0] * len(sentence)))

    def _synthesise(
        self, phonemes: list[str], voice: str, speed: float
    ) -> tuple[NDArray[np.float32], list[int]] | None:
        """The sound of a sentence, and where in it each phoneme ends, which is nowhere if the voice can't tell."""
        config = self._config
        ids: list[int] = self._piper.phonemes_to_ids(phonemes)
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
            sound, *lengths = self._session.run(None, inputs, run)
        except self._fail:
            if run.terminate:
                return None
            raise
        finally:
            self._run = None
        sound = sound.reshape(-1)
        if not self.aligned:
            return sound, [0] * len(phonemes)
        return sound, self._phoneme_ends(phonemes, np.rint(lengths[0].reshape(-1)).astype(np.int64), len(sound))

    def _phoneme_ends(self, phonemes: list[str], frames: NDArray[np.int64], samples: int) -> list[int]:
        """Where each phoneme ends, by the frames of each id; a phoneme is its ids and the blank that follows them.

        The ids are those of a beginning, its blank, then the phonemes, then an end, as `phonemes_to_ids` makes them.
        """
        total = int(frames.sum())
        if total <= 0 or samples % total:
            raise StageError(f"the voice made {samples} samples of {total} frames: they don't fit each other")
        ends = np.cumsum(frames) * (samples // total)
        ids = self._config.phoneme_id_map
        blank = len(ids[BLANK])
        at = len(ids[BEGINNING]) + blank
        found = []
        for phoneme in phonemes:
            at += len(ids[phoneme]) + blank if phoneme in ids else 0
            found.append(int(ends[at - 1]))
        return found

    def interrupt(self) -> None:
        """End the running `speak`; without one, nothing. Called from any thread."""
        run = self._run
        if run is not None:
            run.terminate = True
