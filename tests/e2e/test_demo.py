"""Holds a conversation through the page at `/demo`, in a real browser with a recorded voice for its microphone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile
from websockets.sync.client import connect

from loadtest.speech import Pcm, noise, silence, speech, word_error_rate, words
from tests.e2e.browser import ELSEWHERE, Json, Page, browser, executable
from tests.e2e.conftest import SCRIPTED
from tests.e2e.server import Server, running, stop

RATE_HZ = 24_000
ANSWER = (
    "There was once a miller who had three sons, and when he died he left them nothing but his mill, his donkey and "
    "his cat. The eldest took the mill, the second took the donkey, and the youngest had to be content with the cat. "
    "He was sad, for he thought that a cat was good for nothing at all, but the cat knew better than he did."
)
KEY = "demo-key"
WORD_MS = 300
"""How long the talker of tones takes for a word."""
KEEPS_RATE = """
    // As Firefox does it: a microphone joins no context of another rate.
    const join = AudioContext.prototype.createMediaStreamSource;
    AudioContext.prototype.createMediaStreamSource = function (stream) {
        if (this.sampleRate === 24000) throw new DOMException("another rate", "NotSupportedError");
        return join.call(this, stream);
    };
"""


@pytest.fixture(scope="module")
def storyteller() -> Iterator[Server]:
    """Real ears and a real voice; what it answers is known, and longer than anybody waits here."""
    executable()  # no server is started for tests that are skipped
    with running("thinker.family=tests.families.scripted.thinker", f"thinker.text={ANSWER}") as one:
        yield one


def record(folder: Path, *parts: Pcm) -> Path:
    """A file for the microphone: the parts over a faint room."""
    pcm = np.concatenate(parts)
    room = noise(len(pcm) / RATE_HZ, level=20.0)[: len(pcm)]
    file = folder / "microphone.wav"
    soundfile.write(file, np.clip(pcm[: len(room)].astype(np.int32) + room, -32768, 32767).astype(np.int16), RATE_HZ)
    return file


def said(state: Json, role: str) -> list[Json]:
    return [line for line in state["lines"] if line["role"] == role]


def shown(page: Page, selector: str) -> str:
    return str(page.value(f"document.querySelector({selector!r}).innerText"))


def test_a_turn_an_answer_and_an_interruption(storyteller: Server, tmp_path: Path) -> None:
    # The answer begins within a second and lasts twenty: eight seconds after the question it is in full flow.
    question, interruption = speech("talking"), speech("best_of_times")
    file = record(tmp_path, silence(1.0), question[0], silence(8.0), interruption[0], silence(1.0))
    with browser(file) as page:
        page.open(f"{storyteller.url}/")
        assert page.state()["activity"] == "idle"
        page.press(" ", "Space", " ")
        page.until("state.activity === 'speaking'")
        assert shown(page, "#status") == "Speaking"
        page.until("state.cuts.length === 1")
        page.until("state.turns.length === 2 && state.lines.length === 4 && state.lines[2].state === 'done'")
        state = page.state()
        bubble = shown(page, "li.assistant[data-state=interrupted] .words")
        figures = shown(page, "#voiceToVoice"), shown(page, "#wait")
        page.press(" ", "Space", " ")
        page.until("state.activity === 'idle'")
        assert page.complaints == []

    heard = [line["text"] for line in said(state, "user")]
    assert [word_error_rate(spoken[1], text) for spoken, text in zip((question, interruption), heard, strict=True)] == [
        0,
        0,
    ]
    cut, answer = said(state, "assistant")
    assert cut["state"] == "interrupted"
    assert bubble == cut["text"]
    assert words(ANSWER).startswith(words(cut["text"]))
    assert 5 < len(cut["text"].split()) < len(ANSWER.split())
    assert words(ANSWER).startswith(words(answer["text"])), "the new answer begins anew"
    [told] = state["cuts"]
    assert told["playedMs"] == cut["heardMs"]
    assert 4000 < told["playedMs"] < 8500, "the answer was heard from its start until the interruption"
    assert state["playedSamples"] >= told["playedMs"] * RATE_HZ // 1000
    assert figures == (str(state["turns"][-1]["voiceToVoiceMs"]), str(state["turns"][-1]["waitMs"]))
    for turn in state["turns"]:
        assert 400 < turn["waitMs"] < turn["voiceToVoiceMs"], "a turn ends 500 ms after the last voice"


def heard_of(state: Json) -> tuple[str, str]:
    """What is shown of the one answer that was cut, and what the talker of tones had spoken of it by then."""
    [cut] = state["cuts"]
    [line] = [line for line in state["lines"] if line["state"] == "interrupted"]
    return line["text"], " ".join(f"word{number}" for number in range(cut["playedMs"] // WORD_MS))


def test_typing_needs_no_microphone_and_interrupts(scripted: Server) -> None:
    with browser(None) as page:
        page.open(f"{scripted.url}/demo")
        page.click("#talk")
        page.until("state.problem.includes('may not use the microphone')")
        page.write("#text", "please go on")
        page.until("state.playedSamples > 48000")
        page.write("#text", "say something else")
        page.until("state.lines.length === 4 && state.lines[3].state === 'done'")
        # The answer may be complete on the wire before the loudspeaker has begun on it.
        second = 2 * WORD_MS * RATE_HZ // 1000
        page.until(f"state.playedSamples >= state.cuts[0].playedMs * {RATE_HZ // 1000} + {second}")
        page.until("state.activity === 'typing'")
        state = page.state()
    assert [line["text"] for line in said(state, "user")] == ["please go on", "say something else"]
    assert said(state, "assistant")[1]["text"] == "something else"
    shown_of_it, spoken = heard_of(state)
    assert shown_of_it == spoken
    of_the_first = state["playedSamples"] - second  # the second answer has two words
    assert state["cuts"][0]["playedMs"] == of_the_first * 1000 // RATE_HZ, "all that left the worklet is accounted for"
    assert state["turns"] == [], "what was typed has no end of speech to measure from"


def test_a_voice_interrupts_where_microphones_keep_their_rate(scripted: Server, tmp_path: Path) -> None:
    """The microphone opens in mid-answer, so however slow the machine, there is something to interrupt."""
    with browser(record(tmp_path, silence(1.0), speech("hello_world")[0], silence(1.0))) as page:
        page.open(f"{scripted.url}/demo/", first=KEEPS_RATE)
        page.write("#text", "please go on")
        page.until("state.playedSamples > 24000")
        page.click("#talk")
        page.until("state.turns.length === 1")
        state = page.state()
    assert words(said(state, "user")[1]["text"]) == "hello world"
    shown_of_it, spoken = heard_of(state)
    assert shown_of_it == spoken
    assert 400 < state["turns"][0]["waitMs"] < state["turns"][0]["voiceToVoiceMs"]


def test_trouble_is_told_in_plain_words(tmp_path: Path) -> None:
    with (
        running(*SCRIPTED, f"server.api_keys=[{KEY}]", "server.max_sessions=1") as one,
        browser(record(tmp_path, silence(1.0))) as page,
    ):
        page.open(f"{one.url.replace('127.0.0.1', ELSEWHERE)}/demo/")
        page.click("#talk")
        page.until("state.problem.includes('only secure pages')")
        page.open(f"{one.url}/demo/")
        page.click("#talk")
        page.until("state.problem === 'This server asks for a key.'")
        page.write("#key", "wrong")
        page.until("state.problem === 'The server does not know this key.'")
        page.value("document.querySelector('#key').value = ''")
        with connect(f"{one.ws_url}/v1/realtime", additional_headers={"Authorization": f"Bearer {KEY}"}):
            page.write("#key", KEY)
            page.until("state.problem.includes('places are taken')")
        page.until("state.activity === 'idle'")
        page.click("#talk")
        page.until("state.activity === 'listening'")
        assert page.state()["problem"] == ""
        assert page.value("localStorage.length + sessionStorage.length + document.cookie.length") == 0
        stop(one)
        page.until("state.problem.startsWith('The connection to the server was lost')")
        page.click("#talk")
        page.until("state.problem === 'No answer from the server. Is it running?'")
