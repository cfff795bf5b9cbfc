"""Applies a client's `session.update` to the effective settings: merged by presence, all of it or nothing.

Two classes of values can't be taken as they are. Invalid ones come back as a `Fault` that names the field. Valid ones
that this pipeline can't honour become the nearest it can do, and are echoed as that.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from duplex_server.realtime.schema import (
    INPUT_RATE_HZ,
    PCM,
    AudioInput,
    AudioInputPatch,
    AudioOutput,
    AudioOutputPatch,
    Format,
    NoiseReduction,
    NoiseReductionPatch,
    SemanticVad,
    ServerVad,
    Session,
    SessionPatch,
    Transcription,
    TranscriptionPatch,
    TurnDetection,
    TurnDetectionPatch,
    VoiceReference,
)
from duplex_server.realtime.wire import Fault

ALIAS_VOICES = frozenset(
    ("alloy", "ash", "ballad", "cedar", "coral", "echo", "fable", "marin", "nova", "onyx", "sage", "shimmer", "verse")
)
"""Names that stock clients ask for; each stands for the talker's default voice."""

LEGACY_FORMATS = {
    "pcm16": PCM,
    "g711_ulaw": Format(type="audio/pcmu"),
    "g711_alaw": Format(type="audio/pcma"),
}
HONOURED_FORMATS = frozenset(("audio/pcm",))

NULL_TURNS_OFF = frozenset(("idle_timeout_ms",))
"""Fields of turn detection for which null is a value; for the others it means "as it was"."""

T = TypeVar("T")


class Invalid(Exception):
    """A value that can't be taken; carried to the edge of this module and returned as a `Fault` there."""

    def __init__(self, param: str, message: str, code: str = "invalid_value") -> None:
        super().__init__(message)
        self.param, self.message, self.code = param, message, code


def merge(session: Session, patch: SessionPatch, *, voices: tuple[str, ...], voice_fixed: bool) -> Session | Fault:
    """The settings after an update, or the fault for which none of it was applied.

    `voices` are the talker's own, the default first; `voice_fixed` is true once the session has spoken.
    """
    try:
        return _session(session, patch, voices, voice_fixed)
    except Invalid as error:
        return Fault(message=error.message, code=error.code, param=error.param)


def _session(old: Session, patch: SessionPatch, voices: tuple[str, ...], voice_fixed: bool) -> Session:
    if isinstance(patch.type, str) and patch.type != old.type:
        raise Invalid("session.type", f"This is a {old.type} session; its type can't become {patch.type!r}.")
    audio = old.audio
    if isinstance(patch.audio, msgspec.Struct):
        audio = msgspec.structs.replace(
            audio,
            input=_input(audio.input, patch.audio.input),
            output=_output(audio.output, patch.audio.output, voices, voice_fixed),
        )
    modalities = given(patch.output_modalities, old.output_modalities)
    if not modalities:
        raise Invalid("session.output_modalities", 'Expected ["audio"] or ["text"], got an empty array.')
    return msgspec.structs.replace(
        old,
        output_modalities=("audio",) if "audio" in modalities else ("text",),
        instructions=given(patch.instructions, old.instructions),
        audio=audio,
        tools=given(patch.tools, old.tools),
        tool_choice=given(patch.tool_choice, old.tool_choice),
        max_output_tokens=given(patch.max_output_tokens, old.max_output_tokens),
        truncation=given(patch.truncation, old.truncation),
        tracing=_tracing(patch.tracing, old.tracing),
        prompt=_resettable(patch.prompt, old.prompt),
        include=_resettable(patch.include, old.include),
        parallel_tool_calls=given(patch.parallel_tool_calls, old.parallel_tool_calls),
        reasoning=given(patch.reasoning, old.reasoning),
    )


def given(new: T | UnsetType | None, old: T) -> T:
    """Absent and null both leave a setting alone."""
    return old if new is None or isinstance(new, UnsetType) else new


def _resettable(new: T | UnsetType | None, old: T | None) -> T | None:
    """Absent leaves a setting alone, null turns it off."""
    return old if isinstance(new, UnsetType) else new


