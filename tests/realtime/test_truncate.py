"""Tests that a client can say how much of a reply was heard, at any time and as often as it likes."""

from __future__ import annotations

import pytest

from duplex_server.realtime import wire
from duplex_server.realtime.effects import ClearAudio, PlayAudio
from tests.realtime.conftest import OpenTalk
from tests.realtime.story import STORY, spoken_id, told_next, transcript
from tests.realtime.talk import RATE_HZ, Talk, kinds, texts
from tests.realtime.test_cancel import flowing
from tests.realtime.test_items import create, user
from tests.realtime.test_responses import done, respond


def truncate(talk: Talk, item_id: str, at_ms: int, content_index: int = 0) -> list[str]:
    told = talk.ask(
        "conversation.item.truncate", item_id=item_id, content_index=content_index, audio_end_ms=at_ms, event_id="cut"
    )
    return kinds(told)


def interrupted(talk: Talk, after_s: float) -> str:
    """A story that was spoken over; gives its item."""
    talk.say("a story please")
    talk.speak(*STORY, end=False)
    talk.wait(after_s)
    item_id = spoken_id(talk)
    talk.speech()
    talk.ask("input_audio_buffer.clear")
    return item_id


def test_check_147_what_the_client_says_was_heard_is_what_the_model_is_told(talk: Talk) -> None:
    item_id = interrupted(talk, 2.0)
    assert truncate(talk, item_id, 600) == ["conversation.item.truncated"]
    event = talk.last(wire.ItemTruncated)
    assert (event.item_id, event.content_index, event.audio_end_ms) == (item_id, 0, 600)
    assert transcript(talk, item_id) == "Once upon"
    assert told_next(talk) == ["a story please", "Once upon"]


def test_check_147_the_client_may_have_played_more_than_we_thought(talk: Talk) -> None:
    item_id = interrupted(talk, 1.2)
    truncate(talk, item_id, 2000)
    assert told_next(talk) == ["a story please", "Once upon a time there was a king"]


def test_check_147_a_reply_that_is_complete_is_cut_too(talk: Talk) -> None:
    talk.say("a story please")
    talk.speak(*STORY)
    talk.wait(5)
    assert truncate(talk, spoken_id(talk), 1000) == ["conversation.item.truncated"]
    assert told_next(talk) == ["a story please", "Once upon a time"]


def test_check_148_a_truncation_does_not_stop_a_reply(talk: Talk) -> None:
    talk.say("a story please")
    talk.speak(*STORY, end=False)
    item_id = spoken_id(talk)
    truncate(talk, item_id, 1000)
    assert not talk.events(wire.ResponseDone)
    assert transcript(talk, item_id) == "Once upon a time"
    talk.speak(("The end. ", 500))
    talk.wait(5)
    assert done(talk).response.status == "completed"
    assert transcript(talk, item_id) == "Once upon a time", "the cut holds for what follows"
    assert told_next(talk) == ["a story please", "Once upon a time"]


@pytest.mark.parametrize("beyond_ms", [0, 1, 250, 100_000])
def test_check_149_a_truncation_at_or_past_the_end_keeps_all(talk: Talk, beyond_ms: int) -> None:
    talk.say("a story please")
    talk.speak(*STORY)
    talk.wait(5)
    item_id = spoken_id(talk)
    assert truncate(talk, item_id, 3000 + beyond_ms) == ["conversation.item.truncated"]
    assert talk.last(wire.ItemTruncated).audio_end_ms == 3000
    assert transcript(talk, item_id) == "Once upon a time there was a king who had a cat. "
    assert told_next(talk) == ["a story please", "Once upon a time there was a king who had a cat. "]


def test_check_149_past_the_end_of_what_was_sent_of_a_cut_reply(talk: Talk) -> None:
    item_id = interrupted(talk, 0.0)
    sent = talk.effects(PlayAudio)[-1].upto_sample
    assert sent < 3 * RATE_HZ
    truncate(talk, item_id, 60_000)
    assert talk.last(wire.ItemTruncated).audio_end_ms == sent * 1000 // RATE_HZ
    assert told_next(talk) == ["a story please", "Once upon a time there was a king"]


def test_check_150_only_speech_of_the_assistant_can_be_truncated(talk: Talk) -> None:
    create(talk, user("hello", id="mine"))
    assert truncate(talk, "mine", 0) == ["error"]
    respond(talk, output_modalities=["text"])
    talk.write("Hello.")
    talk.end("thinker")
    assert truncate(talk, spoken_id(talk), 0) == ["error"]
    respond(talk)
    talk.speak(("Hi. ", 300))
    assert truncate(talk, spoken_id(talk), 0, content_index=1) == ["error"]
    assert [error.error.code for error in talk.events(wire.Error)] == ["unsupported_content_type"] * 3
    assert [error.error.param for error in talk.events(wire.Error)] == ["item_id", "item_id", "content_index"]


