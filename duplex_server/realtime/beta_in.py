"""Reads what a client sends in either spelling: the nested one of the GA dialect, and the flat one of the older.

Both may stand beside each other in one event; where both give a value, the nested one counts. What comes out is nested,
and knows which of its fields the client called by their older names.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from duplex_server.realtime import wire
from duplex_server.realtime.schema import (
    AudioInputPatch,
    AudioOutputPatch,
    AudioPatch,
    Format,
    LegacyFormat,
    MaxTokens,
    Modality,
    NoiseReductionPatch,
    ResponseParams,
    SessionPatch,
    Speed,
    TranscriptionPatch,
    TurnDetectionPatch,
    VoiceReference,
)
from duplex_server.realtime.wire import AnyClientEvent, Fault

OLDER_FIELDS = frozenset(
    (
        "modalities",
        "voice",
        "input_audio_format",
        "output_audio_format",
        "input_audio_transcription",
        "turn_detection",
        "temperature",
        "max_response_output_tokens",
    )
)
"""Fields that only a client of the older dialect writes at the top of a session."""
UPDATES = ("session.update", "transcription_session.update")

Spelled = tuple[tuple[str, str], ...]
_Modalities = tuple[Modality, ...] | UnsetType | None
_Most = MaxTokens | UnsetType | None
T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)


class WrittenSession(SessionPatch, frozen=True, kw_only=True):
    """What `session.update` may carry, in both spellings."""

    modalities: tuple[Modality, ...] | UnsetType | None = UNSET
    voice: str | VoiceReference | UnsetType | None = UNSET
    speed: Speed | UnsetType | None = UNSET
    input_audio_format: Format | LegacyFormat | UnsetType | None = UNSET
    output_audio_format: Format | LegacyFormat | UnsetType | None = UNSET
    input_audio_transcription: TranscriptionPatch | UnsetType | None = UNSET
    input_audio_noise_reduction: NoiseReductionPatch | UnsetType | None = UNSET
    turn_detection: TurnDetectionPatch | UnsetType | None = UNSET
    max_response_output_tokens: MaxTokens | UnsetType | None = UNSET


class WrittenResponse(ResponseParams, frozen=True, kw_only=True):
    """What `response.create` may carry, in both spellings."""

    modalities: tuple[Modality, ...] | UnsetType | None = UNSET
    voice: str | VoiceReference | UnsetType | None = UNSET
    output_audio_format: Format | LegacyFormat | UnsetType | None = UNSET
    max_response_output_tokens: MaxTokens | UnsetType | None = UNSET


class WrittenUpdate(wire.ClientEvent, frozen=True, kw_only=True, tag="session.update"):
    session: WrittenSession


class WrittenTranscription(wire.ClientEvent, frozen=True, kw_only=True, tag="transcription_session.update"):
    """The older dialect's update of a transcription session."""

    session: WrittenSession


class WrittenCreate(wire.ClientEvent, frozen=True, kw_only=True, tag="response.create"):
    response: WrittenResponse | None = None


AnyWritten = (
    WrittenUpdate
    | WrittenTranscription
    | WrittenCreate
    | wire.Append
    | wire.Commit
    | wire.Clear
    | wire.ClearOutput
    | wire.CreateItem
    | wire.RetrieveItem
    | wire.TruncateItem
    | wire.DeleteItem
    | wire.CancelResponse
)


class _Keys(msgspec.Struct, frozen=True):
    """What of an update tells its dialect, whether it can be taken or not."""

    type: str
    session: dict[str, msgspec.Raw]  # only the names are looked at


_decoder = msgspec.json.Decoder(AnyWritten)
_keys = msgspec.json.Decoder(_Keys)


def read(frame: str | bytes) -> AnyClientEvent | Fault:
    """Read one frame. A frame that can't be taken comes back as a `Fault` that names the field as it was written."""
    written = wire.read(frame, _decoder)
    match written:
        case WrittenUpdate(event_id=event_id, session=session):
            patch, spelled = nested_session(session)
            return wire.SessionUpdate(event_id=event_id, session=patch, spelled=spelled)
        case WrittenTranscription(event_id=event_id, session=session):
            patch, spelled = _transcription(session)
            return wire.SessionUpdate(event_id=event_id, session=patch, spelled=spelled)
        case WrittenCreate(event_id=event_id, response=response):
            if response is None:
                return wire.CreateResponse(event_id=event_id)
            params, spelled = _nested_response(response)
            return wire.CreateResponse(event_id=event_id, response=params, spelled=spelled)
        case _:
            return written


