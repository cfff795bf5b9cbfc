"""Checks the older dialect: which connections speak it, and that all of it is spoken."""

from __future__ import annotations

from dataclasses import dataclass

from duplex_server.conformance import scenes
from duplex_server.conformance.checks import Json, at, check, equal, expect
from duplex_server.conformance.peer import Peer
from duplex_server.conformance.run import Run
from duplex_server.conformance.shapes import BETA_NAMES

HEADER = {"OpenAI-Beta": "realtime=v1"}
PROTOCOL = "openai-beta.realtime-v1"
NEWER = ("conversation.item.added", "conversation.item.done", "response.output_text", "response.output_audio")
FLAT: Json = {
    "modalities": ["audio", "text"],
    "input_audio_format": "pcm16",
    "output_audio_format": "pcm16",
    "input_audio_transcription": {"model": "whisper-1"},
    "turn_detection": {"type": "server_vad"},
}


@dataclass(frozen=True, slots=True)
class Beta:
    """Two turns in the older dialect, one typed and answered aloud, one answered in writing."""

    peer: Peer
    session: Json
    spoken: Json
    written: Json


async def _turns(run: Run) -> Beta:
    async with run.session(headers={**run.target.headers, **HEADER}) as peer:
        session = await peer.update(**FLAT)
        content = [{"type": "input_text", "text": "What is a river?"}]
        await peer.send("conversation.item.create", item={"type": "message", "role": "user", "content": content})
        await peer.wait("conversation.item.created")
        spoken = await peer.respond(max_response_output_tokens=scenes.SHORT_TOKENS)
        written = await peer.respond(
            modalities=["text"], voice=at(session, "voice"), temperature=0.7, max_response_output_tokens=16
        )
        await peer.settle()
    return Beta(peer, session, spoken, written)


def _no_newer_names(peer: Peer) -> None:
    newer = [kind for kind in peer.kinds() if kind.startswith(NEWER)]
    expect(not newer, "names of the older dialect only", newer)


@check(6, "`OpenAI-Beta: realtime=v1` selects the older dialect for every event")
async def by_header(run: Run) -> None:
    _no_newer_names((await run.once(_turns)).peer)


@check(7, "the protocol openai-beta.realtime-v1 selects the older dialect")
async def by_protocol(run: Run) -> None:
    async with run.session(protocols=("realtime", PROTOCOL)) as peer:
        at(peer.events[0], "session.modalities")
        await peer.settle()
        expect("conversation.created" in peer.kinds(), "conversation.created", peer.kinds())


@check(66, "a flat update in the older dialect is answered with a flat session")
async def flat_echo(run: Run) -> None:
    session = (await run.once(_turns)).session
    for name in ("input_audio_format", "output_audio_format", "modalities"):
        equal(f"session.{name}", at(session, name), FLAT[name])
    expect("audio" not in session, "no nested settings", session)
    at(session, "max_response_output_tokens")
    equal("session.temperature's type", type(at(session, "temperature")), float)


@check(67, "a first update in the older shape switches the connection to the older dialect")
async def switched(run: Run) -> None:
    async with run.session() as peer:
        since = len(peer.events)
        await peer.send("session.update", session={"modalities": ["text"], "temperature": 0.8})
        updated = await peer.wait("session.updated", since)
        equal("session.modalities", at(updated, "session.modalities"), ["text"])
        content = [{"type": "input_text", "text": "Say hello."}]
        await peer.send("conversation.item.create", item={"type": "message", "role": "user", "content": content})
        await peer.wait("conversation.item.created", since)
        await peer.send("response.create", response={"max_response_output_tokens": 8})
        await peer.wait("response.text.done", since, within_s=peer.patience_s)


@check(165, "conversation.created follows session.created")
async def conversation_created(run: Run) -> None:
    equal("the events", (await run.once(_turns)).peer.kinds()[:2], ["session.created", "conversation.created"])


@check(166, "conversation.item.created comes once for each item, and neither added nor done")
async def created_once(run: Run) -> None:
    scene = await run.once(_turns)
    ids = [at(event, "item.id") for event in scene.peer.of("conversation.item.created")]
    wanted = {item["id"] for response in (scene.spoken, scene.written) for item in response["output"]}
    expect(wanted <= set(ids) and len(ids) == len(set(ids)) == 3, "each of three items once", ids)
    _no_newer_names(scene.peer)


@check(167, "response.audio.delta, response.audio_transcript.delta and response.text.delta are so called")
async def names(run: Run) -> None:
    kinds = set((await run.once(_turns)).peer.kinds())
    for kind in BETA_NAMES:
        expect(kind in kinds, kind, kinds)


@check(168, "the assistant's items have the content types audio and text")
async def content_types(run: Run) -> None:
    scene = await run.once(_turns)
    equal("content.type of the spoken item", at(scene.spoken, "output.0.content.0.type"), "audio")
    equal("content.type of the written item", at(scene.written, "output.0.content.0.type"), "text")


@check(169, "two turns in the older dialect keep to its grammar")
async def grammar(run: Run) -> None:
    found = [one.text for one in (await run.once(_turns)).peer.grammar.found]
    expect(not found, "nothing to be found", found)


@check(170, "response.create is accepted with modalities, voice and temperature")
async def older_overrides(run: Run) -> None:
    scene = await run.once(_turns)
    equal("modalities of the response", at(scene.written, "modalities"), ["text"])
    equal("temperature of the response", at(scene.written, "temperature"), 0.7)
    equal("errors", scene.peer.of("error"), [])
