"""Checks the settings of a session: what they begin as, how an update changes them, and what it may not."""

from __future__ import annotations

from duplex_server.conformance.checks import Json, NotApplicable, at, check, equal, expect
from duplex_server.conformance.peer import Peer
from duplex_server.conformance.run import Run
from duplex_server.conformance.sound import silence

ALWAYS = """
    id object type model expires_at output_modalities instructions tools tool_choice max_output_tokens truncation
    tracing prompt include audio.input.format audio.input.transcription audio.input.noise_reduction
    audio.input.turn_detection audio.output.format audio.output.voice audio.output.speed
"""
SERVER_VAD = {
    "type": "server_vad",
    "threshold": 0.5,
    "prefix_padding_ms": 300,
    "silence_duration_ms": 500,
    "idle_timeout_ms": None,
    "create_response": True,
    "interrupt_response": True,
}
VAD = "audio.input.turn_detection"
PCM = {"type": "audio/pcm", "rate": 24000}
SECRET = "a-secret-of-the-client"
TOOL = {"type": "function", "name": "look_up", "parameters": {"type": "object", "properties": {}}}


def _input(**fields: object) -> Json:
    return {"input": fields}


def _output(**fields: object) -> Json:
    return {"output": fields}


async def _echoed(peer: Peer, path: str, wanted: object, **session: object) -> None:
    equal(f"session.{path}", at(await peer.update(**session), path), wanted)


async def _refused(peer: Peer, param: str, **session: object) -> Json:
    """An invalid update costs one error that names the field, and changes nothing."""
    before = await peer.update()
    since = len(peer.events)
    error = await peer.refused("session.update", session={"type": "realtime", **session})
    told = error.get("param") or ""
    expect(told.startswith(param), f"an error with param {param}", error)
    await peer.settle()
    equal("the events", peer.kinds(since), ["error", "session.updated"])
    equal("the session after the error", at(peer.events[-1], "session"), before)
    return error


@check(42, "session.created has type, object, id, model, expires_at and all keys that are always there")
async def whole_session(run: Run) -> None:
    async with run.session() as peer:
        session = peer.events[0]["session"]
        for path in ALWAYS.split():
            at(session, path)
        equal("session.type", session["type"], "realtime")
        equal("session.object", session["object"], "realtime.session")
        expect(str(session["id"]).startswith("sess_"), "an id that begins with sess_", session["id"])
        expect(type(session["expires_at"]) is int, "expires_at in whole seconds", session["expires_at"])
        expect(isinstance(session["audio"]["output"]["voice"], str), "the voice as a string", session["audio"])


@check(43, 'output_modalities is ["audio"] by default')
async def default_modalities(run: Run) -> None:
    async with run.session() as peer:
        equal("session.output_modalities", at(peer.events[0], "session.output_modalities"), ["audio"])


@check(44, "turn detection is server_vad 0.5/300/500 by default, with create_response and interrupt_response")
async def default_turns(run: Run) -> None:
    async with run.session() as peer:
        told = dict(at(peer.events[0], f"session.{VAD}"))
        told.setdefault("idle_timeout_ms", None)
        equal("session.audio.input.turn_detection", told, SERVER_VAD)


@check(45, "semantic_vad is echoed with eagerness auto, create_response true, interrupt_response true")
async def semantic(run: Run) -> None:
    async with run.session() as peer:
        wanted = {"type": "semantic_vad", "eagerness": "auto", "create_response": True, "interrupt_response": True}
        await _echoed(peer, VAD, wanted, audio=_input(turn_detection={"type": "semantic_vad"}))


@check(46, "turn_detection null is echoed, and no speech events follow")
async def no_turns(run: Run) -> None:
    async with run.session() as peer:
        await _echoed(peer, VAD, None, audio=_input(turn_detection=None))
        await peer.play(run.speech)
        await peer.play(silence(1500))
        await peer.quiet(("input_audio_buffer.", "conversation.", "response."), 1)


@check(47, "server_vad sent again with one field refills the other defaults")
async def refilled(run: Run) -> None:
    async with run.session() as peer:
        await peer.update(audio=_input(turn_detection={"type": "server_vad", "silence_duration_ms": 900}))
        session = await peer.update(audio=_input(turn_detection={"type": "server_vad", "threshold": 0.6}))
        told = {"idle_timeout_ms": None, **at(session, VAD)}
        equal(f"session.{VAD}", told, {**SERVER_VAD, "threshold": 0.6})


