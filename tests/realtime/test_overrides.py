"""Tests responses that are made of something else than the session and the conversation."""

from __future__ import annotations

from duplex_server.realtime import wire
from duplex_server.realtime.effects import Begin
from tests.realtime.talk import Talk, kinds, texts
from tests.realtime.test_items import create, user
from tests.realtime.test_responses import CLOCK, OUT_OF_BAND, done, respond


def test_check_127_what_one_response_overrides_does_not_stay(talk: Talk) -> None:
    before = talk.session.settings
    respond(
        talk,
        instructions="Once only.",
        tools=[CLOCK],
        max_output_tokens=7,
        audio={"output": {"voice": "amy", "speed": 1.25}},
    )
    begun = talk.effects(Begin)[-1]
    assert begun.speak is not None
    assert (begun.speak.voice, begun.speak.speed, begun.think.max_tokens) == ("amy", 1.25, 7)
    assert talk.prompt[0].id == "instructions"
    assert [tool.name for tool in begun.think.prompt.tools] == ["clock"]
    talk.end()
    assert done(talk).response.audio.output.voice == "amy"
    assert done(talk).response.max_output_tokens == 7
    assert talk.session.settings == before
    respond(talk, instructions=None, audio=None)
    begun = talk.effects(Begin)[-1]
    assert begun.speak is not None
    assert (begun.speak.voice, begun.speak.speed, begun.think.max_tokens) == (None, 1.0, 400)
    talk.end()


def test_a_format_of_a_response_that_is_not_served_is_refused(talk: Talk) -> None:
    assert kinds(talk.ask("response.create", response={"audio": {"output": {"format": "g711_ulaw"}}})) == ["error"]
    assert talk.last(wire.Error).error.param == "response.audio.output.format.type"


def test_check_128_a_response_beside_the_conversation_leaves_no_trace_in_it(talk: Talk) -> None:
    create(talk, user("hello", id="mine"))
    told = len(talk.told)
    respond(talk, conversation="none", metadata={"topic": "summary"})
    assert texts(talk.prompt) == ["hello"]
    talk.speak(("A greeting. ", 300))
    assert not [kind for kind in kinds(talk.told[told:]) if kind.startswith("conversation")]
    assert done(talk).response.conversation_id is None
    assert [entry.item.id for entry in talk.session.conversation] == ["mine"]


def test_check_129_a_context_of_its_own(talk: Talk) -> None:
    create(talk, user("old", id="old"))
    create(talk, user("older", id="older"))
    respond(talk, input=[])
    assert texts(talk.prompt) == []
    talk.end()
    respond(talk, input=[{"type": "item_reference", "id": "old"}, user("new"), {"type": "message", "role": "user"}])
    assert texts(talk.prompt) == ["old", "new"]
    talk.end()


def test_check_130_an_unknown_reference_makes_no_response(talk: Talk) -> None:
    items = [user("new"), {"type": "item_reference", "id": "nobody"}]
    assert kinds(talk.ask("response.create", event_id="e9", response={"input": items})) == ["error"]
    error = talk.last(wire.Error).error
    assert (error.code, error.param, error.event_id) == ("invalid_value", "response.input[1].id", "e9")


def test_an_item_of_a_context_is_checked_like_any_other(talk: Talk) -> None:
    bad = {"type": "message", "role": "assistant", "content": [{"type": "output_audio"}]}
    assert kinds(talk.ask("response.create", response={"input": [bad]})) == ["error"]
    assert talk.last(wire.Error).error.param == "response.input[0].content[0].text"


def test_check_131_one_response_of_the_conversation_at_a_time(talk: Talk) -> None:
    first = respond(talk)
    assert kinds(talk.ask("response.create", event_id="e2")) == ["error"]
    error = talk.last(wire.Error).error
    assert (error.code, error.event_id) == ("conversation_already_has_active_response", "e2")
    assert first in error.message
    talk.end()


def test_check_132_responses_beside_the_conversation_run_together(talk: Talk) -> None:
    first = respond(talk, **OUT_OF_BAND)
    one = talk.reply
    second = respond(talk, **OUT_OF_BAND)
    other = talk.reply
    third = respond(talk)
    talk.caption("A. ", one)
    talk.caption("B. ", other)
    talk.audio(100, (0, 3), other)
    talk.audio(100, (0, 3), one)
    for reply in (other, one, talk.reply):
        talk.end(reply=reply)
    said = {event.response_id: event.transcript for event in talk.events(wire.TranscriptDone)}
    assert said == {first: "A. ", second: "B. "}
    assert [event.response.id for event in talk.events(wire.ResponseDone)] == [second, first, third]
