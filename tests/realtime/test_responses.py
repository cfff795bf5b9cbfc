"""Tests a response from its creation to its end, for speech, text and function calls."""

from __future__ import annotations

import base64

import pytest

from duplex_server.realtime import wire
from duplex_server.realtime.answers import RATE_LIMIT
from duplex_server.realtime.effects import Begin, Cancel, Pace, PlayAudio
from duplex_server.realtime.generation import Generation
from duplex_server.realtime.schema import ErrorDetail, FunctionCall, Message, OutputAudio, OutputText, StatusDetails
from duplex_server.realtime.usage import count_usage
from pipeline.chunk import Caption, Chunk, Failed, Reply, Usage
from tests.realtime.talk import RATE_HZ, Talk, kinds, texts
from tests.realtime.test_items import create, user

SPOKEN = [
    "response.created",
    "response.output_item.added",
    "conversation.item.added",
    "response.content_part.added",
    "response.output_audio_transcript.delta",
    "response.output_audio.delta",
    "response.output_audio.done",
    "response.output_audio_transcript.done",
    "response.content_part.done",
    "conversation.item.done",
    "response.output_item.done",
    "response.done",
    "rate_limits.updated",
]
OUT_OF_BAND = {"conversation": "none", "input": []}
CLOCK = {"type": "function", "name": "clock", "description": "Tells the time.", "parameters": {"type": "object"}}


def done(talk: Talk) -> wire.ResponseDone:
    return talk.last(wire.ResponseDone)


def respond(talk: Talk, **response: object) -> str:
    """Create a response; gives its id."""
    talk.ask("response.create", response=response)
    return talk.last(wire.ResponseCreated).response.id


# ---- what it is made of -------------------------------------------------------------------------------------------


def test_check_113_a_spoken_answer_is_told_in_the_order_clients_rely_on(talk: Talk) -> None:
    talk.say("hello")
    told = len(talk.told)
    talk.speak(("Hi. ", 200))
    assert kinds(talk.told[told - 1 :]) == SPOKEN


def test_check_113_a_written_answer_is_told_in_order(talk: Talk) -> None:
    told = len(talk.told)
    respond(talk, output_modalities=["text"])
    talk.write("Hello ")
    talk.write("there.")
    talk.end("thinker")
    assert kinds(talk.told[told:]) == [
        "response.created",
        "response.output_item.added",
        "conversation.item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "conversation.item.done",
        "response.output_item.done",
        "response.done",
        "rate_limits.updated",
    ]


def test_check_114_a_new_response_is_empty_and_under_way(talk: Talk) -> None:
    respond(talk)
    response = talk.last(wire.ResponseCreated).response
    assert (response.status, response.output, response.usage) == ("in_progress", (), None)
    assert response.conversation_id == talk.session.conversation.id
    talk.end()


def test_check_115_136_a_response_that_fails_is_done_and_the_next_one_works(talk: Talk) -> None:
    talk.say("hello")
    talk.speak(("I was about to say something. ", 800), ("And ", 100), end=False)
    talk.chunk("talker", Failed("stage_lost", "the talker's process died"))
    assert done(talk).response.status == "failed"
    assert done(talk).response.status_details == StatusDetails(
        type="failed", error=ErrorDetail(type="server_error", code="stage_lost", message="the talker's process died")
    )
    assert talk.effects(Cancel)[-1].fence == talk.reply, "the thinker goes on no more"
    item = done(talk).response.output[0]
    assert item.status == "incomplete"
    assert not talk.events(wire.Error)
    talk.silence(2000)
    talk.say("again")
    talk.speak(("Here I am. ", 500))
    assert done(talk).response.status == "completed"


def test_a_response_that_fails_tells_the_model_only_what_was_sent(talk: Talk) -> None:
    talk.say("hello")
    talk.speak(("I was about to say something. ", 800), end=False)
    talk.caption("Never spoken. ")
    talk.chunk("thinker", Failed("capacity", "no room"))
    assert done(talk).response.status_details is not None
    talk.silence(2000)
    talk.say("again")
    assert texts(talk.prompt) == ["hello", "I was about to say something.", "again"]
    talk.end()


def test_check_116_metadata_is_echoed(talk: Talk) -> None:
    respond(talk, metadata={"client_event_id": "generate_1"})
    talk.end()
    assert talk.last(wire.ResponseCreated).response.metadata == {"client_event_id": "generate_1"}
    assert done(talk).response.metadata == {"client_event_id": "generate_1"}


