"""Says which of a client's settings a pipeline honours, from what its stages can do."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from duplex_server.realtime.config import Abilities
from duplex_server.realtime.schema import FORMAT_RATES_HZ, Eagerness, FormatType, Include, Modality, NoiseType
from duplex_server.realtime.turns import EAGERNESS_SILENCE_MS, Ending
from pipeline.spec import Capabilities, FamilyRole


class SessionCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What of a session's settings takes effect.

    Of what is not here, a session takes the nearest and echoes that, or refuses it where the server is strict.
    """

    output_modalities: tuple[Modality, ...] = ("audio", "text")
    formats: tuple[FormatType, ...]
    voices: tuple[str, ...]
    """The default first; with none, the talker names none."""
    transcription_model: str
    languages: tuple[str, ...]
    """What is understood; with none, any."""
    turn_detection: tuple[str, ...] = ("server_vad", "semantic_vad")
    eagerness_silence_ms: Mapping[Eagerness, Mapping[Ending, int]]
    """The silence that ends a turn, by how its words end."""
    noise_reduction: tuple[NoiseType, ...]
    include: tuple[Include, ...]
    tools: tuple[str, ...] = ("function",)
    max_output_tokens: int
    """No answer is longer, whatever bound a client sets."""
    images: bool = False
    reasoning: bool = False
    prompts: bool = False


def abilities(stages: Mapping[FamilyRole, Capabilities]) -> Abilities:
    """What a session must know of its pipeline to take its client's settings."""
    recognizer = stages["recognizer"]
    return Abilities(recognizer=recognizer.model, languages=recognizer.languages)


def capabilities(stages: Mapping[FamilyRole, Capabilities], max_reply_tokens: int) -> SessionCapabilities:
    """The list for whoever asks."""
    able = abilities(stages)
    return SessionCapabilities(
        formats=tuple(FORMAT_RATES_HZ),
        voices=stages["talker"].voices,
        transcription_model=able.recognizer,
        languages=able.languages,
        eagerness_silence_ms=EAGERNESS_SILENCE_MS,
        noise_reduction=able.noise_reduction,
        include=able.include,
        max_output_tokens=max_reply_tokens,
    )
