"""Tests what a client is told of its user's words, and what the model is told."""

from __future__ import annotations

import pytest

from duplex_server.realtime import wire
from duplex_server.realtime.effects import Cancel, Effect, Recognize
from duplex_server.realtime.hearing import Guess, Heard, Hearing
from duplex_server.realtime.input_buffer import Span
from duplex_server.realtime.schema import InputAudio, Message
from pipeline.chunk import Chunk, End, Failed, Segment, Transcript
from tests.realtime.talk import RATE_HZ, Talk, kinds, texts

COMPLETED = "conversation.item.input_audio_transcription.completed"
FAILED = "conversation.item.input_audio_transcription.failed"


def speech_of(item: object) -> InputAudio:
    """The spoken part of a user's message."""
    assert isinstance(item, Message)
    part = item.content[0]
    assert isinstance(part, InputAudio)
    return part


def test_check_091_a_transcript_carries_its_place_and_its_usage(talk: Talk) -> None:
    item_id = talk.transcribed().say(" what time is it? ")
    told = talk.last(wire.TranscriptionCompleted)
    entry = talk.session.conversation.get(item_id)
    assert entry is not None
    assert entry.input_span is not None
    assert (told.item_id, told.content_index, told.transcript) == (item_id, 0, "what time is it?")
    assert told.usage == wire.DurationUsage(seconds=round(len(entry.input_span) / RATE_HZ, 3))
    talk.end()


def test_check_092_a_transcript_comes_whole(talk: Talk) -> None:
    talk.transcribed().say("hello")
    assert [kind for kind in kinds(talk.told) if "transcription" in kind] == [COMPLETED]
    talk.end()


def test_check_094_a_failure_is_told_without_nulls_and_ends_nothing(talk: Talk) -> None:
    talk.transcribed().by_hand()
    talk.append(RATE_HZ)
    talk.ask("input_audio_buffer.commit")
    told = talk.recognize(Failed("stage_failed", "the model broke"))
    assert kinds(told) == [FAILED]
    assert talk.last(wire.TranscriptionFailed).error == wire.TranscriptionError(
        type="server_error", code="inference_failed", message="the model broke"
    )
    item_id = talk.last(wire.Committed).item_id
    talk.ask("conversation.item.retrieve", item_id=item_id)
    assert speech_of(talk.last(wire.ItemRetrieved).item).transcript is None, "it is not known"
    talk.ask("response.create")
    talk.speak(("Pardon? ", 500))
    assert talk.last(wire.ResponseDone).response.status == "completed"


def test_check_095_the_transcript_of_an_item_is_null_until_it_is_known(talk: Talk) -> None:
    talk.transcribed().speech()
    talk.silence()
    assert speech_of(talk.last(wire.ItemAdded).item).transcript is None
    assert speech_of(talk.last(wire.ItemDone).item).transcript is None
    item_id = talk.last(wire.Committed).item_id
    talk.ask("conversation.item.retrieve", item_id=item_id)
    assert speech_of(talk.last(wire.ItemRetrieved).item).transcript is None
    talk.recognize("hello")
    talk.ask("conversation.item.retrieve", item_id=item_id)
    assert speech_of(talk.last(wire.ItemRetrieved).item).transcript == "hello"
    talk.end()


def test_check_096_without_the_setting_there_are_no_transcription_events(talk: Talk) -> None:
    talk.say("hello")
    assert not [kind for kind in kinds(talk.told) if "transcription" in kind]
    assert texts(talk.prompt) == ["hello"], "the model is told all the same"
    talk.end()


def test_the_words_of_an_item_that_was_deleted_meanwhile_are_told_and_not_kept(talk: Talk) -> None:
    talk.transcribed().speech()
    talk.silence()
    item_id = talk.last(wire.Committed).item_id
    talk.ask("conversation.item.delete", item_id=item_id)
    assert COMPLETED in kinds(talk.recognize("forget this"))
    assert item_id not in talk.session.conversation
    assert texts(talk.prompt) == []
    talk.end()


def test_language_and_prompt_reach_the_recognizer(talk: Talk) -> None:
    talk.listen(transcription={"model": "whisper-1", "language": "de", "prompt": "Names: Ada"})
    talk.speech()
    talk.silence()
    asked = talk.effects(Recognize)[-1]
    assert (asked.language, asked.prompt) == ("de", "Names: Ada")


def test_f1_a_second_cancel_while_the_next_turn_is_transcribed_harms_nothing(talk: Talk) -> None:
    talk.transcribed().say("hello")
    talk.speak(("Hello to you. ", 3000), end=False)
    talk.ask("response.cancel")
    talk.speech()
    talk.silence()
    told = talk.ask("response.cancel", event_id="second")
    assert kinds(told) == ["error"]
    assert talk.last(wire.Error).error.event_id == "second"
    assert kinds(talk.recognize("and the weather?"))[0] == COMPLETED
    assert texts(talk.prompt)[-1] == "and the weather?"
    talk.end()


# ---- the passes alone ---------------------------------------------------------------------------------------------


def ended(segment: Segment, words: str) -> Chunk:
    return Chunk(segment, "recognizer", 0, Transcript(words), last=True)


def passes(out: list[Effect]) -> list[Recognize]:
    return [effect for effect in out if isinstance(effect, Recognize)]


def test_a_pass_made_in_the_pause_is_the_final_one_if_nothing_more_is_said() -> None:
    out: list[Effect] = []
    hearing = Hearing("s", out)
    hearing.start(None)
    hearing.pause(Span(0, 4800))
    segment = passes(out)[0].segment
    assert hearing.wants(segment)
    assert hearing.take(ended(segment, "hello")) == Guess("hello"), "the turn is not over"
    heard = hearing.commit("item", Span(0, 9600), None, paused=True)
    assert heard is not None
    assert (heard.text, heard.announce, len(passes(out))) == ("hello", False, 1)
    assert not hearing.waiting


def test_a_pass_that_was_overtaken_counts_no_more() -> None:
    out: list[Effect] = []
    hearing = Hearing("s", out)
    hearing.start(None)
    hearing.pause(Span(0, 4800))
    hearing.resume()
    early = passes(out)[0].segment
    assert out[-1] == Cancel(early)
    assert not hearing.wants(early)
    assert hearing.commit("item", Span(0, 9600), None, paused=False) is None
    assert hearing.take(ended(early, "half of")) is None
    assert hearing.waiting == {"item"}
    heard = hearing.take(ended(passes(out)[-1].segment, "half of it"))
    assert isinstance(heard, Heard)
    assert heard.text == "half of it"


def test_a_pass_that_is_over_is_not_cancelled() -> None:
    out: list[Effect] = []
    hearing = Hearing("s", out)
    hearing.start(None)
    hearing.pause(Span(0, 4800))
    hearing.take(ended(passes(out)[0].segment, "hello"))
    hearing.resume()
    assert len(out) == 1


def test_nothing_happens_between_turns() -> None:
    out: list[Effect] = []
    hearing = Hearing("s", out)
    hearing.pause(Span(0, 1))
    hearing.resume()
    hearing.drop()
    assert out == []


def test_a_recognizer_that_ends_with_anything_but_words_is_a_bug() -> None:
    out: list[Effect] = []
    hearing = Hearing("s", out)
    hearing.commit("item", Span(0, 4800), None, paused=False)
    with pytest.raises(AssertionError, match="a recognizer ended"):
        hearing.take(Chunk(passes(out)[0].segment, "recognizer", 0, End(), last=True))
