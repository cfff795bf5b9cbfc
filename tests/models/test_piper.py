"""The Piper talker with the real voice, heard again by the real recognizer, and the shape of its sound."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path

import jiwer
import numpy as np
import onnxruntime
import pytest
import soxr
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from models.piper.family import FAMILY
from models.piper.shaping import GAIN, LEAST_MS, PIECE_MS, Cutter, Shaper
from models.piper.talker import JOE, Options, PiperTalker
from models.piper.voice import FIRST_FRAMES, STRESS_TEXT, Card, Saying, Voice, read_card
from models.registry import load_family
from models.runtime.clauses import Pause
from models.sources import resolve
from models.whisper.recognizer import Recognizer
from pipeline.chunk import (
    Audio,
    Caption,
    Chunk,
    End,
    Failed,
    Payload,
    Prepare,
    Prompt,
    Reply,
    Segment,
    Speak,
    Text,
    Think,
    Transcribe,
    Transcript,
)
from pipeline.errors import StageError
from pipeline.stage import Work
from transport.base import inline

RATE_HZ = 22_050
FENCE = Reply("a", 1)


@pytest.fixture(scope="module")
def loaded() -> PiperTalker:
    onnxruntime.set_seed(7)  # the noise of the sessions made after this
    stage = PiperTalker(Options(threads=1))
    stage.load()
    return stage


@pytest.fixture
def talker(loaded: PiperTalker) -> Iterator[PiperTalker]:
    yield loaded
    loaded.forget("a")
    loaded.forget("b")


def work(*payloads: Payload, fence: Reply = FENCE) -> Work:
    return Work(fence, tuple(Chunk(fence, "thinker", seq, payload) for seq, payload in enumerate(payloads)))


def run(stage: PiperTalker, first: Work, most_steps: int = 50) -> list[Chunk]:
    """Feed `first`, which ends the text, and step until the speech is over."""
    chunks = list(stage.step([first]).chunks)
    for _ in range(most_steps):
        if chunks and chunks[-1].last:
            return chunks
        step = stage.step([Work(first.fence)])
        assert step.chunks
        chunks += step.chunks
    raise AssertionError(f"the speech is not over after {most_steps} steps")


def say(stage: PiperTalker, text: str, job: Speak | None = None) -> list[Chunk]:
    job = job or Speak(FENCE)
    stage.admit(job)
    return run(stage, work(Text(text), End(), fence=job.fence))


def captions(chunks: Sequence[Chunk]) -> str:
    return "".join(chunk.payload.text for chunk in chunks if isinstance(chunk.payload, Caption))


def sound(chunks: Sequence[Chunk]) -> NDArray[np.int16]:
    blocks = [chunk.payload.pcm for chunk in chunks if isinstance(chunk.payload, Audio)]
    return np.frombuffer(b"".join(blocks), "<i2")


def hear(whisper: Recognizer, pcm: NDArray[np.int16]) -> str:
    """The words in lower case, without signs."""
    at_16k = soxr.resample(pcm.astype(np.float32), RATE_HZ, 16_000).clip(-32768, 32767).astype(np.int16)
    fence = Segment("ears", 1, len(pcm))
    whisper.admit(Transcribe(fence, inline({"pcm": at_16k}), 16_000, final=True))
    for _ in range(10):
        for chunk in whisper.step([Work(fence)]).chunks:
            if isinstance(chunk.payload, Transcript):
                return " ".join(re.findall(r"[a-z0-9$']+", chunk.payload.text.lower()))
    raise AssertionError("the recognizer gave no transcript")


# ---- heard again ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "The quick brown fox jumps over the lazy dog. We had everything before us.",
            "the quick brown fox jumps over the lazy dog we had everything before us",
        ),
        (
            "Well, **I can help** you with [that](http://x.y). It is a very nice day today \U0001f600!",
            "well i can help you with that it is a very nice day today",
        ),
        (
            "Doctor Brown and Mr. Green went to the market in the morning, because they needed bread.",
            "dr brown and mr green went to the market in the morning because they needed bread",
        ),
    ],
)
def test_what_is_said_can_be_understood(talker: PiperTalker, whisper: Recognizer, text: str, words: str) -> None:
    heard = hear(whisper, sound(say(talker, text)))
    # The voice draws noise, so now and then a word is heard as one that sounds alike.
    assert jiwer.wer(words, heard) <= 0.2, heard


@pytest.mark.parametrize(
    ("text", "figures"),
    [
        ("It was in 1995 that the ticket to the city still cost only $3.50.", ("1995", "$350")),
        ("The first train leaves at 10:30 a.m. and the second one on May 3rd.", ("1030am", "may3rd")),
    ],
)
def test_figures_are_heard_as_written(
    talker: PiperTalker, whisper: Recognizer, text: str, figures: tuple[str, ...]
) -> None:
    heard = hear(whisper, sound(say(talker, text))).replace(" ", "")
    assert all(figure in heard for figure in figures), heard


# ---- what comes out ------------------------------------------------------------------------------------------------


def test_captions_audio_and_spans_agree(talker: PiperTalker) -> None:
    text = "Sure, that is easy to say. The ticket costs $3.50, and it is valid for a day.\nThank you!"
    chunks = say(talker, text)
    assert captions(chunks) == text
    assert [chunk.seq for chunk in chunks] == list(range(len(chunks)))
    assert [chunk.last for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert chunks[-1].payload == End("stop")
    assert {chunk.role for chunk in chunks} == {"talker"}
    shown = at = 0
    for chunk in chunks[:-1]:
        if isinstance(chunk.payload, Caption):
            assert at == shown  # the sound of the caption before is complete
            shown += len(chunk.payload.text)
        else:
            assert isinstance(chunk.payload, Audio)
            assert chunk.payload.rate_hz == RATE_HZ
            assert 0 < len(chunk.payload.pcm) // 2 <= RATE_HZ * PIECE_MS // 1000
            assert chunk.text_span is not None
            assert chunk.text_span[0] == at <= chunk.text_span[1] <= shown
            assert chunk.exact
            at = chunk.text_span[1]
    assert at == shown == len(text)


def test_speech_starts_before_the_sentence_is_written(talker: PiperTalker) -> None:
    talker.admit(Speak(FENCE))
    words = ["Well", "of", "course,", "I", "can", "tell", "you", "a", "lot", "about", "the", "old", "bridge"]
    said = next((count for count, word in enumerate(words) if talker.step([work(Text(f"{word} "))]).chunks), len(words))
    assert said <= 4


def test_it_is_idle_until_a_clause_is_there(talker: PiperTalker) -> None:
    talker.admit(Speak(FENCE))
    assert talker.step([work(Text("Hel"))]).idle == {FENCE}
    first = talker.step([work(Text("lo there. How are you? Fine. And"))])
    assert captions(first.chunks) == "Hello there."
    assert first.idle == frozenset()
    assert captions(talker.step([work()]).chunks) == " How are you?"
    last = talker.step([work()])
    assert captions(last.chunks) == " Fine."
    assert last.idle == {FENCE}
    over = talker.step([work(End())])
    assert captions(over.chunks) == " And"
    assert over.chunks[-1].last
    assert over.idle == frozenset()


def test_nothing_to_say_ends_without_sound(talker: PiperTalker) -> None:
    assert [chunk.payload for chunk in say(talker, "\U0001f600 \U0001f389")] == [End("stop")]


def test_a_failed_thinker_ends_the_speech(talker: PiperTalker) -> None:
    talker.admit(Speak(FENCE))
    first = talker.step([work(Text("One is said. Two is not. Three nei"))])
    assert captions(first.chunks) == "One is said."
    assert [chunk.payload for chunk in talker.step([work(Failed("stage_lost", "gone"))]).chunks] == [End("stop")]


def test_a_bound_on_samples_cuts_the_speech(talker: PiperTalker) -> None:
    chunks = say(talker, "This is one sentence. This is another one.", Speak(FENCE, max_samples=10_000))
    assert len(sound(chunks)) == 10_000
    assert chunks[-1].payload == End("length")
    spans = [chunk.text_span for chunk in chunks if chunk.text_span]
    assert 0 < spans[-1][1] < len("This is one sentence.")


def test_two_replies_are_said_in_turn(talker: PiperTalker) -> None:
    other = Reply("b", 1)
    talker.admit(Speak(FENCE))
    talker.admit(Speak(other))
    talker.step([work(Text("Red. "))])
    talker.step([work(Text("Blue. "), fence=other)])
    assert captions(run(talker, work(End()))) == "Red. "
    assert captions(run(talker, work(End(), fence=other))) == "Blue. "


def test_speed_changes_the_length(talker: PiperTalker) -> None:
    text = "The train to the city leaves from the second platform."
    slow, fast = (len(sound(say(talker, text, Speak(FENCE, speed=speed)))) for speed in (0.7, 1.4))
    assert 1.5 < slow / fast < 2.6


def test_an_unknown_voice_is_spoken_by_the_default(talker: PiperTalker) -> None:
    assert len(sound(say(talker, "Hello there.", Speak(FENCE, voice="alloy")))) > 5000


def test_an_interrupt_ends_a_step_and_the_clause_is_not_lost(talker: PiperTalker) -> None:
    text = "considerable measures " * 13 + "taken."
    talker.admit(Speak(FENCE))
    steps: list[tuple[Chunk, ...]] = []
    running = threading.Thread(target=lambda: steps.append(talker.step([work(Text(text), End())]).chunks))
    running.start()
    while running.is_alive():
        talker.interrupt()
        running.join(0.001)
    assert steps == [()]
    assert captions(run(talker, work())) == text


def test_a_dropped_reply_is_silent(talker: PiperTalker) -> None:
    talker.admit(Speak(FENCE))
    talker.drop(FENCE)
    talker.drop(FENCE)
    assert talker.step([work(Text("Hello there. "), End())]).chunks == ()
    talker.prepare(Prepare("a", Prompt(())))
    talker.forget("unknown")


@pytest.mark.parametrize(
    ("job", "message"),
    [(Think(FENCE, Prompt(()), 1), "takes Speak"), (Speak(FENCE, speed=0.0), "speed is 0.0; expected 0.25")],
)
def test_what_it_can_not_do_is_said(talker: PiperTalker, job: Think | Speak, message: str) -> None:
    with pytest.raises(StageError, match=message):
        talker.admit(job)


# ---- the shape of the sound ----------------------------------------------------------------------------------------


def test_clauses_meet_without_a_click_and_without_long_silence(talker: PiperTalker) -> None:
    chunks = say(talker, "Well of course, that is so. Let us go now! Is it late?")
    edges, clause = [], 0
    for chunk in chunks:
        if isinstance(chunk.payload, Caption):
            clause += 1
        elif isinstance(chunk.payload, Audio):
            edges.append((clause, np.frombuffer(chunk.payload.pcm, "<i2")))
    for number in range(1, clause + 1):
        whole = np.concatenate([pcm for of, pcm in edges if of == number])
        assert abs(int(whole[0])) < 50
        assert abs(int(whole[-1])) < 50
        loud = np.nonzero(np.abs(whole.astype(np.int32)) > 300)[0]
        assert loud[0] < RATE_HZ // 20
        assert len(whole) - loud[-1] < RATE_HZ // 3
    everything = sound(chunks)
    assert 8_000 < np.abs(everything.astype(np.int32)).max() < 32_767


def shape(whole: NDArray[np.float32], pause: Pause, cuts: Sequence[int] = ()) -> tuple[NDArray[np.int16], int]:
    """What is given of a sound that comes in pieces, and how much was left out in front."""
    shaper = Shaper(RATE_HZ, pause)
    parts = np.split(whole, sorted(min(cut, len(whole)) for cut in cuts))
    given = [shaper.push(part, last=number == len(parts)) for number, part in enumerate(parts, 1)]
    return np.concatenate(given), shaper.left_out


def test_silence_stays_silent_and_short_sounds_survive() -> None:
    assert len(shape(np.zeros(5000, np.float32), "sentence")[0]) == 0
    assert len(shape(np.zeros(0, np.float32), "none")[0]) == 0
    click = np.zeros(5000, np.float32)
    click[2500] = 0.5
    pcm, left_out = shape(click, "none")
    assert np.abs(pcm).max() == int(0.5 * GAIN * 32767)
    assert int(np.argmax(np.abs(pcm))) + left_out == 2500, "what was left out in front is told to the sample"
    assert len(shape(np.ones(1, np.float32), "none")[0]) == 1


STRETCHES = st.lists(st.tuples(st.integers(0, 4000), st.sampled_from([0.0, 0.003, 0.3, -0.6])), max_size=6)


@given(STRETCHES, st.lists(st.integers(0, 20_000), max_size=8), st.sampled_from(["none", "comma", "sentence"]))
def test_a_sound_is_shaped_alike_however_it_comes(
    stretches: list[tuple[int, float]], cuts: list[int], pause: Pause
) -> None:
    levels = [np.full(length, level, np.float32) for length, level in stretches]
    whole = np.concatenate([np.zeros(0, np.float32), *levels])
    (at_once, left_out), (in_pieces, left_out_of_pieces) = shape(whole, pause), shape(whole, pause, cuts)
    np.testing.assert_array_equal(at_once, in_pieces)
    assert left_out == left_out_of_pieces


WORDS = st.lists(st.tuples(st.integers(0, 9000), st.integers(1, 12)), min_size=1, max_size=20)
Cut = list[tuple[int, tuple[int, int]]]


def cut_up(cutter: Cutter, samples: int, left_out: int, cuts: Sequence[int], lost: int) -> Cut:
    """The length of each piece and its characters, of a clause that comes cut, of which the end is lost."""
    bounds = [0, *sorted(min(cut, samples) for cut in cuts), samples]
    found: Cut = []
    for number, (start, stop) in enumerate(pairwise(bounds), 2):
        last = number == len(bounds)
        whole = samples + lost if last and lost else None
        piece = np.arange(start, stop, dtype=np.int64).astype(np.int16)
        for part, span in cutter.cut(piece, left_out, last=last, whole=whole):
            assert part[0] == np.int64(sum(length for length, _ in found)).astype(np.int16), "in order, and none twice"
            found.append((len(part), span))
    return found


@given(WORDS, st.booleans(), st.lists(st.integers(0, 200_000), max_size=6))
def test_pieces_cover_samples_and_characters(words: list[tuple[int, int]], exact: bool, cuts: list[int]) -> None:
    lengths, chars = zip(*words, strict=True)
    ends, heard = list(accumulate(lengths)), list(accumulate(chars))
    samples = ends[-1] + 100
    cutter = Cutter([end + 777 for end in ends] if exact else None, heard, heard[-1], RATE_HZ)
    cut = cut_up(cutter, samples, 777, cuts, 0)
    assert sum(length for length, _ in cut) == samples
    assert all(0 < length <= RATE_HZ * PIECE_MS // 1000 for length, _ in cut)
    assert [span[0] for _, span in cut] == [0, *(span[1] for _, span in cut[:-1])]
    assert cut[-1][1][1] == heard[-1]
    if exact:
        for at, (_, (_, stop)) in zip(accumulate(length for length, _ in cut), cut, strict=True):
            done = [count for end, count in zip(ends, heard, strict=True) if max(end, 1) <= at]
            assert stop <= max(done, default=0), "no word is claimed before it ends"
            late = [count for end, count in zip(ends, heard, strict=True) if end <= at - RATE_HZ * LEAST_MS // 1000]
            assert stop >= max(late, default=0), "and none is held back"


@given(WORDS, st.booleans(), st.lists(st.integers(0, 200_000), max_size=6), st.integers(1, 50_000))
def test_of_a_clause_that_is_cut_short_only_what_is_said_is_claimed(
    words: list[tuple[int, int]], exact: bool, cuts: list[int], samples: int
) -> None:
    lengths, chars = zip(*words, strict=True)
    ends, heard = list(accumulate(lengths)), list(accumulate(chars))
    lost = max(1, ends[-1] + 100 - samples)
    cut = cut_up(Cutter(ends if exact else None, heard, heard[-1], RATE_HZ), samples, 0, cuts, lost)
    assert sum(length for length, _ in cut) == samples
    claimed = cut[-1][1][1]
    if exact:
        assert claimed <= max((count for end, count in zip(ends, heard, strict=True) if end <= samples), default=0)
    else:
        assert claimed <= heard[-1] * samples // (samples + lost)


# ---- windows -------------------------------------------------------------------------------------------------------


def begun(voice: Voice, text: str) -> Saying:
    saying = voice.speak(text, "", 1.0)
    assert saying is not None
    return saying


def window(saying: Saying) -> NDArray[np.float32]:
    made = saying.more()
    assert made is not None
    return made


def test_f28_sound_made_in_windows_is_that_of_the_whole() -> None:
    voice = Voice(Path(resolve(JOE)), 1)
    assert voice.windowed
    saying = begun(voice, STRESS_TEXT)
    sentence = saying._sentences[0]
    whole = voice.decode(sentence, sentence.frames)
    windows = [window(saying)]
    while not saying.over:
        windows.append(window(saying))
    assert len(windows) > 3
    assert len(windows[0]) == FIRST_FRAMES * voice.hop
    assert saying.word_ends is not None
    assert saying.word_ends[-1] <= len(whole)
    np.testing.assert_allclose(np.concatenate(windows), whole, atol=1e-4)


def test_a_voice_with_a_wider_context_is_not_made_in_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("models.piper.voice.CONTEXT_FRAMES", 4)
    voice = Voice(Path(resolve(JOE)), 1)
    assert not voice.windowed
    saying = begun(voice, STRESS_TEXT)
    window(saying)
    assert saying.over


def test_the_first_words_are_there_before_the_clause_is_made(talker: PiperTalker) -> None:
    text = "Considerable measures concerning international representatives are taken."
    talker.admit(Speak(FENCE))
    first = talker.step([work(Text(text), End())])
    assert captions(first.chunks) == text
    assert len(sound(first.chunks)) < FIRST_FRAMES * 256
    assert first.idle == frozenset()
    rest = run(talker, work())
    assert captions(rest) == ""
    assert len(sound(rest)) > len(sound(first.chunks))


# ---- what it says of itself ----------------------------------------------------------------------------------------


def test_the_family_says_what_it_is() -> None:
    assert load_family("piper") is FAMILY
    told = FAMILY.describe(Options())
    assert told.rate_hz == RATE_HZ
    assert told.voices == ("joe",)
    assert "GPL" in told.note
    assert FAMILY.placement == "process"
    assert {part.licence for part in FAMILY.parts} >= {"GPL-3.0-or-later"}


def test_what_is_no_voice_is_refused(tmp_path: Path) -> None:
    model = tmp_path / "en_US-nobody-low.onnx"
    config = model.with_name(f"{model.name}.json")
    model.write_bytes(b"no model")
    with pytest.raises(StageError, match="no configuration of a Piper voice"):
        PiperTalker(Options(source=str(model))).load()
    config.write_text('{"audio": {"sample_rate": 16000}, "espeak": {"voice": "en-us"}}')
    assert read_card(config) == Card(("nobody",), 16_000, "en-us")
    with pytest.raises(StageError, match="no Piper voice that works here"):
        PiperTalker(Options(source=str(model))).load()
    config.write_text('{"audio": {"sample_rate": 1}, "espeak": {"voice": "x"}, "speaker_id_map": {"b": 1, "a": 0}}')
    assert read_card(config).voices == ("a", "b")
    with pytest.raises(StageError, match="no such file"):
        PiperTalker(Options(source="/nowhere/voice.onnx")).load()
    with pytest.raises(StageError, match="speed is 9"):
        PiperTalker(Options(speed=9.0)).load()
