"""Plays conversations that several checks look at."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from duplex_server.conformance.checks import Json, NotApplicable, at, expect
from duplex_server.conformance.peer import Peer
from duplex_server.conformance.run import Run
from duplex_server.conformance.sound import BYTES_PER_MS, silence

LEAD_MS, TAIL_MS = 1500, 1500
"""Silence around speech: long enough for any server to hear where the speech begins and ends."""
SHORT_TOKENS = 20
ANSWER_TOKENS = 40
LONG_TOKENS = 400
STORY = "Tell me a long story about a river, in many sentences."
TRANSCRIPTION = "conversation.item.input_audio_transcription"
TEXT = ["text"]
LONG_TEXT = "The river is long and wide, and the boats on it are many. " * 12
LONG_TEXT_TOKENS = 60
"""Fewer than any tokenizer makes of it."""
ATTEMPTS = 3
"""How often a moment is tried to be met that a quick server may be past."""
UNANSWERED = {"type": "server_vad", "create_response": False, "interrupt_response": True}


@dataclass(frozen=True, slots=True)
class Turn:
    """A spoken turn of the user. `from_ms` and `upto_ms` are where its speech lies in all the sound that was sent."""

    from_ms: int
    upto_ms: int
    started: Json
    stopped: Json
    committed: Json
    added: Json
    transcribed: Json


@dataclass(slots=True)
class Call:
    """A conversation with what was sent in it, so far."""

    peer: Peer
    sent_ms: int = 0
    turns: list[Turn] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Spoken:
    """Two spoken turns, of which the first was answered aloud."""

    peer: Peer
    turns: list[Turn]
    answer: Json
    user_item: Json
    answer_item: Json


async def take_turn(run: Run, call: Call) -> Turn:
    """Say something, and wait until it has been taken for a turn and transcribed."""
    peer, speech = call.peer, run.speech
    since = len(peer.events)
    from_ms = call.sent_ms + LEAD_MS
    upto_ms = from_ms + len(speech) // (BYTES_PER_MS // 2)
    for pcm in (silence(LEAD_MS), speech, silence(TAIL_MS)):
        await peer.play(pcm)
    call.sent_ms = upto_ms + TAIL_MS
    within_s = peer.patience_s
    started = await peer.wait("input_audio_buffer.speech_started", since, within_s=within_s)
    stopped = await peer.wait("input_audio_buffer.speech_stopped", since, within_s=within_s)
    committed = await peer.wait("input_audio_buffer.committed", since, within_s=within_s)
    added = await peer.wait("conversation.item.added", since, where=lambda event: spoken_by_user(event["item"]))
    transcribed = await peer.wait(f"{TRANSCRIPTION}.completed", since, within_s=within_s)
    turn = Turn(from_ms, upto_ms, started, stopped, committed, added, transcribed)
    call.turns.append(turn)
    return turn


def spoken_by_user(item: Json) -> bool:
    """Whether an item is what a user has said."""
    return any(isinstance(part, dict) and part.get("type") == "input_audio" for part in item.get("content") or ())


async def spoken(run: Run) -> Spoken:
    """Speak, be answered aloud, and speak again without being answered; all with transcription."""
    async with run.session() as peer:
        await peer.update(
            audio={"input": {"transcription": {"model": "whisper-1"}, "turn_detection": {"type": "server_vad"}}},
            max_output_tokens=SHORT_TOKENS,
        )
        call = Call(peer)
        turn = await take_turn(run, call)
        created = await peer.wait("response.created", within_s=peer.patience_s)
        answer = await peer.done(at(created, "response.id"))
        expect(at(answer, "status") in ("completed", "incomplete"), "an answer that completes", answer)
        expect(bool(answer["output"]), "an answer with an item", answer)
        user_item = await peer.retrieve(at(turn.added, "item.id"))
        answer_item = await peer.retrieve(at(answer, "output.0.id"))
        await peer.update(audio={"input": {"turn_detection": UNANSWERED}})
        await take_turn(run, call)
        await peer.quiet(("response.created",), len(peer.events))
    return Spoken(peer, call.turns, answer, user_item, answer_item)


@dataclass(frozen=True, slots=True)
class Cut:
    """An answer that was cut by speech; `at_event` is the index of the first event after the speech was sent."""

    peer: Peer
    response_id: str
    at_event: int
    done: Json


async def barge_in(run: Run) -> Cut:
    """Speak over an answer that is being spoken."""
    async with run.session() as peer:
        await peer.update(audio={"input": {"turn_detection": UNANSWERED}})
        await peer.type(STORY)
        response = await peer.begin(max_output_tokens=LONG_TOKENS)
        await peer.wait("response.output_audio.delta", within_s=peer.patience_s)
        at_event = len(peer.events)
        await peer.play(run.speech)
        await peer.play(silence(TAIL_MS))
        done = await peer.done(response["id"])
        await peer.wait("input_audio_buffer.committed", at_event, within_s=peer.patience_s)
        await peer.quiet(("response.created",), at_event)
    return Cut(peer, response["id"], at_event, done)


async def written(run: Run) -> tuple[Peer, Json]:
    """A typed question that is answered in writing; gives the response."""
    async with run.session() as peer:
        await peer.type("What is a river?")
        done = await peer.respond(output_modalities=["text"], max_output_tokens=ANSWER_TOKENS)
        await peer.settle()
    return peer, done


async def input_tokens(peer: Peer, **response: object) -> int:
    """How many tokens the model is told for a response beside the conversation."""
    done = await peer.respond(conversation="none", output_modalities=TEXT, max_output_tokens=1, **response)
    tokens: int = at(done, "usage.input_tokens")
    return tokens


async def met(peer: Peer, attempt: Callable[[Peer], Awaitable[Json | None]], missed: str) -> str:
    """Try to meet a moment. Raises `NotApplicable` when it was missed each time."""
    for number in range(ATTEMPTS):
        if await attempt(peer) is not None:
            return f"met at attempt {number + 1}"
    raise NotApplicable(f"{missed}, {ATTEMPTS} times")


def still_open(peer: Peer, response_id: str, event: Json) -> None:
    """Raise `NotApplicable` when a response that went well was over before the event that it should outlive."""
    ends = [one for one in peer.of("response.done") if one["response"]["id"] == response_id]
    if ends and peer.events.index(ends[0]) < peer.events.index(event):
        raise NotApplicable(f"the response was over before {event['type']}")