def _tracing(new: msgspec.Raw | UnsetType, old: msgspec.Raw | None) -> msgspec.Raw | None:
    if isinstance(new, UnsetType):
        return old
    return None if bytes(new) == b"null" else new.copy()


def _input(old: AudioInput, patch: AudioInputPatch | UnsetType | None) -> AudioInput:
    if not isinstance(patch, AudioInputPatch):
        return old
    return AudioInput(
        format=audio_format(patch.format, old.format, "session.audio.input.format"),
        transcription=_transcription(patch.transcription, old.transcription),
        noise_reduction=_noise_reduction(patch.noise_reduction, old.noise_reduction),
        turn_detection=_turn_detection(patch.turn_detection, old.turn_detection),
    )


def _output(
    old: AudioOutput, patch: AudioOutputPatch | UnsetType | None, voices: tuple[str, ...], voice_fixed: bool
) -> AudioOutput:
    if not isinstance(patch, AudioOutputPatch):
        return old
    voice = resolve_voice(patch.voice, old.voice, voices)
    if voice_fixed and voice != old.voice:
        raise Invalid(
            "session.audio.output.voice",
            f"The session has spoken with the voice {old.voice!r}; start a new session for another voice.",
            code="cannot_update_voice",
        )
    return AudioOutput(
        format=audio_format(patch.format, old.format, "session.audio.output.format"),
        voice=voice,
        speed=given(patch.speed, old.speed),
    )


def resolve_voice(new: str | VoiceReference | UnsetType | None, old: str, voices: tuple[str, ...]) -> str:
    """The voice in effect: one the talker has or an alias of its default, else the talker's default by name."""
    name = new.id if isinstance(new, VoiceReference) else new if isinstance(new, str) else old
    if name == old or name in voices or name in ALIAS_VOICES or not voices:
        return name
    return voices[0]


def audio_format(new: Format | str | UnsetType | None, old: Format, param: str) -> Format:
    """The format in effect; `param` names the field when it can't be had."""
    if isinstance(new, str):
        new = LEGACY_FORMATS[new]
    if not isinstance(new, Format):
        return old
    if new.type not in HONOURED_FORMATS:
        raise Invalid(f"{param}.type", f"This server takes and gives audio/pcm; {new.type} is not served yet.")
    if new.rate not in (UNSET, INPUT_RATE_HZ):
        raise Invalid(f"{param}.rate", f"Expected 24000, got {new.rate}. Resample before sending.")
    return PCM


def _transcription(new: TranscriptionPatch | UnsetType | None, old: Transcription | None) -> Transcription | None:
    if isinstance(new, UnsetType):
        return old
    if new is None:
        return None
    return msgspec.convert(
        {name: value for name, value in msgspec.to_builtins(new).items() if value is not None}, Transcription
    )


def _noise_reduction(new: NoiseReductionPatch | UnsetType | None, old: NoiseReduction | None) -> NoiseReduction | None:
    if isinstance(new, UnsetType):
        return old
    if new is None:
        return None
    kind = new.type if not isinstance(new.type, UnsetType) else old.type if old else None
    if kind is None:
        raise Invalid(
            "session.audio.input.noise_reduction.type",
            "Expected near_field or far_field.",
            "missing_required_parameter",
        )
    strength = given(new.strength, old.strength if old and old.type == kind else UNSET)
    return NoiseReduction(type=kind, strength=strength)


def _turn_detection(new: TurnDetectionPatch | UnsetType | None, old: TurnDetection | None) -> TurnDetection | None:
    if isinstance(new, UnsetType):
        return old
    if new is None:
        return None
    if isinstance(new.type, UnsetType):
        base: TurnDetection = old if old is not None else ServerVad()
    else:
        base = SemanticVad() if new.type == "semantic_vad" else ServerVad()
    changes = {
        name: value
        for name, value in msgspec.to_builtins(new).items()
        if name in base.__struct_fields__ and (value is not None or name in NULL_TURNS_OFF)
    }
    return msgspec.structs.replace(base, **changes)