@pytest.mark.parametrize(
    "metadata", [{"a": 1}, {str(number): "x" for number in range(17)}, {"k" * 65: "x"}, {"a": "v" * 513}]
)
def test_check_116_metadata_out_of_bounds_is_an_error(talk: Talk, metadata: dict[str, object]) -> None:
    assert kinds(talk.ask("response.create", event_id="e", response={"metadata": metadata})) == ["error"]
    error = talk.last(wire.Error).error
    assert (error.param, error.event_id) == ("response.metadata", "e")


def test_check_117_text_has_no_sound(talk: Talk) -> None:
    respond(talk, output_modalities=["text"])
    assert talk.effects(Begin)[-1].speak is None
    talk.write("Hello.")
    talk.end("thinker")
    assert not talk.effects(PlayAudio)
    item = done(talk).response.output[0]
    assert isinstance(item, Message)
    assert item.content == (OutputText(text="Hello."),)
    assert done(talk).response.output_modalities == ("text",)


def test_what_was_written_is_told_to_the_model_afterwards(talk: Talk) -> None:
    respond(talk, output_modalities=["text"])
    talk.write("My name is Ada.")
    talk.end("thinker")
    respond(talk)
    assert texts(talk.prompt) == ["My name is Ada."]
    talk.end()


def test_check_118_speech_has_a_transcript_and_no_bytes_at_the_end(talk: Talk) -> None:
    respond(talk)
    talk.speak(("Hello ", 300), ("there. ", 400))
    item = done(talk).response.output[0]
    assert isinstance(item, Message)
    assert item.content == (OutputAudio(transcript="Hello there. "),)
    assert "".join(event.delta for event in talk.events(wire.TranscriptDelta)) == "Hello there. "


def test_the_thinkers_own_text_is_not_told_of_a_spoken_answer(talk: Talk) -> None:
    respond(talk)
    talk.write("*waves* Hello.")
    assert not talk.events(wire.TextDelta)
    talk.speak(("Hello. ", 300))
    assert done(talk).response.status == "completed"


def test_sound_without_a_caption_is_announced_like_any_other(talk: Talk) -> None:
    respond(talk)
    assert kinds(talk.audio(300))[:3] == [
        "response.output_item.added",
        "conversation.item.added",
        "response.content_part.added",
    ]
    talk.end()
    assert done(talk).response.status == "completed"


@pytest.mark.parametrize("length_ms", [1, 199, 200, 201, 219, 220, 1234])
def test_check_119_120_the_deltas_are_as_long_as_the_item(talk: Talk, length_ms: int) -> None:
    respond(talk)
    talk.speak(("Hello. ", length_ms))
    sizes = [len(base64.b64decode(event.delta)) for event in talk.events(wire.AudioDelta)]
    assert all(size and size % 2 == 0 for size in sizes)
    assert all(min(20, length_ms) * 48 <= size <= 250 * 48 for size in sizes)
    assert sum(sizes) == length_ms * 48
    talk.ask("conversation.item.truncate", item_id=talk.last(wire.ItemDone).item.id, audio_end_ms=99_999)
    assert talk.last(wire.ItemTruncated).audio_end_ms == length_ms


def test_check_122_parts_are_audio_or_text(talk: Talk) -> None:
    respond(talk)
    talk.speak(("Hello. ", 300))
    respond(talk, output_modalities=["text"])
    talk.write("Hello.")
    talk.end("thinker")
    seen = [event.part.__struct_config__.tag for event in talk.events(wire.PartDone)]
    assert seen == ["audio", "text"]


# ---- functions ----------------------------------------------------------------------------------------------------


def test_check_123_a_call_is_announced_before_its_arguments(talk: Talk) -> None:
    talk.update(tools=[CLOCK])
    respond(talk)
    tool = talk.effects(Begin)[-1].think.prompt.tools[0]
    assert (tool.name, tool.description, tool.parameters) == ("clock", "Tells the time.", '{"type":"object"}')
    told = talk.call("call_1", "clock", '{"zone":')
    told += talk.call("call_1", "", '"UTC"}')
    told += talk.end()
    assert kinds(told)[:7] == [
        "response.output_item.added",
        "conversation.item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "conversation.item.done",
        "response.output_item.done",
    ]
    announced = talk.last(wire.OutputItemAdded).item
    assert isinstance(announced, FunctionCall)
    assert (announced.call_id, announced.name, announced.arguments) == ("call_1", "clock", "")
    assert talk.last(wire.ArgumentsDone).arguments == '{"zone":"UTC"}'
    assert done(talk).response.output == (
        FunctionCall(id=announced.id, call_id="call_1", name="clock", arguments='{"zone":"UTC"}'),
    )


