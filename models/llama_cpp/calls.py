"""Knows how function calls are offered to a model, how it writes one, and how what it writes becomes a call.

The form is the one that Qwen, Hermes and models after them were trained on.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Sequence
from functools import lru_cache

from models.llama_cpp.grammar import Grammar, choice, literal, over, then
from models.llama_cpp.json_schema import arguments_grammar
from models.llama_cpp.schema_parts import Unsupported
from pipeline.chunk import CallDelta, Tool
from pipeline.errors import StageError

MARK, END = "<tool_call>", "</tool_call>"
HEAD, BETWEEN = '\n{"name": ', ', "arguments": '
BEGINNINGS = ("{", "[{")
"""A reply that begins so is a call too, by a model that has not learnt the mark: nobody says such things."""
TOOL_SETS = 32
"""Grammars of so many sets of tools are kept; one of some tools takes a few milliseconds to make."""

_SECTION = """# Tools

You may call one function to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

To call a function, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""


def offer(instructions: str, tools: Sequence[Tool]) -> str:
    """The instructions, with the tools offered."""
    lines = "\n".join(map(_signature, tools))
    return "\n\n".join(filter(None, (instructions, _SECTION.format(tools=lines))))


def _signature(tool: Tool) -> str:
    name, description = (json.dumps(text, ensure_ascii=False) for text in (tool.name, tool.description))
    return f'{{"name": {name}, "description": {description}, "parameters": {tool.parameters}}}'


def call_text(name: str, arguments: str) -> str:
    """A call as the model writes it."""
    return f"{MARK}{HEAD}{json.dumps(name, ensure_ascii=False)}{BETWEEN}{arguments}}}\n{END}"


def result_text(output: str) -> str:
    """What a call returned, as the model reads it."""
    return f"<tool_response>\n{output}\n</tool_response>"


@lru_cache(TOOL_SETS)
def call_grammar(tools: tuple[Tool, ...], name: str | None, strict: bool) -> Grammar:
    """What follows the mark: one call of one of the tools, or of the one with that name.

    Raises `StageError` when there is none, or when `strict` holds and a schema can't be kept.
    """
    chosen = [tool for tool in tools if name in (None, tool.name)]
    if not chosen:
        raise StageError(f"there is no tool {name!r} to call" if name else "there is no tool, and one must be called")
    return choice([_call(tool, strict) for tool in chosen])


def _call(tool: Tool, strict: bool) -> Grammar:
    try:
        arguments = arguments_grammar(tool.parameters, strict)
    except Unsupported as error:
        raise StageError(
            f"the tool {tool.name!r} can't be asked for: this thinker can't keep {error}; change its parameters, or "
            f"let tool_choice be 'auto', where arguments are not held to them"
        ) from error
    head = f"{HEAD}{json.dumps(tool.name, ensure_ascii=False)}{BETWEEN}"
    return then(literal(head), arguments, literal("}"))


class Call:
    """A call being written: what may follow, and what of it is told."""

    def __init__(self, grammar: Grammar, call_id: str) -> None:
        self.grammar = grammar
        self._id = call_id
        self._head: bytearray | None = bytearray()  # what came before the arguments; None once they have begun
        self._kept = b""  # the last byte, which may be the brace that closes the call
        self._decode = codecs.getincrementaldecoder("utf-8")().decode

    @property
    def over(self) -> bool:
        return over(self.grammar)

    def take(self, text: bytes) -> list[CallDelta]:
        """More of the text, by the grammar; gives what it adds to the call."""
        if self._head is not None:
            self._head += text
            name, text = _begun(bytes(self._head))
            if name is None:
                return []
            self._head = None
            return [CallDelta(self._id, name, self._arguments(text))]
        more = self._arguments(text)
        return [CallDelta(self._id, "", more)] if more else []

    def _arguments(self, text: bytes) -> str:
        text = self._kept + text
        self._kept = text[-1:]
        return self._decode(text[:-1])


def _begun(head: bytes) -> tuple[str | None, bytes]:
    """The name, and what is known of the arguments; None while the name is not known."""
    text = head.decode(errors="ignore")
    try:
        name, end = json.JSONDecoder().raw_decode(text, len(HEAD))
    except ValueError:
        return None, b""
    begin = len((text[:end] + BETWEEN).encode())
    return (name, head[begin:]) if len(head) >= begin else (None, b"")


class Spotter:
    """Looks through what a model writes for the beginning of a call, and holds back what may be one.

    `loose` is what was told since nothing was held.
    """

    def __init__(self) -> None:
        self._held = ""
        self._said = False
        self.loose = ""
        self.found = False

    @property
    def holds(self) -> bool:
        return bool(self._held)

    def push(self, delta: str) -> str:
        """The text that may be told; what begins a call never is, and with it `found` becomes true."""
        text = self._held + delta
        at = text.find(MARK)
        if at < 0 and not self._said and text.lstrip().startswith(BEGINNINGS):
            at = len(text) - len(text.lstrip())
        self.found = at >= 0
        told = text[:at] if self.found else text[: len(text) - self._doubtful(text)]
        if self.found and not self._said and not told.strip():
            told = ""
        self._held = "" if self.found else text[len(told) :]
        self._said = self._said or bool(told.strip())
        self.loose = self.loose + told if self._held or self.found else ""
        return told

    def _doubtful(self, text: str) -> int:
        """How many characters at the end may begin a call."""
        if not self._said:
            bare = text.lstrip()
            if not bare or any(begin.startswith(bare) for begin in (MARK, *BEGINNINGS)):
                return len(text)
        return max(size for size in range(min(len(MARK), len(text) + 1)) if text.endswith(MARK[:size]))

    def flush(self) -> str:
        """The reply is over: what was held was no call."""
        told, self._held = self._held, ""
        return told if told.strip() else ""
