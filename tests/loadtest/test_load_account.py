"""Tests what a server is held to: the order of its events, words that join, silence when spoken over, sound in time."""

from __future__ import annotations

import numpy as np
import pytest

from loadtest.load.account import Account, Cut
from loadtest.wire import Message

SOUND = np.ones(240, np.int16)


def event(kind: str, **content: object) -> Message:
    """An event of response r, item i, unless it is told otherwise."""
    if kind == "response.created":
        content = {"response": {"id": "r"}}
    elif kind.startswith("response.output_item"):
        content = {"response_id": "r", "item": {"id": "i"}}
    elif kind.startswith("response.") and kind != "response.done":
        content = {"response_id": "r", "item_id": "i", "content_index": 0, **content}
    pcm = SOUND if kind == "response.output_audio.delta" else None
    return Message(kind, {"type": kind, **content}, pcm)


def done(status: str = "completed", transcript: str = "Oh, yes.", **details: str) -> Message:
    output = [{"id": "i", "content": [{"type": "output_audio", "transcript": transcript}]}]
    return event(
        "response.done", response={"id": "r", "status": status, "status_details": details or None, "output": output}
    )


CREATED = event("response.created")
ITEM = event("response.output_item.added")
PART = event("response.content_part.added")
WORDS = event("response.output_audio_transcript.delta", delta="Oh, ")
MORE_WORDS = event("response.output_audio_transcript.delta", delta="yes.")
DELTA = event("response.output_audio.delta")
SOUND_DONE = event("response.output_audio.done")
WORDS_DONE = event("response.output_audio_transcript.done", transcript="Oh, yes.")
PART_DONE = event("response.content_part.done")
ITEM_DONE = event("response.output_item.done")
STARTED = event("input_audio_buffer.speech_started")
ANSWER = [
    *(CREATED, ITEM, PART, WORDS, DELTA, DELTA, SOUND_DONE, MORE_WORDS, WORDS_DONE, PART_DONE, ITEM_DONE),
    done(),
]


def wrong(*messages: Message) -> list[str]:
    """The problems of messages that arrive in time, each as its kind and message."""
    account = Account()
    for message in messages:
        account.take(message, 1.0, 2.0)
    return [f"{one.kind}: {one.message}" for one in account.problems]


def without(*messages: Message) -> list[Message]:
    return [one for one in ANSWER if one not in messages]


def test_an_answer_as_the_protocol_has_it_is_no_problem() -> None:
    assert wrong(*ANSWER) == []
    two_parts = [*ANSWER[:-2], PART, event("response.content_part.done"), ITEM_DONE, done()]
    assert wrong(*two_parts) == []
    assert wrong(*without(MORE_WORDS, WORDS_DONE, ANSWER[-1]), done("cancelled", "Oh, ")) == []
    assert wrong(CREATED, done("incomplete", reason="max_output_tokens")) == []


@pytest.mark.parametrize(
    ("messages", "telling"),
    [
        (ANSWER[1:4], "order: response.output_item.added before response.created"),
        ([*ANSWER, DELTA], "order: response.output_audio.delta after response.done"),
        ([*ANSWER, ANSWER[-1]], "order: response.done twice"),
        ([ANSWER[-1]], "order: response.done before response.created"),
        (without(ITEM), "order: response.content_part.added before response.output_item.added"),
        ([CREATED, ITEM, DELTA, PART], "order: response.content_part.added after response.output_audio.delta"),
        ([*ANSWER[:7], DELTA], "order: response.output_audio.delta after response.output_audio.done"),
        ([*ANSWER[:9], MORE_WORDS], "order: response.output_audio_transcript.delta after"),
        (without(ITEM_DONE), "order: response.done before response.output_item.done"),
        (without(MORE_WORDS), "transcript: the transcript's deltas do not join"),
        ([*ANSWER[:-1], done(transcript="Oh, no.")], "transcript: the transcript's deltas do not join"),
        ([CREATED, done("failed", reason="stage")], "failed_response: failed"),
        ([CREATED, done("incomplete", reason="content_filter")], "failed_response: incomplete"),
        ([event("error", error={"code": "bad", "message": "No."})], "error_event: bad: No."),
        ([*ANSWER[:5], STARTED, DELTA], "not_stopped: sound of a response after speech_started"),
    ],
)
def test_what_is_out_of_order_is_told(messages: list[Message], telling: str) -> None:
    assert any(one.startswith(telling) for one in wrong(*messages)), wrong(*messages)


def test_an_answer_that_is_spoken_over_may_close_and_the_next_may_sound() -> None:
    assert wrong(*ANSWER[:5], STARTED, SOUND_DONE, ITEM_DONE, done("cancelled"), CREATED, ITEM, PART, DELTA) == []


def test_a_piece_of_sound_is_late_against_what_was_played_before_it() -> None:
    account = Account()
    for message, now, free_at in (
        (CREATED, 1.0, 0.0),
        (ITEM, 1.0, 0.0),
        (PART, 1.0, 0.0),
        (DELTA, 1.0, 0.0),  # the first of a response has nothing to be late for
        (DELTA, 1.25, 1.5),
        (DELTA, 1.75, 1.5),
        (STARTED, 1.8, 2.3),
        (DELTA, 1.9, 1.8),  # not late, but wrong
    ):
        account.take(message, now, free_at)
    assert account.late_ms == pytest.approx([-250.0, 250.0])
    account.take(STARTED, 3.0, 1.8)
    first, second = account.cuts
    assert first.at == 1.8
    assert first.lost_s == pytest.approx(0.5)
    assert second == Cut(3.0, 0.0)


def test_an_event_that_lacks_a_field_is_refused() -> None:
    with pytest.raises(KeyError, match="item_id"):
        wrong(CREATED, Message("response.output_audio.delta", {"response_id": "r"}, SOUND))
