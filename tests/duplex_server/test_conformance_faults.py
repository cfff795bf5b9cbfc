"""Plants deviations in a real server, and sees the checks of the conformance command find each of them."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest

from duplex_server.conformance import peer as peers
from duplex_server.conformance.command import hold, numbers
from duplex_server.conformance.report import Report
from duplex_server.conformance.run import Run
from duplex_server.conformance.sound import SPEECH_FILE, load_speech
from duplex_server.conformance.target import find
from duplex_server.http import client_secrets, cors, guard
from tests.duplex_server.breaking import Fault, deviating, faithful
from tests.duplex_server.serving import Json, Served, served

KEY = "sk-a-key"
SETTINGS = (
    f'server.api_keys=["{KEY}"]',
    "thinker.family=tests.families.scripted.caller",
)
AT_ONCE = ("session.run_ahead_ms=60000", "session.max_reply_s=5")
PACED = ("session.run_ahead_ms=1000", "session.max_reply_s=3")
PATIENCE_S, LITTLE_S = 10.0, 1.0
"""How long a sound server may take, and how long one is waited for that never answers."""
MADE_UP = "event_made_up"


def hold_against(case: Case, patience_s: float = PATIENCE_S) -> Report:
    """Run the checks of a case against a server with its fault."""
    wanted = numbers(f"{case.finds},{case.runs or 180}")

    async def run() -> Report:
        async with (
            served(*SETTINGS, *(PACED if case.paced else AT_ONCE)) as server,
            deviating(_upstream(server), case.told, case.heard, case.protocol) as url,
        ):
            return await hold(Run(find(url, KEY), load_speech(SPEECH_FILE), patience_s), wanted)

    return asyncio.run(run())


def _upstream(server: Served) -> str:
    return server.url.replace("http", "ws", 1)


def failed(report: Report) -> dict[int, str]:
    return {one.number: one.detail or "" for one in report.checks if one.status == "failed"}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server of this machine, with models that take no time, is soon quiet."""
    monkeypatch.setattr(peers, "QUIET_S", 0.1)


# ---- the faults: each makes of an event what a client is told instead ----------------------------------------------


def changed(kind: str, path: str, value: object) -> Fault:
    """Put a value at a dotted path of all events of a type, where it leads somewhere; a callable makes it."""

    def told(event: Json) -> Iterable[Json]:
        if event["type"] == kind and (found := _place(event, path)) is not None:
            place, key = found
            place[key] = value(place[key]) if callable(value) else value
        yield event

    return told


def removed(kind: str, path: str) -> Fault:
    """Leave out a field of all events of a type."""

    def told(event: Json) -> Iterable[Json]:
        if event["type"] == kind and (found := _place(event, path)) is not None:
            place, key = found
            place.pop(key, None)
        yield event

    return told


def _place(event: Json, path: str) -> tuple[Any, Any] | None:
    """The object or array in which a path ends, and the key in it."""
    *way, last = path.split(".")
    place: Any = event
    for name in way:
        try:
            place = place[int(name)] if isinstance(place, list) else place[name]
        except (KeyError, IndexError):
            return None
    return (place, int(last) if isinstance(place, list) else last) if place is not None else None


def lost(kind: str) -> Fault:
    """Never send an event of a type."""
    return lambda event: () if event["type"] == kind else (event,)


def followed(kind: str, **fields: object) -> Fault:
    """Send a further event after each of a type."""

    def told(event: Json) -> Iterable[Json]:
        yield event
        if event["type"] == kind:
            yield {"event_id": f"{MADE_UP}_{event['event_id']}", **fields}

    return told


def renamed(kind: str, other: str) -> Fault:
    return lambda event: ({**event, "type": other},) if event["type"] == kind else (event,)


def doubled(kind: str) -> Fault:
    """Send an event of a type twice, as two events."""

    def told(event: Json) -> Iterable[Json]:
        yield event
        if event["type"] == kind:
            yield {**event, "event_id": f"{MADE_UP}_{event['event_id']}"}

    return told