def written_in_beta(frame: str | bytes) -> bool | None:
    """Whether an update is written as in the older dialect; None when the frame is no update."""
    try:
        update = _keys.decode(frame)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    if update.type not in UPDATES:
        return None
    keys = update.session.keys()
    return update.type == "transcription_session.update" or (
        "type" not in keys and "audio" not in keys and not OLDER_FIELDS.isdisjoint(keys)
    )


def nested_session(written: WrittenSession) -> tuple[SessionPatch, Spelled]:
    """The settings in the nested spelling, and what the client called by an older name."""
    audio = _given(written.audio, AudioPatch)
    told, heard = _given(audio.input, AudioInputPatch), _given(audio.output, AudioOutputPatch)
    spelling = _Spelling("session")
    pick = spelling.pick
    told = msgspec.structs.replace(
        told,
        format=pick(told.format, "audio.input.format", written.input_audio_format, "input_audio_format"),
        transcription=pick(
            told.transcription,
            "audio.input.transcription",
            written.input_audio_transcription,
            "input_audio_transcription",
        ),
        noise_reduction=pick(
            told.noise_reduction,
            "audio.input.noise_reduction",
            written.input_audio_noise_reduction,
            "input_audio_noise_reduction",
        ),
        turn_detection=pick(
            told.turn_detection, "audio.input.turn_detection", written.turn_detection, "turn_detection"
        ),
    )
    heard = msgspec.structs.replace(
        spelling.output(heard, written), speed=pick(heard.speed, "audio.output.speed", written.speed, "speed")
    )
    modalities, most = spelling.terms(written)
    patch = _without_older(written, SessionPatch)
    if spelling.found:
        audio = AudioPatch(input=told, output=heard)
        patch = msgspec.structs.replace(patch, audio=audio, output_modalities=modalities, max_output_tokens=most)
    return patch, tuple(spelling.found)


def _transcription(written: WrittenSession) -> tuple[SessionPatch, Spelled]:
    """The settings of a transcription session, which speaks to nobody and so has no modalities."""
    patch, spelled = nested_session(msgspec.structs.replace(written, modalities=UNSET))
    if isinstance(patch.type, str):
        return patch, spelled
    return msgspec.structs.replace(patch, type="transcription"), (*spelled, ("session.type", "type"))


def _nested_response(written: WrittenResponse) -> tuple[ResponseParams, Spelled]:
    audio = _given(written.audio, AudioPatch)
    spelling = _Spelling("response")
    heard = spelling.output(_given(audio.output, AudioOutputPatch), written)
    modalities, most = spelling.terms(written)
    params = _without_older(written, ResponseParams)
    if spelling.found:
        audio = msgspec.structs.replace(audio, output=heard)
        params = msgspec.structs.replace(params, audio=audio, output_modalities=modalities, max_output_tokens=most)
    return params, tuple(spelling.found)


class _Spelling:
    """Takes each value from where it was written, and notes where that has the older name."""

    def __init__(self, root: str) -> None:
        self._root = root
        self.found: list[tuple[str, str]] = []

    def output(self, nested: AudioOutputPatch, written: WrittenSession | WrittenResponse) -> AudioOutputPatch:
        """How answers sound, for a session or for one response."""
        return msgspec.structs.replace(
            nested,
            format=self.pick(nested.format, "audio.output.format", written.output_audio_format, "output_audio_format"),
            voice=self.pick(nested.voice, "audio.output.voice", written.voice, "voice"),
        )

    def terms(self, written: WrittenSession | WrittenResponse) -> tuple[_Modalities, _Most]:
        """Whether answers are spoken, and how long they may be."""
        most, older = written.max_output_tokens, written.max_response_output_tokens
        return (
            self.pick(written.output_modalities, "output_modalities", written.modalities, "modalities"),
            self.pick(most, "max_output_tokens", older, "max_response_output_tokens"),
        )

    def pick(self, nested: T | UnsetType, path: str, older: T | UnsetType, name: str) -> T | UnsetType:
        """The value of the field at `path`, which is called `name` in the older dialect."""
        if isinstance(older, UnsetType) or not isinstance(nested, UnsetType):
            return nested
        ours, its_own = f"{self._root}.{path}", f"{self._root}.{name}"
        if isinstance(older, str):  # an object to us, and a word to the client: there is nothing below it
            self.found += [(f"{ours}.type", its_own), (f"{ours}.rate", its_own)]
        self.found.append((ours, its_own))
        return older


def _given(value: S | UnsetType | None, kind: type[S]) -> S:
    """An object of the client's, or one that says nothing."""
    return value if isinstance(value, kind) else kind()


def _without_older(written: msgspec.Struct, kind: type[S]) -> S:
    """The fields that `kind` has."""
    fields = msgspec.structs.asdict(written)
    return kind(**{name: fields[name] for name in kind.__struct_fields__})
