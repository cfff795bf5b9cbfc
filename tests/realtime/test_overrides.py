"""Tests responses that are made of something else than the session and the conversation."""

from __future__ import annotations

from duplex_server.realtime import wire
from duplex_server.realtime.effects import Begin, PlayAudio
from duplex_server.realtime.session import BESIDE
from tests.realtime.talk import RATE_HZ, Talk, kinds, texts
from tests.realtime.test_items import create, order, user
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
    slow = {"type": "audio/pcm", "rate": 8000}
    assert kinds(talk.ask("response.create", response={"audio": {"output": {"format": slow}}})) == ["error"]
    assert talk.last(wire.Error).error.param == "response.audio.output.format.rate"


def test_check_063_a_response_has_its_format_from_its_beginning_to_its_end(talk: Talk) -> None:
    create(talk, user("hello"))
    respond(talk, audio={"output": {"format": "g711_ulaw"}})
    talk.audio(300)
    talk.update(audio={"output": {"format": {"type": "audio/pcma"}}})
    talk.audio(300)
    talk.end()
    assert done(talk).response.audio.output.format.type == "audio/pcmu"
    assert talk.effects(Begin)[-1].format == "audio/pcmu"
    assert {play.format for play in talk.effects(PlayAudio)} == {"audio/pcmu"}
    respond(talk)
    talk.speak(("Hello. ", 300))
    assert [play.format for play in talk.effects(PlayAudio)[-2:]] == ["audio/pcma"] * 2
    assert done(talk).response.audio.output.format.type == "audio/pcma"


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


def test_check_129_an_item_of_a_context_may_stand_in_it_twice_or_bear_the_id_of_another(talk: Talk) -> None:
    create(talk, user("old", id="old"))
    reference = {"type": "item_reference", "id": "old"}
    respond(talk, input=[reference, user("new", id="old"), reference, user("new", id="new"), user("new", id="new")])
    assert texts(talk.prompt) == ["old", "new", "old", "new", "new"]
    assert order(talk) == ["old"]
    talk.end()


def test_check_129_a_reference_to_speech_waits_for_its_words(talk: Talk) -> None:
    talk.by_hand()
    talk.append(RATE_HZ)
    talk.ask("input_audio_buffer.commit")
    item_id = talk.last(wire.Committed).item_id
    respond(talk, conversation="none", input=[{"type": "item_reference", "id": item_id}])
    assert not talk.effects(Begin)
    talk.recognize("how are you?")
    assert texts(talk.prompt) == ["how are you?"]
    talk.end()


def test_what_no_thinker_here_uses_is_taken_and_its_shape_is_checked(talk: Talk) -> None:
    respond(
        talk, prompt={"id": "pmpt_1", "variables": {"a": "b"}}, reasoning={"effort": "low"}, parallel_tool_calls=True
    )
    talk.end()
    assert kinds(talk.ask("response.create", response={"reasoning": {"effort": "much"}})) == ["error"]
    assert talk.last(wire.Error).error.param == "response.reasoning.effort"


def test_only_so_many_responses_run_beside_the_conversation(talk: Talk) -> None:
    for _ in range(BESIDE):
        respond(talk, **OUT_OF_BAND)
    assert kinds(talk.ask("response.create", event_id="e", response=OUT_OF_BAND)) == ["error"]
    error = talk.last(wire.Error).error
    assert (error.code, error.event_id) == ("rate_limit_exceeded", "e")
    assert kinds(talk.ask("response.create"))[0] == "response.created", "the conversation has a place of its own"
    talk.ask("response.cancel")
    talk.ask("response.cancel", response_id=talk.events(wire.ResponseCreated)[0].response.id)
    assert kinds(talk.ask("response.create", response=OUT_OF_BAND))[0] == "response.created"
    for created in talk.events(wire.ResponseCreated):
        talk.ask("response.cancel", response_id=created.response.id)


def test_check_145_speech_leaves_the_responses_beside_the_conversation_alone(talk: Talk) -> None:
    beside = respond(talk, **OUT_OF_BAND)
    one = talk.reply
    talk.say("hello")
    talk.speak(("Hello to you, and a very good day. ", 3000), end=False)
    talk.speech()
    assert [event.response.status for event in talk.events(wire.ResponseDone)] == ["cancelled"]
    talk.caption("A summary. ", one)
    talk.audio(300, (0, 11), one)
    talk.end(reply=one)
    assert (done(talk).response.id, done(talk).response.status) == (beside, "completed")
    talk.ask("input_audio_buffer.clear")


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
