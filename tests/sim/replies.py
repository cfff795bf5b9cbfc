"""Watches what the assistant makes, sends and is told: nothing stale, nothing too early, nothing that nobody heard."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

from duplex_server.realtime import wire
from duplex_server.realtime.config import SessionConfig
from duplex_server.realtime.effects import Begin, Cancel, ClearAudio, Effect, Pace, PlayAudio, Prepare, Send
from duplex_server.realtime.inputs import Event, Input, Spoke, Voice
from duplex_server.realtime.playout import PIECE_MS
from duplex_server.realtime.schema import ResponseObject
from duplex_server.realtime.session import Session
from pipeline.chunk import Prompt, Reply, Think
from pipeline.scheduler import AHEAD_S
from tests.sim.bodies import LONGEST_CLAUSE_S, word
from tests.sim.ear import Ear
from tests.sim.speech import RATE_HZ, Speech

LIVE = 24
"""More replies at a time than this are a leak; people ask for few beside the conversation."""
MADE_AHEAD_S = AHEAD_S + 2 * LONGEST_CLAUSE_S
"""A stage begins on its next clause before it can know how long the last one sounds."""
LATE_S = 4 * LONGEST_CLAUSE_S
"""What it says meanwhile where it is told late: its words are long under way, or its process does not read."""
SPEECH = 0.9
"""No setting of anybody's takes this for silence."""
EXACT = RATE_HZ // 100
"""How far off an exact cut may be: a millisecond of the protocol, and what a resampler holds back."""


@dataclass(slots=True)
class _Made:
    """One reply, from its `Begin` on."""

    spoken: bool
    told: bool
    asked: str | None
    marks: list[tuple[int, int]] = field(default_factory=list)  # samples and characters, both so far
    sent: int = 0
    free_at: float = 0.0
    default: bool = False
    response_id: str | None = None
    exact: bool = False
    stopped: bool = False
    cut: bool = False

    @property
    def samples(self) -> int:
        return self.marks[-1][0] if self.marks else 0

    def heard(self, now: float) -> float:
        """By how many samples the playing has come on, less than none before it begins."""
        return self.sent - (self.free_at - now) * RATE_HZ

    def least(self, samples: float) -> int:
        """How many characters the first samples speak at least; where words have exact ends, no begun ones."""
        at = bisect_right(self.marks, samples, key=lambda mark: mark[0])
        return (self.marks[at - 1][1] if at else 0) if self.exact else self.characters(samples) - 1

    def characters(self, samples: float) -> int:
        """How many characters the first samples speak, begun ones included."""
        at = bisect_left(self.marks, samples, key=lambda mark: mark[0])
        before = self.marks[at - 1] if at else (0, 0)
        if at == len(self.marks):
            return before[1]
        share = (samples - before[0]) / max(1, self.marks[at][0] - before[0])
        return before[1] + int(max(0.0, share) * (self.marks[at][1] - before[1])) + 1


