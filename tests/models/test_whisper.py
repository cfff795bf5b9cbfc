"""Tests the Whisper recognizer with its real model: words from speech, nothing from other sounds, one pass a step."""

from __future__ import annotations

import numpy as np
import pytest

from loadtest import speech
from loadtest.speech import Pcm
from models.whisper.engine import Ask
from models.whisper.family import FAMILY, Options, describe
from models.whisper.recognizer import Recognizer
from models.whisper.windows import FULL_WINDOW_S
from pipeline.chunk import Chunk, Reply, Segment, Think, Transcribe, Transcript
from pipeline.chunk import Prompt as ChatPrompt
from pipeline.errors import StageError
from pipeline.stage import Work
from transport.base import Ref, inline

MAX_STEPS = 20


def job(pcm: Pcm, rate_hz: int = 24_000, *, final: bool = True, language: str | None = None) -> Transcribe:
    return Transcribe(Segment("a", 0, len(pcm)), inline({"pcm": pcm}), rate_hz, final, language)


def steps(whisper: Recognizer, asked: Transcribe) -> list[tuple[Chunk, ...]]:
    """What each step gives, up to the last chunk."""
    whisper.admit(asked)
    taken: list[tuple[Chunk, ...]] = []
    while not taken or not taken[-1]:
        assert len(taken) < MAX_STEPS
        taken.append(whisper.step([Work(asked.fence)]).chunks)
    return taken


def heard(whisper: Recognizer, pcm: Pcm, rate_hz: int = 24_000) -> str:
    chunk = steps(whisper, job(pcm, rate_hz))[-1][0]
    assert isinstance(chunk.payload, Transcript)
    return chunk.payload.text


# ---- words --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["best_of_times", "everything", "season", "direct_way", "quick_fox", "counting"])
def test_the_words_of_recorded_speech(whisper: Recognizer, name: str) -> None:
    pcm, text = speech.speech(name)
    assert speech.word_error_rate(text, heard(whisper, pcm)) == 0


@pytest.mark.parametrize("rate_hz", [8_000, 16_000, 48_000])
def test_the_words_at_other_rates(whisper: Recognizer, rate_hz: int) -> None:
    pcm, text = speech.speech("everything", rate_hz)
    # Half of the spectrum is gone at a telephone's rate; what is left of "had" depends on the processor's arithmetic.
    assert speech.word_error_rate(text, heard(whisper, pcm, rate_hz)) <= (0.2 if rate_hz == 8000 else 0)


def test_the_words_among_silence_and_over_noise(whisper: Recognizer) -> None:
    pcm, text = speech.speech("best_of_times")
    framed = np.concatenate([speech.silence(0.5), pcm, speech.silence(1)])
    assert speech.word_error_rate(text, heard(whisper, framed)) == 0
    assert speech.word_error_rate(text, heard(whisper, speech.add_noise(pcm, 10))) < 0.2


def test_speech_longer_than_a_window_is_heard_window_by_window(whisper: Recognizer) -> None:
    pcm, text = speech.speech("opening")
    taken = steps(whisper, job(pcm))
    assert len(taken) == 2
    assert taken[0] == ()
    payload = taken[1][0].payload
    assert isinstance(payload, Transcript)
    assert speech.word_error_rate(text, payload.text) < 0.05


def test_a_doubtful_short_window_is_heard_again_through_the_full_one(whisper: Recognizer) -> None:
    pcm, text = speech.speech("counting")  # the short window runs the numerals together
    taken = steps(whisper, job(pcm))
    assert [len(chunks) for chunks in taken] == [0, 1]
    payload = taken[1][0].payload
    assert isinstance(payload, Transcript)
    assert speech.word_error_rate(text, payload.text) == 0


def test_a_candidate_is_heard_as_a_final_is(whisper: Recognizer) -> None:
    pcm, _ = speech.speech("season")
    final, candidate = (steps(whisper, job(pcm, final=final)) for final in (True, False))
    assert final == candidate
    assert final[0][0] == Chunk(
        Segment("a", 0, len(pcm)),
        "recognizer",
        0,
        Transcript("It was the season of light, it was the season of darkness.", "en"),
        last=True,
    )


def test_the_prompt_steers_the_spelling(whisper: Recognizer) -> None:
    pcm, _ = speech.speech("counting")
    asked = Transcribe(Segment("a", 0, 1), inline({"pcm": pcm}), 24_000, True, None, "one, two, three, four, five")
    chunk = steps(whisper, asked)[-1][0]
    assert isinstance(chunk.payload, Transcript)
    assert chunk.payload.text.startswith("one, two, three")
    assert heard(whisper, pcm).startswith("1-2-3")


