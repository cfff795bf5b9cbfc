"""Checks how a connection is opened, what its frames may be, and who is let in."""

from __future__ import annotations

import asyncio

import msgspec

from duplex_server.conformance.checks import Deviation, NotApplicable, at, check, equal, expect
from duplex_server.conformance.peer import SOON_S, Peer
from duplex_server.conformance.run import Run, envelope
from duplex_server.conformance.sound import silence
from duplex_server.conformance.target import ALIASES

WRONG_KEY = "sk-of-nobody-at-all"
KEY_PROTOCOL = "openai-insecure-api-key."
UNAUTHORIZED = 3000
SILENT_S = 60.0
HUGE_SOUND_BYTES = 15 * 1024 * 1024


async def _open_to_all(run: Run) -> bool:
    """Whether the server asks for no key: then a wrong one is no worse than none."""
    if run.target.key is not None:
        return False
    async with run.session():
        return True  # we have no key ourselves, and are in


async def _need_keys(run: Run) -> None:
    if await _open_to_all(run):
        raise NotApplicable("the server asks for no key")


@check(1, "session.created arrives first, without any client event")
async def first_event(run: Run) -> None:
    async with run.session():
        pass  # a session begins with it, or is none


@check(2, "a wrong Bearer key gets HTTP 401 with the JSON error envelope")
async def wrong_bearer(run: Run) -> None:
    await _need_keys(run)
    answer = await run.refusal(headers={"Authorization": f"Bearer {WRONG_KEY}"})
    expect(answer is not None, "HTTP 401", "the WebSocket was opened")
    assert answer is not None
    equal("HTTP status", answer.status_code, 401)
    equal("error.code", envelope("the handshake", bytes(answer.body or b""))["code"], "invalid_api_key")


@check(3, "of offered protocols exactly `realtime` is selected, and the key is never echoed")
async def selected_protocol(run: Run) -> None:
    key = run.target.key
    async with run.session(headers={}, protocols=("realtime", f"{KEY_PROTOCOL}{key or 'any'}")) as peer:
        answer = peer.socket.response
        assert answer is not None
        equal("the selected protocol", answer.headers.get("Sec-WebSocket-Protocol"), "realtime")
        told = [value for _, value in answer.headers.raw_items()]
        expect(key is None or not any(key in value for value in told), "no key in the answer", "it stands there")


@check(4, "a wrong key in a protocol: the handshake completes, one error `invalid_api_key`, close 3000")
async def wrong_key_in_protocol(run: Run) -> None:
    await _need_keys(run)
    async with run.connection(headers={}, protocols=("realtime", f"{KEY_PROTOCOL}{WRONG_KEY}")) as peer:
        closed = await peer.over()
        equal("the events", peer.kinds(), ["error"])
        equal("error.code", at(peer.events[0], "error.code"), "invalid_api_key")
        equal("the close code", closed.rcvd and closed.rcvd.code, UNAUTHORIZED)


@check(5, "without offered protocols the answer has no Sec-WebSocket-Protocol")
async def no_protocol(run: Run) -> None:
    async with run.session() as peer:
        assert peer.socket.response is not None
        equal("Sec-WebSocket-Protocol", peer.socket.response.headers.get("Sec-WebSocket-Protocol"), None)


@check(8, "`OpenAI-Beta: assistants=v2` on REST is ignored")
async def foreign_beta_header(run: Run) -> None:
    answer = await run.request("POST", "/realtime/client_secrets", {}, OpenAI_Beta="assistants=v2")
    equal("HTTP status", answer.status_code, 200)


@check(9, "`?intent=transcription` yields a session of type `transcription`")
async def transcription_intent(run: Run) -> None:
    async with run.session("intent=transcription") as peer:
        equal("session.type", at(peer.events[0], "session.type"), "transcription")
        equal("session.object", at(peer.events[0], "session.object"), "realtime.transcription_session")
        error = await peer.refused("response.create")
        equal("error.code of response.create", at(error, "code"), "invalid_value")


@check(11, "`?call_id=` of an unknown call gets HTTP 404")
async def unknown_call(run: Run) -> None:
    answer = await run.refusal("call_id=rtc_nobody")
    expect(answer is not None, "HTTP 404", "the WebSocket was opened")
    assert answer is not None
    equal("HTTP status", answer.status_code, 404)
    envelope("the handshake", bytes(answer.body or b""))


@check(13, "/realtime, /v1/realtime and /openai/v1/realtime all upgrade")
async def aliases(run: Run) -> None:
    for path in ALIASES:
        try:
            async with run.session(path=path):
                pass
        except Deviation as error:
            raise Deviation(f"a session at {path}", error.came) from error


@check(14, "an unknown model in the URL is accepted and echoed")
async def unknown_model(run: Run) -> None:
    async with run.session("model=no-such%20model/1") as peer:
        equal("session.model", at(peer.events[0], "session.model"), "no-such model/1")


@check(15, "a text frame of 20 MiB (15 MiB of sound) is accepted")
async def huge_frame(run: Run) -> None:
    async with run.session() as peer:
        await peer.update(audio={"input": {"turn_detection": None}})
        since = len(peer.events)
        await peer.append(bytes(HUGE_SOUND_BYTES))
        await peer.send("input_audio_buffer.clear")
        await peer.wait("input_audio_buffer.cleared", since, within_s=peer.patience_s)


@check(17, "the server answers pings and survives 60 s of client silence", aside=True)
async def silent_client(run: Run) -> None:
    async with run.session() as peer:
        await _ping(peer)
        await asyncio.sleep(SILENT_S)
        expect(peer.closed is None, "an open connection", peer.closed)
        await _ping(peer)
        await peer.settle()


async def _ping(peer: Peer) -> None:
    try:
        await asyncio.wait_for(await peer.socket.ping(), SOON_S)
    except TimeoutError:
        raise Deviation(f"a pong within {SOON_S:g} s", "none") from None


async def _one_error(peer: Peer, frame: str) -> object:
    """Send what is no event: it costs one `error`, and no more."""
    since = len(peer.events)
    await peer.send_frame(frame)
    await peer.settle()
    equal("the events", peer.kinds(since), ["error", "session.updated"])
    return at(peer.events[since], "error.event_id")


@check(18, "a frame that is not JSON costs one error, and the connection stays open")
async def not_json(run: Run) -> None:
    async with run.session() as peer:
        await _one_error(peer, "this is no JSON {")


@check(19, "a frame with a JSON array costs one error, and the connection stays open")
async def json_array(run: Run) -> None:
    async with run.session() as peer:
        await _one_error(peer, '[{"type":"input_audio_buffer.clear"}]')


@check(20, 'an unknown type of event gets an error with param "type" and the event_id')
async def unknown_type(run: Run) -> None:
    async with run.session() as peer:
        echoed = await _one_error(peer, msgspec.json.encode({"type": "no.such", "event_id": "mine"}).decode())
        equal("error.event_id", echoed, "mine")
        equal("error.param", at(peer.of("error")[0], "error.param"), "type")


@check(16, "no server frame reaches 1 MiB, retrieved items included", last=True)
async def small_frames(run: Run) -> str:
    async with run.session() as peer:
        await peer.update(audio={"input": {"turn_detection": None}})
        # Alone in one frame, this sound would take 1.9 MB.
        await peer.append(silence(30_000))
        await peer.send("input_audio_buffer.commit")
        item = at(await peer.wait("conversation.item.done"), "item.id")
        await peer.retrieve(item)
    largest = max(one.grammar.largest_bytes for _, one in run.peers)
    expect(not run.findings(16), "frames below 1 MiB", run.findings(16))
    return f"the largest had {largest} bytes"