def test_a_call_without_arguments_has_no_delta(talk: Talk) -> None:
    respond(talk)
    talk.call("call_1", "stop", "")
    talk.end()
    assert not talk.events(wire.ArgumentsDelta)
    assert talk.last(wire.ArgumentsDone).arguments == ""


def test_check_124_a_result_starts_nothing_and_is_used_when_asked(talk: Talk) -> None:
    respond(talk)
    talk.call("call_1", "clock", "{}")
    talk.end()
    create(talk, {"type": "function_call_output", "call_id": "call_1", "output": "12:00"})
    talk.wait(5)
    assert len(talk.events(wire.ResponseCreated)) == 1
    respond(talk)
    assert [type(part).__name__ for part in talk.prompt[1:]] == ["CallPart", "ResultPart"]
    talk.end()


def test_check_125_a_preamble_and_a_call_are_two_items(talk: Talk) -> None:
    respond(talk)
    talk.speak(("Let me look. ", 400), end=False)
    talk.call("call_1", "clock", "{}")
    talk.call("call_2", "weather", "{}")
    talk.end()
    indices = [(event.output_index, type(event.item).__name__) for event in talk.events(wire.OutputItemDone)]
    assert indices == [(0, "Message"), (1, "FunctionCall"), (2, "FunctionCall")]
    assert done(talk).response.status == "completed"


# ---- its bounds and its count ---------------------------------------------------------------------------------------


def test_check_133_a_bound_that_was_reached_is_said(talk: Talk) -> None:
    respond(talk, max_output_tokens=5)
    talk.speak(("As I was say", 400), end=False)
    talk.end(finish="length")
    response = done(talk).response
    assert response.status == "incomplete"
    assert response.status_details == StatusDetails(type="incomplete", reason="max_output_tokens")
    assert response.output[0].status == "incomplete"
    assert talk.last(wire.ItemDone).item.status == "incomplete"


def test_f25_the_talkers_bound_is_said_too(talk: Talk) -> None:
    respond(talk)
    speak = talk.effects(Begin)[-1].speak
    assert speak is not None
    assert speak.max_samples == 60 * 22_050
    talk.speak(("Aaaaa", 400), end=False)
    talk.end("talker", finish="length")
    talk.end("thinker")
    assert done(talk).response.status == "incomplete"


def test_check_134_usage_adds_up(talk: Talk) -> None:
    talk.say("hello")
    talk.speak(("Hi. ", 1500), end=False)
    talk.end(usage=Usage(40, 30, 6))
    usage = done(talk).response.usage
    assert usage is not None
    assert usage.input_token_details.text_tokens == 40
    assert usage.input_token_details.cached_tokens == 30
    assert usage.output_token_details.text_tokens == 6
    assert usage.output_token_details.audio_tokens == 30
    seconds = talk.session.input.committed / RATE_HZ
    assert usage.input_token_details.audio_tokens == int(seconds * 10) > 0
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens == 40 + int(seconds * 10) + 36


def test_check_134_a_response_counts_only_the_sound_it_was_told_of(talk: Talk) -> None:
    talk.say("hello")
    talk.end()
    respond(talk, **OUT_OF_BAND)
    talk.end()
    usage = done(talk).response.usage
    assert usage is not None
    assert usage.input_token_details.audio_tokens == 0
    assert count_usage(None, 0, 0).total_tokens == 0


def test_check_134_a_cancelled_response_counts_what_was_read_and_written_by_estimate(talk: Talk) -> None:
    create(talk, user("Tell me about rivers, please. " * 4))
    respond(talk)
    talk.write("Rivers begin in the mountains. ")
    talk.speak(("Rivers begin ", 1000), end=False)
    talk.ask("response.cancel")
    usage = done(talk).response.usage
    assert usage is not None
    assert 30 <= usage.input_token_details.text_tokens <= 60
    assert 7 <= usage.output_token_details.text_tokens <= 12
    assert usage.output_token_details.audio_tokens == 20
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens


