"""Reads what a response is asked to be: the session's settings, with what `response.create` overrides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import assert_never

import msgspec

from duplex_server.realtime import items
from duplex_server.realtime.bounds import INSTRUCTIONS_CHARS, Invalid, bounded_tools, check_choice, check_length
from duplex_server.realtime.conversation import Conversation, Entry
from duplex_server.realtime.effects import Prepare
from duplex_server.realtime.response import Terms
from duplex_server.realtime.schema import (
    AudioOutput,
    AudioOutputPatch,
    AudioPatch,
    FunctionTool,
    ItemReference,
    NamedFunction,
    ResponseParams,
    RetentionRatio,
    Session,
    TokenLimits,
)
from duplex_server.realtime.settings import audio_format, given, resolve_voice
from duplex_server.realtime.wire import Fault
from pipeline.chunk import Part, Prompt, Retention, TextPart, Tool, ToolChoice, ToolNamed

INSTRUCTIONS_ID = "instructions"


@dataclass(frozen=True, slots=True)
class Order:
    """What a response is to be made of. `context` None means the conversation, as it stands when the making begins."""

    terms: Terms
    instructions: str
    tools: tuple[Tool, ...]
    context: tuple[Entry, ...] | None
    speed: float
    in_conversation: bool
    retention: Retention | None
    tool_choice: ToolChoice = "auto"
    parallel_calls: bool = True


def take_order(
    params: ResponseParams,
    settings: Session,
    conversation: Conversation,
    voices: tuple[str, ...],
    new_id: Callable[[str], str],
) -> Order | Fault:
    """The order that a client's parameters make, or the fault for which there is none."""
    context = _context(params, conversation, new_id)
    if isinstance(context, Fault):
        return context
    instructions, tools = given(params.instructions, settings.instructions), settings.tools
    try:
        output = _output(params, settings, voices)
        check_length(instructions, INSTRUCTIONS_CHARS, "response.instructions")
        if isinstance(params.tools, tuple):
            tools = bounded_tools(params.tools, "response.tools")
        choice = given(params.tool_choice, settings.tool_choice)
        check_choice(choice, tools, "response.tool_choice", now=True)
    except Invalid as error:
        return Fault(message=error.message, code=error.code, param=error.param)
    modalities = given(params.output_modalities, settings.output_modalities)
    return Order(
        terms=Terms(
            modality="audio" if "audio" in modalities else "text",
            format=output.format,
            voice=output.voice,
            max_output_tokens=given(params.max_output_tokens, settings.max_output_tokens),
            metadata=given(params.metadata, None),
            temperature=given(params.temperature, given(settings.temperature, None)),
        ),
        instructions=instructions,
        tools=order_tools(tools),
        context=context,
        speed=output.speed,
        in_conversation=params.conversation != "none",
        retention=retention(settings),
        tool_choice=ToolNamed(choice.name) if isinstance(choice, NamedFunction) else choice,
        parallel_calls=given(params.parallel_tool_calls, given(settings.parallel_tool_calls, True)),
    )


def order_tools(tools: tuple[FunctionTool, ...]) -> tuple[Tool, ...]:
    """The session's tools as a thinker takes them."""
    return tuple(
        Tool(
            name=tool.name,
            description=tool.description if isinstance(tool.description, str) else "",
            parameters=bytes(tool.parameters).decode() if isinstance(tool.parameters, msgspec.Raw) else "{}",
        )
        for tool in tools
    )


def prepare(settings: Session, conversation: Conversation) -> Prepare:
    """Let the thinker read what is known already, so that the answer begins sooner."""
    prompt = make_prompt(settings.instructions, conversation.parts(), order_tools(settings.tools))
    return Prepare(prompt, retention(settings))


def retention(settings: Session) -> Retention | None:
    """How a prompt that is too long is cut; None lets the response fail."""
    match settings.truncation:
        case "auto":
            return Retention()
        case "disabled":
            return None
        case RetentionRatio(retention_ratio=ratio, token_limits=limits):
            most = limits.post_instructions if isinstance(limits, TokenLimits) else None
            return Retention(ratio, most if isinstance(most, int) else None)
    assert_never(settings.truncation)


def make_prompt(instructions: str, parts: tuple[Part, ...], tools: tuple[Tool, ...]) -> Prompt:
    """The context of a reply: instructions first, so that its prefix stays."""
    head: tuple[Part, ...] = (TextPart(INSTRUCTIONS_ID, "system", instructions),) if instructions else ()
    return Prompt(head + parts, tools)


def _output(params: ResponseParams, settings: Session, voices: tuple[str, ...]) -> AudioOutput:
    effective = settings.audio.output
    patch = params.audio.output if isinstance(params.audio, AudioPatch) else None
    if not isinstance(patch, AudioOutputPatch):
        return effective
    return AudioOutput(
        format=audio_format(patch.format, effective.format, "response.audio.output.format"),
        voice=resolve_voice(patch.voice, effective.voice, voices),
        speed=given(patch.speed, effective.speed),
    )


def _context(
    params: ResponseParams, conversation: Conversation, new_id: Callable[[str], str]
) -> tuple[Entry, ...] | Fault | None:
    """The context given with the response; None when it is the conversation.

    An item that is given here has an id of its own, whatever the client calls it: nobody can ask for it, and a prompt
    has no id twice.
    """
    if not isinstance(params.input, tuple):
        return None
    entries: list[Entry] = []
    for index, item in enumerate(params.input):
        path = f"response.input[{index}]"
        if not isinstance(item, ItemReference):
            taken = items.accept(item, new_id, path)
            if isinstance(taken, Fault):
                return taken
            if taken.given is not None and any(entry.given for entry in entries if entry.item.id not in conversation):
                message = "One item with new sound is taken here. Create the others in the conversation first."
                return Fault(code="invalid_value", message=message, param=path)
            entries.append(_renamed(taken, new_id))
        elif (entry := conversation.get(item.id)) is not None:
            entries.append(entry if entry not in entries else _renamed(entry, new_id))
        else:
            message = f"There is no item {item.id!r} in the conversation to refer to."
            return Fault(code="invalid_value", message=message, param=f"{path}.id")
    return tuple(entries)


def _renamed(entry: Entry, new_id: Callable[[str], str]) -> Entry:
    return replace(entry, item=msgspec.structs.replace(entry.item, id=new_id("item")))
