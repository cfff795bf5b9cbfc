"""Checks the turns that a server finds in sound: where they lie, what they become, and what is heard in them."""

from __future__ import annotations

import asyncio

from duplex_server.conformance import scenes
from duplex_server.conformance.checks import Json, at, check, equal, expect
from duplex_server.conformance.peer import MANUAL, Peer
from duplex_server.conformance.run import Run
from duplex_server.conformance.scenes import LEAD_MS, TAIL_MS, TRANSCRIPTION, Call, Turn
from duplex_server.conformance.sound import murmur, silence

PADDING_MS = 300
ONSET_MS, OFFSET_MS = 500, 1200
"""How far from the edges of speech a server may hear them."""
IDLE_MS = 5000
LOGPROBS = "item.input_audio_transcription.logprobs"


@check(77, "speech_started, speech_stopped, committed and item.added share one item_id")
async def one_item(run: Run) -> None:
    for turn in (await run.once(scenes.spoken)).turns:
        told = [at(event, "item_id") for event in (turn.started, turn.stopped, turn.committed, turn.transcribed)]
        equal("the item ids", [*told, at(turn.added, "item.id")], [told[0]] * 5)
    expect(not run.findings(77), "one item in each turn", run.findings(77))


@check(78, "audio_start_ms includes the prefix padding, and is never negative")
async def padded_start(run: Run) -> str:
    turns = (await run.once(scenes.spoken)).turns
    for turn in turns:
        start_ms, wanted_ms = at(turn.started, "audio_start_ms"), turn.from_ms - PADDING_MS
        # Some sound of speech is too faint to be heard at once, so the start may come late, but never early.
        expect(start_ms >= 0, "audio_start_ms of 0 or more", start_ms)
        expect(abs(start_ms - wanted_ms) <= ONSET_MS, f"audio_start_ms near {wanted_ms}", start_ms)
    return f"{turns[0].started['audio_start_ms']} ms, for speech from {turns[0].from_ms} ms on"


@check(79, "audio_end_ms lies after audio_start_ms; both are integers, and grow from turn to turn")
async def growing_offsets(run: Run) -> None:
    reached = -1
    for turn in (await run.once(scenes.spoken)).turns:
        for offset in (at(turn.started, "audio_start_ms"), at(turn.stopped, "audio_end_ms")):
            expect(type(offset) is int and offset > reached, f"whole milliseconds after {reached}", offset)
            reached = offset
    expect(not run.findings(79), "offsets that grow", run.findings(79))


@check(80, "offsets follow the sound, not the clock, when it is sent faster than real time")
async def media_time(run: Run) -> str:
    turns = (await run.once(scenes.spoken)).turns
    for turn in turns:
        end_ms = at(turn.stopped, "audio_end_ms")
        early, late = turn.upto_ms - ONSET_MS, turn.upto_ms + OFFSET_MS
        expect(early <= end_ms <= late, f"audio_end_ms from {early} to {late}", end_ms)
    return f"{turns[-1].stopped['audio_end_ms']} ms, for speech up to {turns[-1].upto_ms} ms"


@check(81, "previous_item_id of committed is the last item of the conversation, null for the first")
async def previous_items(run: Run) -> None:
    scene = await run.once(scenes.spoken)
    first, second = scene.turns
    equal("previous_item_id of the first turn", at(first.committed, "previous_item_id"), None)
    equal("previous_item_id of the second", at(second.committed, "previous_item_id"), scene.answer["output"][-1]["id"])


@check(82, "two turns never give two speech_started without a stop between them")
async def paired_speech(run: Run) -> None:
    await run.once(scenes.spoken)
    expect(not run.findings(82), "a stop after each start", run.findings(82))


@check(83, "a manual commit during speech takes the announced item_id, and no speech_stopped comes")
async def commit_in_speech(run: Run) -> None:
    async with run.session() as peer:
        started, since = await _begin_speech(run, peer)
        await peer.send("input_audio_buffer.commit")
        committed = await peer.wait("input_audio_buffer.committed", since)
        equal("item_id of committed", at(committed, "item_id"), at(started, "item_id"))
        await peer.quiet(("input_audio_buffer.speech_stopped",), since)


