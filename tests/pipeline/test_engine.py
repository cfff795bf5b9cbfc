"""Tests the engine with scripted stages, in threads of this process and in processes of their own."""

from __future__ import annotations

import numpy as np

from pipeline.chunk import (
    Audio,
    End,
    Failed,
    Prepare,
    Reply,
    Segment,
    Speak,
    Text,
    Transcript,
    Usage,
)
from pipeline.spec import Placement
from pipeline.wiring import LOCAL_SLOTS, SHARED_SLOTS
from tests.pipeline.scenes import (
    SCRIPTED,
    Listener,
    ask,
    cascade,
    credits,
    play,
    prompt,
    quiet,
    running,
    settled,
    sound,
)


def test_a_reply_is_written_and_spoken_to_its_end(placement: Placement) -> None:
    async def scene() -> None:
        async with running(cascade(placement)) as (engine, heard):
            assert engine.ready
            assert engine.capabilities["talker"].rate_hz == 24_000
            assert engine.detector.open().probability(np.full(512, 4000, np.int16)) == 1.0
            reply = ask(engine, 1, "how are you")
            assert await heard.last(reply, "thinker") == End("stop", Usage(output_tokens=4))
            assert await heard.last(reply, "talker") == End()
            assert heard.text(reply) == heard.captions(reply) == "You said 3 words."
            assert heard.samples(reply) == 4 * 7200
            for role in ("thinker", "talker"):
                seqs = [c.seq for c in heard.chunks if c.role == role]
                assert seqs == list(range(len(seqs)))
            await quiet(engine)

    play(scene)


def test_a_text_is_spoken_without_a_thinker(placement: Placement) -> None:
    async def scene() -> None:
        async with running(cascade(placement)) as (engine, heard):
            reply = Reply("s", 1)
            engine.say(Speak(reply), "Good morning to you.")
            assert await heard.last(reply, "talker") == End()
            assert heard.captions(reply) == "Good morning to you."
            assert {c.role for c in heard.chunks} == {"talker"}
            await quiet(engine)

    play(scene)


def test_speech_is_recognized_and_its_credit_comes_back(placement: Placement) -> None:
    async def scene() -> None:
        async with running(cascade(placement)) as (engine, heard):
            pcm = sound(3)
            slots = LOCAL_SLOTS if placement == "inline" else SHARED_SLOTS
            for n in range(2 * slots):
                fence = Segment("s", n, len(pcm))
                engine.transcribe(fence, pcm, 24_000, final=n % 2 == 0, language=None, prompt=None)
                if n % 2:
                    engine.cancel(fence)
                else:
                    assert await heard.last(fence, "recognizer") == Transcript("one two three", "en")
            await settled(engine)
            assert {c.fence.number % 2 for c in heard.chunks if isinstance(c.fence, Segment)} == {0}
            assert credits(engine) == {"session.audio>recognizer#0": (slots, slots)}

    play(scene)


def test_more_passes_than_there_are_slots_wait_for_their_turn(placement: Placement) -> None:
    async def scene() -> None:
        async with running(cascade(placement)) as (engine, heard):
            fences = [Segment("s", n, 24_000) for n in range(3 * SHARED_SLOTS)]
            for fence in fences:
                engine.transcribe(fence, sound(2), 24_000, final=True, language=None, prompt=None)
            for fence in fences:
                assert await heard.last(fence, "recognizer") == Transcript("one two", "en")
            await settled(engine)

    play(scene)


def test_nothing_is_emitted_after_a_cancel_and_it_is_acknowledged(placement: Placement) -> None:
    async def scene() -> None:
        async with running(cascade(placement)) as (engine, heard):
            reply = ask(engine, 1, "please go on", max_tokens=1_000_000)
            await heard.until(lambda c: isinstance(c.payload, Audio))
            engine.cancel(reply)
            count = len(heard.chunks)
            await quiet(engine)
            following = ask(engine, 2, "say hello")
            assert await heard.last(following, "talker") == End()
            assert all(c.fence == following for c in heard.chunks[count:])

    play(scene)