def swapped(first: str) -> Fault:
    """Hold an event of a type back until after the next one."""
    held: list[Json] = []

    def told(event: Json) -> Iterable[Json]:
        if event["type"] == first and not held:
            held.append(event)
            return
        yield event
        while held:
            yield held.pop()

    return told


def shorter_pieces(event: Json) -> Iterable[Json]:
    """A little more than 1 ms of each piece of sound is lost."""
    if event["type"] == "response.output_audio.delta":
        event["delta"] = base64.b64encode(base64.b64decode(event["delta"])[:-49]).decode()
    yield event


def late_delta() -> Fault:
    """The last delta of a response comes after its end."""
    held: list[Json] = []

    def told(event: Json) -> Iterable[Json]:
        if event["type"] == "response.output_audio_transcript.delta":
            held[:] = [event]
        yield event
        if event["type"] == "response.done":
            for one in held:
                yield {**one, "event_id": f"{MADE_UP}_{one['event_id']}"}

    return told


def forgetful(*kinds: str) -> Fault:
    """What a client sends of these types never arrives."""
    return lambda event: () if event["type"] in kinds else (event,)


def without_settings(event: Json) -> Iterable[Json]:
    """A client's settings never arrive."""
    if event["type"] == "session.update":
        event["session"] = {"type": "realtime"}
    yield event


def clearing(event: Json) -> Iterable[Json]:
    """What a client sends into the buffer is thrown out again, and that is told."""
    yield event
    if event["type"] == "input_audio_buffer.append":
        yield {"type": "input_audio_buffer.clear"}


def in_the_conversation(event: Json) -> Iterable[Json]:
    """No response is beside the conversation."""
    if event["type"] == "response.create":
        event.get("response", {}).pop("conversation", None)
    yield event


def cancelling_another(event: Json) -> Iterable[Json]:
    """A cancel ends the response of the conversation first, whichever was meant."""
    if event["type"] == "response.cancel":
        yield {"type": "response.cancel"}
    yield event


def interrupting() -> tuple[Fault, Fault]:
    """Whatever is said ends every response."""
    open_ids: set[str] = set()

    def told(event: Json) -> Iterable[Json]:
        if event["type"] == "response.created":
            open_ids.add(event["response"]["id"])
        elif event["type"] == "response.done":
            open_ids.discard(event["response"]["id"])
        if event["type"] != "error":
            yield event

    def heard(event: Json) -> Iterable[Json]:
        yield event
        if event["type"] == "input_audio_buffer.append":
            yield from [{"type": "response.cancel", "response_id": one} for one in open_ids]

    return told, heard


def spoilt_arguments(event: Json) -> Iterable[Json]:
    """The arguments of a call are no JSON."""
    yield json.loads(json.dumps(event).replace('{\\"city\\": \\"Paris\\"}', "in Paris"))


def pretending_to_truncate() -> tuple[Fault, Fault]:
    """A truncation is confirmed, and not done: in its place the item is looked at."""
    cuts: list[Json] = []

    def heard(event: Json) -> Iterable[Json]:
        if event["type"] == "conversation.item.truncate":
            cuts.append(event)
            event = {"type": "conversation.item.retrieve", "item_id": event["item_id"]}
        yield event

    def told(event: Json) -> Iterable[Json]:
        if event["type"] == "conversation.item.retrieved" and cuts:
            kept = {name: cuts.pop(0)[name] for name in ("item_id", "content_index", "audio_end_ms")}
            event = {"type": "conversation.item.truncated", "event_id": event["event_id"], **kept}
        yield event

    return told, heard


@dataclass(frozen=True, slots=True)
class Case:
    """A fault, and the numbers of the checks that must find it; `runs` are others that only let it happen."""

    finds: str
    told: Fault = faithful
    heard: Fault = faithful
    paced: bool = False
    protocol: str | None = "realtime"
    runs: str | None = None


PRETENDING = pretending_to_truncate()
INTERRUPTING = interrupting()
TRANSCRIBED = "conversation.item.input_audio_transcription.completed"
TRUNCATED = {"type": "conversation.item.truncated", "item_id": "x", "content_index": 0, "audio_end_ms": 1}