# ---- no words -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("duration_s", [0.5, 3.0, 29.0])
@pytest.mark.parametrize(
    ("kind", "level"),
    [
        ("silence", 0),
        ("noise", 300),
        ("noise", 2000),
        ("hum", 300),
        ("hum", 2000),
        ("clicks", 12_000),
        ("breath", 400),
        ("breath", 2000),
    ],
)
def test_other_sounds_have_no_words(whisper: Recognizer, kind: str, level: float, duration_s: float) -> None:
    match kind:
        case "noise":
            sound = speech.noise(duration_s, level=level)
        case "hum":
            sound = speech.hum(duration_s, level=level, mains_hz=60)
        case "clicks":
            sound = speech.clicks(duration_s, peak=level)
        case "breath":
            sound = speech.breath(duration_s, level=level)
        case _:
            sound = speech.silence(duration_s)
    assert heard(whisper, sound) == ""


def test_without_the_gates_those_sounds_do_have_words(whisper: Recognizer) -> None:
    assert whisper._engine is not None
    assert whisper._engine.decode(np.zeros(16_000, np.float32), Ask(12)).text.strip() == "you"


@pytest.mark.parametrize("samples", [0, 1, 2399])
def test_audio_too_short_for_a_word_is_not_decoded(whisper: Recognizer, samples: int) -> None:
    assert heard(whisper, speech.noise(1)[:samples]) == ""


# ---- the contract -------------------------------------------------------------------------------------------------


def test_a_dropped_job_and_a_forgotten_stream_leave_nothing(whisper: Recognizer) -> None:
    pcm, _ = speech.speech("opening")
    first, second = job(pcm), Transcribe(Segment("b", 0, 1), inline({"pcm": pcm}), 24_000, True)
    whisper.admit(first)
    whisper.admit(second)
    assert whisper.step([Work(first.fence)]).chunks == ()
    whisper.interrupt()
    whisper.drop(first.fence)
    whisper.drop(first.fence)
    whisper.forget("b")
    assert not whisper._passes


def test_jobs_it_cannot_do_are_refused_at_the_door(whisper: Recognizer) -> None:
    pcm, _ = speech.speech("season")
    with pytest.raises(StageError, match="takes Transcribe"):
        whisper.admit(Think(Reply("a", 0), ChatPrompt(()), 10))
    with pytest.raises(StageError, match="doesn't understand the language 'de'; it takes en"):
        whisper.admit(job(pcm, language="de"))
    with pytest.raises(StageError, match="by reference"):
        whisper.admit(Transcribe(Segment("a", 0, 1), Ref("shm", 0, 0), 24_000, True))
    with pytest.raises(StageError, match="float32 of shape"):
        whisper.admit(Transcribe(Segment("a", 0, 1), inline({"pcm": pcm.astype(np.float32)}), 24_000, True))
    with pytest.raises(StageError, match=r"at most 3600 s are taken"):
        whisper.admit(job(np.zeros(3601, np.int16), rate_hz=1))
    assert not whisper._passes


def test_a_regional_language_is_taken_for_its_language(whisper: Recognizer) -> None:
    pcm, text = speech.speech("direct_way")
    chunk = steps(whisper, job(pcm, language="en-GB"))[-1][0]
    assert isinstance(chunk.payload, Transcript)
    assert speech.word_error_rate(text, chunk.payload.text) == 0


@pytest.mark.parametrize("window_s", [9, FULL_WINDOW_S + 1])
def test_a_window_that_makes_it_loop_is_refused(window_s: int) -> None:
    with pytest.raises(StageError, match="expected 10 to 30"):
        Recognizer(Options(window_s=window_s)).load()


def test_a_folder_without_a_model_is_refused() -> None:
    with pytest.raises(StageError, match=r"not a CTranslate2 Whisper model: .* has no model\.bin"):
        Recognizer(Options(source="package:faster-whisper/assets")).load()


def test_a_device_that_is_not_there_is_refused() -> None:
    with pytest.raises(StageError, match="on device 'abacus' as 'int8'"):
        Recognizer(Options(device="abacus")).load()


def test_what_it_understands_is_said_before_it_is_loaded() -> None:
    said = describe(Options())
    assert said.languages == ("en",)
    assert "English only" in said.note
    assert said.model == "whisper-tiny.en"
    assert FAMILY.role == "recognizer"