def test_check_151_a_truncation_of_nobody_is_an_error_and_the_session_goes_on(talk: Talk) -> None:
    assert truncate(talk, "nobody", 100) == ["error"]
    error = talk.last(wire.Error).error
    assert (error.code, error.event_id) == ("item_truncate_invalid_item_id", "cut")
    respond(talk)
    talk.end()


def test_check_152_a_retrieved_item_holds_no_unheard_words(talk: Talk) -> None:
    item_id = interrupted(talk, 1.0)
    truncate(talk, item_id, 1600)
    assert transcript(talk, item_id) == "Once upon a time there was"


@pytest.mark.parametrize("audio_ms", [0, 800])
def test_f7_a_truncation_at_0_before_anything_was_heard_leaves_nothing(talk: Talk, audio_ms: int) -> None:
    talk.say("hello")
    talk.caption("Good morning to you. ")
    if audio_ms:
        talk.audio(audio_ms, (0, 21))
    item_id = spoken_id(talk)
    talk.speech()
    assert truncate(talk, item_id, 0) == ["conversation.item.truncated"]
    assert talk.last(wire.ItemTruncated).audio_end_ms == 0
    assert transcript(talk, item_id) == ""
    talk.silence()
    talk.recognize("stop")
    assert texts(talk.prompt) == ["hello", "stop"]
    assert truncate(talk, item_id, 0) == ["conversation.item.truncated"]
    talk.end()


def test_f7_a_truncation_at_0_of_a_complete_reply_leaves_nothing(talk: Talk) -> None:
    talk.say("hello")
    talk.speak(("Good morning. ", 1000))
    item_id = spoken_id(talk)
    truncate(talk, item_id, 0)
    assert transcript(talk, item_id) == ""
    assert told_next(talk) == ["hello"]


def test_f10_late_repeated_and_disordered_truncations_end_nothing(talk: Talk) -> None:
    item_id = interrupted(talk, 2.5)
    talk.say("go on")
    talk.speak(("As you wish. ", 500))
    running = talk.prompt
    for at_ms in (1500, 1500, 600, 2500, 0, 99_999):
        assert truncate(talk, item_id, at_ms) == ["conversation.item.truncated"]
        assert talk.prompt == running, "a reply that runs is not begun again"
    assert [event.audio_end_ms for event in talk.events(wire.ItemTruncated)] == [1500, 1500, 600, 600, 0, 0]
    assert talk.errors == []
    assert told_next(talk) == ["a story please", "go on", "As you wish. "]


def test_f10_a_truncation_of_an_item_that_was_deleted_is_an_error(talk: Talk) -> None:
    item_id = interrupted(talk, 1.0)
    talk.ask("conversation.item.delete", item_id=item_id)
    assert truncate(talk, item_id, 500) == ["error"]
    assert told_next(talk) == ["a story please"]


def test_check_154_a_manual_barge_in_with_nothing_to_interrupt(talk: Talk) -> None:
    talk.by_hand()
    talk.ask("input_audio_buffer.clear")
    talk.append(RATE_HZ)
    talk.ask("response.cancel")
    talk.ask("output_audio_buffer.clear")
    assert talk.errors == ["response_cancel_not_active"]
    assert kinds(talk.ask("input_audio_buffer.commit"))[0] == "input_audio_buffer.committed"


def test_check_154_a_manual_barge_in_over_a_reply(talk: Talk) -> None:
    talk.by_hand()
    flowing(talk)
    item_id = spoken_id(talk)
    talk.ask("input_audio_buffer.clear")
    talk.append(RATE_HZ)
    talk.ask("response.cancel")
    truncate(talk, item_id, 600)
    assert talk.errors == []
    assert transcript(talk, item_id) == "Once upon"


def test_check_162_over_a_text_channel_the_peer_clears_its_own_output(open_talk: OpenTalk) -> None:
    talk = open_talk()
    flowing(talk)
    assert talk.ask("output_audio_buffer.clear") == []
    assert not talk.effects(ClearAudio)
    talk.end()


def test_what_the_client_says_stands_against_our_estimate_in_whichever_order_they_come(talk: Talk) -> None:
    talk.say("a story please")
    talk.speak(*STORY, end=False)
    talk.wait(2.0)
    item_id = spoken_id(talk)
    truncate(talk, item_id, 600)
    talk.speech()
    assert done(talk).response.status == "cancelled"
    assert transcript(talk, item_id) == "Once upon"
    talk.ask("input_audio_buffer.clear")
    assert told_next(talk) == ["a story please", "Once upon"]


def test_f7_a_reply_that_was_never_made_into_sound_was_not_heard(talk: Talk) -> None:
    talk.say("hello")
    talk.caption("Good morning. ")
    talk.end()
    truncate(talk, spoken_id(talk), 0)
    assert transcript(talk, spoken_id(talk)) == ""
    assert told_next(talk) == ["hello"]
