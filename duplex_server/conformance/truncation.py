"""Checks truncation: of what was said, only what was heard stays."""

from __future__ import annotations

import base64
from dataclasses import dataclass

from duplex_server.conformance import scenes
from duplex_server.conformance.checks import Deviation, Json, NotApplicable, at, check, equal, expect
from duplex_server.conformance.peer import Peer
from duplex_server.conformance.run import Run
from duplex_server.conformance.scenes import ANSWER_TOKENS, SHORT_TOKENS, STORY, TEXT, input_tokens
from duplex_server.conformance.sound import BYTES_PER_MS, silence

TRUNCATE = "conversation.item.truncate"


async def truncate(peer: Peer, item_id: str, audio_end_ms: int) -> int:
    """Cut an item; gives where the server says that it is cut."""
    since = len(peer.events)
    await peer.send(TRUNCATE, item_id=item_id, content_index=0, audio_end_ms=audio_end_ms)
    told = await peer.wait("conversation.item.truncated", since)
    equal("item_id", at(told, "item_id"), item_id)
    cut: int = at(told, "audio_end_ms")
    return cut


@dataclass(frozen=True, slots=True)
class _Shortened:
    """An answer that was cut. `cuts` are what a truncation a little past its end came to, and one far past it."""

    sent_ms: float
    cuts: tuple[int, int | str]
    half_ms: int
    before: Json
    after: Json
    tokens: tuple[int, int]


async def _shorten(run: Run) -> _Shortened:
    """Be answered aloud, then cut the answer, first past its end and then in the middle."""
    async with run.session() as peer:
        await peer.type(STORY)
        done = await peer.respond(max_output_tokens=SHORT_TOKENS)
        item_id = at(done, "output.0.id")
        sent_ms = peer.sound_bytes(done["id"]) / BYTES_PER_MS
        reference = [{"type": "item_reference", "id": item_id}]
        before, known = await peer.retrieve(item_id), await input_tokens(peer, input=reference)
        near = await truncate(peer, item_id, int(sent_ms) + 200)
        far: int | str
        try:
            far = await truncate(peer, item_id, int(sent_ms) + 100_000)
        except Deviation as refused:
            far = refused.came
        half_ms = int(sent_ms) // 2
        equal("audio_end_ms", await truncate(peer, item_id, half_ms), half_ms)
        after, left = await peer.retrieve(item_id), await input_tokens(peer, input=reference)
    return _Shortened(sent_ms, (near, far), half_ms, before, after, (known, left))


@check(119, "the bytes of all audio deltas make up the item's duration within 1 ms")
async def exact_duration(run: Run) -> str:
    shortened = await run.once(_shorten)
    audio = at(shortened.before, "content.0").get("audio")
    _, far = shortened.cuts
    if audio is not None:
        kept_ms = len(base64.b64decode(audio)) / BYTES_PER_MS
        expect(abs(kept_ms - shortened.sent_ms) <= 1, f"{shortened.sent_ms:.1f} ms in the retrieved item", kept_ms)
    if isinstance(far, int):
        expect(abs(far - shortened.sent_ms) <= 1, f"a cut at {shortened.sent_ms:.1f} ms, the end", far)
    elif audio is None:
        raise NotApplicable("the server neither keeps the sound nor clamps a truncation: it tells no duration")
    return f"{shortened.sent_ms:.1f} ms"


@check(147, "truncate of a completed item: `truncated`, and the model is not told what was not heard")
async def forgotten(run: Run) -> str:
    known, left = (await run.once(_shorten)).tokens
    expect(left < known, f"fewer than {known} input tokens with the item", left)
    return f"the item costs {known - left} input tokens less"


@check(148, "truncate during a response does not stop it")
async def truncate_running(run: Run) -> None:
    async with run.session() as peer:
        await peer.type(STORY)
        response = await peer.begin(max_output_tokens=ANSWER_TOKENS)
        first = await peer.wait("response.output_audio.delta", within_s=peer.patience_s)
        await truncate(peer, at(first, "item_id"), 100)
        status = at(await peer.done(response["id"]), "status")
        expect(status in ("completed", "incomplete"), "a response that completes", status)


@check(149, "truncate up to 250 ms past the end is no error")
async def truncate_past_end(run: Run) -> None:
    near, _ = (await run.once(_shorten)).cuts
    expect(type(near) is int, "truncated with whole milliseconds", near)


@check(150, "truncate of a user's or a text item is unsupported_content_type")
async def truncate_text(run: Run) -> None:
    async with run.session() as peer:
        user = await peer.type("Say hello.")
        done = await peer.respond(output_modalities=TEXT, max_output_tokens=8)
        for item_id in (user["id"], at(done, "output.0.id")):
            error = await peer.refused(TRUNCATE, item_id=item_id, content_index=0, audio_end_ms=0)
            equal("error.code", error.get("code"), "unsupported_content_type")


@check(151, "truncate of an unknown item is an error, and the session goes on")
async def truncate_unknown(run: Run) -> None:
    async with run.session() as peer:
        error = await peer.refused(TRUNCATE, item_id="nobody", content_index=0, audio_end_ms=0)
        equal("error.code", error.get("code"), "item_truncate_invalid_item_id")
        await peer.settle()


@check(152, "retrieve after truncate gives the shorter sound, and no words that were not heard")
async def retrieve_shortened(run: Run) -> str:
    shortened = await run.once(_shorten)
    before, after = (at(one, "content.0") for one in (shortened.before, shortened.after))
    words = after.get("transcript") or ""
    said = at(before, "transcript")
    expect(said.startswith(words) and len(words) < len(said), f"only the beginning of {said!r}", words)
    if "audio" in before:
        kept_ms = len(base64.b64decode(after.get("audio") or "")) / BYTES_PER_MS
        expect(abs(kept_ms - shortened.half_ms) <= 1, f"{shortened.half_ms} ms of sound", f"{kept_ms:.1f} ms")
    return f"of {said!r} it keeps {words!r}"


@check(154, "the sequence clear, append, cancel, truncate with nothing active costs at most harmless errors")
async def manual_barge_in(run: Run) -> None:
    async with run.session() as peer:
        await peer.update(audio={"input": {"turn_detection": None}})
        await peer.type("Say hello.")
        done = await peer.respond(max_output_tokens=16)
        since = len(peer.events)
        await peer.send("input_audio_buffer.clear")
        await peer.append(silence(200))
        await peer.send("response.cancel")
        await peer.send(TRUNCATE, item_id=at(done, "output.0.id"), content_index=0, audio_end_ms=100)
        await peer.settle()
        codes = [at(event, "error.code") for event in peer.of("error", since)]
        expect(set(codes) <= {"response_cancel_not_active"}, "at most response_cancel_not_active", codes)
        expect("conversation.item.truncated" in peer.kinds(since), "truncated", peer.kinds(since))


@check(146, "over a WebSocket `truncated` is never sent unasked", last=True)
async def never_unasked(run: Run) -> None:
    await run.once(scenes.barge_in)
    for number, peer in run.peers:
        told = len(peer.of("conversation.item.truncated"))
        expect(told <= peer.truncations, f"at most {peer.truncations} `truncated` in check {number}", told)
