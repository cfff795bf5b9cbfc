"""Applies a client's `session.update` to the effective settings: merged by presence, all of it or nothing.

Two classes of values can't be taken as they are. Invalid ones come back as a `Fault` that names the field. Valid ones
that this pipeline can't honour become the nearest it can do, and are echoed as that; a strict server refuses them too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from duplex_server.realtime.bounds import (
    HINT_CHARS,
    INSTRUCTIONS_CHARS,
    TRACING_BYTES,
    Invalid,
    bounded_tools,
    check_choice,
    check_length,
)
from duplex_server.realtime.config import SessionConfig
from duplex_server.realtime.ids import Ids
from duplex_server.realtime.schema import (
    FORMAT_RATES_HZ,
    PCM,
    AudioInput,
    AudioInputPatch,
    AudioOutput,
    AudioOutputPatch,
    Format,
    Include,
    NoiseReduction,
    NoiseReductionPatch,
    SemanticVad,
    ServerVad,
    Session,
    SessionAudio,
    SessionPatch,
    ShownSession,
    Transcription,
    TranscriptionAudio,
    TranscriptionPatch,
    TranscriptionSession,
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

NULL_TURNS_OFF = frozenset(("idle_timeout_ms",))
"""Fields of turn detection for which null is a value; for the others it means "as it was"."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Rules:
    """What a change is held against; `voice_fixed` is true once the session has spoken."""

    config: SessionConfig
    voice_fixed: bool

    def lacks(self, param: str, message: str) -> None:
        """The pipeline can't honour a value: where the server is strict, it is refused."""
        if self.config.strict_settings:
            raise Invalid(param, f"{message} This server has strict_settings; it replaces nothing.")


def begin(config: SessionConfig, session_id: str) -> Session | Fault:
    """The settings that a session begins with; the fault names what of `config.start` can't be taken."""
    heard = AudioInput()
    if config.kind == "transcription":
        heard = AudioInput(
            transcription=Transcription(model=config.abilities.recognizer), turn_detection=_unanswered(ServerVad())
        )
    first = Session(
        id=session_id,
        type=config.kind,
        model=config.model,
        expires_at=config.expires_at,
        instructions=config.instructions,
        audio=SessionAudio(input=heard, output=AudioOutput(voice=config.voice)),
        temperature=UNSET if config.temperature is None else config.temperature,
    )
    return first if config.start is None else merge(first, _on_one_line(config.start), config, voice_fixed=False)


def _on_one_line(patch: SessionPatch) -> SessionPatch:
    """A patch whose raw values have no line breaks, as those of a frame have none: a journal is made of lines."""
    written = msgspec.json.format(msgspec.json.encode(patch), indent=-1)
    return msgspec.json.decode(written, type=SessionPatch)


def opening(config: SessionConfig) -> ShownSession | Fault:
    """The settings that a session of this configuration begins with, as its first event will show them."""
    first = begin(config, Ids(config.id_seed)("sess"))
    return first if isinstance(first, Fault) else shown(first)


def shown(session: Session) -> ShownSession:
    """The settings as a client sees them: those of a session that only transcribes are fewer."""
    if session.type == "realtime":
        return session
    return TranscriptionSession(
        id=session.id,
        expires_at=session.expires_at,
        audio=TranscriptionAudio(input=session.audio.input),
        include=session.include,
    )


def merge(session: Session, patch: SessionPatch, config: SessionConfig, *, voice_fixed: bool) -> Session | Fault:
    """The settings after an update, or the fault for which none of it was applied.

    `voice_fixed` is true once the session has spoken.
    """
    rules = _Rules(config, voice_fixed)
    try:
        if isinstance(patch.type, str) and patch.type != session.type:
            message = f"This is a {session.type} session; its type can't become {patch.type!r}."
            raise Invalid("session.type", message)
        return _realtime(session, patch, rules) if session.type == "realtime" else _transcribing(session, patch, rules)
    except Invalid as error:
        return Fault(message=error.message, code=error.code, param=error.param)