@check(48, "turn_detection without type merges into the current one")
async def merged_turns(run: Run) -> None:
    async with run.session() as peer:
        await peer.update(audio=_input(turn_detection={"type": "server_vad", "silence_duration_ms": 900}))
        session = await peer.update(audio=_input(turn_detection={"create_response": False}))
        told = {"idle_timeout_ms": None, **at(session, VAD)}
        equal(f"session.{VAD}", told, {**SERVER_VAD, "silence_duration_ms": 900, "create_response": False})


@check(49, "an update with instructions alone leaves the audio settings as they were")
async def instructions_alone(run: Run) -> None:
    async with run.session() as peer:
        before = await peer.update(audio=_input(turn_detection={"type": "server_vad", "silence_duration_ms": 900}))
        session = await peer.update(instructions="Be brief.")
        equal("session.audio", session["audio"], before["audio"])
        equal("session.instructions", session["instructions"], "Be brief.")


@check(50, 'instructions "" and tools [] clear')
async def cleared_settings(run: Run) -> None:
    async with run.session() as peer:
        await _echoed(peer, "tools.0.name", "look_up", tools=[TOOL], instructions="Be brief.")
        session = await peer.update(tools=[], instructions="")
        equal("session.tools", session["tools"], [])
        equal("session.instructions", session["instructions"], "")


@check(51, "a model in an update, the same or another, is no error and changes nothing")
async def model_in_update(run: Run) -> None:
    async with run.session() as peer:
        model = at(peer.events[0], "session.model")
        await _echoed(peer, "model", model, model=model)
        await _echoed(peer, "model", model, model="another-one")


@check(52, 'tracing "auto" is echoed')
async def tracing(run: Run) -> None:
    async with run.session() as peer:
        await _echoed(peer, "tracing", "auto", tracing="auto")


@check(53, "session.update without type is accepted")
async def typeless(run: Run) -> None:
    async with run.session() as peer:
        since = len(peer.events)
        await peer.send("session.update", session={"instructions": "Be brief."})
        updated = await peer.wait("session.updated", since)
        equal("session.instructions", at(updated, "session.instructions"), "Be brief.")


@check(54, "transcription is echoed with model, language and prompt only, unless the client set more")
async def transcription_keys(run: Run) -> None:
    async with run.session() as peer:
        session = await peer.update(audio=_input(transcription={"model": "whisper-1", "language": "en"}))
        told = at(session, "audio.input.transcription")
        expect(set(told) <= {"model", "language", "prompt"}, "only model, language and prompt", told)


@check(55, "transcription, noise_reduction and tracing can be null, and are echoed so")
async def nulls(run: Run) -> None:
    async with run.session() as peer:
        await peer.update(audio=_input(transcription={"model": "whisper-1"}), tracing="auto")
        session = await peer.update(audio=_input(transcription=None, noise_reduction=None), tracing=None)
        for path in ("audio.input.transcription", "audio.input.noise_reduction", "tracing"):
            equal(f"session.{path}", at(session, path), None)


@check(56, "a voice {id: X} is accepted and echoed as the string X")
async def voice_reference(run: Run) -> None:
    async with run.session() as peer:
        voice = at(peer.events[0], "session.audio.output.voice")
        await _echoed(peer, "audio.output.voice", voice, audio=_output(voice={"id": voice}))


@check(57, "the voice can change before the first sound; after it, that is cannot_update_voice")
async def voice_change(run: Run) -> None:
    async with run.session() as peer:
        await _echoed(peer, "audio.output.voice", "alloy", audio=_output(voice="alloy"))
        await _speak(peer)
        error = await _refused(peer, "session.audio.output.voice", audio=_output(voice="echo"))
        equal("error.code", error.get("code"), "cannot_update_voice")


@check(58, "the current voice can be sent again after sound")
async def voice_again(run: Run) -> None:
    async with run.session() as peer:
        await _speak(peer)
        voice = at(peer.events[0], "session.audio.output.voice")
        await _echoed(peer, "audio.output.voice", voice, audio=_output(voice=voice))


async def _speak(peer: Peer) -> None:
    """Let the server say something."""
    await peer.type("Say hello.")
    done = await peer.respond(max_output_tokens=16)
    expect(peer.sound_bytes(done["id"]) > 0, "sound", done)


