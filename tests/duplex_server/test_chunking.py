"""Tests that it does not matter how a client cuts its sound: the same turns, words and times, in every format."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import get_args

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from duplex_server.realtime import formats, wire
from duplex_server.realtime.ears import Ears
from duplex_server.realtime.effects import Recognize, Send
from duplex_server.realtime.inputs import AudioIn, Input, Opened, Produced, Tick
from duplex_server.realtime.intake import Intake
from duplex_server.realtime.samples import Pcm, Samples
from duplex_server.realtime.schema import FormatType, ServerVad
from duplex_server.realtime.session import Session
from loadtest.speech import silence, speech
from models.silero.detector import SileroDetector
from models.silero.family import Options
from pipeline.chunk import Chunk, Transcript
from tests.duplex_server.test_driver import CONFIG, PATIENCE_S, Peer
from tests.duplex_server.test_intake import until

KINDS = get_args(FormatType)
cuts = st.lists(st.integers(1, 2000) | st.integers(1, 60_000), min_size=1, max_size=12).filter(lambda s: max(s) > 400)
RATE_HZ = 24_000
LEAD_S, PAUSE_S = 0.4, 0.9
BEGAN = 100.0
SAID: Pcm = np.concatenate(
    [
        silence(LEAD_S),
        speech("hello_world")[0],
        silence(PAUSE_S),
        speech("story")[0],
        silence(PAUSE_S),
    ]
)


@dataclass(frozen=True, slots=True)
class Heard:
    """What a session made of some sound: its turns in ms, the words of each, and how many samples there were."""

    turns: tuple[tuple[int, int], ...]
    words: tuple[str, ...]
    samples: int


@cache
def silero() -> SileroDetector:
    detector = SileroDetector(Options().source)
    detector.load()
    return detector


class Call:
    """A session with real ears, on a clock of its own. Its words tell exactly which samples they were made of."""

    def __init__(self, kind: FormatType) -> None:
        self.kind = kind
        self.now = BEGAN
        self.peer = Peer()
        self.session = Session(CONFIG)
        self.told: list[wire.AnyServerEvent] = []
        self._sound, self._ears = Samples(), Ears(silero(), 0)
        self._asked: list[Recognize] = []
        self._intake = Intake("s1", self.peer, self.session, self._feed, self._listen, lambda: self.now)

    def _feed(self, given: Input, sounds: Sequence[Pcm] = ()) -> None:
        for effect in self.session.feed(given, self.now):
            if isinstance(effect, Recognize):
                self._asked.append(effect)
            elif isinstance(effect, Send):
                self.told.append(effect.event)

    def _listen(self, pcm: Pcm, late: bool) -> None:
        assert not late
        self._sound.append(pcm)
        self._feed(AudioIn(self.session.input.appended, len(pcm)))
        for voice in self._ears.hear(pcm):
            self._feed(voice)
            self._recognize()

    def _recognize(self) -> None:
        while self._asked:
            asked = self._asked.pop(0)
            pcm = self._sound.get(asked.from_sample, asked.segment.upto_sample)
            words = Transcript(hashlib.sha256(pcm.tobytes()).hexdigest())
            self._feed(Produced(Chunk(asked.segment, "recognizer", 0, words, last=True)))

    async def hear(self, sound: bytes, sizes: list[int]) -> Heard:
        """Take sound in pieces of these sizes, each when its last sample has been spoken."""
        audio = {
            "format": {"type": self.kind},
            "transcription": {"model": "whisper-1"},
            "turn_detection": {"type": "server_vad", "create_response": False},
        }
        self._feed(Opened())
        self.peer.say(type="session.update", session={"type": "realtime", "audio": {"input": audio}})
        tasks = [asyncio.create_task(self._intake.read()), asyncio.create_task(self._intake.take())]
        at = turn = 0
        while at < len(sound):
            size = sizes[turn % len(sizes)]
            self.peer.append(sound[at : at + size])
            at, turn = at + size, turn + 1
            came = formats.samples(min(at, len(sound)), self.kind)
            self._pass_time(BEGAN + came / RATE_HZ)
            await until(partial(self._has, came))
        for task in tasks:
            task.cancel()
        return self._heard()

    def _has(self, samples: int) -> bool:
        return self.session.input.appended == samples

    def _pass_time(self, until: float) -> None:
        while (deadline := self.session.deadline()) is not None and deadline <= until:
            self.now = max(self.now, deadline)
            self._feed(Tick())
        self.now = until

    def _heard(self) -> Heard:
        starts = [event.audio_start_ms for event in self.told if isinstance(event, wire.SpeechStarted)]
        stops = [event.audio_end_ms for event in self.told if isinstance(event, wire.SpeechStopped)]
        words = [event.transcript for event in self.told if isinstance(event, wire.TranscriptionCompleted)]
        assert not [event for event in self.told if isinstance(event, wire.Error)]
        return Heard(tuple(zip(starts, stops, strict=True)), tuple(words), self.session.input.appended)


def heard(kind: FormatType, sizes: list[int]) -> Heard:
    sound = formats.encode_whole(SAID.tobytes(), kind)
    return asyncio.run(asyncio.wait_for(Call(kind).hear(sound, sizes), PATIENCE_S))


@cache
def in_frames(kind: FormatType) -> Heard:
    """As most clients send: 20 ms at a time."""
    return heard(kind, [formats.size(20, kind)])


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=12)
@given(cuts)
@example([10**9])
@example([961])
@example([4800, 4799, 1])
def test_check_072_080_any_cut_of_the_same_sound_is_heard_alike(kind: FormatType, sizes: list[int]) -> None:
    assert heard(kind, sizes) == in_frames(kind)


@pytest.mark.parametrize("kind", KINDS)
def test_check_078_079_080_the_turns_lie_where_the_speech_was(kind: FormatType) -> None:
    turns = in_frames(kind).turns
    ends_s = np.cumsum([LEAD_S, len(speech("hello_world")[0]) / RATE_HZ, PAUSE_S, len(speech("story")[0]) / RATE_HZ])
    assert len(turns) == len(in_frames(kind).words) == 2
    detection = msgspec.structs.asdict(ServerVad())
    padding_ms, silence_ms = detection["prefix_padding_ms"], detection["silence_duration_ms"]
    for (start_ms, end_ms), began_s, ended_s in zip(turns, ends_s[0::2], ends_s[1::2], strict=True):
        assert max(0, 1000 * began_s - padding_ms) == pytest.approx(start_ms, abs=150)
        assert 1000 * ended_s + silence_ms == pytest.approx(end_ms, abs=200)
    assert in_frames(kind).samples == pytest.approx(len(SAID), abs=2)


@pytest.mark.parametrize("kind", ["audio/pcmu", "audio/pcma"])
def test_a_telephones_sound_gives_the_same_turns_as_the_sound_it_was_made_of(kind: FormatType) -> None:
    for ours, whole in zip(in_frames(kind).turns, in_frames("audio/pcm").turns, strict=True):
        assert ours == pytest.approx(whole, abs=2 * 32 + 2), "two frames of the detector"