def _transcribing(old: Session, patch: SessionPatch, rules: _Rules) -> Session:
    """Only what concerns listening means anything in a session that only transcribes."""
    audio = old.audio
    if isinstance(patch.audio, msgspec.Struct):
        heard = _input(audio.input, patch.audio.input, rules)
        heard = msgspec.structs.replace(heard, turn_detection=_unanswered(heard.turn_detection))
        audio = msgspec.structs.replace(audio, input=heard)
    return msgspec.structs.replace(old, audio=audio, include=_include(patch.include, old.include, rules))


def _realtime(old: Session, patch: SessionPatch, rules: _Rules) -> Session:
    audio = old.audio
    if isinstance(patch.audio, msgspec.Struct):
        audio = msgspec.structs.replace(
            audio,
            input=_input(audio.input, patch.audio.input, rules),
            output=_output(audio.output, patch.audio.output, rules),
        )
    modalities = given(patch.output_modalities, old.output_modalities)
    if not modalities:
        raise Invalid("session.output_modalities", 'Expected ["audio"] or ["text"], got an empty array.')
    instructions = given(patch.instructions, old.instructions)
    check_length(instructions, INSTRUCTIONS_CHARS, "session.instructions")
    if patch.prompt is not None and not isinstance(patch.prompt, UnsetType):
        rules.lacks("session.prompt", "There are no stored prompts here. Send the instructions.")
    if patch.reasoning is not None and not isinstance(patch.reasoning, UnsetType):
        rules.lacks("session.reasoning", "No model here can be told how much to reason.")
    tools = bounded_tools(given(patch.tools, old.tools), "session.tools")
    choice = given(patch.tool_choice, old.tool_choice)
    check_choice(choice, tools, "session.tool_choice")
    return msgspec.structs.replace(
        old,
        output_modalities=("audio",) if "audio" in modalities else ("text",),
        instructions=instructions,
        audio=audio,
        tools=tools,
        tool_choice=choice,
        max_output_tokens=given(patch.max_output_tokens, old.max_output_tokens),
        truncation=given(patch.truncation, old.truncation),
        tracing=_tracing(patch.tracing, old.tracing),
        include=_include(patch.include, old.include, rules),
        parallel_tool_calls=given(patch.parallel_tool_calls, old.parallel_tool_calls),
        temperature=given(patch.temperature, old.temperature),
    )


def given(new: T | UnsetType | None, old: T) -> T:
    """Absent and null both leave a setting alone."""
    return old if new is None or isinstance(new, UnsetType) else new


def _include(
    new: tuple[Include, ...] | UnsetType | None, old: tuple[Include, ...] | None, rules: _Rules
) -> tuple[Include, ...] | None:
    if isinstance(new, UnsetType):
        return old
    had = tuple(dict.fromkeys(one for one in new or () if one in rules.config.abilities.include))
    if len(had) < len(set(new or ())):
        rules.lacks("session.include", "The recognizer here gives no log probabilities.")
    return had or None


def _tracing(new: msgspec.Raw | UnsetType, old: msgspec.Raw | None) -> msgspec.Raw | None:
    """It is kept and echoed: clients set it as a matter of course, and nothing here is traced."""
    if isinstance(new, UnsetType):
        return old
    raw = bytes(new)
    if raw == b"null":
        return None
    if raw != b'"auto"' and not raw.startswith(b"{"):
        raise Invalid("session.tracing", 'Expected "auto", an object or null.', "invalid_type")
    if len(raw) > TRACING_BYTES:
        raise Invalid("session.tracing", f"Expected at most {TRACING_BYTES} bytes, got {len(raw)}.")
    return new.copy()


def _input(old: AudioInput, patch: AudioInputPatch | UnsetType | None, rules: _Rules) -> AudioInput:
    if not isinstance(patch, AudioInputPatch):
        return old
    return AudioInput(
        format=audio_format(patch.format, old.format, "session.audio.input.format"),
        transcription=_transcription(patch.transcription, old.transcription, rules),
        noise_reduction=_noise_reduction(patch.noise_reduction, old.noise_reduction, rules),
        turn_detection=_turn_detection(patch.turn_detection, old.turn_detection),
    )


