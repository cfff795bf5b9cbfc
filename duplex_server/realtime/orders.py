"""Reads what a response is asked to be: the session's settings, with what `response.create` overrides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from duplex_server.realtime import items
from duplex_server.realtime.conversation import Conversation, Entry, to_part
from duplex_server.realtime.effects import Prepare
from duplex_server.realtime.response import Terms
from duplex_server.realtime.schema import (
    AudioOutput,
    AudioOutputPatch,
    AudioPatch,
    FunctionTool,
    ItemReference,
    ResponseParams,
    Session,
)
from duplex_server.realtime.settings import Invalid, audio_format, given, resolve_voice
from duplex_server.realtime.wire import Fault
from pipeline.chunk import Part, Prompt, TextPart, Tool

INSTRUCTIONS_ID = "instructions"


@dataclass(frozen=True, slots=True)
class Order:
    """What a response is to be made of. `parts` None means the conversation, as it stands when the making begins."""

    terms: Terms
    instructions: str
    tools: tuple[Tool, ...]
    parts: tuple[Part, ...] | None
    speed: float
    in_conversation: bool


def take_order(
    params: ResponseParams,
    settings: Session,
    conversation: Conversation,
    voices: tuple[str, ...],
    new_id: Callable[[str], str],
) -> Order | Fault:
    """The order that a client's parameters make, or the fault for which there is none."""
    parts = _parts(params, conversation, new_id)
    if isinstance(parts, Fault):
        return parts
    try:
        output = _output(params, settings, voices)
    except Invalid as error:
        return Fault(message=error.message, code=error.code, param=error.param)
    modalities = given(params.output_modalities, settings.output_modalities)
    choice = given(params.tool_choice, settings.tool_choice)
    tools = given(params.tools, settings.tools)
    return Order(
        terms=Terms(
            modality="audio" if "audio" in modalities else "text",
            format=output.format,
            voice=output.voice,
            max_output_tokens=given(params.max_output_tokens, settings.max_output_tokens),
            metadata=given(params.metadata, None),
        ),
        instructions=given(params.instructions, settings.instructions),
        tools=() if choice == "none" else order_tools(tools),
        parts=parts,
        speed=output.speed,
        in_conversation=params.conversation != "none",
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
    return Prepare(make_prompt(settings.instructions, conversation.parts(), order_tools(settings.tools)))


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


def _parts(
    params: ResponseParams, conversation: Conversation, new_id: Callable[[str], str]
) -> tuple[Part, ...] | Fault | None:
    """The context given with the response; None when it is the conversation."""
    if not isinstance(params.input, tuple):
        return None
    parts: list[Part] = []
    for index, item in enumerate(params.input):
        path = f"response.input[{index}]"
        if isinstance(item, ItemReference):
            entry = conversation.get(item.id)
            if entry is None:
                return Fault(
                    code="invalid_value",
                    message=f"There is no item {item.id!r} in the conversation to refer to.",
                    param=f"{path}.id",
                )
        else:
            taken = items.accept(item, new_id, path)
            if isinstance(taken, Fault):
                return taken
            entry = Entry(taken)
        part = to_part(entry)
        if part is not None:
            parts.append(part)
    return tuple(parts)
