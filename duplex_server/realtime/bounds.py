"""Bounds the lengths and the names of what a client may set, so that a session can be echoed in one frame."""

from __future__ import annotations

import re

import msgspec
from msgspec import UNSET

from duplex_server.realtime.schema import FunctionTool, NamedFunction, ToolChoice

INSTRUCTIONS_CHARS = 64 * 1024
TOOLS = 128
TOOLS_BYTES = 256 * 1024
"""All tools together, as JSON. Clients take frames below 1 MiB, and every setting is in one of them."""
TRACING_BYTES = 16 * 1024
HINT_CHARS = 4096
"""A prompt for the recognizer, or its keywords together."""

NAMES_CHARS = 400
"""So much is told of the names there are."""

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Invalid(Exception):
    """A value that can't be taken; whoever reads a client's settings returns it as a `Fault`."""

    def __init__(self, param: str, message: str, code: str = "invalid_value") -> None:
        super().__init__(message)
        self.param, self.message, self.code = param, message, code


def check_length(text: str, most: int, param: str) -> None:
    """Raises `Invalid` for a text of more than `most` characters."""
    if len(text) > most:
        raise Invalid(param, f"Expected at most {most} characters, got {len(text)}. Shorten it.")


def bounded_tools(tools: tuple[FunctionTool, ...], param: str) -> tuple[FunctionTool, ...]:
    """The tools as they are kept; `param` is where they stand. Raises `Invalid` that names the one at fault."""
    if len(tools) > TOOLS:
        raise Invalid(param, f"Expected at most {TOOLS} tools, got {len(tools)}.")
    names: set[str] = set()
    for index, tool in enumerate(tools):
        if not _NAME.fullmatch(tool.name):
            message = f"Expected 1 to 64 letters, digits, underscores or dashes, got {tool.name[:80]!r}."
            raise Invalid(f"{param}[{index}].name", message)
        if tool.name in names:
            message = f"There are two tools named {tool.name!r}. Give each a name of its own."
            raise Invalid(f"{param}[{index}].name", message)
        names.add(tool.name)
    kept = tuple(_kept(tool, f"{param}[{index}]") for index, tool in enumerate(tools))
    size = len(msgspec.json.encode(kept))
    if size > TOOLS_BYTES:
        raise Invalid(param, f"Expected at most {TOOLS_BYTES} bytes of tools, got {size}. Shorten their descriptions.")
    return kept


def check_choice(choice: ToolChoice, tools: tuple[FunctionTool, ...], param: str, *, now: bool = False) -> None:
    """Raises `Invalid` for the choice of a function that isn't there.

    Where there are no tools at all, a choice stands until it is needed, which is `now`: clients set the two apart.
    """
    if not tools:
        if now and choice not in ("auto", "none"):
            raise Invalid(param, "A function must be called by this choice, and there are no tools. Set some.")
        return
    if isinstance(choice, NamedFunction) and all(tool.name != choice.name for tool in tools):
        known = ", ".join(tool.name for tool in tools)
        raise Invalid(f"{param}.name", f"There is no tool {choice.name!r}. Choose one of: {known[:NAMES_CHARS]}.")


def _kept(tool: FunctionTool, param: str) -> FunctionTool:
    """A tool in which null means not given."""
    parameters = tool.parameters
    if isinstance(parameters, msgspec.Raw):
        if bytes(parameters) == b"null":
            parameters = UNSET
        elif not bytes(parameters).startswith(b"{"):
            message = "Expected a JSON schema, which is an object."
            raise Invalid(f"{param}.parameters", message, "invalid_type")
    description = UNSET if tool.description is None else tool.description
    return msgspec.structs.replace(tool, description=description, parameters=parameters)
