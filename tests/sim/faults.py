"""Plants faults in the cores, one at a time: each is a small thing that somebody could get wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
import pytest

from duplex_server.realtime import answers, conversation, listening
from duplex_server.realtime.answers import Answers, Cut
from duplex_server.realtime.conversation import Conversation, Entry, parts_of
from duplex_server.realtime.echo import Said
from duplex_server.realtime.effects import Cancel, Effect, Pace
from duplex_server.realtime.hearing import Heard, Hearing
from duplex_server.realtime.idle import IdleTimer
from duplex_server.realtime.input_buffer import InputBuffer, Span, UnheardReason
from duplex_server.realtime.inputs import Input, Voice
from duplex_server.realtime.listening import Listening
from duplex_server.realtime.live import LiveReply
from duplex_server.realtime.orders import Order
from duplex_server.realtime.playout import Playout
from duplex_server.realtime.response import Response
from duplex_server.realtime.schema import CancelReason, ResponseStatus, ResponseUsage, StatusDetails
from duplex_server.realtime.session import Session
from duplex_server.realtime.wire import AnyServerEvent, Committed, SpeechStarted
from pipeline.chunk import Fence, Part, Reply
from pipeline.errors import FailureKind
from pipeline.host import Host
from pipeline.message import Loaded
from pipeline.scheduler import Emit, StageScheduler

Plant = Callable[[pytest.MonkeyPatch], None]


def done_twice(patch: pytest.MonkeyPatch) -> None:
    done = Response.done

    def twice(
        self: Response, status: ResponseStatus, details: StatusDetails | None, usage: ResponseUsage
    ) -> list[AnyServerEvent]:
        events = done(self, status, details, usage)
        return [*events, msgspec.structs.replace(events[-1], event_id=self._new_id("event"))]

    patch.setattr(Response, "done", twice)


def late_chunk_accepted(patch: pytest.MonkeyPatch) -> None:
    """A cancelled reply is still found, for a while."""
    cancel, find = Answers._cancel, Answers._find
    gone: dict[Reply, LiveReply] = {}

    def remember(self: Answers, live: LiveReply, reason: CancelReason, now: float) -> None:
        cancel(self, live, reason, now)
        gone[live.generation.reply] = live

    patch.setattr(Answers, "_cancel", remember)
    patch.setattr(Answers, "_find", lambda self, reply: find(self, reply) or gone.get(reply))


def later_epoch_will_do(patch: pytest.MonkeyPatch) -> None:
    """`>=` where `==` is meant."""

    def find(self: Answers, reply: Reply) -> LiveReply | None:
        tentative = (self._tentative,) if self._tentative is not None else ()
        return next((o for o in (*tentative, *self._live.values()) if o.generation.reply.epoch >= reply.epoch), None)

    patch.setattr(Answers, "_find", find)


def sent_is_heard(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Playout, "heard", lambda self, now: self.sent)


def onset_prefix_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(listening, "prefix_samples", lambda detection: 0)


def tentative_tells(patch: pytest.MonkeyPatch) -> None:
    speculate = Answers.speculate

    def tell(self: Answers, order: Order, part: Part) -> None:
        speculate(self, order, part)
        assert self._tentative is not None
        self._send(self._tentative.response.created())

    patch.setattr(Answers, "speculate", tell)


def cough_takes_the_answer(patch: pytest.MonkeyPatch) -> None:
    on_heard = Listening._on_heard

    def forget(self: Listening, heard: Heard, now: float) -> None:
        on_heard(self, heard, now)
        if not heard.text:
            self._due.clear()

    patch.setattr(Listening, "_on_heard", forget)


def tentative_survives_speech(patch: pytest.MonkeyPatch) -> None:
    voice = Listening.voice

    def keep(self: Listening, given: Voice, now: float) -> None:
        tentative = self._answers._tentative
        at = len(self._out)
        voice(self, given, now)
        if tentative is not None and self._answers._tentative is None:
            self._answers._tentative = tentative
            cancel = Cancel(tentative.generation.reply)
            self._out[at:] = [effect for effect in self._out[at:] if effect != cancel]

    patch.setattr(Listening, "voice", keep)


def pace_never_sent(patch: pytest.MonkeyPatch) -> None:
    feed = Session.feed

    def silent(self: Session, given: Input, now: float) -> tuple[Effect, ...]:
        return tuple(effect for effect in feed(self, given, now) if not isinstance(effect, Pace))

    patch.setattr(Session, "feed", silent)


def talker_not_cancelled(patch: pytest.MonkeyPatch) -> None:
    cancel = Host.cancel

    def thinker_only(self: Host, fence: Fence) -> None:
        if self.role != "talker":
            cancel(self, fence)

    patch.setattr(Host, "cancel", thinker_only)


def ledger_off_by_one(patch: pytest.MonkeyPatch) -> None:
    commit = InputBuffer.commit

    def one_more(self: InputBuffer, upto_sample: int) -> Span:
        span = commit(self, upto_sample)
        self.committed += 1
        return span

    patch.setattr(InputBuffer, "commit", one_more)


def truncate_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Conversation, "truncate", lambda self, entry, audio_end_ms: min(audio_end_ms, entry.audio_ms))


def playing_reply_not_cut(patch: pytest.MonkeyPatch) -> None:
    """What is generated and sent is thought to be over."""
    interrupt = Answers.interrupt

    def only_active(self: Answers, now: float) -> Cut | None:
        self._playing = []
        return interrupt(self, now)

    patch.setattr(Answers, "interrupt", only_active)


def run_ahead_unbounded(patch: pytest.MonkeyPatch) -> None:
    init = Playout.__init__

    def far(self: Playout, run_ahead_ms: int, client_buffer_ms: int) -> None:
        init(self, 100 * run_ahead_ms, client_buffer_ms)

    patch.setattr(Playout, "__init__", far)


def half_a_turn_is_all(patch: pytest.MonkeyPatch) -> None:
    """The pass of the first pause counts although the user went on."""
    pause = Hearing.pause

    def only_once(self: Hearing, span: Span) -> None:
        if self._open is not None and self._open.fence is None:
            pause(self, span)

    patch.setattr(Hearing, "pause", only_once)
    patch.setattr(Hearing, "resume", lambda self: None)


def owed_answer_forgotten(patch: pytest.MonkeyPatch) -> None:
    interrupt = Answers.interrupt

    def forget(self: Answers, now: float) -> Cut | None:
        cut = interrupt(self, now)
        return Cut(False, False) if cut is not None else None

    patch.setattr(Answers, "interrupt", forget)


def wordless_turn_answered(patch: pytest.MonkeyPatch) -> None:
    on_heard = Listening._on_heard

    def answer(self: Listening, heard: Heard, now: float) -> None:
        was_due = heard.item_id in self._due
        on_heard(self, heard, now)
        if was_due:
            self._due[heard.item_id] = None

    patch.setattr(Listening, "_on_heard", answer)


def deadline_in_the_past(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Playout, "deadline", lambda self: 0.0 if self._queue else None)


def two_at_a_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Answers, "active_id", None)


def last_item_not_told(patch: pytest.MonkeyPatch) -> None:
    def most(entries: Iterable[Entry]) -> tuple[Part, ...]:
        return parts_of(entries)[:-1]

    for module in (answers, conversation):
        patch.setattr(module, "parts_of", most)


def loss_not_told(patch: pytest.MonkeyPatch) -> None:
    """A stage that dies takes its jobs with it, and nobody hears of them."""

    def lost(self: Host, kind: FailureKind, message: str) -> None:
        return None

    patch.setattr(Host, "lost", lost)


def held_jobs_dropped(patch: pytest.MonkeyPatch) -> None:
    back = Host.back

    def empty_handed(self: Host, loaded: Loaded) -> None:
        for live in self._live.values():
            live.held = [] if live.held else live.held
        back(self, loaded)

    patch.setattr(Host, "back", empty_handed)


def stream_not_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Host, "forget", lambda self, stream: None)


def failure_without_a_last_chunk(patch: pytest.MonkeyPatch) -> None:
    failed = StageScheduler._failed

    def open_ended(self: StageScheduler, fence: Fence, seq: int, kind: FailureKind, message: str) -> Emit:
        return Emit(msgspec.structs.replace(failed(self, fence, seq, kind, message).chunk, last=False))

    patch.setattr(StageScheduler, "_failed", open_ended)


def replies_take_turns(patch: pytest.MonkeyPatch) -> None:
    """A reply begins at the client without regard to the one that still plays: heard is estimated too high."""
    create = Answers.create

    def at_once(self: Answers, order: Order, waits_for: set[str], failure: object, now: float) -> None:
        playing, self._playing = self._playing, []
        create(self, order, waits_for, failure, now)  # type: ignore[arg-type]  # passed on as it came
        self._playing += playing

    patch.setattr(Answers, "create", at_once)


def cut_moves_on(patch: pytest.MonkeyPatch) -> None:
    """What was heard is forgotten when the item is told again."""
    patch.setattr(Conversation, "hear", lambda self, entry, samples: None)


def too_many_wait(patch: pytest.MonkeyPatch) -> None:
    """However many turns wait for their words, none is given up."""
    patch.setattr(Hearing, "give_up", lambda self: None)


def newest_given_up(patch: pytest.MonkeyPatch) -> None:
    """The turn that an answer is due to makes room for those before it."""
    give_up = Hearing.give_up

    def newest(self: Hearing) -> Heard | None:
        committed = list(self._committed.items())
        self._committed = dict([committed[0], *reversed(committed[1:])]) if committed else {}
        return give_up(self)

    patch.setattr(Hearing, "give_up", newest)


def failure_unaccounted(patch: pytest.MonkeyPatch) -> None:
    """Samples of an item that got no words are lost from the account."""
    settle = InputBuffer.settle

    def only_heard(self: InputBuffer, samples: int, failure: UnheardReason | None) -> None:
        if failure is None:
            settle(self, samples, failure)

    patch.setattr(InputBuffer, "settle", only_heard)


def own_voice_answered(patch: pytest.MonkeyPatch) -> None:
    """An echo is known only where it has cut what it is of."""
    said = Answers.said

    def of_what_was_cut(self: Answers, began: float, now: float, *, wary: bool) -> Said:
        active = self._default()
        uncut = active is not None and bool(active.playout.sent)
        return Said("", "", False) if uncut or self._playing else said(self, began, now, wary=wary)

    patch.setattr(Answers, "said", of_what_was_cut)


def user_s_words_eaten(patch: pytest.MonkeyPatch) -> None:
    """Who speaks into an echo is taken for it: most of it is ours."""

    def mostly(heard: str, said: Said) -> bool:
        ours = said.words.split()
        return 2 * sum(word in ours for word in heard.split()) >= len(heard.split()) > 0

    patch.setattr(listening, "echoes", mostly)


def speech_is_taken_for_silence(patch: pytest.MonkeyPatch) -> None:
    """The wait for a user who says nothing goes on while they speak."""
    told = IdleTimer.told

    def deaf(self: IdleTimer, event: AnyServerEvent, heard_until: float) -> None:
        if not isinstance(event, SpeechStarted | Committed):
            told(self, event, heard_until)

    patch.setattr(IdleTimer, "told", deaf)


FAULTS: dict[str, Plant] = {
    plant.__name__: plant
    for plant in (
        done_twice,
        late_chunk_accepted,
        later_epoch_will_do,
        sent_is_heard,
        onset_prefix_lost,
        tentative_tells,
        cough_takes_the_answer,
        tentative_survives_speech,
        pace_never_sent,
        talker_not_cancelled,
        ledger_off_by_one,
        truncate_ignored,
        playing_reply_not_cut,
        run_ahead_unbounded,
        half_a_turn_is_all,
        owed_answer_forgotten,
        wordless_turn_answered,
        deadline_in_the_past,
        two_at_a_time,
        last_item_not_told,
        loss_not_told,
        held_jobs_dropped,
        stream_not_forgotten,
        failure_without_a_last_chunk,
        replies_take_turns,
        cut_moves_on,
        too_many_wait,
        newest_given_up,
        failure_unaccounted,
        own_voice_answered,
        user_s_words_eaten,
        speech_is_taken_for_silence,
    )
}
