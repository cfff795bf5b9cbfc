"""Tests that a client can cancel a reply at any point, once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from duplex_server.realtime import wire
from duplex_server.realtime.effects import Begin
from duplex_server.realtime.schema import StatusDetails
from duplex_server.realtime.session import CREATE_GRACE_S
from tests.realtime.story import CLOSING, STORY
from tests.realtime.talk import RATE_HZ, Talk, kinds, texts
from tests.realtime.test_responses import OUT_OF_BAND, done, respond


def created(talk: Talk) -> None:
    respond(talk)


def waiting(talk: Talk) -> None:
    talk.by_hand()
    talk.append(RATE_HZ)
    talk.ask("input_audio_buffer.commit")
    respond(talk)
    assert not talk.effects(Begin)


def captioned(talk: Talk) -> None:
    respond(talk)
    talk.caption("Once upon a time ")


def announced(talk: Talk) -> None:
    respond(talk)
    talk.audio(100)


def flowing(talk: Talk) -> None:
    respond(talk)
    talk.speak(*STORY, *STORY, end=False)
    talk.wait(1)


def all_made(talk: Talk) -> None:
    respond(talk)
    talk.speak(*STORY, *STORY)


def all_sent(talk: Talk) -> None:
    respond(talk)
    talk.speak(("Hi. ", 500), end=False)


def writing(talk: Talk) -> None:
    respond(talk, output_modalities=["text"])
    talk.write("Once upon")


@pytest.mark.parametrize("stage", [created, waiting, captioned, announced, flowing, all_made, all_sent, writing])
def test_f6_check_140_a_reply_cancelled_at_any_point_is_cancelled_once(
    talk: Talk, stage: Callable[[Talk], None]
) -> None:
    stage(talk)
    response_id = talk.last(wire.ResponseCreated).response.id
    opened = bool(talk.events(wire.OutputItemAdded))
    told = kinds(talk.ask("response.cancel"))
    closing = CLOSING if opened else CLOSING[-2:]
    if stage is writing:
        closing = ["response.output_text.done", *CLOSING[2:]]
    assert told == closing
    response = done(talk).response
    assert (response.id, response.status) == (response_id, "cancelled")
    assert response.status_details == StatusDetails(type="cancelled", reason="client_cancelled")
    assert [item.status for item in response.output] == ["incomplete"] * opened
    talk.wait(10)
    assert len(talk.events(wire.ResponseDone)) == 1
    assert kinds(talk.ask("response.create"))[0] == "response.created"
    if stage is not waiting:
        talk.end()


def test_check_144_a_cancel_before_the_first_word_leaves_no_item(talk: Talk) -> None:
    respond(talk)
    talk.ask("response.cancel")
    assert done(talk).response.output == ()
    assert not list(talk.session.conversation)


def test_check_141_a_cancel_and_a_create_back_to_back(talk: Talk) -> None:
    flowing(talk)
    talk.ask("response.cancel")
    assert kinds(talk.ask("response.create"))[0] == "response.created"
    assert talk.errors == []
    talk.speak(("Yes? ", 300))
    talk.wait(5)
    assert done(talk).response.status == "completed"


def test_check_142_f11_a_cancel_of_nothing_is_an_error_and_a_create_after_it_works(talk: Talk) -> None:
    talk.ask("response.cancel", event_id="c1")
    error = talk.last(wire.Error).error
    assert (error.code, error.event_id) == ("response_cancel_not_active", "c1")
    assert error.message.startswith("Cancellation failed")
    respond(talk)
    talk.end()
    assert done(talk).response.status == "completed"


def test_f11_a_cancel_of_a_reply_that_is_done_names_it(talk: Talk) -> None:
    response_id = respond(talk)
    talk.end()
    talk.ask("response.cancel", response_id=response_id)
    assert response_id in talk.last(wire.Error).error.message


def test_check_143_a_cancel_by_id_cancels_that_one_only(talk: Talk) -> None:
    beside = respond(talk, **OUT_OF_BAND)
    main = respond(talk)
    talk.ask("response.cancel", response_id=beside)
    assert done(talk).response.id == beside
    talk.speak(("Still here. ", 300))
    assert (done(talk).response.id, done(talk).response.status) == (main, "completed")


def test_a_cancel_by_name_of_nobody_leaves_the_active_one_alone(talk: Talk) -> None:
    respond(talk)
    talk.ask("response.cancel", response_id="resp_unknown")
    assert talk.errors == ["response_cancel_not_active"]
    assert not talk.events(wire.ResponseDone)
    talk.end()


def test_a_turn_that_waited_for_a_reply_is_answered_when_that_is_cancelled(talk: Talk) -> None:
    talk.listen(turn_detection={"type": "server_vad", "interrupt_response": False})
    talk.say("a story please")
    talk.speak(*STORY, *STORY, end=False)
    talk.say("no, the time please")
    talk.ask("response.cancel")
    talk.wait(CREATE_GRACE_S)
    assert len(talk.events(wire.ResponseCreated)) == 2
    assert texts(talk.prompt)[-1] == "no, the time please"
    talk.end()


def test_check_141_a_create_right_after_a_cancel_goes_before_the_answer_that_is_due(talk: Talk) -> None:
    talk.listen(turn_detection={"type": "server_vad", "interrupt_response": False})
    talk.say("a story please")
    talk.speak(*STORY, *STORY, end=False)
    talk.say("no, the time please")
    talk.ask("response.cancel")
    talk.ask("response.create", response={"metadata": {"whose": "client"}})
    talk.wait(2 * CREATE_GRACE_S)
    assert talk.errors == []
    assert [created.response.metadata for created in talk.events(wire.ResponseCreated)] == [None, {"whose": "client"}]
    talk.end()
