"""Describes the thinker behind an OpenAI-compatible address: its options and what it can do."""

from __future__ import annotations

from typing import Literal

import msgspec

from pipeline.spec import Capabilities, Family, Part
from pipeline.stage import Served


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the service is and how long it may take.

    `base_url` ends before `/chat/completions`. The key is `api_key`, else the environment variable `api_key_env`,
    else none is sent. The three timeouts bound the connection, the wait for the first data and that between data.
    """

    base_url: str = "https://api.openai.com/v1"
    model: str = ""
    api_key: str | None = None
    api_key_env: str = "OPENAI_API_KEY"
    temperature: float | None = None
    token_limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    usage: bool = True
    probe: bool = True
    context_tokens: int = 0
    slots: int = 32
    connect_timeout_ms: int = 5_000
    first_byte_timeout_ms: int = 30_000
    between_timeout_ms: int = 10_000

    def __repr__(self) -> str:
        """Everything but the key, since options end up in logs."""
        return f"Options(base_url={self.base_url!r}, model={self.model!r}, slots={self.slots})"


def make(options: msgspec.Struct) -> Served:
    """The thinker, not connected yet."""
    from models.openai_api.thinker import Thinker

    assert isinstance(options, Options)
    return Thinker(options)


def describe(options: msgspec.Struct) -> Capabilities:
    """What is known without asking the service."""
    assert isinstance(options, Options)
    return Capabilities(
        model=options.model, note=f"Served by {options.base_url}.", context_tokens=options.context_tokens
    )


FAMILY = Family(
    name="openai_api",
    role="thinker",
    parts=(Part("httpx", "BSD-3-Clause", "https://github.com/encode/httpx"),),
    options=Options,
    make=make,
    describe=describe,
    served=True,
)