CASES = {
    # transport
    "no event_id": Case("180", removed("session.created", "event_id"), runs="1"),
    "one event_id for all": Case("180", changed("session.updated", "event_id", "event_1"), runs="51"),
    "something comes before session.created": Case("1", swapped("session.created"), heard=clearing),
    "everybody is let in": Case("2,11"),
    "no protocol is selected": Case("3", protocol=None),
    "another model is echoed": Case("14", changed("session.created", "session.model", "other")),
    "a huge frame": Case("16", changed("conversation.item.retrieved", "item.pad", "x" * 2**20)),
    "what is no event is passed over": Case("18-20", lost("error")),
    "errors without event_id": Case("20,71,100,109,142", changed("error", "error.event_id", None)),
    # settings
    "a key is missing": Case("42", removed("session.created", "session.tracing")),
    "no session.type": Case("42,180", removed("session.created", "session.type")),
    "the voice as an object": Case("42", changed("session.created", "session.audio.output.voice", {})),
    "text by default": Case("43", changed("session.created", "session.output_modalities", ["text"])),
    "no interrupt_response": Case(
        "44", removed("session.created", "session.audio.input.turn_detection.interrupt_response")
    ),
    "a null in transcription": Case("54", changed("session.updated", "session.audio.input.transcription.delay", None)),
    "updates change nothing": Case("45-50,52,63", heard=without_settings),
    "a bad update is confirmed": Case("59,64", renamed("error", "session.updated")),
    # sound and turns
    "append is acknowledged": Case("70", heard=clearing),
    "sound is dropped": Case("72-75", heard=forgetful("input_audio_buffer.append")),
    "committed comes late": Case("74", swapped("input_audio_buffer.committed")),
    "another item is committed": Case("74,77,83", changed("input_audio_buffer.committed", "item_id", "other")),
    "speech from the very start": Case("78,87", changed("input_audio_buffer.speech_started", "audio_start_ms", 0)),
    "offsets in fractions": Case("79,180", changed("input_audio_buffer.speech_stopped", "audio_end_ms", float)),
    "offsets of another clock": Case(
        "80", changed("input_audio_buffer.speech_stopped", "audio_end_ms", lambda at_ms: at_ms + 5000)
    ),
    "no previous item": Case("81", changed("input_audio_buffer.committed", "previous_item_id", None)),
    "speech that never stops": Case("77-82,84,86", lost("input_audio_buffer.speech_stopped")),
    "speech starts twice": Case("82", doubled("input_audio_buffer.speech_started")),
    "transcripts without usage": Case("91,180", removed(TRANSCRIBED, "usage")),
    "another transcript": Case("92,95", changed(TRANSCRIBED, "transcript", "Boo.")),
    "an early transcript": Case("95", changed("conversation.item.added", "item.content.0.transcript", "Boo.")),
    # items
    "items are refused": Case("97,99-107,112", renamed("conversation.item.done", "error")),
    "items are not added": Case("98", lost("conversation.item.added")),
    "errors have another code": Case("100,107,109,142,150,151", changed("error", "error.code", "whim")),
    "no sound in retrieved": Case("108", removed("conversation.item.retrieved", "item.content.0.audio")),
    "nulls in items": Case("110", changed("conversation.item.added", "item.call_id", None)),
    "no transcript key": Case("111", removed("conversation.item.added", "item.content.0.transcript")),
    # responses
    "parts of another type": Case("122", changed("response.content_part.added", "part.type", "output_audio")),
    "no metadata": Case("116", changed("response.created", "response.metadata", None)),
    "a status of its own": Case("117,180", changed("response.done", "response.status", "done")),
    "created and complete": Case("114", changed("response.created", "response.status", "completed")),
    "words are lost": Case("118,180", changed("response.output_audio_transcript.delta", "delta", "x")),
    "bytes are lost": Case("119,120", shorter_pieces),
    "no end of an item": Case("113,180", lost("response.output_item.done")),
    "done before its part": Case("113", swapped("response.content_part.done")),
    "no end of a response": Case("115,117", lost("response.done")),
    "a late delta": Case("139,180", late_delta()),
    "sums that are none": Case("134", changed("response.done", "response.usage.total_tokens", lambda total: total + 1)),
    "no usage": Case("134", changed("response.done", "response.usage", None)),
    "limits twice": Case("135", doubled("rate_limits.updated")),
    "limits of words": Case("180", changed("rate_limits.updated", "rate_limits.0.name", "words"), runs="117"),
    "a call without its name": Case("123,180", removed("response.function_call_arguments.done", "name")),
    "arguments that are no JSON": Case("123", spoilt_arguments),
    "history counts for nothing": Case("124,129", changed("response.done", "response.usage.input_tokens", 1)),
    "nothing is beside the conversation": Case("128", heard=in_the_conversation),
    # interruptions
    "cut by the client": Case(
        "138", changed("response.done", "response.status_details.reason", "client_cancelled"), paced=True
    ),
    "a cancel is not heard": Case("140,141", heard=forgetful("response.cancel"), paced=True),
    "every cancel ends the conversation's": Case("143", heard=cancelling_another, paced=True),
    "speech ends what is beside": Case("85,145", *INTERRUPTING, paced=True),
    "truncated unasked": Case("146", followed("response.done", **TRUNCATED)),
    "truncation changes nothing": Case("147,152", *PRETENDING),
    # the older dialect
    "newer items in the older dialect": Case(
        "166,167", renamed("conversation.item.created", "conversation.item.added")
    ),
    "newer sound in the older dialect": Case("6,167", renamed("response.audio.delta", "response.output_audio.delta")),
    "no conversation.created": Case("7,165", lost("conversation.created")),
    "newer content in the older dialect": Case(
        "168", changed("response.done", "response.output.0.content.0.type", "output_audio")
    ),
}
ONLY_WITH_FAULTS = {2, 11}
"""A relay lets everybody in, whatever the server behind it does."""


