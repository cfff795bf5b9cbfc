"""Decodes one window of audio with a CTranslate2 Whisper model."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.registry import library
from models.sources import resolve
from models.whisper.family import FILES, Options
from models.whisper.verdict import Heard
from models.whisper.windows import FULL_WINDOW_S
from pipeline.errors import StageError

RATE_HZ = 16_000
VAD_FRAME = 512
VAD_LEAD = 8  # frames
FRAMES_PER_S = 100  # of the log-mel spectrogram

# Speech ran to 7.8 tokens a second (digits); scripts that a byte-level vocabulary splits need several times more.
CAP_BASE = 10
CAP_PER_S_ENGLISH = 12
CAP_PER_S_ANY = 30
MAX_LENGTH = 448  # prompt and text together, the model's own limit
MAX_PROMPT = 223  # tokens of the caller's prompt; the last ones are kept


@dataclass(frozen=True, slots=True)
class Ask:
    """How a window is to be decoded. `window_s` bounds what is encoded; the audio must fit it."""

    window_s: int
    language: str | None = None
    prompt: str | None = None
    strict: bool = False


class Engine:
    """A loaded model. One call of `decode` is two native calls that can't be cancelled."""

    def __init__(self, options: Options) -> None:
        """Load the model. Raises `StageError`."""
        folder = resolve(options.source, FILES)
        for name in ("model.bin", "tokenizer.json"):
            if not (folder / name).is_file():
                raise StageError(
                    f"{options.source!r} is not a CTranslate2 Whisper model: {folder} has no {name}; "
                    f"convert one with ct2-transformers-converter --copy_files tokenizer.json"
                )
        # The libraries ship no types, so what comes out of them is Any until it is put into `Heard`.
        self._library: Any = library("faster_whisper.transcribe", "whisper")
        self._tokenizers: Any = library("faster_whisper.tokenizer", "whisper")
        try:
            self._whisper: Any = self._library.WhisperModel(
                str(folder), device=options.device, compute_type=options.compute_type, cpu_threads=options.threads
            )
        except (RuntimeError, ValueError) as error:
            raise StageError(
                f"can't load {options.source!r} on device {options.device!r} as {options.compute_type!r}: {error}"
            ) from error
        self._vad: Any = library("faster_whisper.vad", "whisper").get_vad_model()
        self.multilingual = bool(self._whisper.model.is_multilingual)
        self.languages: tuple[str, ...] = tuple(self._whisper.supported_languages)
        self._tokens: dict[str, tuple[Any, tuple[int, ...]]] = {}  # at most one entry per language

    def voice(self, samples: NDArray[np.float32]) -> float:
        """The highest probability of voice activity among the frames of `samples`; about 1 ms for 1 s of audio.

        Measured: soft, short and noisy words reach 0.86 and more; 29 s of noise, hum, clicks or breath 0.50 at most.
        """
        # A sound that is there from the first sample looks like an onset, so its own mirror image leads into it.
        lead = np.resize(samples[: VAD_LEAD * VAD_FRAME][::-1], VAD_LEAD * VAD_FRAME)
        padded = np.concatenate([lead, samples, np.zeros(-len(samples) % VAD_FRAME, np.float32)])
        return float(self._vad(padded)[VAD_LEAD:].max())

    def decode(self, samples: NDArray[np.float32], ask: Ask) -> Heard:
        """The words in `samples`: float32, shape (n,), -1 to 1, 16 kHz, at most `ask.window_s` seconds."""
        encoded = self._whisper.encode(self._features(samples, ask.window_s))
        language = ask.language or (self._detect(encoded) if self.multilingual else "en")
        tokenizer, suppressed = self._tokenizer(language)
        prompt = [] if ask.prompt is None else tokenizer.encode(" " + ask.prompt.strip())[-MAX_PROMPT:]
        start = self._whisper.get_prompt(tokenizer, prompt, without_timestamps=True)
        cap = min(self._cap(len(samples)), MAX_LENGTH - len(start))
        result: Any = self._whisper.model.generate(
            encoded,
            [start],
            beam_size=1,
            max_length=len(start) + cap,
            suppress_tokens=list(suppressed),
            return_scores=True,
            return_no_speech_prob=True,
            repetition_penalty=1.1 if ask.strict else 1.0,
            no_repeat_ngram_size=4 if ask.strict else 0,
        )[0]
        ids: list[int] = result.sequences_ids[0]
        text = str(tokenizer.decode(ids))
        return Heard(
            text=text,
            language=language,
            no_speech=float(result.no_speech_prob),
            log_probability=float(result.scores[0]) * len(ids) / (len(ids) + 1),
            repetition=_repetition(text),
            capped=len(ids) >= cap,
        )

    def _features(self, samples: NDArray[np.float32], window_s: int) -> NDArray[np.float32]:
        """Log-mel spectrogram of the audio with silence up to the window's end, shape (mels, 100 * window_s)."""
        window_s = min(window_s, FULL_WINDOW_S)
        padded = np.zeros(window_s * RATE_HZ, np.float32)
        padded[: len(samples)] = samples
        features: NDArray[np.float32] = self._whisper.feature_extractor(padded)[:, : window_s * FRAMES_PER_S]
        return features

    def _detect(self, encoded: object) -> str:
        token: str = self._whisper.model.detect_language(encoded)[0][0][0]
        return token[2:-2]  # <|en|>

    def _tokenizer(self, language: str) -> tuple[Any, tuple[int, ...]]:  # an untyped library's tokenizer
        known = self._tokens.get(language)
        if known is None:
            tokenizer = self._tokenizers.Tokenizer(
                self._whisper.hf_tokenizer, self.multilingual, task="transcribe", language=language
            )
            known = (tokenizer, self._library.get_suppressed_tokens(tokenizer, [-1]))
            self._tokens[language] = known
        return known

    def _cap(self, samples: int) -> int:
        per_s = CAP_PER_S_ANY if self.multilingual else CAP_PER_S_ENGLISH
        return CAP_BASE + per_s * samples // RATE_HZ


def _repetition(text: str) -> float:
    plain = text.strip().encode()
    return len(plain) / len(zlib.compress(plain))
