"""A reply that is told while others interrupt it, and how a client looks at it."""

from __future__ import annotations

from duplex_server.realtime import wire
from duplex_server.realtime.schema import Message, OutputAudio
from tests.realtime.talk import Talk, texts

STORY = (("Once upon a time ", 1000), ("there was a king ", 1000), ("who had a cat. ", 1000))
CLOSING = [
    "response.output_audio.done",
    "response.output_audio_transcript.done",
    "response.content_part.done",
    "conversation.item.done",
    "response.output_item.done",
    "response.done",
    "rate_limits.updated",
]


def spoken_id(talk: Talk) -> str:
    """The item of the last reply."""
    return talk.last(wire.OutputItemAdded).item.id


def transcript(talk: Talk, item_id: str) -> str:
    talk.ask("conversation.item.retrieve", item_id=item_id)
    item = talk.last(wire.ItemRetrieved).item
    assert isinstance(item, Message)
    return "".join(part.transcript for part in item.content if isinstance(part, OutputAudio))


def told_next(talk: Talk, words: str = "and then?") -> list[str]:
    """What the model is told when the user speaks next."""
    talk.wait(10)
    talk.say(words)
    told = texts(talk.prompt)
    talk.end()
    assert told[-1] == words
    return told[:-1]
