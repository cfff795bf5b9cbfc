"""Holds each step of a session against what must be true of it, knowing what was really said and heard."""

from __future__ import annotations

from duplex_server.realtime.effects import Effect
from duplex_server.realtime.inputs import AudioIn, Input, Tick, Voice
from duplex_server.realtime.session import Session
from duplex_server.realtime.wire import AnyServerEvent
from tests.realtime.grammar import Grammar
from tests.sim.replies import Replies
from tests.sim.turns import Turns


class Audit:
    """All that is watched of one session."""

    def __init__(self, session: Session, turns: Turns, replies: Replies) -> None:
        self._session = session
        self._grammar = Grammar(session)
        self.turns, self.replies = turns, replies

    def check(self, given: Input, now: float, effects: tuple[Effect, ...], told: list[AnyServerEvent]) -> None:
        """Every step; those that lead to nothing, which are most, need no grammar."""
        self.turns.given(given)
        self.replies.given(given, now)
        if not effects and isinstance(given, AudioIn | Voice | Tick) and not self.replies.secret:
            self._ledger(now)
            return
        self._grammar.check(given, now, effects, told)
        self.replies.check(given, now, effects)
        self.turns.check(given, now, effects)

    def _ledger(self, now: float) -> None:
        account = self._session.input
        assert account.committed + account.discarded + account.pending == account.appended
        assert account.waiting == self._session.waiting_samples, "an item that neither waits nor got its end"
        deadline = self._session.deadline()
        assert deadline is None or deadline > now, "the driver would tick for ever"

    def finish(self) -> None:
        """The session is quiet and about to end."""
        self._grammar.finish()
        self.turns.finish()
        self.replies.finish()