def test_check_134_a_response_that_was_never_begun_has_read_nothing(talk: Talk) -> None:
    talk.by_hand()
    talk.append(RATE_HZ)
    talk.ask("input_audio_buffer.commit")
    respond(talk)
    talk.ask("response.cancel")
    usage = done(talk).response.usage
    assert usage is not None
    assert usage.total_tokens == 0


def test_check_135_each_response_is_followed_by_its_rate_limits(talk: Talk) -> None:
    respond(talk)
    talk.end()
    respond(talk)
    talk.ask("response.cancel")
    assert len(talk.events(wire.RateLimitsUpdated)) == 2
    limits = talk.last(wire.RateLimitsUpdated).rate_limits
    assert [(limit.name, limit.limit) for limit in limits] == [("requests", RATE_LIMIT), ("tokens", RATE_LIMIT)]


def test_check_137_the_assistant_may_speak_first(talk: Talk) -> None:
    respond(talk)
    assert texts(talk.prompt) == []
    talk.speak(("Welcome. ", 300))
    assert done(talk).response.status == "completed"


# ---- its making ---------------------------------------------------------------------------------------------------


def test_a_response_waits_for_the_words_it_answers(talk: Talk) -> None:
    talk.by_hand()
    talk.append(RATE_HZ)
    talk.ask("input_audio_buffer.commit")
    respond(talk)
    assert not talk.effects(Begin)
    talk.recognize("how are you?")
    assert texts(talk.prompt) == ["how are you?"]
    talk.end()


def test_a_response_with_a_context_of_its_own_waits_for_nobody(talk: Talk) -> None:
    talk.by_hand()
    talk.append(RATE_HZ)
    talk.ask("input_audio_buffer.commit")
    respond(talk, **OUT_OF_BAND)
    assert texts(talk.prompt) == []
    talk.end()


def test_f20_a_response_whose_words_never_come_fails(talk: Talk) -> None:
    talk.by_hand()
    talk.append(RATE_HZ)
    talk.ask("input_audio_buffer.commit")
    respond(talk)
    talk.recognize(Failed("stage_timeout", "no answer in 10 s"))
    assert done(talk).response.status == "failed"
    assert not talk.effects(Begin)


def test_f8_a_typed_message_while_the_assistant_speaks_is_answered_after_it(talk: Talk) -> None:
    talk.say("hello")
    talk.speak(("Hello to you, and a very good day. ", 3000), end=False)
    create(talk, user("and the time?"))
    assert kinds(talk.ask("response.create")) == ["error"], "one answer at a time, and the client is told"
    talk.end()
    talk.wait(1.5)
    assert done(talk).response.status == "completed", "all of it is sent, and still playing"
    respond(talk)
    talk.speak(("Noon. ", 1000))
    played = talk.effects(PlayAudio)
    assert [effect.reply.epoch for effect in played] == sorted(effect.reply.epoch for effect in played)
    buffered_s = 0.1  # what the client holds back before it plays the first
    last = talk.effects(Pace)[0].plays_until + buffered_s
    assert talk.effects(Pace)[-1].plays_until == pytest.approx(last + 1.0), "it is heard after the one before"


def test_chunks_of_a_reply_that_is_over_change_nothing(talk: Talk) -> None:
    respond(talk)
    talk.ask("response.cancel")
    assert not talk.session.wants(talk.reply)
    assert talk.caption("late") + talk.audio(100) + talk.end() == []


def test_sound_is_sent_no_further_ahead_than_the_channel_allows(talk: Talk) -> None:
    respond(talk)
    talk.speak(("A long story. ", 10_000))
    for _ in range(100):
        ahead = talk.effects(PlayAudio)[-1].upto_sample / RATE_HZ - talk.now
        assert ahead <= 2.0 + 0.2
        talk.wait(0.1)
    assert done(talk).response.status == "completed"


def test_a_stage_that_ends_with_anything_but_an_end_is_a_bug() -> None:
    generation = Generation(Reply("s", 1), spoken=False)
    with pytest.raises(AssertionError, match="the thinker ended"):
        generation.end(Chunk(generation.reply, "thinker", 0, Caption("x"), last=True))