async def _begin_speech(run: Run, peer: Peer) -> tuple[Json, int]:
    """Speak, and do not stop; gives speech_started and the index of the event after it."""
    patient = {**scenes.UNANSWERED, "silence_duration_ms": 3000}
    await peer.update(audio={"input": {"turn_detection": patient}})
    await peer.play(run.speech)
    started = await peer.wait("input_audio_buffer.speech_started", within_s=peer.patience_s)
    return started, peer.events.index(started) + 1


@check(84, "with create_response false a turn is committed and not answered")
async def unanswered(run: Run) -> None:
    scene = await run.once(scenes.spoken)
    since = scene.peer.events.index(scene.turns[1].started)
    scene.peer.without(("response.",), since)


@check(85, "with interrupt_response false a response completes while the user speaks")
async def uninterrupted(run: Run) -> None:
    async with run.session() as peer:
        await peer.update(audio={"input": {"turn_detection": {**scenes.UNANSWERED, "interrupt_response": False}}})
        await peer.type(scenes.STORY)
        response = await peer.begin(max_output_tokens=scenes.ANSWER_TOKENS)
        await peer.wait("response.output_audio.delta", within_s=peer.patience_s)
        await peer.play(run.speech)
        await peer.play(silence(TAIL_MS))
        started = await peer.wait("input_audio_buffer.speech_started", within_s=peer.patience_s)
        done = await peer.done(response["id"])
        expect(at(done, "status") in ("completed", "incomplete"), "a response that completes", done)
        scenes.still_open(peer, response["id"], started)


async def _unheard(run: Run) -> Peer:
    """A turn with neither answer, interruption nor transcription."""
    async with run.session() as peer:
        turns = {**scenes.UNANSWERED, "interrupt_response": False}
        await peer.update(audio={"input": {"turn_detection": turns, "transcription": None}})
        for pcm in (silence(LEAD_MS), run.speech, silence(TAIL_MS)):
            await peer.play(pcm)
        await peer.wait("conversation.item.done", within_s=peer.patience_s)
        await peer.quiet((), 0)
    return peer


@check(86, "with create_response and interrupt_response false there are speech events and commits only")
async def bare_turn(run: Run) -> None:
    peer = await run.once(_unheard)
    wanted = [
        "input_audio_buffer.speech_started",
        "input_audio_buffer.speech_stopped",
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.done",
    ]
    equal("the events", [kind for kind in peer.kinds() if not kind.startswith("session.")], wanted)


@check(87, "30 s of faint noise give no speech_started")
async def noise(run: Run) -> None:
    async with run.session() as peer:
        await peer.update(audio={"input": {"turn_detection": scenes.UNANSWERED}})
        await peer.play(murmur(30_000))
        await peer.play(run.speech)  # the end of the noise, for a server that is behind
        started = await peer.wait("input_audio_buffer.speech_started", within_s=peer.patience_s)
        expect(at(started, "audio_start_ms") >= 30_000 - PADDING_MS - ONSET_MS, "speech from 30000 ms on", started)


@check(88, "the idle timeout fires once after playback, with a committed item and a response")
async def idle(run: Run) -> None:
    async with run.session() as peer:
        since = await _answered(peer)
        microphone = asyncio.create_task(peer.play_live(silence(120_000)))
        try:
            fired = await peer.wait("input_audio_buffer.timeout_triggered", since, within_s=peer.patience_s)
            index = peer.events.index(fired)
            created = await peer.wait("response.created", index, within_s=peer.patience_s)
        finally:
            microphone.cancel()
            await asyncio.gather(microphone, return_exceptions=True)
        wanted = ["input_audio_buffer.committed", "conversation.item.added", "conversation.item.done"]
        equal("the events after it", peer.kinds(index + 1)[:3], wanted)
        equal("item_id of committed", at(peer.events[index + 1], "item_id"), at(fired, "item_id"))
        await peer.done(at(created, "response.id"))
        equal("timeouts", len(peer.of("input_audio_buffer.timeout_triggered")), 1)


async def _answered(peer: Peer) -> int:
    """Set an idle timeout and be answered; gives the index of the next event."""
    turns = {"type": "server_vad", "idle_timeout_ms": IDLE_MS}
    await peer.update(audio={"input": {"turn_detection": turns}}, max_output_tokens=16)
    await peer.type("Say hello.")
    await peer.respond()
    return len(peer.events)


