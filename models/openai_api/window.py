"""Cuts prompts to the context of a service, which alone counts tokens: by an estimate, and by what it refused."""

from __future__ import annotations

import msgspec

from models.runtime.retention import fit
from pipeline.chunk import CallPart, Part, Prompt, ResultPart, TextPart, Think

TOKEN_BYTES = 3
"""English has four bytes to a token, other scripts and code have fewer."""
PART_TOKENS = 8
"""What is written around a message."""
AGAIN_SHARE = 0.7
"""After a refusal prompts are cut to this share of what was refused."""
NO_BOUND = 1 << 40


class Window:
    """The room for prompts, in estimated tokens. `context_tokens` 0 is not known."""

    def __init__(self, context_tokens: int) -> None:
        self._context = context_tokens or NO_BOUND
        self._most = NO_BOUND

    def cut(self, job: Think) -> Think:
        """The job with as much of its prompt as there is room for; without a retention, with all of it."""
        if job.retention is None:
            return job
        parts = job.prompt.parts
        sizes = [_size(part) for part in parts]
        room = min(self._context - job.max_tokens, self._most) - _tools_size(job.prompt)
        kept = fit(parts, sizes, room, job.retention)
        prompt = msgspec.structs.replace(job.prompt, parts=tuple(parts[index] for index in kept))
        return msgspec.structs.replace(job, prompt=prompt)

    def refused(self, job: Think) -> None:
        """The service found the prompt of a job too long."""
        size = sum(map(_size, job.prompt.parts)) + _tools_size(job.prompt)
        self._most = min(self._most, round(AGAIN_SHARE * size))


def _size(part: Part) -> int:
    match part:
        case TextPart():
            text = part.text
        case CallPart():
            text = part.name + part.arguments
        case ResultPart():
            text = part.output
        case _:
            text = ""
    return PART_TOKENS + _tokens(text)


def _tools_size(prompt: Prompt) -> int:
    return sum(PART_TOKENS + _tokens(tool.name + tool.description + tool.parameters) for tool in prompt.tools)


def _tokens(text: str) -> int:
    return -(-len(text.encode()) // TOKEN_BYTES)