def _output(old: AudioOutput, patch: AudioOutputPatch | UnsetType | None, rules: _Rules) -> AudioOutput:
    if not isinstance(patch, AudioOutputPatch):
        return old
    voices = rules.config.voices
    voice = resolve_voice(patch.voice, old.voice, voices)
    asked = patch.voice.id if isinstance(patch.voice, VoiceReference) else given(patch.voice, old.voice)
    if asked != voice:
        rules.lacks(
            "session.audio.output.voice", f"The talker has no voice {asked[:80]!r}; it has {', '.join(voices)}."
        )
    if rules.voice_fixed and voice != old.voice:
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
    """The format in effect; `param` names the field when it can't be had. It has one rate, which may be left out."""
    if isinstance(new, str):
        new = LEGACY_FORMATS[new]
    if not isinstance(new, Format):
        return old
    rate_hz = FORMAT_RATES_HZ[new.type]
    if new.rate not in (UNSET, rate_hz):
        message = f"Expected {rate_hz} for {new.type}, got {new.rate}. Resample the sound, or take another format."
        raise Invalid(f"{param}.rate", message)
    return PCM if new.type == PCM.type else Format(type=new.type)


def _transcription(
    new: TranscriptionPatch | UnsetType | None, old: Transcription | None, rules: _Rules
) -> Transcription | None:
    """It is replaced as a whole, and only what the client has set is echoed."""
    if isinstance(new, UnsetType):
        return old
    if new is None:
        return None
    path = "session.audio.input.transcription"
    for name, text in (("model", new.model), ("language", new.language), ("prompt", new.prompt)):
        check_length(given(text, ""), HINT_CHARS, f"{path}.{name}")
    check_length("".join(given(new.keywords, ())), HINT_CHARS, f"{path}.keywords")
    wanted = msgspec.convert(
        {name: value for name, value in msgspec.to_builtins(new).items() if value is not None}, Transcription
    )
    language = given(wanted.language, "")
    understood = _understood((language,) if language else (), f"{path}.language", rules)
    languages = _understood(given(wanted.languages, ()), f"{path}.languages", rules)
    known = rules.config.abilities.languages
    if language and not understood and len(known) == 1:
        understood = known  # whatever is said is taken for the one language there is
    return msgspec.structs.replace(
        wanted,
        language=understood[0] if understood else UNSET,
        languages=languages or UNSET,
    )


def _understood(languages: tuple[str, ...], param: str, rules: _Rules) -> tuple[str, ...]:
    """Those of the languages that the recognizer understands, as they were written; a region does not matter."""
    known = rules.config.abilities.languages
    if not known:
        return languages
    had = tuple(one for one in languages if one.lower().replace("_", "-").partition("-")[0] in known)
    if len(had) < len(languages):
        rules.lacks(param, f"The recognizer understands {', '.join(known)} only.")
    return had


def _noise_reduction(
    new: NoiseReductionPatch | UnsetType | None, old: NoiseReduction | None, rules: _Rules
) -> NoiseReduction | None:
    if isinstance(new, UnsetType):
        return old
    if new is None:
        return None
    path = "session.audio.input.noise_reduction"
    kind = new.type if not isinstance(new.type, UnsetType) else old.type if old else None
    if kind is None:
        raise Invalid(f"{path}.type", "Expected near_field or far_field.", "missing_required_parameter")
    if kind not in rules.config.abilities.noise_reduction:
        rules.lacks(path, "No noise is taken out of the sound here. Let the client do it.")
        return None
    strength = given(new.strength, old.strength if old and old.type == kind else UNSET)
    return NoiseReduction(type=kind, strength=strength)


def _unanswered(detection: TurnDetection | None) -> TurnDetection | None:
    """Turns that nobody will answer: what concerns answers is off, whatever a client asks."""
    match detection:
        case ServerVad():
            return msgspec.structs.replace(
                detection, create_response=False, interrupt_response=False, idle_timeout_ms=None
            )
        case SemanticVad():
            return msgspec.structs.replace(detection, create_response=False, interrupt_response=False)
        case None:
            return None


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
