"""Tests one call against small WebSocket servers, good ones and others: each is counted as what it is."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import TypeVar

import numpy as np
import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from loadtest.load import conversation
from loadtest.load.conversation import REDIAL_S, call
from loadtest.load.records import Answered, Call, Closed, Failed, Heard, Opened, Record, Refused, Spoke, Stopped

Serve = Callable[[ServerConnection], Awaitable[None]]
Told = TypeVar("Told")
TALKS, INTERRUPTS = 1, 0
"""The numbers of a user that lets its first answer be, and of one that speaks over it."""
LOUD = 1000
PAUSE_FRAMES = 25


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """One turn of two words a call: what is tested here does not depend on how long a call is."""
    monkeypatch.setattr(conversation, "TURNS_PER_CALL", 1)
    monkeypatch.setattr(conversation, "UTTERANCES", ("hello_world",))
    monkeypatch.setattr(conversation, "PAUSE_S", (0.0, 0.0))
    monkeypatch.setattr(conversation, "LISTEN_S", 0.3)
    monkeypatch.setattr(conversation, "BEFORE_S", 0.1)


def told(serving: Serve, user: int, answer_s: float = 30.0) -> list[Record]:
    """What a user tells of one call to a server that does `serving`."""

    async def scene() -> list[Record]:
        async with serve(serving, "127.0.0.1", 0) as server:
            return await _call(next(iter(server.sockets)).getsockname()[1], user, answer_s)

    return asyncio.run(scene())


async def _call(port: int, user: int = TALKS, answer_s: float = 30.0) -> list[Record]:
    records: list[Record] = []

    async def tell(record: Record) -> None:
        records.append(record)

    await call(Call(user, f"ws://127.0.0.1:{port}", answer_s=answer_s), tell)
    assert isinstance(records[-1], Closed)
    return records


def of(kind: type[Told], records: Sequence[Record]) -> list[Told]:
    return [one for one in records if isinstance(one, kind)]


def failures(records: Sequence[Record]) -> list[str]:
    return [one.kind for one in of(Failed, records)]


async def frames(connection: ServerConnection, count: int) -> None:
    """Let so many frames of 20 ms come in."""
    for _ in range(count):
        await connection.recv()


async def rest(connection: ServerConnection) -> None:
    """Hear, without a word, until the caller hangs up."""
    async for _ in connection:
        pass


async def turn(connection: ServerConnection, until: str = "stopped") -> None:
    """Return when someone has begun to speak, or has stopped."""
    spoke, quiet = False, 0
    async for frame in connection:
        event = json.loads(frame)
        if event["type"] == "session.update":
            await connection.send('{"type": "session.updated"}')
            continue
        loud = int(np.frombuffer(base64.b64decode(event["audio"]), "<i2").max()) > LOUD
        spoke, quiet = spoke or loud, 0 if loud else quiet + 1
        if spoke and (until == "started" or quiet >= PAUSE_FRAMES):
            return


async def say(connection: ServerConnection, kind: str, **content: object) -> None:
    await connection.send(json.dumps({"type": kind, **content}))


async def begin(connection: ServerConnection, name: str, seconds: float, level: int = 9000) -> None:
    """Begin an answer whose first sound lasts so long."""
    await say(connection, "response.created", response={"id": name})
    part = {"response_id": name, "item_id": name, "content_index": 0}
    await say(connection, "response.output_item.added", response_id=name, item={"id": name})
    await say(connection, "response.content_part.added", **part)
    await say(connection, "response.output_audio_transcript.delta", **part, delta="Yes.")
    await sound(connection, name, seconds, level)


async def sound(connection: ServerConnection, name: str, seconds: float, level: int = 9000) -> None:
    delta = base64.b64encode(np.full(round(seconds * 24_000), level, "<i2").tobytes()).decode()
    part = {"response_id": name, "item_id": name, "content_index": 0}
    await say(connection, "response.output_audio.delta", **part, delta=delta)


async def finish(connection: ServerConnection, name: str, status: str = "completed") -> None:
    part = {"response_id": name, "item_id": name, "content_index": 0}
    await say(connection, "response.output_audio_transcript.done", **part, transcript="Yes.")
    await say(connection, "response.output_item.done", response_id=name, item={"id": name})
    output = [{"id": name, "content": [{"type": "output_audio", "transcript": "Yes."}]}]
    await say(connection, "response.done", response={"id": name, "status": status, "output": output})


async def _good(connection: ServerConnection) -> None:
    await turn(connection)
    await begin(connection, "r", 0.2)
    await sound(connection, "r", 0.2)
    await finish(connection, "r")
    await rest(connection)


def test_a_good_answer_is_told_with_its_times_and_without_a_failure() -> None:
    records = told(_good, TALKS)
    assert [type(one) for one in records] == [Opened, Answered, Heard, Spoke, Closed]
    (answered,) = of(Answered, records)
    # The server waited for half a second of quiet, by the microphone's own count.
    assert answered.voice_to_voice_ms > 400
    assert of(Heard, records)[0].late_ms[0] < 0
    assert of(Closed, records)[0].again_s == REDIAL_S


async def _late(connection: ServerConnection) -> None:
    await turn(connection)
    await begin(connection, "r", 0.1)
    await frames(connection, 20)
    await sound(connection, "r", 0.1)
    await finish(connection, "r")
    await rest(connection)


def test_sound_that_comes_late_is_an_underrun_and_no_failure() -> None:
    records = told(_late, TALKS)
    (heard,) = of(Heard, records)
    assert heard.late_ms[0] > 0
    assert failures(records) == []


async def _cut_short(connection: ServerConnection) -> None:
    """Falls silent when it is spoken over, and answers again."""
    await turn(connection)
    await begin(connection, "r", 30.0)
    await turn(connection, "started")
    await say(connection, "input_audio_buffer.speech_started")
    await finish(connection, "r", "cancelled")
    await turn(connection)
    await begin(connection, "again", 0.1)
    await finish(connection, "again")
    await rest(connection)


def test_an_interruption_is_measured_and_answered() -> None:
    records = told(_cut_short, INTERRUPTS)
    assert failures(records) == []
    assert len(of(Answered, records)) == 2
    (stopped,) = of(Stopped, records)
    assert 0 < stopped.stop_ms < 1000 * 30


async def _talk_on(connection: ServerConnection) -> None:
    await turn(connection)
    await begin(connection, "r", 30.0)
    await turn(connection, "started")
    await say(connection, "input_audio_buffer.speech_started")
    await sound(connection, "r", 0.1)
    await finish(connection, "r", "cancelled")
    await turn(connection)
    await begin(connection, "again", 0.1)
    await finish(connection, "again")
    await rest(connection)


def test_sound_of_an_answer_that_was_spoken_over_is_a_failure() -> None:
    assert failures(told(_talk_on, INTERRUPTS)) == ["not_stopped"]


async def _short_answers(connection: ServerConnection) -> None:
    for name in ("r", "again"):
        await turn(connection)
        await begin(connection, name, 0.1)
        await finish(connection, name)
    await rest(connection)


def test_an_answer_that_was_over_before_it_was_spoken_over_counts_for_no_stop() -> None:
    records = told(_short_answers, INTERRUPTS)
    assert (failures(records), of(Stopped, records), len(of(Answered, records))) == ([], [], 2)


async def _over_by_itself(connection: ServerConnection) -> None:
    """Its answer ends while it is spoken over, and the interruption is noticed after that."""
    await turn(connection)
    await begin(connection, "r", 0.5)
    await finish(connection, "r")
    await turn(connection)
    await say(connection, "input_audio_buffer.speech_started")
    await begin(connection, "again", 0.1)
    await finish(connection, "again")
    await rest(connection)


def test_an_answer_that_ends_before_the_interruption_is_noticed_counts_for_no_stop() -> None:
    records = told(_over_by_itself, INTERRUPTS)
    assert (failures(records), of(Stopped, records), len(of(Answered, records))) == ([], [], 2)


async def _mute(connection: ServerConnection) -> None:
    await turn(connection)
    await say(connection, "input_audio_buffer.speech_stopped")
    await rest(connection)


async def _whisper(connection: ServerConnection) -> None:
    await turn(connection)
    await begin(connection, "r", 0.1, level=9)
    await rest(connection)


async def _cancel(connection: ServerConnection) -> None:
    await turn(connection)
    await begin(connection, "r", 0.1)
    await finish(connection, "r", "cancelled")
    await rest(connection)


async def _hang_up(connection: ServerConnection) -> None:
    await turn(connection, "started")


async def _babble(connection: ServerConnection) -> None:
    await turn(connection, "started")
    await connection.send("{")
    await rest(connection)


async def _half(connection: ServerConnection) -> None:
    await turn(connection, "started")
    await say(connection, "response.created")
    await rest(connection)


@pytest.mark.parametrize(
    ("serving", "kind", "telling"),
    [
        (_mute, "unanswered", "instead: input_audio_buffer.speech_stopped"),
        (_whisper, "inaudible", "instead: response.created"),
        (_cancel, "cut", "nobody spoke over it"),
        (_hang_up, "lost", "hung up"),
        (_babble, "invalid_event", "truncated"),
        (_half, "invalid_event", "response"),
    ],
)
def test_what_goes_wrong_is_told_by_its_kind(serving: Serve, kind: str, telling: str) -> None:
    records = told(serving, TALKS, answer_s=0.5)
    (failed,) = of(Failed, records)
    assert failed.kind == kind
    assert telling in failed.message


def _deny(status: HTTPStatus, **headers: str) -> list[Record]:
    """What is told of a server that refuses every handshake."""

    def deny(connection: ServerConnection, request: Request) -> Response:
        response = connection.respond(status, "Not now.")
        response.headers.update({name.replace("_", "-"): value for name, value in headers.items()})
        return response

    async def scene() -> list[Record]:
        async with serve(_mute, "127.0.0.1", 0, process_request=deny) as server:
            return await _call(next(iter(server.sockets)).getsockname()[1])

    return asyncio.run(scene())


def test_a_full_server_is_no_failure_and_says_when_to_come_back() -> None:
    records = _deny(HTTPStatus.SERVICE_UNAVAILABLE, Retry_After="7")
    assert [type(one) for one in records] == [Refused, Closed]
    assert of(Closed, records)[0].again_s == 7.0
    assert of(Closed, _deny(HTTPStatus.SERVICE_UNAVAILABLE, Retry_After="86400"))[0].again_s < 60
    assert of(Closed, _deny(HTTPStatus.SERVICE_UNAVAILABLE))[0].again_s == REDIAL_S


def test_other_refusals_and_a_dead_port_are_failures() -> None:
    assert failures(_deny(HTTPStatus.UNAUTHORIZED)) == ["refused_401"]
    assert failures(asyncio.run(_call(1))) == ["no_session"]


def test_a_call_that_is_hung_up_tells_what_it_has_and_closes() -> None:
    async def scene() -> list[Record]:
        records: list[Record] = []
        answered = asyncio.Event()

        async def tell(record: Record) -> None:
            records.append(record)
            if isinstance(record, Answered):
                answered.set()

        async with serve(_cut_short, "127.0.0.1", 0) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            talking = asyncio.create_task(call(Call(TALKS, f"ws://127.0.0.1:{port}"), tell))
            await answered.wait()
            talking.cancel()
            await asyncio.wait([talking])
            assert talking.cancelled()
        return records

    assert [type(one) for one in asyncio.run(scene())] == [Opened, Answered, Spoke, Closed]
