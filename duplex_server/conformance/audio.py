"""Checks the input audio buffer: what is appended, committed and cleared."""

from __future__ import annotations

import base64

from duplex_server.conformance.checks import Json, at, check, equal, expect
from duplex_server.conformance.peer import MANUAL, Peer
from duplex_server.conformance.run import Run
from duplex_server.conformance.sound import ramp, silence


async def _commit(peer: Peer) -> Json:
    """Commit what lies in the buffer; gives the item as it was added."""
    since = len(peer.events)
    await peer.send("input_audio_buffer.commit")
    await peer.wait("conversation.item.done", since)
    return peer.of("conversation.item.added", since)[0]["item"]


async def _uncommitted(peer: Peer) -> None:
    error = await peer.refused("input_audio_buffer.commit")
    equal("error.code", error.get("code"), "input_audio_buffer_commit_empty")


@check(70, "append is not acknowledged")
async def append_is_silent(run: Run) -> None:
    async with run.session() as peer:
        since = len(peer.events)
        await peer.append(silence(200))
        await peer.settle()
        equal("the events", peer.kinds(since), ["session.updated"])


@check(71, 'invalid base64 is an error with param "audio"')
async def bad_base64(run: Run) -> None:
    async with run.session() as peer:
        error = await peer.refused("input_audio_buffer.append", audio="this is no base64!")
        equal("error.param", error.get("param"), "audio")


@check(72, "an append of an odd number of bytes loses or adds no sample")
async def odd_bytes(run: Run) -> str:
    async with run.session() as peer:
        await peer.update(audio=MANUAL)
        sent = ramp(24 * 200).astype("<i2").tobytes()
        for start, end in ((0, 3333), (3333, 6666), (6666, len(sent))):
            await peer.append(sent[start:end])
        item = await _commit(peer)
        audio = at(await peer.retrieve(item["id"]), "content.0").get("audio")
        if audio is None:
            # 99.98 ms, then 100 ms: one byte decides.
            await peer.append(sent[:2399])
            await peer.append(sent[2399:4799])
            await _uncommitted(peer)
            await peer.append(sent[4799:4800])
            await _commit(peer)
            return "by the length alone: the server keeps no sound"
        expect(base64.b64decode(audio) == sent, f"the {len(sent)} bytes that were sent", f"{len(audio)} of base64")
        return "by the sound itself"


@check(73, "a commit of 99 ms is input_audio_buffer_commit_empty; 100 ms succeed")
async def shortest_commit(run: Run) -> None:
    async with run.session() as peer:
        await peer.update(audio=MANUAL)
        await peer.append(silence(99))
        await _uncommitted(peer)
        await peer.append(silence(1))
        await _commit(peer)


@check(74, "commit emits committed, item.added, item.done in that order, and starts no response")
async def commit_order(run: Run) -> None:
    async with run.session() as peer:
        await peer.update(audio=MANUAL)
        await peer.append(silence(500))
        since = len(peer.events)
        await peer.send("input_audio_buffer.commit")
        await peer.quiet(("response.",), since)
        wanted = ["input_audio_buffer.committed", "conversation.item.added", "conversation.item.done"]
        equal("the events", peer.kinds(since)[:3], wanted)
        ids = {
            at(event, path) for event, path in zip(peer.events[since:], ("item_id", "item.id", "item.id"), strict=False)
        }
        expect(len(ids) == 1, "one item in the three of them", ids)


@check(75, "in µ-law, 799 bytes are too few to commit, and 800 succeed")
async def shortest_telephone_commit(run: Run) -> None:
    async with run.session() as peer:
        await peer.update(audio={"input": {"turn_detection": None, "format": {"type": "audio/pcmu"}}})
        await peer.append(b"\xff" * 799)
        await _uncommitted(peer)
        await peer.append(b"\xff")
        await _commit(peer)


@check(76, "clear of an empty buffer yields cleared")
async def clear_nothing(run: Run) -> None:
    async with run.session() as peer:
        since = len(peer.events)
        await peer.send("input_audio_buffer.clear")
        await peer.wait("input_audio_buffer.cleared", since)
