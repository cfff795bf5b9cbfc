"""Is a client of the server: sends its user's sound, plays what it gets, and cuts where clients cut."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec

from duplex_server.realtime import wire
from duplex_server.realtime.config import SessionConfig
from duplex_server.realtime.effects import PlayAudio
from duplex_server.realtime.schema import ResponseObject, ShownSession
from duplex_server.realtime.wire import AnyClientEvent
from tests.sim.audit import Audit
from tests.sim.cascade import Cascade
from tests.sim.clock import Clock
from tests.sim.ear import Ear, Told, Up
from tests.sim.network import Line
from tests.sim.replies import Replies
from tests.sim.scenario import Person
from tests.sim.seat import Seat, Watch
from tests.sim.speaker import Speaker
from tests.sim.speech import RATE_HZ, Sound, Speech
from tests.sim.turns import Turns

LATE_S = 3.0
"""A truncation comes at most this late."""


def settings(session: dict[str, object]) -> AnyClientEvent:
    """A `session.update`, as it is read from the wire."""
    frame = msgspec.json.encode({"type": "session.update", "session": {"type": "realtime", **session}})
    event = wire.decode(frame)
    assert not isinstance(event, wire.Fault), event
    return event


class Client:
    """One connection to the server, from its first event to its last."""

    def __init__(
        self, clock: Clock, rng: Random, cascade: Cascade, config: SessionConfig, person: Person, watch: Watch | None
    ) -> None:
        self._clock, self._rng, self._person = clock, rng, person
        self.stream = config.stream
        self.left_at: float | None = None
        self.speech = Speech(person.soft_onset_s)
        self.speaker = Speaker(person)
        ear = Ear(person, self.speaker, config.client_buffer_ms / 1000)
        self._ear, self._most_s = ear, config.run_ahead_ms / 1000
        self.down: Line[Told] = Line(clock, rng, person.network, self._take)
        self.seat = Seat(clock, rng, cascade, config, self.speech, self.down.send, watch)
        self.up: Line[Up] = Line(clock, rng, person.network, self.seat.receive)
        ear.down, ear.up = self.down, self.up
        replies = Replies(self.seat.session, config, self.speech, ear, told_late=cascade.tells_late)
        turns = Turns(self.seat.session, self.speech, replies, config)
        self._audit = Audit(self.seat.session, turns, replies)
        self.settings: ShownSession | None = None
        self.items: list[str] = []
        self.responses: dict[str, ResponseObject] = {}  # open ones
        self._dead: set[str] = set()  # responses of which no sound may come any more
        self._ignored: set[str] = set()  # responses that we have stopped by ourselves
        self._unplayed: set[str] = set()  # items of those, of which the server was told what was heard
        self._truncated: list[wire.TruncateItem] = []
        self._events = 0
        self.sent = 0  # samples of the microphone
        self._own_end = 0  # where the user will have said all
        self._echoed = ""  # the last word that came back from the loudspeaker
        self._replies = replies
        self.here = True
        self.on_turn: Callable[[], None] = lambda: None  # the server has noticed that the user is done
        if person.transcribed:
            delay = {"delay": "low"} if person.partials else {}
            self.update(audio={"input": {"transcription": {"model": "whisper-1", **delay}}})

        if person.uncut:
            self.update(audio={"input": {"turn_detection": {"type": "server_vad", "interrupt_response": False}}})

    def open(self) -> None:
        self.seat.open(self._audit)
        self._microphone()

    @property
    def audit(self) -> Audit:
        return self._audit

    # ---- out ------------------------------------------------------------------------------------------------------

    def _microphone(self) -> None:
        if not self.here:
            return
        samples = self._person.frame_ms * RATE_HZ // 1000
        if self._person.echo_s is not None:
            self._clock.call_later(self._person.echo_s, self._echo, self._sounding(), samples)
        self.sent += samples
        self.up.send(samples)
        self._clock.call_later(self._person.frame_ms / 1000 * self._person.drift, self._microphone)

    def _sounding(self) -> str | None:
        """The word that the loudspeaker says."""
        now = self._clock.now
        item_id = self.speaker.playing(now)
        return self._replies.word_at(item_id, self.speaker.heard(item_id, now)) if item_id else None

    def _echo(self, word: str | None, samples: int) -> None:
        """The microphone hears the loudspeaker, as long as its user is silent."""
        if word is not None and self.here and not self.talking:
            start = max(self.sent, self.speech.end)
            self.speech.add(Sound(start, start + samples, word if word != self._echoed else "", ours=True))
            self._echoed = word

    @property
    def talking(self) -> bool:
        """Whether the user has more to say than the microphone has heard."""
        return self._own_end > self.sent

    def say(self, pause_s: float, length_s: float, word: str) -> None:
        """Let the user make a sound after all that they are making already."""
        start = max(self.sent, self.speech.end) + int(pause_s * RATE_HZ)
        self._own_end = start + int(length_s * RATE_HZ)
        self.speech.add(Sound(start, self._own_end, word))

    def send(self, event: AnyClientEvent) -> None:
        self.up.send(event)

    def update(self, **session: object) -> None:
        self.up.send(settings(session))

    def new_id(self) -> str:
        self._events += 1
        return f"c{self._events}"

    # ---- in -------------------------------------------------------------------------------------------------------

    def _take(self, told: Told) -> None:
        match told:
            case PlayAudio():
                self._play(told)
            case wire.SessionCreated(session=session) | wire.SessionUpdated(session=session):
                self.settings = session
            case wire.SpeechStarted():
                self._speech_started()
            case wire.Committed():
                self.on_turn()
            case wire.ResponseCreated(response=response):
                self.responses[response.id] = response
            case wire.ResponseDone(response=response):
                self._done(response)
            case wire.ItemAdded(item=item):
                self.items.append(item.id)
            case wire.ItemDeleted(item_id=item_id):
                self.items.remove(item_id)
            case _:
                pass

    def _play(self, play: PlayAudio) -> None:
        assert play.response_id not in self._dead, "sound of a reply that was cut"
        response = self.responses.get(play.response_id)
        assert response is not None, "sound of a response that is not open"
        now = self._clock.now
        if response.conversation_id is None:
            return
        if play.response_id in self._ignored:
            if play.item_id not in self._unplayed:
                self._unplayed.add(play.item_id)
                heard = self.speaker.heard(play.item_id, now)
                self.truncate(play.item_id, heard * 1000 // RATE_HZ, heard)
            return
        self.speaker.put(play.item_id, play.upto_sample - play.from_sample, now)
        most_s = self._most_s + 0.3 + self.down.worst_s + self._person.prebuffer_s + 0.05
        assert self.speaker.ahead_s(now) <= most_s, "more sound waits at the client than may run ahead"

    def _speech_started(self) -> None:
        """The user speaks: a client falls silent at once."""
        detection = self.settings.audio.input.turn_detection if self.settings else None
        if detection is None or not detection.interrupt_response:
            return
        self._dead |= {key for key, response in self.responses.items() if response.conversation_id is not None}
        for item_id, heard in self.speaker.cut(self._clock.now):
            if self._rng.random() < self._person.truncates:
                self._tell_cut(item_id, heard)

    def _done(self, response: ResponseObject) -> None:
        del self.responses[response.id]
        details = response.status_details
        if details is not None and details.type == "cancelled":
            self._dead.add(response.id)
            for item in response.output:
                self.speaker.cut(self._clock.now, item.id)

    # ---- cutting by itself ----------------------------------------------------------------------------------------

    def stop(self) -> None:
        """The user presses stop: silent at once, then the server is told."""
        self._ignored |= {key for key, response in self.responses.items() if response.conversation_id is not None}
        self._ear.stopped(self._ignored)
        cut = self.speaker.cut(self._clock.now)
        self.send(wire.CancelResponse(event_id=self.new_id()))
        for item_id, heard in cut:
            self._unplayed.add(item_id)
            self._ear.by_hand(item_id)
            self.truncate(item_id, heard * 1000 // RATE_HZ, heard)

    def _tell_cut(self, item_id: str, heard: int) -> None:
        ms = heard * 1000 // RATE_HZ
        match self._rng.random():
            case late if late < 0.3:
                self._clock.call_later(self._rng.uniform(0.2, LATE_S), self._truncate_if_here, item_id, ms, heard)
            case twice if twice < 0.45:
                self.truncate(item_id, ms, heard)
                self.truncate(item_id, ms, heard)
            case too_far if too_far < 0.55:
                self.truncate(item_id, ms + 10_000, None)
            case _:
                self.truncate(item_id, ms, heard)

    def _truncate_if_here(self, item_id: str, ms: int, heard: int) -> None:
        if self.here:
            self.truncate(item_id, ms, heard)

    def truncate(self, item_id: str, ms: int, heard: int | None) -> None:
        """Claim that an item was heard for so long; `heard` None if that is not true."""
        event = wire.TruncateItem(event_id=self.new_id(), item_id=item_id, audio_end_ms=ms)
        self._truncated.append(event)
        self._ear.claim(event, heard)
        self.send(event)

    def repeat_truncation(self) -> None:
        """Say an old thing again."""
        if self._truncated:
            old = self._rng.choice(self._truncated)
            heard = self._ear.exact(old.item_id)
            self.truncate(old.item_id, old.audio_end_ms, heard)

    @property
    def busy(self) -> bool:
        """Whether anything is being said, told or heard."""
        return (
            bool(self.responses)
            or self.seat.behind
            or self.speaker.playing(self._clock.now) is not None
            or self.talking
        )

    # ---- leaving --------------------------------------------------------------------------------------------------

    def leave(self, noticed_after_s: float) -> None:
        """Be gone; the server notices later."""
        self.here, self.left_at = False, self._clock.now
        self.up.cut()
        self.down.cut()
        self._clock.call_later(noticed_after_s, self.seat.leave)
