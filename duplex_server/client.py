"""Follows one spoken question through the server's events to its answer."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

RATE_HZ = 24_000
FRAME_SAMPLES = RATE_HZ // 100  # loudness is judged over 10 ms
SILENT_DBFS = -50.0
VOICED_BELOW_PEAK_DB = 30.0

TRANSCRIPT_WAIT_S = 5.0  # for the words of the question, once the answer is complete
EMPTY_WAIT_S = 3.0  # for an answer, once the server has heard no words

Pcm = NDArray[np.int16]


class ErrorBody(msgspec.Struct, frozen=True):
    message: str
    code: str | None = None


class StatusDetails(msgspec.Struct, frozen=True):
    reason: str | None = None
    error: ErrorBody | None = None


class ResponseBody(msgspec.Struct, frozen=True):
    id: str
    status: str
    status_details: StatusDetails | None = None


class Event(msgspec.Struct, frozen=True):
    """What is read of a server event; all else in it is ignored."""

    type: str
    item_id: str | None = None
    response_id: str | None = None
    delta: str | None = None
    transcript: str | None = None
    response: ResponseBody | None = None
    error: ErrorBody | None = None


def voiced_span(pcm: Pcm) -> tuple[int, int] | None:
    """The first voiced sample of `pcm` (int16, shape (n,), 24 kHz) and the first after the last, to 10 ms.

    Voiced is what is at most 30 dB below the loudest 10 ms. None when nothing is louder than -50 dBFS.
    """
    count = -(-len(pcm) // FRAME_SAMPLES)
    if not count:
        return None
    padded = np.zeros(count * FRAME_SAMPLES)
    padded[: len(pcm)] = pcm / 32768
    power = np.mean(padded.reshape(count, FRAME_SAMPLES) ** 2, axis=1)
    level_db = 10 * np.log10(np.maximum(power, 1e-12))
    if level_db.max() <= SILENT_DBFS:
        return None
    voiced = np.flatnonzero(level_db > max(SILENT_DBFS, level_db.max() - VOICED_BELOW_PEAK_DB))
    return int(voiced[0]) * FRAME_SAMPLES, min(len(pcm), (int(voiced[-1]) + 1) * FRAME_SAMPLES)


@dataclass(slots=True)
class Answer:
    """One response as it arrived: pieces of speech with their time of arrival, and its words."""

    pieces: list[tuple[float, bytes]] = field(default_factory=list)
    words: list[str] = field(default_factory=list)

    def pcm(self) -> Pcm:
        joined = b"".join(piece for _, piece in self.pieces)
        return np.frombuffer(joined[: len(joined) // 2 * 2], "<i2").astype(np.int16)

    def text(self) -> str:
        return "".join(self.words).strip()

    def audible_at(self) -> float | None:
        """When a player that starts with the first piece plays the first audible sample; None if there is none."""
        span = voiced_span(self.pcm())
        if span is None:
            return None
        reached = 0
        for arrived, piece in self.pieces:
            reached += len(piece) // 2
            if reached > span[0]:
                return max(arrived, self.pieces[0][0] + span[0] / RATE_HZ)
        return None


class Exchange:
    """A question under way. `spoken_s` is the moment of its last voiced sample, on the clock of `now`.

    A server may take a pause for the end of the turn and begin to answer: what it says before the question is over is
    not the answer.
    """

    def __init__(self, spoken_s: float) -> None:
        self.spoken_s = spoken_s
        self.failure: str | None = None
        self.marks: dict[str, float] = {}
        self._heard: dict[str, str] = {}  # item: words
        self._answers: dict[str, Answer] = {}
        self._stopped = False
        self._complete: Answer | None = None
        self._complete_at = 0.0
        self._empty_at: float | None = None

    @property
    def question(self) -> str:
        """The words of the question, as the server heard them."""
        return " ".join(words for words in self._heard.values() if words)

    @property
    def answer(self) -> Answer | None:
        """The complete answer, or None as long as there is none."""
        return self._complete

    def over(self, now: float) -> bool:
        """Whether nothing more is to be waited for."""
        if self.failure is not None:
            return True
        if self._complete is not None:
            return "question transcribed" in self.marks or now > self._complete_at + TRANSCRIPT_WAIT_S
        if self._empty_at is not None and now > self._empty_at + EMPTY_WAIT_S:
            self.failure = "the server heard no words in the question"
            return True
        return False

    def feed(self, event: Event, now: float) -> None:
        """Take in one server event that arrived at `now`."""
        match event.type:
            case "error":
                self._fail(event.error)
            case "input_audio_buffer.speech_started":
                self._restart()
            case "input_audio_buffer.speech_stopped" if now >= self.spoken_s:
                self._stopped = True
                self._mark("end of turn detected", now)
            case "conversation.item.input_audio_transcription.completed":
                self._transcribed(event, now)
            case "conversation.item.input_audio_transcription.failed":
                self._fail(event.error)
            case "response.created" if event.response and self._stopped:
                self._empty_at = None
                self._answers[event.response.id] = Answer()
                self._mark("response created", now)
            case "response.output_audio.delta" | "response.output_audio_transcript.delta":
                self._delta(event, now)
            case "response.done" if event.response:
                self._done(event.response, now)

    def _restart(self) -> None:
        """The question goes on: what was taken for its end was a pause."""
        self._stopped = False
        self._answers.clear()
        self._complete = None
        self._empty_at = None
        self.marks.clear()

    def _mark(self, name: str, now: float) -> None:
        self.marks.setdefault(name, now)

    def _fail(self, error: ErrorBody | None) -> None:
        if error is None:
            self.failure = "the server sent an error without a message"
        else:
            self.failure = f"the server says: {error.message}" + (f" ({error.code})" if error.code else "")

    def _transcribed(self, event: Event, now: float) -> None:
        self._heard[event.item_id or ""] = (event.transcript or "").strip()
        if self._stopped:
            self._mark("question transcribed", now)
            if not self.question and not self._answers:
                self._empty_at = now

    def _delta(self, event: Event, now: float) -> None:
        answer = self._answers.get(event.response_id or "")
        if answer is None or event.delta is None:
            return
        if event.type == "response.output_audio_transcript.delta":
            answer.words.append(event.delta)
            return
        try:
            answer.pieces.append((now, base64.b64decode(event.delta, validate=True)))
        except binascii.Error:
            self.failure = "the server sent audio that is not base64"
            return
        self._mark("first audio", now)

    def _done(self, response: ResponseBody, now: float) -> None:
        answer = self._answers.get(response.id)
        if answer is None or response.status == "cancelled":
            return
        if response.status == "failed":
            self._fail(response.status_details.error if response.status_details else None)
            return
        self._mark("response done", now)
        self._complete, self._complete_at = answer, now
