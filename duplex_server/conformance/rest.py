"""Checks the HTTP routes: keys for browsers, calls that are not there, what pages may read, how errors are told."""

from __future__ import annotations

import asyncio
import time
from email.utils import parsedate_to_datetime

import httpx

from duplex_server.conformance.checks import Json, at, check, equal, expect
from duplex_server.conformance.run import Run, envelope

SECRETS = "/realtime/client_secrets"
LASTS_S, SLACK_S = 600, 5
SHORTEST_S = 10
PAGE = "http://localhost"
ALLOWED = ("authorization", "content-type", "x-openai-agents-sdk")
_NOBODY = "rtc_nobody"


async def _ask(run: Run, path: str, body: Json) -> Json:
    """The body of what must be answered with 200."""
    answer = await run.request("POST", path, body)
    expect(answer.status_code == 200, f"HTTP 200 from {path}", f"{answer.status_code} {answer.text}")
    told: Json = answer.json()
    return told


def _refused(answer: httpx.Response, status: int, what: str) -> Json:
    expect(answer.status_code == status, f"HTTP {status} from {what}", f"{answer.status_code} {answer.text}")
    return envelope(what, answer.content)


def _server_s(answer: httpx.Response) -> float:
    """The server's own time, where it tells it: its clock need not be ours."""
    date = answer.headers.get("date")
    return parsedate_to_datetime(date).timestamp() if date else time.time()


@check(24, "client_secrets with an empty body gives an `ek_` value that lasts 600 s")
async def secret(run: Run) -> None:
    answer = await run.request("POST", SECRETS)
    expect(answer.status_code == 200, "HTTP 200", f"{answer.status_code} {answer.text}")
    told = answer.json()
    value, expires_at = at(told, "value"), at(told, "expires_at")
    expect(isinstance(value, str) and value.startswith("ek_"), "a value that begins with ek_", value)
    lasts_s = expires_at - _server_s(answer)
    expect(abs(lasts_s - LASTS_S) <= SLACK_S, f"a key that lasts {LASTS_S} s", f"one that lasts {lasts_s:.0f} s")


@check(25, "expires_after.seconds of 9 or 7201 gets HTTP 400 with its param")
async def bad_expiry(run: Run) -> None:
    for seconds in (9, 7201):
        body = {"expires_after": {"anchor": "created_at", "seconds": seconds}}
        error = _refused(await run.request("POST", SECRETS, body), 400, f"{seconds} s")
        equal("error.param", error["param"], "expires_after.seconds")


@check(26, "a secret for a transcription session shows a realtime.transcription_session")
async def transcription_secret(run: Run) -> None:
    told = await _ask(run, SECRETS, {"session": {"type": "transcription"}})
    equal("session.object", at(told, "session.object"), "realtime.transcription_session")
    equal("session.type", at(told, "session.type"), "transcription")


@check(27, "an ephemeral key starts two sessions before it expires, and is refused after")
async def ephemeral_key(run: Run) -> None:
    told = await _ask(run, SECRETS, {"expires_after": {"anchor": "created_at", "seconds": SHORTEST_S}})
    made_s = time.monotonic()
    headers = {"Authorization": f"Bearer {at(told, 'value')}"}
    async with run.session(headers=headers) as first, run.session(headers=headers) as second:
        await asyncio.sleep(max(0.0, made_s + SHORTEST_S + 1 - time.monotonic()))
        await first.settle()  # running sessions outlive it
        await second.settle()
        answer = await run.refusal(headers=headers)
    expect(answer is not None, "HTTP 401 for an expired key", "the WebSocket was opened")
    assert answer is not None
    equal("HTTP status", answer.status_code, 401)


