"""Holds a conversation through each client as its maker publishes it: real speech, real models, a real socket."""

from __future__ import annotations

import pytest

from loadtest.speech import speech, word_error_rate
from models.whisper.recognizer import Recognizer
from tests.clients.conftest import Converse
from tests.clients.program import INTERRUPTION, QUESTION, Conversation
from tests.e2e.client import RATE_HZ
from tests.e2e.test_conversation import hear

CLIENTS = (
    "openai_python",
    "openai_python:beta",
    "openai_agents",
    "livekit_plugin",
    "pipecat_service",
    "openai_agents_js",
    "openai_js:tls",
)
ALREADY_OVER = "response_cancel_not_active"  # LiveKit cancels what the server has cancelled by itself

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]  # the first of them waits for the models too


def check_turns(conversation: Conversation) -> None:
    """The client had no trouble, was understood, and heard what it was answered."""
    told = conversation.told
    assert told.troubles == []
    assert word_error_rate(speech(QUESTION)[1], told.heard[0]) <= 0.2
    assert len(told.said) >= 2
    for words, sound_bytes in zip(told.said, told.sound, strict=True):
        assert words.strip()
        assert sound_bytes / 2 / RATE_HZ > 0.1 * len(words.split()), "nobody speaks as fast as that"


def test_check_171_openai_for_python_holds_a_spoken_and_a_typed_turn(converse: Converse) -> None:
    check_turns(converse("openai_python"))


def test_check_172_openai_for_python_does_so_in_the_older_dialect(converse: Converse) -> None:
    conversation = converse("openai_python:beta")
    check_turns(conversation)
    assert conversation.wire.headers["OpenAI-Beta"] == "realtime=v1"
    assert conversation.wire.of("response.audio.delta")
    assert not conversation.wire.of("response.output_audio.delta")


def test_check_173_openai_agents_for_python_understands_every_event(converse: Converse) -> None:
    conversation = converse("openai_agents")
    check_turns(conversation)
    assert "error" not in conversation.told.notes["events"]
    assert not [event for event in conversation.wire.sent if event["type"] == "response.cancel"]


def test_check_174_livekit_speaks_keeps_its_context_and_takes_its_metrics(converse: Converse) -> None:
    conversation = converse("livekit_plugin")
    check_turns(conversation)
    assert conversation.told.notes["metrics"] == ["RealtimeModelMetrics", "STTMetrics"]
    context = [event["item"]["content"][0]["text"] for event in conversation.wire.of("conversation.item.added")[:2]]
    assert context == ["My name is Ada.", "Nice to meet you, Ada."]


def test_check_175_pipecat_gets_its_transcripts_and_its_sound(converse: Converse) -> None:
    conversation = converse("pipecat_service")
    check_turns(conversation)
    frames = conversation.told.notes["frames"]
    assert frames["TranscriptionFrame"] >= 2
    assert "ErrorFrame" not in frames
    assert word_error_rate(speech(INTERRUPTION)[1], conversation.told.heard[1]) <= 0.3


def test_check_176_openai_agents_for_javascript_drops_no_event(converse: Converse) -> None:
    conversation = converse("openai_agents_js")
    check_turns(conversation)
    notes = conversation.told.notes
    assert notes["seen"]["response.done"] >= 3
    assert notes["understood"] == notes["seen"]
    assert {"message user", "message assistant"} <= {f"{kind} {role}" for kind, role, *_ in notes["history"]}
    assert not [event for event in conversation.wire.sent if event["type"] == "response.cancel"]


def test_check_177_check_021_openai_for_javascript_talks_over_tls(converse: Converse) -> None:
    check_turns(converse("openai_js:tls"))


@pytest.mark.parametrize("name", CLIENTS)
def test_check_180_what_went_over_the_wire_is_valid_both_ways(converse: Converse, name: str) -> None:
    conversation = converse(name)
    assert conversation.wire.problems(beta=name.endswith(":beta")) == []
    assert {event["error"]["code"] for event in conversation.wire.of("error")} <= {ALREADY_OVER}


@pytest.mark.parametrize("name", CLIENTS)
def test_what_a_client_played_are_the_words_that_it_was_told(
    converse: Converse, listener: Recognizer, name: str
) -> None:
    conversation = converse(name)
    assert word_error_rate(conversation.told.said[1], hear(listener, conversation.sound(1))) <= 0.3


@pytest.mark.parametrize("name", CLIENTS)
def test_speech_cuts_the_answer_of_every_client(converse: Converse, name: str) -> None:
    conversation = converse(name)
    assert conversation.told.cut
    endings = [done["response"] for done in conversation.wire.of("response.done")]
    (cut,) = [response for response in endings if response["status"] == "cancelled"]
    assert cut["status_details"]["reason"] == "turn_detected"


def check_tool(conversation: Conversation) -> None:
    """The client's tool was called once, with a city, and what it gave went back to the server, which answered."""
    told, wire = conversation.told, conversation.wire
    assert told.troubles == []
    ((city, value),) = [pair for call in told.called for pair in call.items()]
    assert city == "city"
    assert isinstance(value, str)
    endings = [done["response"] for done in wire.of("response.done")]
    (asked,) = [n for n, one in enumerate(endings) if one["output"] and one["output"][-1]["type"] == "function_call"]
    made = [event["item"] for event in wire.sent if event["type"] == "conversation.item.create"]
    (output,) = [item for item in made if item["type"] == "function_call_output"]
    assert output["call_id"] == endings[asked]["output"][-1]["call_id"]
    assert "sunny and warm" in output["output"]
    assert endings[asked + 1]["status"] in ("completed", "incomplete")


@pytest.mark.parametrize("name", CLIENTS)
def test_a_clients_tool_is_called_when_it_has_to_be(converse: Converse, name: str) -> None:
    conversation = converse(name)
    check_tool(conversation)
    assert conversation.told.after_tool.strip()


@pytest.mark.parametrize("name", CLIENTS)
def test_a_clients_tool_is_called_when_the_thinker_likes_and_its_result_is_told(converse: Converse, name: str) -> None:
    conversation = converse(name, "calling")
    check_tool(conversation)
    assert conversation.told.called == [{"city": "Paris"}]
    assert "sunny and warm" in conversation.told.after_tool
    assert conversation.told.cut
    assert conversation.wire.problems(beta=name.endswith(":beta")) == []
