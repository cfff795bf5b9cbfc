"""Tests which functions a thinker is asked to call, and how the calls it makes are told while they are made."""

from __future__ import annotations

import pytest

from duplex_server.realtime import wire
from duplex_server.realtime.effects import Begin
from duplex_server.realtime.schema import FunctionCall, Message
from pipeline.chunk import Think, ToolNamed
from tests.realtime.talk import Talk, kinds
from tests.realtime.test_speculation import pause

CLOCK = {"type": "function", "name": "clock", "parameters": {"type": "object"}}
WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object"}}
NAMED = {"type": "function", "name": "weather"}
NOBODY = {"type": "function", "name": "nobody"}


def respond(talk: Talk, **response: object) -> Think:
    talk.ask("response.create", response=response)
    return talk.effects(Begin)[-1].think


def output(talk: Talk) -> list[tuple[str, str]]:
    """What the last response gave: kinds of items, with their ends."""
    return [(type(item).__name__, item.status) for item in talk.last(wire.ResponseDone).response.output]


def told(talk: Talk) -> str:
    """All the deltas of arguments, joined."""
    return "".join(event.delta for event in talk.events(wire.ArgumentsDelta))


# ---- what is asked for --------------------------------------------------------------------------------------------


def test_check_126_the_choice_of_a_session_or_of_a_response_reaches_the_thinker(talk: Talk) -> None:
    talk.update(tools=[CLOCK, WEATHER], tool_choice="required", parallel_tool_calls=False)
    think = respond(talk, conversation="none")
    assert (think.tool_choice, think.parallel_calls) == ("required", False)
    think = respond(talk, conversation="none", tool_choice=NAMED, parallel_tool_calls=True)
    assert (think.tool_choice, think.parallel_calls) == (ToolNamed("weather"), True)
    think = respond(talk, conversation="none", tool_choice="auto")
    assert (think.tool_choice, think.parallel_calls) == ("auto", False)
    talk.ask("response.cancel")


def test_check_126_tools_stay_in_the_prompt_when_none_may_be_called_so_that_its_beginning_stays(talk: Talk) -> None:
    talk.update(tools=[CLOCK])
    think = respond(talk, tool_choice="none")
    assert think.tool_choice == "none"
    assert [tool.name for tool in think.prompt.tools] == ["clock"]
    talk.end()


def test_the_choice_of_a_function_that_is_not_there_is_refused(talk: Talk) -> None:
    talk.update(tools=[CLOCK], tool_choice="required")
    talk.update(tool_choice=NOBODY, instructions="Not taken.")
    error = talk.last(wire.Error).error
    assert (error.code, error.param) == ("invalid_value", "session.tool_choice.name")
    assert "clock" in error.message
    assert talk.session.settings.tool_choice == "required"
    talk.ask("response.create", response={"tool_choice": NOBODY})
    assert talk.last(wire.Error).error.param == "response.tool_choice.name"
    talk.ask("response.create", response={"tools": [WEATHER], "tool_choice": {"type": "function", "name": "clock"}})
    assert talk.last(wire.Error).error.param == "response.tool_choice.name"
    assert not talk.events(wire.ResponseCreated)


def test_the_chosen_function_can_not_be_taken_away_but_with_all_others(talk: Talk) -> None:
    talk.update(tools=[CLOCK, WEATHER], tool_choice=NAMED)
    talk.update(tools=[CLOCK])
    assert talk.last(wire.Error).error.param == "session.tool_choice.name"
    talk.update(tools=[])
    assert talk.session.settings.tools == ()
    assert talk.errors == ["invalid_value"]


@pytest.mark.parametrize("choice", ["required", NAMED])
def test_a_choice_without_any_tool_stands_until_it_is_needed(talk: Talk, choice: object) -> None:
    """Stock clients set the choice before the tools."""
    talk.update(tool_choice=choice)
    assert not talk.errors
    talk.ask("response.create")
    error = talk.last(wire.Error).error
    assert (error.code, error.param) == ("invalid_value", "response.tool_choice")
    assert "no tools" in error.message
    talk.update(tools=[WEATHER])
    assert respond(talk).prompt.tools
    talk.end()


def test_an_answer_that_must_call_without_any_tool_fails_and_says_why(talk: Talk) -> None:
    talk.update(tool_choice="required")
    talk.say("what is the time?")
    response = talk.last(wire.ResponseDone).response
    assert response.status == "failed"
    assert response.status_details is not None
    assert "no tools" in str(response.status_details.error)
    assert len(talk.events(wire.ResponseDone)) == 1
    talk.update(tool_choice="auto")
    talk.say("and now?")
    talk.end()
    assert talk.last(wire.ResponseDone).response.status == "completed"


def test_tools_that_are_no_functions_are_refused_by_their_type(talk: Talk) -> None:
    mcp = {"type": "mcp", "server_label": "shop", "server_url": "https://shop.example", "authorization": "secret"}
    talk.update(tools=[CLOCK, mcp])
    error = talk.last(wire.Error).error
    assert (error.code, error.param) == ("invalid_value", "session.tools[1].type")
    assert "secret" not in error.message


# ---- what is told ---------------------------------------------------------------------------------------------------