@pytest.mark.parametrize("name", CASES)
def test_a_deviation_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    monkeypatch.setattr(peers, "SOON_S", LITTLE_S)
    report = hold_against(case, PATIENCE_S if case.paced else LITTLE_S)
    found = failed(report)
    assert numbers(case.finds) <= found.keys(), report
    assert all("expected" in detail for detail in found.values())


@pytest.mark.parametrize("paced", [False, True])
def test_without_a_fault_none_of_them_is_found(paced: bool) -> None:
    wanted = {number for case in CASES.values() if case.paced == paced for number in numbers(case.finds)}
    only = ",".join(map(str, sorted(wanted - ONLY_WITH_FAULTS)))
    report = hold_against(Case(only, paced=paced))
    assert failed(report) == {}
    assert report.not_applicable == 0
    assert report.passed >= len(wanted - ONLY_WITH_FAULTS)


# ---- the HTTP routes, in which the server itself is changed ---------------------------------------------------------

ROUTES = {
    "24": (client_secrets, "LASTS_S", 300),
    "26": (client_secrets, "KINDS", ("realtime",)),
    "35": (cors, "HEADERS", "content-type"),
    "36": (cors, "EXPOSED", "x-request-id"),
    "197": (guard, "REQUEST_ID", "x-other-id"),
}


def ask_routes(only: str) -> Report:
    """Run checks of HTTP routes against a server whose clock is right."""

    async def run() -> Report:
        async with served(*SETTINGS) as server:
            server.clock.now = time.time()
            return await hold(Run(find(server.url + "/v1", KEY), None, PATIENCE_S), numbers(only))

    return asyncio.run(run())


@pytest.mark.parametrize("number", ROUTES)
def test_a_deviating_route_is_found(number: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*ROUTES[number])
    assert int(number) in failed(ask_routes(number))


def test_without_a_fault_the_routes_are_passed() -> None:
    report = ask_routes("24-26,28-29,35-36,38-41,197")
    assert failed(report) == {}
    assert report.passed == 13, report  # with the grammar of the one session that was opened
