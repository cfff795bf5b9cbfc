"""Holds everything a session says and asks for against the rules that clients and the driver rely on."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from duplex_server.realtime import wire
from duplex_server.realtime.dialect import Codec
from duplex_server.realtime.effects import Begin, Cancel, ClearAudio, Effect, PlayAudio, Recognize, Send
from duplex_server.realtime.hearing import PASSES
from duplex_server.realtime.inputs import Event, Input, Spoke, Voice
from duplex_server.realtime.schema import Item
from duplex_server.realtime.session import Session
from duplex_server.realtime.wire import AnyServerEvent
from pipeline.chunk import Fence, Reply, Segment
from tests.conformance.realtime_validator import Validator

PIECE_SAMPLES = 250 * 24
"""Clients expect no audio delta longer than 250 ms."""


@dataclass(slots=True)
class _Account:
    """What was told of one response."""

    in_conversation: bool
    items: list[str] = field(default_factory=list)
    closed: list[Item] = field(default_factory=list)
    text: str = ""
    done: bool = False


class Grammar:
    """The rules of one session; `check` is called after each feed, with all it led to."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._validator = Validator(portable=True, sequence=True)
        self._codec = Codec()
        self._ids: set[str] = set()
        self._responses: dict[str, _Account] = {}
        self._items: list[str] = []  # the conversation, as a client mirrors it
        self._unfinished: set[str] = set()  # items that were added and neither done nor deleted
        self._transcribed: set[str] = set()
        self._speaking: str | None = None
        self._upto_ms = 0
        self._floor = 0
        self._begun: set[Fence] = set()
        self._stopped: set[Fence] = set()
        self._made: dict[Reply, int] = {}
        self._played: dict[Reply, int] = {}
        self._limits_due = False

    def check(self, given: Input, now: float, effects: tuple[Effect, ...], told: list[AnyServerEvent]) -> None:
        """`told` are the effects that a client sees, as events."""
        if isinstance(given, Spoke):
            self._made[given.reply] = self._made.get(given.reply, 0) + given.samples
        if isinstance(given, Event) and isinstance(given.event, wire.SessionUpdate):
            self._validator.asked_for |= _asked_for(given.event)
        self._silence_first(given, effects)
        for effect in effects:
            self._effect(effect)
        for event in told:
            for frame in self._codec.encode(event):
                problems = self._validator.feed(msgspec.json.decode(frame))
                assert not problems, [str(problem) for problem in problems]
            self._event(event)
        assert not self._limits_due, "a response.done without its rate limits"
        self._ledger()
        deadline = self._session.deadline()
        assert deadline is None or deadline > now, "the driver would tick for ever"

    def finish(self) -> None:
        """The test is over: what was begun must have been ended, unless the session was."""
        open_responses = [key for key, account in self._responses.items() if not account.done]
        assert not open_responses, open_responses

    # ---- effects --------------------------------------------------------------------------------------------------

    def _silence_first(self, given: Input, effects: tuple[Effect, ...]) -> None:
        """On a barge-in or a cancel, sound and work stop before a word is told of it."""
        if not (
            isinstance(given, Voice) or (isinstance(given, Event) and isinstance(given.event, wire.CancelResponse))
        ):
            return
        # A reply that is dropped before anybody was told of it has no sound to silence.
        audible = {effect.reply for effect in effects if isinstance(effect, ClearAudio)}
        stops = [
            at
            for at, effect in enumerate(effects)
            if isinstance(effect, ClearAudio) or (isinstance(effect, Cancel) and effect.fence in audible)
        ]
        sends = [at for at, effect in enumerate(effects) if isinstance(effect, Send)]
        assert not (stops and sends) or max(stops) < min(sends), effects

    def _effect(self, effect: Effect) -> None:
        match effect:
            case Cancel(fence=fence) | ClearAudio(reply=fence):
                self._stopped.add(fence)
            case Begin(think=think, speak=speak):
                assert think.fence not in self._begun | self._stopped
                assert speak is None or speak.fence == think.fence
                self._begun.add(think.fence)
                ids = [part.id for part in think.prompt.parts]
                assert len(ids) == len(set(ids))
            case Recognize(segment=segment, from_sample=start):
                assert segment not in self._begun, "two passes under one fence"
                self._begun.add(segment)
                assert start < segment.upto_sample
                if effect.given is None:
                    assert self._floor <= start < segment.upto_sample <= self._session.input.appended
            case PlayAudio(reply=reply):
                assert reply not in self._stopped, "sound of a reply that was stopped"
                assert effect.from_sample == self._played.get(reply, 0), "a gap or an overlap in the sound"
                assert 0 < effect.upto_sample - effect.from_sample <= PIECE_SAMPLES
                assert effect.upto_sample <= self._made[reply], "sound that was never made"
                self._played[reply] = effect.upto_sample
            case _:
                pass

    def _ledger(self) -> None:
        account = self._session.input
        assert account.committed + account.discarded + account.pending == account.appended
        assert account.waiting == self._session.waiting_samples, "an item that neither waits nor got its end"
        assert self._session.passes_waiting <= PASSES
        assert self._floor <= self._session.input_floor <= account.appended
        self._floor = self._session.input_floor
        for fence in self._stopped:
            assert isinstance(fence, Reply | Segment)
            assert not self._session.wants(fence), "a stopped fence is still wanted"

    # ---- events ---------------------------------------------------------------------------------------------------

    def _event(self, event: AnyServerEvent) -> None:
        self._new(event.event_id)
        if self._limits_due:
            assert isinstance(event, wire.RateLimitsUpdated), "rate limits come right after response.done"
            self._limits_due = False
            return
        match event:
            case wire.ResponseCreated() | wire.ResponseDone():
                self._response(event)
            case wire.OutputItemAdded() | wire.OutputItemDone():
                self._output_item(event)
            case wire.PartAdded() | wire.PartDone() | wire.TextDelta() | wire.TextDone():
                self._part(event)
            case wire.TranscriptDelta() | wire.TranscriptDone() | wire.AudioDelta() | wire.AudioDone():
                self._part(event)
            case wire.ArgumentsDelta() | wire.ArgumentsDone():
                self._arguments(event)
            case wire.ItemAdded() | wire.ItemDone() | wire.ItemDeleted() | wire.Committed():
                self._conversation(event)
            case wire.SpeechStarted() | wire.SpeechStopped() | wire.Cleared():
                self._speech(event)
            case wire.TimeoutTriggered(item_id=item_id, audio_start_ms=start_ms, audio_end_ms=end_ms):
                self._new(item_id)
                assert self._speaking is None, "a user who speaks is not silent"
                assert all(account.done for account in self._responses.values() if account.in_conversation)
                assert self._upto_ms <= start_ms <= end_ms
                self._speaking = item_id  # what is committed next; speech that follows has its padding in this silence
            case wire.TranscriptionCompleted(item_id=item_id) | wire.TranscriptionFailed(item_id=item_id):
                assert item_id not in self._transcribed
                self._transcribed.add(item_id)
            case wire.RateLimitsUpdated():
                raise AssertionError("rate limits without a response.done")
            case _:
                pass

    def _new(self, key: str) -> None:
        assert key not in self._ids, f"{key} was used before"
        self._ids.add(key)

    def _response(self, event: wire.ResponseCreated | wire.ResponseDone) -> None:
        response = event.response
        if isinstance(event, wire.ResponseCreated):
            self._new(response.id)
            self._responses[response.id] = _Account(response.conversation_id is not None)
            assert (response.status, response.output, response.usage) == ("in_progress", (), None)
            return
        account = self._responses[response.id]
        assert not account.done
        assert response.output == tuple(account.closed)
        assert [item.id for item in response.output] == account.items, "an item that was never closed"
        assert response.usage is not None
        assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens
        assert not self._unfinished & set(account.items)
        account.done = self._limits_due = True

    def _output_item(self, event: wire.OutputItemAdded | wire.OutputItemDone) -> None:
        account = self._responses[event.response_id]
        assert not account.done
        if isinstance(event, wire.OutputItemAdded):
            self._new(event.item.id)
            assert event.output_index == len(account.items) == len(account.closed)
            assert event.item.status == "in_progress"
            account.items.append(event.item.id)
            account.text = ""
        else:
            assert event.output_index == len(account.closed)
            assert event.item.id == account.items[-1]
            assert event.item.status in ("completed", "incomplete")
            account.closed.append(event.item)

    def _part(
        self,
        event: wire.PartAdded
        | wire.PartDone
        | wire.TextDelta
        | wire.TextDone
        | wire.TranscriptDelta
        | wire.TranscriptDone
        | wire.AudioDelta
        | wire.AudioDone,
    ) -> None:
        account = self._responses[event.response_id]
        assert not account.done
        place = (account.items[-1], len(account.items) - 1, 0)
        assert (event.item_id, event.output_index, event.content_index) == place
        match event:
            case wire.TextDelta(delta=delta) | wire.TranscriptDelta(delta=delta):
                assert delta
                account.text += delta
            case wire.TextDone(text=text) | wire.TranscriptDone(transcript=text):
                assert text == account.text
            case wire.PartDone(part=wire.SpokenPart(transcript=text)) | wire.PartDone(part=wire.WrittenPart(text=text)):
                assert text == account.text
            case wire.PartAdded(part=wire.SpokenPart(transcript=text)):
                assert text == ""
            case wire.PartAdded(part=wire.WrittenPart(text=text)):
                assert text == ""
            case _:
                pass

    def _arguments(self, event: wire.ArgumentsDelta | wire.ArgumentsDone) -> None:
        account = self._responses[event.response_id]
        assert not account.done
        assert (event.item_id, event.output_index) == (account.items[-1], len(account.items) - 1)
        if isinstance(event, wire.ArgumentsDelta):
            assert event.delta
            account.text += event.delta
        else:
            assert event.arguments == account.text

    def _conversation(self, event: wire.ItemAdded | wire.ItemDone | wire.ItemDeleted | wire.Committed) -> None:
        match event:
            case wire.ItemAdded(item=item, previous_item_id=previous):
                assert item.id not in self._items
                self._items.insert(self._items.index(previous) + 1 if previous else 0, item.id)
                self._unfinished.add(item.id)
            case wire.ItemDone(item=item, previous_item_id=previous):
                at = self._items.index(item.id)
                assert previous == (self._items[at - 1] if at else None)
                self._unfinished.remove(item.id)
            case wire.ItemDeleted(item_id=item_id):
                self._items.remove(item_id)
                self._unfinished.discard(item_id)
            case wire.Committed(item_id=item_id, previous_item_id=previous):
                assert previous == (self._items[-1] if self._items else None)
                assert self._speaking in (None, item_id), "not the item that was announced"
                if self._speaking is None:
                    self._new(item_id)
                self._speaking = None

    def _speech(self, event: wire.SpeechStarted | wire.SpeechStopped | wire.Cleared) -> None:
        match event:
            case wire.SpeechStarted(item_id=item_id, audio_start_ms=at_ms):
                self._new(item_id)
                assert self._speaking is None
                assert at_ms >= self._upto_ms
                self._speaking, self._upto_ms = item_id, at_ms
            case wire.SpeechStopped(item_id=item_id, audio_end_ms=at_ms):
                assert item_id == self._speaking
                assert at_ms > self._upto_ms
                self._upto_ms = at_ms
            case wire.Cleared():
                self._speaking = None


def _asked_for(update: wire.SessionUpdate) -> set[str]:
    """The keys of transcription that a client sets, and so gets back."""
    session = msgspec.json.decode(msgspec.json.encode(update.session))
    return set(((session.get("audio") or {}).get("input") or {}).get("transcription") or ())
