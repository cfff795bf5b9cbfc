"""Lets a session live through random conversations: it never raises, keeps its grammar, and ends what it began."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from duplex_server.realtime import wire
from duplex_server.realtime.effects import Begin, Recognize
from duplex_server.realtime.inputs import PeerLost
from duplex_server.realtime.journal import replay
from pipeline.chunk import Failed, Reply, Usage
from tests.realtime.talk import Talk

Step = Callable[[Talk], object]

texts = st.sampled_from(["Well. ", "And so it goes on, ", "x", "the end."])
spoken = st.sampled_from(["", "hello", "one two three"])
failure = Failed("stage_failed", "it broke")


def items(talk: Talk) -> list[str]:
    """Ids that a client could name."""
    return [*(event.item.id for event in talk.events(wire.ItemAdded)[-4:]), "mine", "nobody"]


def live(talk: Talk) -> list[Reply]:
    return [effect.think.fence for effect in talk.effects(Begin) if talk.session.wants(effect.think.fence)]


def passes(talk: Talk) -> list[int]:
    """The passes that the recognizer has not ended."""
    return [at for at, effect in enumerate(talk.effects(Recognize)) if talk.session.wants(effect.segment)]


def on_item(kind: str, which: int, **fields: object) -> Step:
    return lambda talk: talk.ask(kind, item_id=items(talk)[which % len(items(talk))], **fields)


def create_item(text: str, after: int | None, item_id: str | None) -> Step:
    def step(talk: Talk) -> object:
        place = None if after is None else ["root", *items(talk)][after % (1 + len(items(talk)))]
        content = [{"type": "input_text", "text": text}]
        item = {"type": "message", "role": "user", "content": content, "id": item_id}
        return talk.ask("conversation.item.create", item=item, previous_item_id=place)

    return step


def create_response(modality: str, beside: bool, own: bool) -> Step:
    response: dict[str, object] = {"output_modalities": [modality]}
    if beside:
        response["conversation"] = "none"
    if own:
        response["input"] = []
    return lambda talk: talk.ask("response.create", response=response)


def recognize(words: str | Failed, which: int) -> Step:
    def step(talk: Talk) -> object:
        waiting = passes(talk)
        return talk.recognize(words, at=waiting[which % len(waiting)]) if waiting else None

    return step


def on_reply(what: str, which: int, text: str, ms: int) -> Step:
    def step(talk: Talk) -> object:
        replies = live(talk)
        if not replies:
            return None
        reply = replies[which % len(replies)]
        begun = next(effect for effect in talk.effects(Begin) if effect.think.fence == reply)
        match what:
            case "text":
                return talk.write(text, reply)
            case "failure":
                return talk.chunk("thinker", failure, reply=reply)
            case "end" if begun.speak is None:
                return talk.end("thinker", reply=reply, usage=Usage(3, 1, 2))
            case "end" | "length":
                return talk.end(reply=reply, finish="length" if what == "length" else "stop")
            case _ if begun.speak is None:
                return None
            case "caption":
                return talk.caption(text, reply)
            case _:
                return talk.audio(ms, (0, len(text)), reply)

    return step


def turn_detection(kind: str | None, create: bool, interrupt: bool) -> Step:
    fields = {"type": kind, "create_response": create, "interrupt_response": interrupt}
    return lambda talk: talk.listen(turn_detection=fields if kind else None)


which = st.integers(0, 5)
steps: st.SearchStrategy[Step] = st.one_of(
    st.builds(lambda ms, p: lambda talk: talk.sound(ms, p), st.integers(32, 900), st.sampled_from([0.02, 0.4, 0.95])),
    st.builds(lambda words: lambda talk: talk.say(words) if talk.session.detects else None, spoken),
    st.builds(recognize, st.one_of(spoken, st.just(failure)), which),
    st.builds(
        on_reply,
        st.sampled_from(["text", "caption", "audio", "end", "length", "failure"]),
        which,
        texts,
        st.integers(1, 3000),
    ),
    st.builds(on_reply, st.sampled_from(["caption", "audio", "audio", "end"]), which, texts, st.integers(1, 3000)),
    st.builds(lambda s: lambda talk: talk.wait(s), st.floats(0.01, 4.0)),
    st.builds(create_response, st.sampled_from(["audio", "text"]), st.booleans(), st.booleans()),
    st.builds(create_item, texts, st.one_of(st.none(), which), st.sampled_from([None, None, "mine"])),
    st.builds(
        lambda at, ms, part: on_item("conversation.item.truncate", at, audio_end_ms=ms, content_index=part),
        which,
        st.integers(0, 5000),
        st.sampled_from([0, 0, 0, 1]),
    ),
    st.builds(lambda at: on_item("conversation.item.delete", at), which),
    st.builds(lambda at: on_item("conversation.item.retrieve", at), which),
    st.builds(
        lambda kind: lambda talk: talk.ask(kind),
        st.sampled_from(["response.cancel", "input_audio_buffer.commit", "input_audio_buffer.clear"]),
    ),
    st.builds(turn_detection, st.sampled_from([None, "server_vad", "semantic_vad"]), st.booleans(), st.booleans()),
    st.builds(lambda samples: lambda talk: talk.play(samples) if live(talk) else None, st.integers(0, 100_000)),
    st.builds(lambda text: lambda talk: talk.update(instructions=text), texts),
)


def wind_up(talk: Talk) -> None:
    """Every stage ends what it was asked for, as its deadline makes it."""
    talk.listen(turn_detection=None)
    talk.ask("input_audio_buffer.clear")
    for _ in range(20):
        for at in passes(talk):
            talk.recognize("at last", at)
        for reply in live(talk):
            talk.end(reply=reply)
        talk.wait(60)
        if not live(talk) and not passes(talk):
            return
    raise AssertionError("the session begins more than it ends")


@settings(deadline=None, max_examples=120)
@given(st.lists(steps, min_size=5, max_size=30))
def test_any_conversation_keeps_the_grammar_and_runs_again_exactly(conversation: list[Step]) -> None:
    talk = Talk().open().transcribed()
    for step in conversation:
        step(talk)
    wind_up(talk)
    talk.grammar.finish()
    talk.feed(PeerLost())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s1.journal"
        talk.journal.dump(path)
        ran = replay(path)
    assert ran.differs_at is None
    assert [effect for _, effect in ran.effects] == talk.done
