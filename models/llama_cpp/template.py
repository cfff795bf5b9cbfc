"""Lays a prompt out as tokens by a model's chat template, so that earlier messages keep their tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import assert_never

from models.llama_cpp.calls import call_text, offer, result_text
from models.runtime.retention import fit
from pipeline.chunk import AudioPart, CallPart, Part, Prompt, ResultPart, Retention, Role, TextPart
from pipeline.errors import StageError

ROLES: tuple[Role, ...] = ("system", "user", "assistant")
Message = tuple[Role, str]
Render = Callable[[Sequence[Message], bool], str]  # messages, whether to open the assistant's next one
Tokenize = Callable[[str, bool], Sequence[int]]  # text, whether names of special tokens in it mean those tokens

KEEP_MUCH = Retention()


@dataclass(frozen=True, slots=True)
class Layout:
    """What a template puts around messages: between two roles, before the first, and before a reply."""

    opening: dict[Role, str]
    between: dict[tuple[Role, Role], str]
    reply_after: dict[Role, str]


def learn(render: Render) -> Layout:
    """Take a template apart by rendering marked messages. Raises `StageError` when it is no plain concatenation."""
    opening = {role: _around(render, [role], False)[0] for role in ROLES}
    between = {(a, b): _around(render, [a, b], False)[1] for a in ROLES for b in ROLES}
    reply_after = {role: _around(render, [role], True)[1] for role in ROLES}
    layout = Layout(opening, between, reply_after)
    roles: list[Role] = ["system", "user", "assistant", "user", "assistant", "assistant", "user"]
    found = _around(render, roles, True)
    expected = [opening["system"], *(between[pair] for pair in pairwise(roles)), reply_after["user"]]
    if found != expected:
        raise StageError(
            "the model's chat template writes a message differently once later ones follow, so its cache can't be "
            "kept between turns; choose one of llama.cpp's own by the option `chat_template`, such as 'chatml'"
        )
    return layout


def _around(render: Render, roles: Sequence[Role], reply: bool) -> list[str]:
    marks = [f"@mark{index}@" for index in range(len(roles))]
    rest = render(list(zip(roles, marks, strict=True)), reply)
    pieces = []
    for mark in marks:
        piece, found, rest = rest.partition(mark)
        if not found:
            raise StageError(
                f"the model's chat template drops or moves a {roles[marks.index(mark)]} message after "
                f"{', '.join(roles)}; choose one of llama.cpp's own by the option `chat_template`, such as 'chatml'"
            )
        pieces.append(piece)
    return [*pieces, rest]


class Writer:
    """Writes prompts as tokens. Only what the template itself says may become special tokens, never a message's text.

    With an `opening_token`, every prompt begins with it.
    """

    def __init__(self, layout: Layout, tokenize: Tokenize, opening_token: int | None) -> None:
        self._tokenize = tokenize
        self._start = () if opening_token is None else (opening_token,)
        self._opening = {role: self._special(text) for role, text in layout.opening.items()}
        self._between = {pair: self._special(text) for pair, text in layout.between.items()}
        self._reply_after = {role: self._special(text) for role, text in layout.reply_after.items()}

    def _special(self, text: str) -> tuple[int, ...]:
        tokens = tuple(self._tokenize(text, True)) if text else ()
        # The renderer writes the opening token of some templates as text; it is counted once.
        return tokens[1:] if self._start and tokens[:1] == self._start else tokens

    def tokens(self, prompt: Prompt, limit: int, retention: Retention | None = KEEP_MUCH) -> tuple[int, ...]:
        """The prompt, with the oldest parts left out where it would not fit into `limit` tokens.

        Instructions and the last part always stay. Raises `StageError` (`context_full`) when those alone don't fit, or
        when nothing may be left out, and for a part that this thinker can't read.
        """
        messages = messages_of(prompt)
        bodies = [tuple(self._tokenize(text, False)) if text else () for _, text in messages]
        roles = [role for role, _ in messages]
        kept = self._fit(prompt.parts, roles, [len(body) for body in bodies], limit, retention)
        return self._join([roles[index] for index in kept], [bodies[index] for index in kept])

    def _join(self, roles: Sequence[Role], bodies: Sequence[Sequence[int]]) -> tuple[int, ...]:
        tokens = list(self._start)
        if not roles:
            raise StageError("the prompt has no part; expected at least instructions or one message")
        tokens += self._opening[roles[0]]
        for index, body in enumerate(bodies):
            if index:
                tokens += self._between[roles[index - 1], roles[index]]
            tokens += body
        tokens += self._reply_after[roles[-1]]
        return tuple(tokens)

    def _fit(
        self,
        parts: Sequence[Part],
        roles: Sequence[Role],
        sizes: Sequence[int],
        limit: int,
        retention: Retention | None,
    ) -> list[int]:
        """The messages that are kept. There may be one before those of the parts, which offers the tools."""
        kept = list(range(len(roles)))
        needed = self._length(roles, sizes, kept)
        if needed <= limit and (retention is None or retention.most_tokens is None):
            return kept
        if retention is not None:
            first = len(roles) - len(parts)
            whole = [
                size + max(len(self._between[other, role]) for other in ROLES)
                for role, size in zip(roles, sizes, strict=True)
            ]
            around = (
                len(self._start) + max(map(len, self._opening.values())) + max(map(len, self._reply_after.values()))
            )
            rest = fit(parts, whole[first:], limit - around - sum(whole[:first]), retention)
            kept = [*range(first), *(first + index for index in rest)]
            needed = self._length(roles, sizes, kept)
        if needed > limit:
            what = "the prompt needs" if retention is None else "the instructions and the last message need"
            raise StageError(
                f"{what} {needed} tokens and the context leaves {limit}: "
                f"shorten them, or raise the option `context_tokens` as far as the model allows",
                "context_full",
            )
        return kept

    def _length(self, roles: Sequence[Role], sizes: Sequence[int], kept: Sequence[int]) -> int:
        if not kept:
            return 0
        joints = sum(len(self._between[roles[a], roles[b]]) for a, b in pairwise(kept))
        ends = len(self._start) + len(self._opening[roles[kept[0]]]) + len(self._reply_after[roles[kept[-1]]])
        return sum(sizes[index] for index in kept) + joints + ends


def messages_of(prompt: Prompt) -> list[Message]:
    """The prompt as messages; the tools are offered in the first, with the instructions, so that its tokens stay.

    Raises `StageError` for a part that this thinker can't read.
    """
    messages = [_message(part) for part in prompt.parts]
    if prompt.tools:
        has_head = bool(messages) and messages[0][0] == "system"
        messages[: int(has_head)] = [("system", offer(messages[0][1] if has_head else "", prompt.tools))]
    return messages


def _message(part: Part) -> Message:
    match part:
        case TextPart():
            return part.role, part.text
        case CallPart():
            return "assistant", call_text(part.name, part.arguments)
        case ResultPart():
            return "user", result_text(part.output)
        case AudioPart():
            raise StageError("this thinker reads text and can't hear; put a recognizer before it")
        case _:
            assert_never(part)
