"""Tests how a question is followed to its answer, with events as tuples."""

from __future__ import annotations

import base64

import numpy as np
import pytest

from duplex_server.client import (
    EMPTY_WAIT_S,
    RATE_HZ,
    TRANSCRIPT_WAIT_S,
    ErrorBody,
    Event,
    Exchange,
    ResponseBody,
    StatusDetails,
    voiced_span,
)

SPOKEN_S = 10.0


def tone(duration_s: float, level: float = 0.3) -> np.ndarray[tuple[int], np.dtype[np.int16]]:
    at_s = np.arange(int(duration_s * RATE_HZ)) / RATE_HZ
    return np.round(32767 * level * np.sin(2 * np.pi * 440 * at_s)).astype(np.int16)


def silence(duration_s: float) -> np.ndarray[tuple[int], np.dtype[np.int16]]:
    return np.zeros(int(duration_s * RATE_HZ), np.int16)


def stopped() -> Event:
    return Event("input_audio_buffer.speech_stopped", item_id="item_1")


def started() -> Event:
    return Event("input_audio_buffer.speech_started", item_id="item_1")


def transcribed(words: str, item: str = "item_1") -> Event:
    return Event("conversation.item.input_audio_transcription.completed", item_id=item, transcript=words)


def created(response: str = "resp_1") -> Event:
    return Event("response.created", response=ResponseBody(response, "in_progress"))


def said(words: str, response: str = "resp_1") -> Event:
    return Event("response.output_audio_transcript.delta", response_id=response, delta=words)


def sounded(pcm: np.ndarray[tuple[int], np.dtype[np.int16]], response: str = "resp_1") -> Event:
    return Event("response.output_audio.delta", response_id=response, delta=base64.b64encode(pcm.tobytes()).decode())


def done(status: str = "completed", response: str = "resp_1", details: StatusDetails | None = None) -> Event:
    return Event("response.done", response=ResponseBody(response, status, details))


def followed(*events: tuple[float, Event]) -> Exchange:
    exchange = Exchange(SPOKEN_S)
    for now, event in events:
        assert not exchange.over(now)
        exchange.feed(event, now)
    return exchange


@pytest.mark.parametrize(
    ("pcm", "span"),
    [
        (np.concatenate([silence(0.5), tone(0.3), silence(1.0)]), (12_000, 19_200)),
        (np.concatenate([tone(0.3), silence(0.2), tone(0.1)]), (0, 14_400)),
        (np.concatenate([silence(0.5), tone(0.3), tone(1.0, level=0.001)]), (12_000, 19_200)),  # a quiet room
        (tone(0.105), (0, 2520)),
        (silence(1.0), None),
        (tone(1.0, level=0.002), None),
        (silence(0.0), None),
    ],
    ids=["padded", "pause inside", "room after it", "odd length", "silence", "too quiet", "empty"],
)
def test_voiced_span(pcm: np.ndarray[tuple[int], np.dtype[np.int16]], span: tuple[int, int] | None) -> None:
    assert voiced_span(pcm) == span


def test_a_question_and_its_answer() -> None:
    speech = np.concatenate([silence(0.2), tone(0.5)])
    exchange = followed(
        (8.0, started()),
        (10.5, stopped()),
        (10.7, transcribed(" What is it? ")),
        (10.75, created()),
        (10.9, said("It is ")),
        (11.0, sounded(speech[:2400])),
        (11.1, sounded(speech[2400:])),
        (11.1, said("a tone.")),
        (11.2, done()),
    )
    assert exchange.over(11.2)
    assert exchange.failure is None
    assert exchange.question == "What is it?"
    answer = exchange.answer
    assert answer is not None
    assert answer.text() == "It is a tone."
    assert np.array_equal(answer.pcm(), speech)
    assert exchange.marks == {
        "end of turn detected": 10.5,
        "question transcribed": 10.7,
        "response created": 10.75,
        "first audio": 11.0,
        "response done": 11.2,
    }
    # The player starts at 11.0 and reaches the first audible sample 0.2 s later.
    assert answer.audible_at() == pytest.approx(11.2)


def test_late_audio_is_heard_when_it_arrives() -> None:
    exchange = followed(
        (10.5, stopped()),
        (10.6, transcribed("x")),
        (10.7, created()),
        (11.0, sounded(silence(0.1))),
        (13.0, sounded(tone(0.1))),
        (13.1, done()),
    )
    assert exchange.answer is not None
    assert exchange.answer.audible_at() == 13.0


def test_a_pause_is_not_the_end_of_the_question() -> None:
    """The server answers in a pause of the question, and is spoken over: that answer does not count."""
    exchange = followed(
        (7.0, started()),
        (8.0, stopped()),
        (8.1, created("resp_1")),
        (8.1, transcribed("To be", "item_1")),
        (8.2, sounded(tone(0.1), "resp_1")),
        (8.5, started()),
        (8.5, done("cancelled", "resp_1")),
        (10.5, stopped()),
        (10.6, transcribed("or not to be?", "item_2")),
        (10.6, created("resp_2")),
        (10.7, said("Be.", "resp_2")),
        (10.7, sounded(tone(0.2), "resp_2")),
        (10.8, done(response="resp_2")),
    )
    assert exchange.over(10.8)
    assert exchange.question == "To be or not to be?"
    assert exchange.answer is not None
    assert exchange.answer.text() == "Be."
    assert len(exchange.answer.pcm()) == 4800
    assert exchange.marks["response created"] == 10.6


def test_an_answer_waits_for_the_words_of_the_question_within_a_bound() -> None:
    exchange = followed((10.5, stopped()), (10.6, created()), (10.7, sounded(tone(0.1))), (10.8, done()))
    assert not exchange.over(10.8 + TRANSCRIPT_WAIT_S)
    assert exchange.over(10.9 + TRANSCRIPT_WAIT_S)
    assert exchange.failure is None


def test_a_question_without_words_fails_soon() -> None:
    exchange = followed((10.5, stopped()), (10.6, transcribed("")))
    assert not exchange.over(10.6 + EMPTY_WAIT_S)
    assert exchange.over(10.7 + EMPTY_WAIT_S)
    assert exchange.failure == "the server heard no words in the question"


@pytest.mark.parametrize(
    ("event", "failure"),
    [
        (Event("error", error=ErrorBody("no such thing", "invalid_value")), "the server says: no such thing (invalid"),
        (done("failed", details=StatusDetails(error=ErrorBody("it broke"))), "the server says: it broke"),
        (Event("response.output_audio.delta", response_id="resp_1", delta="?"), "the server sent audio that is not"),
    ],
    ids=["error event", "failed response", "bad audio"],
)
def test_failures_end_it(event: Event, failure: str) -> None:
    exchange = followed((10.5, stopped()), (10.6, created()), (10.7, event))
    assert exchange.over(10.7)
    assert exchange.failure is not None
    assert exchange.failure.startswith(failure)