@check(28, "the settings bound to an ephemeral key appear in session.created")
async def bound_settings(run: Run) -> None:
    bound = {"type": "realtime", "instructions": "Speak like a pirate.", "output_modalities": ["text"]}
    told = await _ask(run, SECRETS, {"session": bound})
    equal("session.instructions in the answer", at(told, "session.instructions"), bound["instructions"])
    async with run.session(headers={"Authorization": f"Bearer {at(told, 'value')}"}) as peer:
        for name in ("instructions", "output_modalities"):
            equal(f"session.{name}", at(peer.events[0], f"session.{name}"), bound[name])


@check(29, "the answer of client_secrets is what the openai SDK's model of it holds")
async def secret_shape(run: Run) -> str:
    told = await _ask(run, SECRETS, {"session": {"type": "realtime"}})
    for path, kind in (("value", str), ("expires_at", int), ("session.id", str), ("session.type", str)):
        expect(type(at(told, path)) is kind, f"{path} of type {kind.__name__}", at(told, path))
    equal("session.type", told["session"]["type"], "realtime")
    return "by its fields; the SDK itself is not run"


@check(35, "a preflight request allows authorization, content-type and x-openai-agents-sdk")
async def preflight(run: Run) -> None:
    for path in (SECRETS, "/realtime/calls"):
        answer = await run.request(
            "OPTIONS",
            path,
            keyless=True,
            Origin=PAGE,
            Access_Control_Request_Method="POST",
            Access_Control_Request_Headers=", ".join(ALLOWED),
        )
        expect(answer.is_success, f"success of OPTIONS {path}", answer.status_code)
        allowed = answer.headers.get("access-control-allow-headers", "").lower()
        expect(all(name in allowed or allowed == "*" for name in ALLOWED), f"{', '.join(ALLOWED)} allowed", allowed)
        expect("access-control-allow-origin" in answer.headers, "Access-Control-Allow-Origin", answer.headers)


@check(36, "pages may read the header `location`")
async def exposed(run: Run) -> None:
    answer = await run.request("POST", SECRETS, {}, Origin=PAGE)
    told = answer.headers.get("access-control-expose-headers", "")
    expect("location" in told.lower(), "location in Access-Control-Expose-Headers", told or "no such header")


@check(38, "/accept, /refer and /reject of an unknown call get HTTP 404 with the envelope")
async def unknown_calls(run: Run) -> None:
    bodies: dict[str, Json] = {
        "accept": {"type": "realtime"},
        "refer": {"target_uri": "tel:+14155550123"},
        "reject": {},
    }
    for action, body in bodies.items():
        answer = await run.request("POST", f"/realtime/calls/{_NOBODY}/{action}", body)
        _refused(answer, 404, action)


@check(39, "/realtime/sessions gives the flat settings and client_secret.value")
async def flat_session(run: Run) -> None:
    told = await _ask(run, "/realtime/sessions", {"model": "gpt-realtime", "modalities": ["text"]})
    equal("modalities", at(told, "modalities"), ["text"])
    expect(isinstance(at(told, "input_audio_format"), str), "input_audio_format as a string", told)
    expect(isinstance(at(told, "client_secret.value"), str), "client_secret.value as a string", told)


@check(40, "/realtime/transcription_sessions gives client_secret.value")
async def flat_transcription(run: Run) -> None:
    told = await _ask(run, "/realtime/transcription_sessions", {"input_audio_format": "pcm16"})
    expect(isinstance(at(told, "client_secret.value"), str), "client_secret.value as a string", told)


@check(41, "/realtime/translations/client_secrets without session.model gets HTTP 400")
async def translation(run: Run) -> None:
    answer = await run.request("POST", "/realtime/translations/client_secrets", {"session": {}})
    _refused(answer, 400, "a translation session without a model")


@check(197, "every HTTP error has the envelope and an x-request-id", last=True)
async def envelopes(run: Run) -> str:
    _refused(await run.request("GET", "/no/such/route"), 404, "an unknown route")
    for what, status, headers, body in run.refusals:
        envelope(f"{what} (HTTP {status})", body)
        expect("x-request-id" in headers, f"x-request-id from {what}", dict(headers))
    return f"{len(run.refusals)} were told in this run"
