"""Synthesises text with a Piper voice."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from models.piper.alignment import Sounds, SpokenWord, spoken_words, word_ends
from models.piper.graph import take_apart
from models.registry import library
from pipeline.errors import StageError

log = logging.getLogger(__name__)

STRESS_TEXT = "The five boxing wizards jump quickly over the lazy brown dog, again and again, until it is late."
KNOWN_WORDS = 4096
"""So many words are remembered with their sounds; asking for those of a new one takes 0.2 ms."""
FIRST_FRAMES, FRAMES = 60, 120
"""How many frames are decoded at once, of 11.6 ms with the usual voices: few at first, so that speech begins soon."""
CONTEXT_FRAMES = 16
"""How far a decoder looks to each side; the usual ones, a little less."""
ALIKE = 1e-4
"""Samples of full scale that differ by less are the same."""
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


class _Interrupted(Exception):
    """A run was ended from outside."""


@dataclass(slots=True)
class _Sentence:
    """One sentence: its latents, its frames, and how many of these have been decoded.

    With a voice that isn't taken apart the latent is the sound itself, and a frame is a sample.
    """

    latents: list[NDArray[np.float32]]
    frames: int
    decoded: int = 0


class Saying:
    """What is being said for a text. Its sound is made a window at a time, by `more`.

    `word_ends` tells for each word of the text, between blanks, after how many samples of the whole sound it has been
    said; it is None when the voice can't tell.
    """

    def __init__(self, voice: Voice, sentences: list[_Sentence], word_ends: tuple[int, ...] | None) -> None:
        self._voice, self._sentences = voice, sentences
        self._window = FIRST_FRAMES
        self.word_ends = word_ends

    @property
    def over(self) -> bool:
        """True when all of it has been made."""
        return all(sentence.decoded == sentence.frames for sentence in self._sentences)

    def more(self) -> NDArray[np.float32] | None:
        """The next samples, float32 (n,) in [-1, 1] at the card's rate. None when `interrupt` ended it: ask again."""
        sentence = next(one for one in self._sentences if one.decoded < one.frames)
        left = sentence.frames - sentence.decoded
        split = self._voice.windowed and left >= 2 * self._window
        upto = sentence.decoded + self._window if split else sentence.frames
        try:
            sound = self._voice.decode(sentence, upto)
        except _Interrupted:
            return None
        sentence.decoded, self._window = upto, FRAMES
        return sound


