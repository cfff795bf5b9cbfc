"""Is one WebSocket connection to the server under test: it sends, waits with deadlines, and keeps all that came."""

from __future__ import annotations

import asyncio
import base64
import itertools
import time
from collections.abc import Callable, Iterable

import msgspec
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from duplex_server.conformance.checks import Deviation, Json, at, expect, shorten
from duplex_server.conformance.grammar import Grammar
from duplex_server.conformance.sound import MS, RATE_HZ, Pcm, encoded

SOON_S = 15.0
"""How long an answer that needs no model is waited for."""
QUIET_S = 1.5
"""How long a server is watched for what it should not do of its own accord."""
FRAME_MS = 100
MANUAL: Json = {"input": {"turn_detection": None}}
"""The settings of sound in which nobody but the client says where a turn ends."""

Where = Callable[[Json], bool]


class Peer:
    """A session, as its client sees it. `events` holds all that came, in order; `patience_s` is for the models."""

    def __init__(self, socket: ClientConnection, patience_s: float) -> None:
        self.socket, self.patience_s = socket, patience_s
        self.events: list[Json] = []
        self.grammar = Grammar()
        self.closed: ConnectionClosed | None = None
        self.truncations = 0
        self.kind: str | None = None  # what its first event says; the older dialect has none
        self._news = asyncio.Condition()
        self._numbers = itertools.count(1)

    async def listen(self) -> None:
        """Take in events until the connection is closed."""
        try:
            async for frame in self.socket:
                event = self.grammar.read(frame)
                if event is not None:
                    async with self._news:
                        self.events.append(event)
                        self._news.notify_all()
            raise ConnectionClosed(self.socket.protocol.close_rcvd, self.socket.protocol.close_sent)
        except ConnectionClosed as error:
            async with self._news:
                self.closed = error
                self._news.notify_all()

    # ---- what came ------------------------------------------------------------------------------------------------

    def kinds(self, since: int = 0) -> list[str]:
        """The types of the events from an index on."""
        return [event["type"] for event in self.events[since:]]

    def of(self, kind: str, since: int = 0) -> list[Json]:
        """The events of a type from an index on."""
        return [event for event in self.events[since:] if event["type"] == kind]

    async def wait(
        self,
        kind: str,
        since: int = 0,
        *,
        where: Where = lambda event: True,
        within_s: float | None = None,
        errors: bool = False,
    ) -> Json:
        """The first event of a type from an index on. An `error` that comes before it ends the wait, unless allowed.

        Raises `Deviation` when it does not come in time: soon, unless more is given.
        """
        within_s = SOON_S if within_s is None else within_s
        try:
            async with asyncio.timeout(within_s), self._news:
                while True:
                    for event in self.events[since:]:
                        if event["type"] == kind and where(event):
                            return event
                        if event["type"] == "error" and not errors:
                            raise Deviation(kind, event)
                    if self.closed is not None:
                        raise Deviation(kind, f"the end of the connection: {self.closed}")
                    await self._news.wait()
        except TimeoutError:
            raise Deviation(f"{kind} within {within_s:g} s", f"only {_collapsed(self.kinds(since))}") from None

    async def over(self) -> ConnectionClosed:
        """The end of the connection, by the server. Raises `Deviation`."""
        try:
            async with asyncio.timeout(SOON_S), self._news:
                while self.closed is None:
                    await self._news.wait()
            return self.closed
        except TimeoutError:
            raise Deviation(f"the server to close within {SOON_S:g} s", _collapsed(self.kinds())) from None

    async def settle(self) -> None:
        """Return once the server has dealt with all that was sent, and what followed at once from it is here."""
        since = len(self.events)
        await self.send("session.update", session=self._session())
        await self.wait("session.updated", since, errors=True)

    async def quiet(self, unwanted: Iterable[str], since: int) -> None:
        """Watch the server for a while. Raises `Deviation` when one of the unwanted events has come."""
        await self.settle()
        await asyncio.sleep(QUIET_S)
        self.without(unwanted, since)

    def without(self, unwanted: Iterable[str], since: int = 0) -> None:
        """Raise `Deviation` when an event whose type begins so has come since."""
        names = tuple(unwanted)
        came = [event for event in self.events[since:] if event["type"].startswith(names)]
        expect(not came, f"no {' or '.join(names)}", came[:1])

    # ---- what is sent ---------------------------------------------------------------------------------------------

    async def send(self, kind: str, **fields: object) -> str:
        """Send one event; gives its `event_id`. Raises `Deviation` when the connection is closed."""
        event_id = f"check_{next(self._numbers)}"
        await self.send_frame(msgspec.json.encode({"type": kind, "event_id": event_id, **fields}).decode())
        self.truncations += kind == "conversation.item.truncate"
        return event_id

    async def send_frame(self, frame: str) -> None:
        """Send a frame as it is."""
        try:
            await self.socket.send(frame)
        except ConnectionClosed as error:
            raise Deviation("an open connection", f"the server closed it: {error}") from error

    async def update(self, **session: object) -> Json:
        """Change the settings; gives the session that is then in effect."""
        since = len(self.events)
        await self.send("session.update", session={**self._session(), **session})
        return at(await self.wait("session.updated", since), "session")

    def _session(self) -> Json:
        return {} if self.kind is None else {"type": self.kind}

    async def refused(self, kind: str, **fields: object) -> Json:
        """Send what should be refused; gives the `error` in the event that refuses it."""
        since = len(self.events)
        event_id = await self.send(kind, **fields)
        error = at(await self.wait("error", since, errors=True), "error")
        expect(error.get("event_id") == event_id, f"error.event_id {event_id!r}, that of the event", error)
        return error

    async def append(self, sound: Pcm | bytes) -> None:
        """Send sound in one event."""
        await self.send("input_audio_buffer.append", audio=encoded(sound))

    async def play(self, pcm: Pcm) -> None:
        """Send sound as fast as it is taken."""
        for start in range(0, len(pcm), FRAME_MS * MS):
            await self.append(pcm[start : start + FRAME_MS * MS])

    async def play_live(self, pcm: Pcm) -> None:
        """Send sound as a microphone does, in real time."""
        began = time.monotonic()
        for start in range(0, len(pcm), FRAME_MS * MS):
            await asyncio.sleep(max(0.0, began + start / RATE_HZ - time.monotonic()))
            await self.append(pcm[start : start + FRAME_MS * MS])

    async def add(self, item: Json, **fields: object) -> Json:
        """Create an item; gives it as `conversation.item.done` shows it."""
        since = len(self.events)
        await self.send("conversation.item.create", item=item, **fields)
        added = await self.wait("conversation.item.added", since)
        item_id = at(added, "item.id")
        done = await self.wait("conversation.item.done", since, where=lambda event: event["item"]["id"] == item_id)
        return at(done, "item")

    async def type(self, text: str, role: str = "user", **fields: object) -> Json:
        """Create a message with one text."""
        part = "output_text" if role == "assistant" else "input_text"
        item = {"type": "message", "role": role, "content": [{"type": part, "text": text}], **fields}
        return await self.add(item)

    async def retrieve(self, item_id: str) -> Json:
        """An item as it stands."""
        since = len(self.events)
        await self.send("conversation.item.retrieve", item_id=item_id)
        return at(await self.wait("conversation.item.retrieved", since), "item")

    async def begin(self, **response: object) -> Json:
        """Ask for a response; gives it as `response.created` shows it."""
        since = len(self.events)
        await self.send("response.create", response=response)
        return at(await self.wait("response.created", since), "response")

    async def done(self, response_id: str) -> Json:
        """The end of a response that was created."""

        def ends(event: Json) -> bool:
            return bool(at(event, "response.id") == response_id)

        return at(await self.wait("response.done", where=ends, within_s=self.patience_s, errors=True), "response")

    async def respond(self, **response: object) -> Json:
        """Ask for a response, and wait for its end; one that failed is a `Deviation`."""
        since = len(self.events)
        await self.send("response.create", response=response)
        created = at(await self.wait("response.created", since), "response.id")
        done = await self.done(created)
        expect(at(done, "status") in ("completed", "incomplete"), "a response that completes", done)
        return done

    def within(self, response_id: str, kind: str = "response.") -> list[Json]:
        """The events inside a response whose type begins so."""
        return [
            event for event in self.events if event.get("response_id") == response_id and event["type"].startswith(kind)
        ]

    def sound_bytes(self, response_id: str) -> int:
        """How many bytes of sound came for a response."""
        deltas = self.within(response_id, "response.output_audio.delta")
        return sum(len(base64.b64decode(event["delta"])) for event in deltas)


def _collapsed(kinds: list[str]) -> str:
    """Types of events in a row, each repetition told as a count."""
    runs = [(kind, len(list(group))) for kind, group in itertools.groupby(kinds)]
    return shorten(", ".join(f"{kind} ×{count}" if count > 1 else kind for kind, count in runs) or "nothing")
