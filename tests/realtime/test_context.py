"""Tests how a session lets a context be cut that has grown too long, and what it says when that may not be."""

from __future__ import annotations

import pytest

from duplex_server.realtime import wire
from duplex_server.realtime.effects import Begin, Prepare
from pipeline.chunk import Failed, Retention
from tests.realtime.talk import Talk, kinds
from tests.realtime.test_items import create, user
from tests.realtime.test_responses import done, respond


@pytest.mark.parametrize(
    ("truncation", "retention"),
    [
        ("auto", Retention()),
        ("disabled", None),
        ({"type": "retention_ratio", "retention_ratio": 0.5}, Retention(0.5)),
        (
            {"type": "retention_ratio", "retention_ratio": 0.8, "token_limits": {"post_instructions": 1000}},
            Retention(0.8, 1000),
        ),
        ({"type": "retention_ratio", "retention_ratio": 0, "token_limits": None}, Retention(0.0)),
    ],
)
def test_f31_the_thinker_is_told_how_to_cut(talk: Talk, truncation: object, retention: Retention | None) -> None:
    assert kinds(talk.update(truncation=truncation, instructions="Be kind.")) == ["session.updated"]
    assert talk.effects(Prepare)[-1].retention == retention
    respond(talk)
    assert talk.effects(Begin)[-1].think.retention == retention
    talk.end()


def test_f31_a_bound_of_no_tokens_is_named(talk: Talk) -> None:
    limits = {"post_instructions": -1}
    truncation = {"type": "retention_ratio", "retention_ratio": 0.5, "token_limits": limits}
    assert kinds(talk.update(truncation=truncation)) == ["error"]
    assert talk.last(wire.Error).error.param == "session.truncation.token_limits.post_instructions"


def test_f31_a_context_that_may_not_be_cut_fails_the_response_and_the_items_stay(talk: Talk) -> None:
    talk.update(truncation="disabled")
    create(talk, user("long", id="mine"))
    respond(talk)
    talk.chunk("thinker", Failed("context_full", "the prompt needs 4000 tokens and the context leaves 2048"))
    response = done(talk).response
    assert response.status == "failed"
    assert response.status_details is not None
    error = response.status_details.error
    assert (error.type, error.code) == ("invalid_request_error", "context_length_exceeded")  # type: ignore[union-attr]  # a failure has one
    assert not talk.events(wire.Error)
    assert "mine" in talk.session.conversation
    talk.ask("conversation.item.delete", item_id="mine")
    respond(talk)
    talk.end()
    assert done(talk).response.status == "completed"
