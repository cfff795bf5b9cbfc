"""Counts a response's tokens the way the protocol reports them."""

from __future__ import annotations

from duplex_server.realtime.schema import (
    INPUT_RATE_HZ,
    CachedTokens,
    InputTokens,
    OutputTokens,
    ResponseUsage,
)
from pipeline.chunk import Usage

INPUT_AUDIO_TOKENS_HZ = 10
OUTPUT_AUDIO_TOKENS_HZ = 20
"""A cascade has no audio tokens; these rates of the hosted models stand for them."""


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