@check(89, "the idle timer is stopped by speech and by turning turn detection off")
async def idle_stopped(run: Run) -> None:
    speech = run.speech

    async def spoken() -> None:
        async with run.session() as peer:
            since = await _answered(peer)
            turns = {"type": "server_vad", "idle_timeout_ms": IDLE_MS, "create_response": False}
            await peer.update(audio={"input": {"turn_detection": turns}})
            await peer.play(speech)
            await _stay_quiet(peer, since)

    async def switched_off() -> None:
        async with run.session() as peer:
            since = await _answered(peer)
            await peer.update(audio=MANUAL)
            await _stay_quiet(peer, since)

    results = await asyncio.gather(spoken(), switched_off(), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result


async def _stay_quiet(peer: Peer, since: int) -> None:
    await peer.play_live(silence(IDLE_MS + 3000))
    await peer.settle()
    peer.without(("input_audio_buffer.timeout_triggered",), since)


@check(90, "turning turn detection off during speech keeps the sound for a manual commit")
async def switched_off_in_speech(run: Run) -> None:
    async with run.session() as peer:
        _, since = await _begin_speech(run, peer)
        await peer.update(audio=MANUAL)
        await peer.send("input_audio_buffer.commit")
        await peer.wait("input_audio_buffer.committed", since)


@check(91, "the completed transcription has content_index, transcript and usage")
async def transcribed(run: Run) -> str:
    turn = (await run.once(scenes.spoken)).turns[0]
    equal("content_index", at(turn.transcribed, "content_index"), 0)
    expect(bool(at(turn.transcribed, "transcript").strip()), "words", turn.transcribed)
    at(turn.transcribed, "usage.type")
    return f"it heard: {turn.transcribed['transcript'].strip()}"


@check(92, "transcription deltas add up to the completed transcript")
async def transcription_deltas(run: Run) -> str:
    scene = await run.once(scenes.spoken)
    for turn in scene.turns:
        _add_up(scene.peer, turn, least=0)
    async with run.session() as peer:
        wanted = {"model": "gpt-4o-mini-transcribe", "delay": "low"}
        await peer.update(audio={"input": {"transcription": wanted, "turn_detection": scenes.UNANSWERED}})
        count = _add_up(peer, await scenes.take_turn(run, Call(peer)), least=1)
    return f"{count} deltas, where the client asks for a low delay"


def _add_up(peer: Peer, turn: Turn, least: int) -> int:
    item_id = turn.transcribed["item_id"]
    deltas = [one["delta"] for one in peer.of(f"{TRANSCRIPTION}.delta") if one["item_id"] == item_id]
    expect(len(deltas) >= least, f"at least {least} deltas", f"none for {item_id}")
    if deltas:
        equal("the deltas together", "".join(deltas), turn.transcribed["transcript"])
    return len(deltas)


@check(93, "logprobs are there only when `include` asks for them")
async def logprobs(run: Run) -> str | None:
    scene = await run.once(scenes.spoken)
    for event in scene.peer.events:
        if event["type"].startswith(TRANSCRIPTION):
            equal(f"logprobs in {event['type']}", event.get("logprobs"), None)
    async with run.session() as peer:
        session = await peer.update(
            include=[LOGPROBS],
            audio={"input": {"transcription": {"model": "whisper-1"}, "turn_detection": scenes.UNANSWERED}},
        )
        if not at(session, "include"):
            return "never: session.updated shows that this server has none"
        turn: Turn = await scenes.take_turn(run, Call(peer))
        told = at(turn.transcribed, "logprobs")
        expect(isinstance(told, list) and bool(told), "logprobs", turn.transcribed)
        for path in ("token", "logprob", "bytes"):
            at(told[0], path)
    return None


@check(95, "the user's transcript is null in added and done, and filled in once it is known")
async def transcript_later(run: Run) -> None:
    scene = await run.once(scenes.spoken)
    turn = scene.turns[0]
    item_id = turn.added["item"]["id"]
    for event in scene.peer.events:
        if event["type"] in ("conversation.item.added", "conversation.item.done") and event["item"]["id"] == item_id:
            equal(f"transcript in {event['type']}", at(event, "item.content.0.transcript"), None)
    equal("transcript in retrieved", at(scene.user_item, "content.0.transcript"), turn.transcribed["transcript"])


@check(96, "with transcription null there are no transcription events")
async def untranscribed(run: Run) -> None:
    (await run.once(_unheard)).without((TRANSCRIPTION,))
