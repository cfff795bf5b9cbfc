"""Is one call of a load test: it talks, is answered, interrupts now and then, and tells what it heard."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from random import Random

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import InvalidStatus, WebSocketException

from loadtest.caller import Arrived, Caller
from loadtest.load.account import Account
from loadtest.load.records import Answered, Call, Closed, Failed, Heard, Opened, Record, Refused, Spoke, Stopped
from loadtest.microphone import Said
from loadtest.speech import speech
from loadtest.wire import Message, Wire

UTTERANCES = ("best_of_times", "quick_fox", "everything", "counting", "wisdom", "season")
INSTRUCTIONS = "You are a friendly voice assistant. Answer in two or three short sentences."
TURNS_PER_CALL = 6
INTERRUPTED = 3
"""One turn in so many is spoken over."""
LISTEN_S = 1.0
"""How much of an answer is heard before it is spoken over."""
BEFORE_S = 0.3
"""The answer counts as playing if it was audible this long before the interruption."""
PAUSE_S = (0.8, 2.5)
"""A user is silent for a time between these after an answer."""
REDIAL_S = 2.0
"""And for so long between two calls."""
MOST_RETRY_S = 30.0
"""A full server may ask for no more."""

Tell = Callable[[Record], Awaitable[None]]


class Witness(Caller):
    """A caller that holds the server to account."""

    def __init__(self, socket: ClientConnection, wire: Wire, seed: int) -> None:
        super().__init__(socket, wire, seed)
        self.account = Account()

    async def _take(self, message: Message, now: float) -> None:
        self.account.take(message, now, self.loudspeaker.free_at)
        await super()._take(message, now)

    async def done(self, response_id: str, after: float) -> Arrived:
        """The `response.done` of a response."""

        def found() -> Arrived | None:
            done = (one for one in self.since(after) if one.type == "response.done")
            return next((one for one in done if one.event["response"]["id"] == response_id), None)

        return await self._first(found, "response.done", after)

    async def until_lost(self) -> Exception:
        """Return what has ended the connection, once it has ended."""
        async with self._news:
            while self._lost is None:
                await self._news.wait()
            return self._lost


async def call(order: Call, tell: Tell) -> None:
    """Dial, talk for some turns, hang up. What goes wrong is told, and ends the call; `Closed` is told last."""
    again_s, began = REDIAL_S, time.monotonic()
    try:
        caller = await Witness.dial(order.url, order.key, INSTRUCTIONS, seed=order.user)
    except InvalidStatus as refused:
        again_s = await _refused(order.user, refused, tell)
    except (OSError, WebSocketException) as error:  # a TimeoutError is an OSError
        await tell(Failed(order.user, time.time(), "no_session", f"{type(error).__name__}: {error}"))
    else:
        async with caller:
            await tell(Opened(order.user, time.time(), (time.monotonic() - began) * 1000))
            await _Talk(order, caller, tell).run()
    finally:
        await tell(Closed(order.user, time.time(), again_s))


async def _refused(user: int, refused: InvalidStatus, tell: Tell) -> float:
    """Tell it; how long to wait then."""
    status, after = refused.response.status_code, refused.response.headers.get("Retry-After", "")
    if status != 503:
        body = (refused.response.body or b"").decode(errors="replace")[:300]
        await tell(Failed(user, time.time(), f"refused_{status}", body))
        return REDIAL_S
    await tell(Refused(user, time.time()))
    return min(float(after), MOST_RETRY_S) if after.isdecimal() else REDIAL_S


class _Talk:
    """The turns of one call."""

    def __init__(self, order: Call, caller: Witness, tell: Tell) -> None:
        self._user, self._answer_s = order.user, order.answer_s
        self._caller, self._tell = caller, tell
        self._chance = Random(order.user)
        self._said = order.user  # so that users do not speak in unison

    async def run(self) -> None:
        """Take all turns, or as many as the line and the server allow."""
        turns = asyncio.ensure_future(self._turns())
        lost = asyncio.ensure_future(self._caller.until_lost())
        try:
            await asyncio.wait((turns, lost), return_when=asyncio.FIRST_COMPLETED)
            if lost.done():
                # What is no event, or lacks a field, ends the listening too.
                error = lost.result()
                kind = "lost" if isinstance(error, OSError | WebSocketException) else "invalid_event"
                await self._failed(kind, f"{type(error).__name__}: {error}")
            else:
                turns.result()
        except TimeoutError as error:
            await self._failed("stuck", str(error) or "the server reads no more of what is said")
        finally:
            turns.cancel()
            lost.cancel()
            await asyncio.gather(turns, lost, return_exceptions=True)
            await self._settle()

    async def _turns(self) -> None:
        for turn in range(TURNS_PER_CALL):
            said = await self._say()
            heard = await self._answer(said)
            if heard is not None and (turn + self._user) % INTERRUPTED == 0:
                said = await self._interrupt(*heard)
                heard = await self._answer(said)
            if heard is None:
                return  # what comes late must not pass for the answer of the next turn
            await self._caller.quiet(self._chance.uniform(*PAUSE_S))
            done = await self._caller.done(heard[0], said.ended)
            if done.event["response"]["status"] == "cancelled":
                await self._failed("cut", "an answer was cancelled although nobody spoke over it")
            await self._settle()

    async def _say(self) -> Said:
        self._said += 1
        return await self._caller.say(speech(UTTERANCES[self._said % len(UTTERANCES)])[0])

    async def _answer(self, said: Said) -> tuple[str, float] | None:
        """The id of the answer and when its first sound is heard; None, and told, when there is none in time."""
        try:
            async with asyncio.timeout(self._answer_s):
                created = await self._caller.wait_for("response.created", said.ended)
                heard = await self._caller.first_voice(created.at)
        except TimeoutError:
            seen = dict.fromkeys(one.type for one in self._caller.since(said.ended))
            kind = "inaudible" if "response.output_audio.delta" in seen else "unanswered"
            await self._failed(kind, f"nothing heard within {self._answer_s:g} s; instead: {', '.join(seen)}")
            return None
        await self._tell(Answered(self._user, time.time(), (heard - said.ended) * 1000))
        return created.event["response"]["id"], heard

    async def _interrupt(self, response_id: str, heard: float) -> Said:
        """Speak over an answer; tell how long it went on, unless it was over of itself."""
        caller = self._caller
        await caller.until(heard + LISTEN_S)
        said = await self._say()
        if caller.loudspeaker.last_voiced(said.began - BEFORE_S, said.began) is not None:
            noticed = await caller.wait_for("input_audio_buffer.speech_started", said.began)
            if any(cut.at == noticed.at and cut.lost_s > 0 for cut in caller.account.cuts):
                last = caller.loudspeaker.last_voiced(said.began, noticed.at)
                stop_s = 0.0 if last is None else last - said.began
                await self._tell(Stopped(self._user, time.time(), stop_s * 1000))
        await caller.done(response_id, heard)
        return said

    async def _settle(self) -> None:
        """Tell what has come together since it was told last."""
        account, microphone = self._caller.account, self._caller.microphone
        problems, account.problems = account.problems, []
        for problem in problems:
            await self._failed(problem.kind, problem.message)
        if account.late_ms:
            late_ms, account.late_ms = account.late_ms, []
            await self._tell(Heard(self._user, time.time(), [round(one, 1) for one in late_ms]))
        if microphone.late_s:
            late_s, microphone.late_s = microphone.late_s, 0.0
            await self._tell(Spoke(self._user, time.time(), round(late_s * 1000, 1)))

    async def _failed(self, kind: str, message: str) -> None:
        await self._tell(Failed(self._user, time.time(), kind, message))
