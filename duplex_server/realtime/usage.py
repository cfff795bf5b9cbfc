"""Counts a response's tokens the way the protocol reports them."""

from __future__ import annotations

from typing import assert_never

from duplex_server.realtime.schema import (
    INPUT_RATE_HZ,
    CachedTokens,
    InputTokens,
    OutputTokens,
    ResponseUsage,
)
from pipeline.chunk import AudioPart, CallPart, Part, Prompt, ResultPart, TextPart, Usage

INPUT_AUDIO_TOKENS_HZ = 10
OUTPUT_AUDIO_TOKENS_HZ = 20
"""A cascade has no audio tokens; these rates of the hosted models stand for them."""
TOKEN_BYTES = 4
PART_TOKENS = 4
"""What a token holds on average, of English in UTF-8, and what a chat template puts around a message."""


def estimate(prompt: Prompt, written_bytes: int) -> Usage:
    """About how much a thinker has read and written, when it has not told."""
    texts = [text for part in prompt.parts for text in _texts(part)]
    texts += [text for tool in prompt.tools for text in (tool.name, tool.description, tool.parameters)]
    read = sum(len(text.encode()) for text in texts)
    tokens = PART_TOKENS * len(prompt.parts) - (-read // TOKEN_BYTES)
    return Usage(input_tokens=tokens, output_tokens=-(-written_bytes // TOKEN_BYTES))


def _texts(part: Part) -> tuple[str, ...]:
    match part:
        case TextPart():
            return (part.text,)
        case CallPart():
            return part.name, part.arguments
        case ResultPart():
            return (part.output,)
        case AudioPart():
            return ()
    assert_never(part)


def count_usage(thinker: Usage | None, input_samples: int, output_samples: int) -> ResponseUsage:
    """Text tokens are the thinker's own count, audio tokens are estimated from the length of the sound."""
    text = thinker or Usage()
    audio_in = input_samples * INPUT_AUDIO_TOKENS_HZ // INPUT_RATE_HZ
    audio_out = output_samples * OUTPUT_AUDIO_TOKENS_HZ // INPUT_RATE_HZ
    read, written = text.input_tokens + audio_in, text.output_tokens + audio_out
    return ResponseUsage(
        total_tokens=read + written,
        input_tokens=read,
        output_tokens=written,
        input_token_details=InputTokens(
            text_tokens=text.input_tokens,
            audio_tokens=audio_in,
            cached_tokens=text.cached_tokens,
            cached_tokens_details=CachedTokens(text_tokens=text.cached_tokens),
        ),
        output_token_details=OutputTokens(text_tokens=text.output_tokens, audio_tokens=audio_out),
    )