def test_a_cancel_reaches_the_running_step(placement: Placement) -> None:
    async def scene() -> None:
        async with running(cascade(placement, thinker={"bound_ms": 60_000})) as (engine, heard):
            reply = ask(engine, 1, "please wait")
            await heard.until(lambda c: isinstance(c.payload, Text))
            engine.cancel(reply)
            await quiet(engine)
            assert await heard.last(ask(engine, 2, "say hello"), "talker") == End()

    play(scene)


def test_speech_waits_for_what_is_heard(placement: Placement) -> None:
    async def scene() -> None:
        async with running(cascade(placement, talker={"word_ms": 1000})) as (engine, heard):
            reply = ask(engine, 1, "say a b c d e f g h i j")
            engine.pace(reply, float("1e12"))  # nothing more is needed for a long time
            other = ask(engine, 2, "say x y")
            assert await heard.last(other, "talker") == End()
            held = heard.samples(reply)
            assert held < 240_000
            engine.pace(reply, 0.0)
            assert await heard.last(reply, "talker") == End()
            assert heard.samples(reply) == 240_000

    play(scene)


def test_closing_a_stream_releases_everything(placement: Placement) -> None:
    async def scene() -> None:
        async with running(cascade(placement)) as (engine, heard):
            other = Listener()
            engine.open("t", other.emit)
            ask(engine, 1, "please go on", max_tokens=1_000_000)
            kept = ask(engine, 1, "say a b c", stream="t")
            await heard.until(lambda c: isinstance(c.payload, Audio))
            engine.close("s")
            count = len(heard.chunks)
            assert await other.last(kept, "talker") == End()
            await quiet(engine)
            assert len(heard.chunks) == count
            assert {c.fence for c in other.chunks} == {kept}
            engine.open("s", heard.emit)
            again = ask(engine, 1, "say hello")
            end = await heard.last(again, "thinker")
            assert isinstance(end, End)
            assert end.usage is not None
            assert end.usage.cached_tokens == 0  # the stage forgot the stream

    play(scene)


def test_preparation_is_used(placement: Placement) -> None:
    async def scene() -> None:
        async with running(cascade(placement)) as (engine, heard):
            engine.prepare(Prepare("s", prompt("say hello")))
            end = await heard.last(ask(engine, 1, "say hello"), "thinker")
            assert isinstance(end, End)
            assert end.usage is not None
            assert end.usage.cached_tokens == 2

    play(scene)


def test_a_parrot_speaks_before_it_is_given_text(placement: Placement) -> None:
    async def scene() -> None:
        async with running(cascade(placement, talker_family="tests.families.parrot")) as (engine, heard):
            reply = ask(engine, 1, "please stall")
            await heard.until(lambda c: isinstance(c.payload, Audio))
            assert heard.captions(reply).startswith("squawk")

    play(scene)


def test_a_served_thinker_answers_within_its_slots() -> None:
    async def scene() -> None:
        async with running(cascade("inline", thinker_family=f"{SCRIPTED}.served")) as (engine, heard):
            stalled = [ask(engine, epoch, "please stall", aloud=False) for epoch in (1, 2)]
            full = await heard.last(ask(engine, 3, "hello", aloud=False), "thinker")
            assert isinstance(full, Failed)
            assert full.kind == "capacity"
            engine.cancel(stalled[0])
            refused = await heard.last(ask(engine, 4, "please refuse", aloud=False), "thinker")
            assert refused == Failed("stage_failed", "it was asked to refuse")
            reply = ask(engine, 5, "hello there parrot")
            assert await heard.last(reply, "talker") == End()
            assert heard.captions(reply) == "hello there parrot"
            engine.close("s")
            await quiet(engine)

    play(scene)
