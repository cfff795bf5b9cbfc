"""Defines what a session is made with: the server's choices and what the pipeline can do. A journal begins with it."""

from __future__ import annotations

import msgspec

from duplex_server.realtime.schema import Include, NoiseType, SessionKind, SessionPatch


class Abilities(msgspec.Struct, frozen=True, kw_only=True):
    """What of a client's settings the pipeline can honour, besides its voices; a stage that can more is named here."""

    recognizer: str = "local"
    """The name of the model that transcribes, whatever a client calls it."""
    languages: tuple[str, ...] = ()
    """What it understands; with none, any."""
    noise_reduction: tuple[NoiseType, ...] = ()
    include: tuple[Include, ...] = ()


class SessionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a session knows that its peer did not say."""

    stream: str
    """The session's passage through the pipeline."""
    id_seed: str
    """What its ids are made from."""
    model: str
    """The model the peer asked for, echoed to it."""
    instructions: str
    expires_at: int
    """Unix seconds; for the peer to read, nothing is measured by it."""
    lifetime_s: float
    """How long the session may last on its own clock."""
    voice: str
    temperature: float | None
    """None leaves it to the thinker."""
    voices: tuple[str, ...]
    """The talker's voices, the default first."""
    talker_rate_hz: int
    run_ahead_ms: int
    """How far sending may run ahead of hearing; a property of the channel."""
    client_buffer_ms: int
    """How much sound a client of this channel holds back before it plays."""
    speculate: bool
    """Whether an answer is begun on a probable end of turn."""
    echo_guard: bool
    """Whether our own voice, heard back, is told from the user's by its words."""
    answer_on: bool
    """Whether an answer that was cut by something without words is gone on with."""
    answer_empty: bool
    """Whether a turn without words is answered."""
    max_reply_tokens: int
    max_reply_s: float
    kind: SessionKind = "realtime"
    start: SessionPatch | None = None
    """What the session's settings differ by from the server's, before its peer has said anything."""
    abilities: Abilities = Abilities()
    strict_settings: bool = False
    """Whether a setting that can't be honoured is refused, instead of replaced by what can."""
