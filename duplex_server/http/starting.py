"""Makes what a session begins with, of the server's settings, its pipeline, and what its peer and its key ask."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping

from duplex_server.config import Config
from duplex_server.ephemeral import Grant
from duplex_server.realtime.capabilities import abilities
from duplex_server.realtime.config import SessionConfig
from pipeline.spec import Capabilities, FamilyRole

DEFAULT_MODEL = "gpt-realtime"
DEFAULT_VOICE = "marin"


def asked_by(query: Mapping[str, str], grant: Grant) -> Grant:
    """What a peer opens: what its key was made for, and where that leaves it a choice, what its address says."""
    kind = grant.kind or ("transcription" if query.get("intent") == "transcription" else "realtime")
    model = grant.model or query.get("model") or query.get("deployment")
    return Grant(kind, model, grant.start)


def session_config(
    config: Config, stages: Mapping[FamilyRole, Capabilities], asked: Grant, stream: str
) -> SessionConfig:
    """The configuration of one session, with an id of its own, that begins now."""
    defaults, lifetime_s = config.session, config.server.session_minutes * 60
    talker = stages["talker"]
    return SessionConfig(
        stream=stream,
        id_seed=secrets.token_hex(16),
        model=asked.model or DEFAULT_MODEL,
        instructions=defaults.instructions,
        voice=defaults.voice or DEFAULT_VOICE,
        temperature=defaults.temperature,
        expires_at=int(time.time() + lifetime_s),
        lifetime_s=lifetime_s,
        voices=talker.voices,
        talker_rate_hz=talker.rate_hz,
        run_ahead_ms=defaults.run_ahead_ms,
        client_buffer_ms=defaults.client_buffer_ms,
        speculate=defaults.speculate,
        echo_guard=defaults.echo_guard,
        answer_on=defaults.answer_on,
        answer_empty=defaults.answer_empty,
        max_reply_tokens=defaults.max_reply_tokens,
        max_reply_s=defaults.max_reply_s,
        kind=asked.kind or "realtime",
        start=asked.start,
        abilities=abilities(stages),
        strict_settings=defaults.strict_settings,
    )