class Voice:
    """A loaded voice. One thread uses it, except for `interrupt`. Raises `StageError` when it can't be loaded.

    `aligned` says whether it knows when each word is said, `windowed` whether it makes its sound in windows; `hop` is
    how many samples a frame has.
    """

    def __init__(self, model: Path, threads: int) -> None:
        config_path = model.with_name(model.name + ".json")
        self.card = read_card(config_path)
        # Both libraries are Any until what they give is put into arrays: they are imported when asked for.
        piper: Any = library("piper", "piper")
        self._onnx: Any = library("onnxruntime", "piper")
        errors = self._onnx.capi.onnxruntime_pybind11_state
        self._fail: type[Exception] = errors.Fail
        try:
            config = piper.PiperConfig.from_dict(json.loads(config_path.read_text(encoding="utf-8")))
            # Only phonemes of espeak-ng are spoken a symbol at a time, so that their lengths can be told apart.
            espeak = config.phoneme_type == piper.config.PhonemeType.ESPEAK
            parts = take_apart(model.read_bytes()) if espeak else None
            self._front = self._open(str(model) if parts is None else parts.front, threads)
            decoder = None if parts is None else parts.decoder
            self._decoder = None if decoder is None else self._open(decoder, threads)
        except (errors.Fail, errors.InvalidProtobuf, errors.InvalidGraph, LookupError, OSError, ValueError) as error:
            raise StageError(f"{model} is no Piper voice that works here: {error}") from error
        self.aligned = parts is not None
        self._latents = parts.latents if parts is not None else ()
        self._config = config
        self._piper = piper.PiperVoice(config=config, session=self._front)
        self._run: Any = None
        self._alone = lru_cache(KNOWN_WORDS)(self._sounds_alone)
        self.hop = 1
        self.windowed = False
        self._try_out()

    def _open(self, model: str | bytes, threads: int) -> _Session:
        options = self._onnx.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        # Threads that spin while they wait would take the other stages' cores.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        session: _Session = self._onnx.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        return session

    def speak(self, text: str, voice: str, speed: float) -> Saying | None:
        """Begin to say `text`; None when `interrupt` ended it. A speaker the voice doesn't have is the first."""
        sentences: list[_Sentence] = []
        said: list[SpokenWord] = []
        length = 0
        try:
            for phonemes in filter(None, self._piper.phonemize(text)):
                sentence, ends = self._begin(phonemes, voice, speed)
                sentences.append(sentence)
                said += spoken_words(phonemes, [length + end for end in ends])
                length += sentence.frames * self.hop
        except _Interrupted:
            return None
        found = tuple(word_ends(text.split(), self._alone, said)) if self.aligned else None
        return Saying(self, sentences, found)

    def _sounds_alone(self, word: str) -> tuple[Sounds, ...]:
        """What is spoken for a word by itself."""
        sentences = self._piper.phonemize(word)
        return tuple(part.sounds for sentence in sentences for part in spoken_words(sentence, [0] * len(sentence)))

    def _begin(self, phonemes: list[str], voice: str, speed: float) -> tuple[_Sentence, list[int]]:
        """A sentence of which nothing is decoded, and where each phoneme ends: nowhere if the voice can't tell."""
        config = self._config
        ids: list[int] = self._piper.phonemes_to_ids(phonemes)
        inputs: dict[str, NDArray[Any]] = {
            "input": np.array([ids], np.int64),
            "input_lengths": np.array([len(ids)], np.int64),
            "scales": np.array([config.noise_scale, config.length_scale / speed, config.noise_w_scale], np.float32),
        }
        if config.num_speakers > 1:
            inputs["sid"] = np.array([config.speaker_id_map.get(voice, config.default_speaker_id)], np.int64)
        made = self._guarded(self._front, inputs)
        if not self.aligned:
            sound = made[0].reshape(-1)
            return _Sentence([sound], len(sound)), [0] * len(phonemes)
        frames = np.rint(made[-1].reshape(-1)).astype(np.int64)
        total = int(frames.sum())
        if self._decoder is not None:
            return _Sentence(made[:-1], total), self._phoneme_ends(phonemes, frames * self.hop)
        sound = made[0].reshape(-1)
        if total <= 0 or len(sound) % total:
            raise StageError(f"the voice made {len(sound)} samples of {total} frames: they don't fit each other")
        return _Sentence([sound], len(sound)), self._phoneme_ends(phonemes, frames * (len(sound) // total))

    def _phoneme_ends(self, phonemes: list[str], samples: NDArray[np.int64]) -> list[int]:
        """Where each phoneme ends, by the samples of each id; a phoneme is its ids and the blank that follows them.

        The ids are those of a beginning, its blank, then the phonemes, then an end, as `phonemes_to_ids` makes them.
        """
        ends = np.cumsum(samples)
        ids = self._config.phoneme_id_map
        blank = len(ids[BLANK])
        at = len(ids[BEGINNING]) + blank
        found = []
        for phoneme in phonemes:
            at += len(ids[phoneme]) + blank if phoneme in ids else 0
            found.append(int(ends[at - 1]))
        return found

    def decode(self, sentence: _Sentence, upto: int) -> NDArray[np.float32]:
        """The samples of a sentence's frames from those that are decoded up to `upto`; it changes nothing.

        Frames beside them are decoded too, so that they sound as they do in the whole.
        """
        if self._decoder is None:
            return sentence.latents[0][sentence.decoded : upto]
        start, stop = max(0, sentence.decoded - CONTEXT_FRAMES), min(sentence.frames, upto + CONTEXT_FRAMES)
        inputs = {
            name: latent[..., start:stop] if latent.shape[-1] == sentence.frames else latent
            for name, latent in zip(self._latents, sentence.latents, strict=True)
        }
        sound = self._guarded(self._decoder, inputs)[0].reshape(-1)
        if len(sound) != (stop - start) * self.hop:
            raise StageError(f"the voice made {len(sound)} samples of {stop - start} frames: they don't fit each other")
        return sound[(sentence.decoded - start) * self.hop : (upto - start) * self.hop]

    def _guarded(self, session: _Session, inputs: dict[str, NDArray[Any]]) -> list[NDArray[np.float32]]:
        """Run a part of the model. Raises `_Interrupted` when `interrupt` ended it."""
        run = self._onnx.RunOptions()
        self._run = run
        try:
            return session.run(None, inputs, run)
        except self._fail as error:
            if run.terminate:
                raise _Interrupted from error
            raise
        finally:
            self._run = None

    def _try_out(self) -> None:
        """Find how many samples a frame has, and whether windows sound as the whole does.

        It is also the first run, which is slower, over a long sentence, which shapes the memory arena.
        """
        sentence, _ = self._begin(self._piper.phonemize(STRESS_TEXT)[0], "", 1.0)
        if self._decoder is None:
            return
        latents = dict(zip(self._latents, sentence.latents, strict=True))
        whole = self._guarded(self._decoder, latents)[0].reshape(-1)
        if sentence.frames <= 0 or len(whole) % sentence.frames:
            raise StageError(f"the voice made {len(whole)} samples of {sentence.frames} frames: they don't fit")
        self.hop = len(whole) // sentence.frames
        middle = _Sentence(sentence.latents, sentence.frames, sentence.frames // 3)
        upto = 2 * sentence.frames // 3
        apart = whole[middle.decoded * self.hop : upto * self.hop]
        self.windowed = bool(np.allclose(self.decode(middle, upto), apart, atol=ALIKE))
        if not self.windowed:
            log.warning(
                "the voice %s has a wider context than is known: its clauses are made whole", self.card.voices[0]
            )

    def interrupt(self) -> None:
        """End the running `speak`; without one, nothing. Called from any thread."""
        run = self._run
        if run is not None:
            run.terminate = True