@check(59, "a speed of 0.24 or 1.51 is an error with its param, and changes nothing")
async def speed(run: Run) -> None:
    async with run.session() as peer:
        for value in (0.24, 1.51):
            await _refused(peer, "session.audio.output.speed", audio=_output(speed=value))


@check(60, 'max_output_tokens of 0 or 4097 is an error; "inf" and 4096 are accepted')
async def most_tokens(run: Run) -> None:
    async with run.session() as peer:
        for value in (0, 4097):
            await _refused(peer, "session.max_output_tokens", max_output_tokens=value)
        await _echoed(peer, "max_output_tokens", 4096, max_output_tokens=4096)
        await _echoed(peer, "max_output_tokens", "inf", max_output_tokens="inf")


@check(61, "an idle_timeout_ms of 4999 or 30001 is an error; 5000 is accepted")
async def idle_bounds(run: Run) -> None:
    async with run.session() as peer:
        for value in (4999, 30001):
            turns = {"type": "server_vad", "idle_timeout_ms": value}
            await _refused(peer, f"session.{VAD}", audio=_input(turn_detection=turns))
        turns = {"type": "server_vad", "idle_timeout_ms": 5000}
        await _echoed(peer, f"{VAD}.idle_timeout_ms", 5000, audio=_input(turn_detection=turns))


@check(62, "a pcm rate of 16000 is an error, and never echoed")
async def foreign_rate(run: Run) -> None:
    async with run.session() as peer:
        for place in ("input", "output"):
            audio = {place: {"format": {"type": "audio/pcm", "rate": 16000}}}
            await _refused(peer, f"session.audio.{place}.format", audio=audio)


@check(63, "audio/pcmu and audio/pcma are accepted for input and output independently")
async def telephone_formats(run: Run) -> None:
    async with run.session() as peer:
        for heard, spoken in (("audio/pcmu", "audio/pcma"), ("audio/pcma", "audio/pcmu")):
            session = await peer.update(audio={"input": {"format": {"type": heard}}})
            equal("session.audio.input.format.type", at(session, "audio.input.format.type"), heard)
            session = await peer.update(audio={"output": {"format": {"type": spoken}}})
            equal("session.audio.input.format.type", at(session, "audio.input.format.type"), heard)
            equal("session.audio.output.format.type", at(session, "audio.output.format.type"), spoken)


@check(64, "an update that fails applies none of its fields")
async def all_or_nothing(run: Run) -> None:
    async with run.session() as peer:
        await _refused(peer, "session.audio.output.speed", instructions="Sing.", audio=_output(speed=9), tools=[TOOL])


@check(65, "format strings of the older dialect become objects")
async def format_strings(run: Run) -> None:
    async with run.session() as peer:
        for text, wanted in (("g711_ulaw", "audio/pcmu"), ("g711_alaw", "audio/pcma"), ("pcm16", "audio/pcm")):
            await _echoed(peer, "audio.input.format.type", wanted, audio=_input(format=text))
        await _echoed(peer, "audio.input.format", PCM, audio=_input(format="pcm16"))


@check(68, "truncation as a retention_ratio is echoed as it is; a ratio of 1.5 is an error")
async def truncation(run: Run) -> None:
    async with run.session() as peer:
        ratio = {"type": "retention_ratio", "retention_ratio": 0.8, "token_limits": {"post_instructions": 4000}}
        await _echoed(peer, "truncation", ratio, truncation=ratio)
        await _refused(peer, "session.truncation", truncation={"type": "retention_ratio", "retention_ratio": 1.5})


@check(69, "authorization and headers of an MCP tool never appear in what is echoed")
async def mcp_secrets(run: Run) -> None:
    tool = {
        "type": "mcp",
        "server_label": "notes",
        "server_url": "https://mcp.invalid/",
        "authorization": SECRET,
        "headers": {"X-Key": SECRET},
    }
    async with run.session() as peer:
        since = len(peer.events)
        await peer.send("session.update", session={"type": "realtime", "tools": [tool]})
        await peer.settle()
        expect(SECRET not in repr(peer.events), "no secret in any event", peer.events[since:])
        refusal = peer.of("error", since)
        if refusal and str(at(refusal[0], "error.param")).startswith("session.tools"):
            raise NotApplicable("the server refuses MCP tools by name; the refusal holds no secret")
        equal("the events", peer.kinds(since)[0], "session.updated")
