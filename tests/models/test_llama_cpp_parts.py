"""The parts of the llama.cpp thinker that need no model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.llama_cpp.cpu import REQUIRED, check_cpu
from models.llama_cpp.slots import Pool, Slot, common_prefix
from models.llama_cpp.template import Message, Writer, learn
from pipeline.chunk import (
    Prompt,
    Role,
    TextPart,
)
from pipeline.errors import StageError


def prompt(*messages: tuple[Role, str]) -> Prompt:
    return Prompt(tuple(TextPart(f"item{index}", role, text) for index, (role, text) in enumerate(messages)))


def test_a_processor_without_the_instructions_is_named(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor : 0\nflags\t\t: fpu sse4_2 avx fma bmi2 f16c\n")
    with pytest.raises(StageError, match="lacks avx2"):
        check_cpu("x86_64", "Linux", info)
    info.write_text(f"flags : {' '.join(REQUIRED)}\n")
    check_cpu("x86_64", "Linux", info)
    check_cpu("aarch64", "Linux", tmp_path / "absent")
    check_cpu("arm64", "Darwin")


class _Cells:
    """A cache that remembers its tokens, as llama.cpp does."""

    def __init__(self, count: int) -> None:
        self.held: list[list[int]] = [[] for _ in range(count)]

    def cut(self, seq: int, length: int) -> bool:
        del self.held[seq][length:]
        return True

    def copy(self, source: int, target: int, length: int) -> None:
        assert not self.held[target]
        self.held[target] = self.held[source][:length]


@given(
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.lists(st.integers(0, 2), min_size=1, max_size=12), st.booleans()),
        max_size=30,
    )
)
@settings(deadline=None)
def test_the_account_of_the_cache_is_true(asks: list[tuple[str, list[int], bool]]) -> None:
    cells = _Cells(3)
    pool = Pool(cells, 3, 30)
    busy: list[Slot] = []
    for stream, tokens, stays_busy in asks:
        try:
            slot = pool.claim(stream, tokens, len(tokens))
        except StageError:
            if busy:
                pool.release(busy.pop())
            continue
        assert slot.tokens == tokens[: len(slot.tokens)]
        assert len(slot.tokens) < len(tokens)
        cells.held[slot.seq] += tokens[len(slot.tokens) :]
        slot.tokens += tokens[len(slot.tokens) :]
        for one in pool._slots:
            assert cells.held[one.seq] == one.tokens
        assert sum(len(one.tokens) for one in pool._slots) <= 30
        assert all(one.busy for one in busy)
        busy.append(slot)
        if not stays_busy:
            pool.release(busy.pop())


def _chatml(messages: Sequence[Message], reply: bool) -> str:
    said = "".join(f"<{role}>{text}</>\n" for role, text in messages)
    return said + ("<assistant>" if reply else "")


def _codes(text: str, special: bool) -> list[int]:
    return [ord(char) for char in text]


def test_an_overlong_conversation_loses_its_oldest_parts_seldom_and_never_its_instructions() -> None:
    writer = Writer(learn(_chatml), _codes, opening_token=None)
    history: list[tuple[Role, str]] = []
    before: tuple[int, ...] = ()
    breaks = 0
    for turn in range(60):
        history += [("user", f"What of {turn}?"), ("assistant", "Not much, I think.")]
        tokens = writer.tokens(prompt(("system", "Be brief."), *history[:-1]), 1000)
        assert len(tokens) <= 1000
        text = "".join(map(chr, tokens))
        assert text.startswith("<system>Be brief.</>")
        assert text.endswith(f"What of {turn}?</>\n<assistant>")
        breaks += common_prefix(before, tokens) < len(before)
        before = tokens
    assert 60 * 65 > 3 * 1000  # the conversation is several times as long as the context
    assert 1 <= breaks <= 60 * 65 // 250


def test_a_template_is_taken_apart() -> None:
    layout = learn(_chatml)
    assert layout.opening["user"] == "<user>"
    assert layout.between["user", "assistant"] == "</>\n<assistant>"
    assert layout.reply_after["user"] == "</>\n<assistant>"


def test_a_template_that_rewrites_earlier_messages_is_refused() -> None:
    def forgetful(messages: Sequence[Message], reply: bool) -> str:
        *earlier, (role, text) = messages
        return "".join(f"<{early}*>{said}" for early, said in earlier) + f"<{role}>{text}"

    with pytest.raises(StageError, match="differently once later ones follow"):
        learn(forgetful)


def test_a_template_that_drops_a_role_is_refused() -> None:
    with pytest.raises(StageError, match="drops or moves a system"):
        learn(lambda messages, reply: "".join(text for role, text in messages if role != "system"))


def test_an_opening_token_is_written_once() -> None:
    def tokenize(text: str, special: bool) -> list[int]:
        return [1 if char == "^" and special else ord(char) for char in text]

    layout = learn(lambda messages, reply: "^" + "".join(f"{role[0]}:{text}." for role, text in messages))
    tokens = Writer(layout, tokenize, opening_token=1).tokens(prompt(("user", "^x")), 100)
    assert tokens == (1, *map(ord, "u:^x."))
