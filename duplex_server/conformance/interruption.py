"""Checks how responses are cut off: by speech and by cancel."""

from __future__ import annotations

from duplex_server.conformance import scenes
from duplex_server.conformance.checks import Json, at, check, equal, expect
from duplex_server.conformance.peer import Peer
from duplex_server.conformance.run import Run
from duplex_server.conformance.scenes import ANSWER_TOKENS, LONG_TOKENS, STORY, TAIL_MS, TEXT, met
from duplex_server.conformance.sound import silence

CANCELLED = {"type": "cancelled", "reason": "client_cancelled"}


@check(138, "speech over a response ends it: cancelled, reason turn_detected, after its closing events")
async def cut_by_speech(run: Run) -> None:
    cut = await run.once(scenes.barge_in)
    equal("status", at(cut.done, "status"), "cancelled")
    equal("status_details.reason", at(cut.done, "status_details.reason"), "turn_detected")
    kinds = cut.peer.kinds(cut.at_event)
    expect("input_audio_buffer.speech_started" in kinds, "speech_started", kinds)
    started, done = kinds.index("input_audio_buffer.speech_started"), kinds.index("response.done")
    expect(started < done, "speech_started before response.done", kinds)
    late = kinds[started:].count("response.output_audio.delta")
    expect(not late, "no sound after speech_started", f"{late} audio deltas")
    for item in cut.done["output"]:
        equal("status of the item", at(item, "status"), "incomplete")


async def _story(peer: Peer, **response: object) -> Json:
    """Begin an answer that takes a while."""
    await peer.type(STORY)
    return await peer.begin(max_output_tokens=LONG_TOKENS, **response)


@check(140, "response.cancel ends a response with the reason client_cancelled")
async def cancel(run: Run) -> None:
    async with run.session() as peer:
        response = await _story(peer)
        await peer.wait("response.output_audio.delta", within_s=peer.patience_s)
        await peer.send("response.cancel")
        done = await peer.done(response["id"])
        equal("status", at(done, "status"), "cancelled")
        expect(dict(at(done, "status_details")).items() >= CANCELLED.items(), str(CANCELLED), done["status_details"])
        equal("errors", peer.of("error"), [])


@check(141, "response.cancel and response.create back to back succeed without error")
async def cancel_and_create(run: Run) -> None:
    async with run.session() as peer:
        first = await _story(peer)
        since = len(peer.events)
        await peer.send("response.cancel")
        await peer.send("response.create", response={"output_modalities": TEXT, "max_output_tokens": 8})
        created = await peer.wait("response.created", since)
        done = await peer.done(at(created, "response.id"))
        expect(at(done, "status") in ("completed", "incomplete"), "the second response to complete", done)
        equal("status of the first", at(await peer.done(first["id"]), "status"), "cancelled")


@check(142, "a cancel with nothing active is response_cancel_not_active; it says `Cancellation failed`")
async def cancel_nothing(run: Run) -> None:
    async with run.session() as peer:
        error = await peer.refused("response.cancel")
        equal("error.code", error.get("code"), "response_cancel_not_active")
        expect(error["message"].startswith("Cancellation failed"), "a message that begins so", error["message"])


@check(143, "a cancel with the id of a response beside the conversation ends only that one")
async def cancel_one(run: Run) -> None:
    async with run.session() as peer:
        await peer.type(STORY)
        kept = await peer.begin(max_output_tokens=ANSWER_TOKENS)
        ended = await peer.begin(conversation="none", max_output_tokens=LONG_TOKENS)
        await peer.send("response.cancel", response_id=ended["id"])
        equal("status of the cancelled one", at(await peer.done(ended["id"]), "status"), "cancelled")
        cut = peer.events[-1]
        status = at(await peer.done(kept["id"]), "status")
        expect(status in ("completed", "incomplete"), "the other one to complete", status)
        scenes.still_open(peer, kept["id"], cut)


@check(144, "a cancel before the first token gives response.done without output")
async def cancel_at_once(run: Run) -> str:
    async def attempt(peer: Peer) -> Json | None:
        await peer.type(STORY)
        since = len(peer.events)
        await peer.send("response.create", response={"output_modalities": TEXT, "max_output_tokens": LONG_TOKENS})
        await peer.send("response.cancel")
        created = await peer.wait("response.created", since)
        done = await peer.done(at(created, "response.id"))
        equal("status", at(done, "status"), "cancelled")
        begun = bool(peer.of("response.output_item.added", since))
        expect(begun or not done["output"], "no output of what had none", done)
        return None if begun else done

    async with run.session() as peer:
        return await met(peer, attempt, "the first output came before the cancel")


@check(145, "a response beside the conversation survives speech")
async def beside_speech(run: Run) -> None:
    async with run.session() as peer:
        await peer.update(audio={"input": {"turn_detection": scenes.UNANSWERED}})
        await peer.type(STORY)
        beside = await peer.begin(conversation="none", max_output_tokens=ANSWER_TOKENS)
        await peer.wait("response.output_audio.delta", within_s=peer.patience_s)
        await peer.play(run.speech)
        await peer.play(silence(TAIL_MS))
        started = await peer.wait("input_audio_buffer.speech_started", within_s=peer.patience_s)
        status = at(await peer.done(beside["id"]), "status")
        expect(status in ("completed", "incomplete"), "a response that completes", status)
        scenes.still_open(peer, beside["id"], started)


@check(139, "no event of a response follows its response.done", last=True)
async def nothing_after(run: Run) -> None:
    await run.once(scenes.barge_in)
    expect(not run.findings(139), "nothing after response.done", run.findings(139))