class Replies:
    """The assistant's side of one session."""

    def __init__(
        self, session: Session, config: SessionConfig, speech: Speech, ear: Ear, *, told_late: bool = False
    ) -> None:
        self._session, self._config, self._speech, self._ear = session, config, speech, ear
        self._made: dict[Reply, _Made] = {}
        self._responses: dict[str, bool] = {}  # open ones, by whether the conversation's
        self._default: set[str] = set()
        self._unbegun: list[str] = []  # responses that wait for words before they are begun
        self._by_response: dict[str, Reply] = {}
        self._said: dict[str, str] = {}
        self._by_item: dict[str, Reply] = {}
        self._most_ahead_s = MADE_AHEAD_S + (LATE_S if told_late else 0.0)
        self.parts_given = False
        self.heard_s = 0.0

    def word_at(self, item_id: str, samples: int) -> str:
        """The word that the sound of an item says after so many samples; "" when nothing is known of its words."""
        reply, said = self._by_item.get(item_id), self._said.get(item_id, "")
        if reply is None:
            return ""
        at = min(self._made[reply].characters(samples), len(said))
        return said[said.rfind(" ", 0, at) + 1 :].split(" ", 1)[0]

    @property
    def secret(self) -> bool:
        """Whether a reply is made that nobody was told of."""
        return any(not made.told and not made.stopped for made in self._made.values())

    def of(self, response_id: str) -> Reply | None:
        """The reply of a response, once anything was told of it."""
        return self._by_response.get(response_id)

    def asked(self, reply: Reply) -> str | None:
        """The response that a reply was begun for; none if it was begun on a guess."""
        return self._made[reply].asked

    def unheard(self, reply: Reply, now: float) -> tuple[bool, bool]:
        """Whether surely, and whether perhaps, nothing of a reply was heard."""
        made = self._made[reply]
        ahead = made.heard(now)
        return made.sent == 0 or ahead < -EXACT, made.sent == 0 or ahead <= EXACT

    def left(self, reply: Reply, now: float) -> float:
        """How many samples were sent and not heard."""
        made = self._made[reply]
        return made.sent - max(0.0, made.heard(now))

    def cut_by(self, effects: Iterable[Effect]) -> list[Reply]:
        """The conversation's spoken replies that fell silent."""
        cleared = [effect.reply for effect in effects if isinstance(effect, ClearAudio)]
        return [reply for reply in cleared if (made := self._made.get(reply)) and made.default and made.sent]

    # ---- what goes in ---------------------------------------------------------------------------------------------

    def given(self, given: Input, now: float) -> None:
        if isinstance(given, Spoke):
            self._spoke(given, now)
        self.parts_given = (
            isinstance(given, Event)
            and isinstance(given.event, wire.CreateResponse)
            and given.event.response is not None
            and isinstance(given.event.response.input, tuple)
        )

    def _spoke(self, spoke: Spoke, now: float) -> None:
        made = self._made[spoke.reply]
        chars = spoke.text_span[1] if spoke.text_span else made.marks[-1][1] if made.marks else 0
        made.exact |= spoke.exact
        made.marks.append((made.samples + spoke.samples, chars))
        ahead_s = (made.samples - max(0.0, made.heard(now) if made.sent else 0.0)) / RATE_HZ
        waits_s = max((one.free_at - now for one in self._made.values() if one.default and not one.cut), default=0.0)
        assert ahead_s <= self._most_ahead_s + max(0.0, waits_s if made.sent == 0 else 0.0), (
            f"{ahead_s:.1f} s of speech are made ahead"
        )

    # ---- what comes out -------------------------------------------------------------------------------------------

    def check(self, given: Input, now: float, effects: tuple[Effect, ...]) -> None:
        for before, effect, after in zip((None, *effects), effects, (*effects[1:], None), strict=False):
            match effect:
                case Send(event=wire.ResponseCreated(response=response)):
                    self._created(response, before, after)
                case Begin(think=think):
                    self._begin(effect, before)
                    self._prompt(think.prompt, now)
                case Prepare(prompt=prompt):
                    self._prompt(prompt, now)
                case PlayAudio():
                    self._play(effect, now)
                case ClearAudio(reply=reply):
                    if (made := self._made.get(reply)) is not None:
                        made.cut = True
                case Cancel(fence=fence) if isinstance(fence, Reply) and fence in self._made:
                    self._made[fence].stopped = True
                case Pace(reply=reply):
                    assert not self._made[reply].stopped, "a reply that was stopped is paced"
                case Send(event=wire.SpeechStarted()):
                    self._interrupted(now)
                case Send(event=event):
                    self._event(event, given)
                case _:
                    pass
        if isinstance(given, Voice) and given.probability > SPEECH:
            assert not self.secret, "the user goes on, and what was begun on half a turn goes on too"
        live = sum(self._session.wants(reply) for reply, made in self._made.items() if not made.stopped)
        assert live <= LIVE, "more replies live at a time than were asked for"

    def _interrupted(self, now: float) -> None:
        """Whoever was to be heard is heard no more, if that is what the client wants."""
        detection = self._session.settings.audio.input.turn_detection
        if detection is not None and detection.interrupt_response:
            for made in self._made.values():
                made.cut |= made.default and made.free_at > now

    def _created(self, response: ResponseObject, before: Effect | None, after: Effect | None) -> None:
        default = response.conversation_id is not None
        self._responses[response.id] = default
        if default:
            self._default.add(response.id)
            assert sum(self._responses.values()) == 1, "two responses of the conversation at a time"
        if default and isinstance(before, Pace) and not self._made[before.reply].told and not isinstance(after, Begin):
            self._made[before.reply].told = True  # it was begun on a guess that has come true
        else:
            self._unbegun.append(response.id)

    def _begin(self, begin: Begin, before: Effect | None) -> None:
        asked = self._unbegun[0] if self._unbegun else None
        if isinstance(before, Send) and isinstance(before.event, wire.ResponseCreated):
            asked = before.event.response.id
        if asked is not None:
            self._unbegun.remove(asked)
        self._made[begin.think.fence] = _Made(begin.speak is not None, told=asked is not None, asked=asked)
        if asked is None:
            self._tentative(begin.think)

    def _tentative(self, think: Think) -> None:
        """One that nobody was told of is made of what was really said so far."""
        account, last = self._session.input, think.prompt.parts[-1]
        said = self._speech.words(account.start, account.appended)
        text = getattr(last, "text", "")
        assert text, "begun on nothing"
        assert said.startswith(text), f"begun on {text!r}, said was {said!r}"

    def _play(self, play: PlayAudio, now: float) -> None:
        made = self._made[play.reply]
        assert not made.stopped, "sound of a reply that was stopped"
        self._belongs(play.reply, play.response_id)
        self._by_item[play.item_id] = play.reply
        run_ahead_s, buffer_s = self._config.run_ahead_ms / 1000, self._config.client_buffer_ms / 1000
        if made.sent == 0:
            made.default = play.response_id in self._default
            others = (one for one in self._made.values() if one.default and not one.cut and one is not made)
            made.free_at = max((one.free_at for one in others), default=0.0) if made.default else 0.0
        length = play.upto_sample - play.from_sample
        made.sent = play.upto_sample
        made.free_at = max(made.free_at, now + buffer_s) + length / RATE_HZ
        most = max(run_ahead_s, buffer_s) + PIECE_MS / 1000 + 1e-6
        assert made.free_at - now <= most, f"sound runs {made.free_at - now:.2f} s ahead"

    def _event(self, event: wire.AnyServerEvent, given: Input) -> None:
        match event:
            case wire.ResponseDone(response=response):
                del self._responses[response.id]
                self._unbegun = [waits for waits in self._unbegun if waits != response.id]
            case wire.TranscriptDelta(delta=delta) | wire.TextDelta(delta=delta):
                self._tell(event.response_id, event.item_id, delta)
            case wire.ItemTruncated():
                assert isinstance(given, Event)
                self._ear.settled(given.event)
            case _:
                pass

    def _tell(self, response_id: str, item_id: str, delta: str) -> None:
        name = delta.split(".")[0]
        reply = next((reply for reply in self._made if word(reply) == name), None)
        assert reply is not None, f"{delta!r} comes from nowhere"
        assert not self._made[reply].stopped, f"{delta!r} comes from a reply that was stopped"
        self._belongs(reply, response_id)
        self._said[item_id] = self._said.get(item_id, "") + delta
        self._by_item[item_id] = reply

    def _belongs(self, reply: Reply, response_id: str) -> None:
        """A response tells of one reply, and a reply is told of in one response."""
        made = self._made[reply]
        assert made.response_id in (None, response_id), "one reply in two responses"
        assert self._by_response.setdefault(response_id, reply) == reply, "two replies in one response"
        made.response_id, made.told = response_id, True
        if response_id in self._default:
            made.default = True

    # ---- prompts --------------------------------------------------------------------------------------------------

    def _prompt(self, prompt: Prompt, now: float) -> None:
        if self.parts_given:
            return
        for part in prompt.parts:
            if getattr(part, "role", "") == "assistant" and part.id in self._said:
                self._heard(part.id, getattr(part, "text", ""), now)

    def _heard(self, item_id: str, text: str, now: float) -> None:
        said, made = self._said[item_id], self._made[self._by_item[item_id]]
        assert said.startswith(text), f"the model is told {text!r}, said was {said!r}"
        if not made.spoken or self._ear.claimed(item_id, made.response_id):
            return
        exact = self._ear.exact(item_id)
        if exact is not None:
            low = whole_words(said, made.least(exact - EXACT))
            assert len(low) <= len(text) <= made.characters(exact + EXACT), (
                f"the model is told {text!r} of {said!r}, heard were {exact} samples"
            )
        elif made.cut:
            most = self._ear.heard(item_id, now) + self._ear.error_s(item_id) * RATE_HZ
            assert len(text) <= made.characters(most), (
                f"the model is told {text!r} of {said!r}, heard were {most / RATE_HZ:.2f} s at most"
            )

    # ---- the end --------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Nothing is being made any more."""
        assert not self._responses, "a response without an end"
        left = [reply for reply, made in self._made.items() if self._session.wants(reply)]
        assert not left, f"still waited for: {left}"
        untold = [reply for reply, made in self._made.items() if not made.told and not made.stopped]
        assert not untold, f"begun, never told and never stopped: {untold}"
        self.heard_s = sum(made.sent for made in self._made.values()) / RATE_HZ


def whole_words(text: str, length: int) -> str:
    """The words of `text` that end within its first `length` characters."""
    if length >= len(text):
        return text.rstrip()
    return text[: text.rfind(" ", 0, max(0, length) + 1) + 1].rstrip()