def test_check_123_a_call_is_told_while_it_is_written(talk: Talk) -> None:
    respond(talk)
    first = talk.call("call_1", "clock", "")
    assert kinds(first) == ["response.output_item.added", "conversation.item.added"]
    assert kinds(talk.call("call_1", "", '{"zone":')) == ["response.function_call_arguments.delta"]
    talk.call("call_1", "", '"UTC"}')
    last = talk.end()
    assert kinds(last)[:3] == [
        "response.function_call_arguments.done",
        "conversation.item.done",
        "response.output_item.done",
    ]
    assert told(talk) == talk.last(wire.ArgumentsDone).arguments == '{"zone":"UTC"}'
    assert output(talk) == [("FunctionCall", "completed")]


def test_check_125_a_call_waits_for_the_words_before_it(talk: Talk) -> None:
    respond(talk)
    talk.write("Let me look.")
    talk.speak(("Let me look.", 3000), end=False)
    talk.call("call_1", "clock", "{}")
    talk.end()
    assert not talk.events(wire.ArgumentsDelta), "the words are not all sent"
    talk.wait(3.0)
    assert output(talk) == [("Message", "completed"), ("FunctionCall", "completed")]
    assert [event.output_index for event in talk.events(wire.OutputItemAdded)] == [0, 1]


def test_check_125_words_after_a_call_come_after_it(talk: Talk) -> None:
    respond(talk, output_modalities=["text"])
    talk.call("call_1", "clock", "{")
    talk.write("Done.")
    assert not talk.events(wire.TextDelta)
    talk.call("call_1", "", "}")
    talk.end("thinker")
    assert told(talk) == talk.last(wire.ArgumentsDone).arguments == "{}"
    assert output(talk) == [("FunctionCall", "completed"), ("Message", "completed")]


def test_blanks_before_a_call_are_no_message(talk: Talk) -> None:
    respond(talk, output_modalities=["text"])
    talk.write("\n\n")
    talk.call("call_1", "clock", "{}")
    talk.end("thinker")
    assert output(talk) == [("FunctionCall", "completed")]


def test_calls_whose_deltas_mix_are_told_one_after_the_other(talk: Talk) -> None:
    respond(talk)
    talk.call("call_1", "clock", '{"a":')
    talk.call("call_2", "weather", '{"b":')
    talk.call("call_1", "", "1}")
    talk.call("call_2", "", "2}")
    talk.end()
    done = [(event.name, event.arguments, event.output_index) for event in talk.events(wire.ArgumentsDone)]
    assert done == [("clock", '{"a":1}', 0), ("weather", '{"b":2}', 1)]


def test_check_133_a_bound_reached_in_a_call_leaves_it_incomplete(talk: Talk) -> None:
    respond(talk)
    talk.call("call_1", "clock", "{}")
    talk.call("call_2", "weather", '{"ci')
    talk.end(finish="length")
    assert output(talk) == [("FunctionCall", "completed"), ("FunctionCall", "incomplete")]
    assert talk.last(wire.ResponseDone).response.status == "incomplete"
    assert [event.call_id for event in talk.events(wire.ArgumentsDone)] == ["call_1"], "clients act on it"


def test_check_133_a_bound_of_the_talker_leaves_the_call_complete(talk: Talk) -> None:
    respond(talk)
    talk.write("Well.")
    talk.speak(("Well.", 300), end=False)
    talk.call("call_1", "clock", "{}")
    talk.end("talker", finish="length")
    talk.end("thinker")
    assert output(talk) == [("Message", "incomplete"), ("FunctionCall", "completed")]
    assert talk.last(wire.ResponseDone).response.status == "incomplete"


def test_check_153_a_cancelled_call_is_incomplete_and_not_told_to_the_model(talk: Talk) -> None:
    respond(talk)
    talk.call("call_1", "clock", '{"zo')
    talk.ask("response.cancel")
    (item,) = talk.last(wire.ResponseDone).response.output
    assert isinstance(item, FunctionCall)
    assert (item.status, item.arguments) == ("incomplete", '{"zo')
    assert talk.last(wire.OutputItemDone).item == talk.last(wire.ItemDone).item == item
    assert not talk.events(wire.ArgumentsDone)
    think = respond(talk)
    assert [part.id for part in think.prompt.parts] == ["instructions"]
    talk.end()


def test_a_call_that_is_begun_ahead_of_the_turn_is_held_until_it_is_wanted(talk: Talk) -> None:
    talk.update(tools=[CLOCK])
    pause(talk)
    before = len(talk.told)
    talk.call("call_1", "clock", "{}")
    talk.end()
    assert talk.told[before:] == []
    talk.silence(500)
    assert output(talk) == [("FunctionCall", "completed")]
    assert len(talk.effects(Begin)) == 1


def test_a_call_that_is_begun_ahead_of_a_turn_that_goes_on_was_never_made(talk: Talk) -> None:
    talk.update(tools=[CLOCK])
    pause(talk)
    talk.call("call_1", "clock", "{}")
    talk.end()
    talk.speech()
    talk.silence()
    talk.recognize("what is the time in Rome?")
    talk.write("It is noon.")
    talk.speak(("It is noon.", 300))
    talk.wait(1.0)
    assert not talk.events(wire.ArgumentsDelta)
    assert [type(item) for item in talk.last(wire.ResponseDone).response.output] == [Message]
