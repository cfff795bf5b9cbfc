"""Measures what recognizing speech while it is spoken costs in accuracy, against hearing each recording as a whole.

`whole` is one final pass of the recognizer over an utterance. `streaming` goes through a running session, spoken in
real time: server VAD finds the turns, and their transcripts, joined, are held against the words. Both hear the same
samples, in quiet and with white noise 20 and 10 dB below the speech. Rates are of all words together.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

import jiwer
import msgspec

from loadtest.caller import Caller
from loadtest.report import Load, Watch, arguments, print_figures, server
from loadtest.speech import UTTERANCES, Pcm, add_noise, speech, words
from models.whisper.family import Options
from models.whisper.recognizer import Recognizer
from pipeline.chunk import Segment, Transcribe, Transcript
from pipeline.stage import Work
from transport.base import inline

RATE_HZ = 24_000
ENGLISH = tuple(name for name in UTTERANCES if name != "hola_mundo")
NOISE_DB: dict[str, float | None] = {"clean": None, "snr_20": 20.0, "snr_10": 10.0}
QUIET_S = 1.5
"""A turn that begins later than this after an utterance is none of it."""
STEPS = 100
"""A pass over an utterance that takes more is no pass."""


class Rates(msgspec.Struct, frozen=True):
    whole: float
    streaming: float


class Figures(msgspec.Struct, frozen=True):
    n: int
    words: int
    clean: Rates
    snr_20: Rates
    snr_10: Rates
    load: Load


def sound(name: str, noise_db: float | None) -> Pcm:
    pcm = speech(name, RATE_HZ)[0]
    return pcm if noise_db is None else add_noise(pcm, noise_db)


def whole(recognizer: Recognizer, pcm: Pcm) -> str:
    """What one pass over all of it hears."""
    fence = Segment("whole", 0, len(pcm))
    recognizer.admit(Transcribe(fence, inline({"pcm": pcm}), RATE_HZ, final=True, language="en"))
    for _ in range(STEPS):
        for chunk in recognizer.step([Work(fence)]).chunks:
            if isinstance(chunk.payload, Transcript):
                return chunk.payload.text
            raise SystemExit(f"the recognizer failed: {chunk.payload}")
    raise SystemExit(f"the recognizer heard no end of {len(pcm) / RATE_HZ:.1f} s in {STEPS} steps")


async def streaming(url: str, key: str | None, noise_db: float | None) -> list[str]:
    """What a session hears of each utterance."""
    heard = []
    async with await Caller.dial(url, key, "", answered=False) as caller:
        for name in ENGLISH:
            began = time.monotonic()
            said = await caller.say(sound(name, noise_db))
            await caller.until(said.ended + QUIET_S)
            heard.append(await _transcripts(caller, began))
    return heard


async def _transcripts(caller: Caller, began: float) -> str:
    """The joined transcripts of the turns that were committed since then, in their order."""
    turns = [one for one in caller.since(began) if one.type == "input_audio_buffer.committed"]
    texts = []
    for turn in turns:
        after = turn.at
        while True:
            event = await caller.wait_for("conversation.item.input_audio_transcription.completed", after)
            if event.event["item_id"] == turn.event["item_id"]:
                break
            after = event.at + 1e-6
        texts.append(event.event["transcript"])
    return " ".join(texts)


def rate(heard: list[str]) -> float:
    """Words wrong over words said."""
    return round(float(jiwer.wer([words(UTTERANCES[name][3]) for name in ENGLISH], [words(text) for text in heard])), 4)


async def main() -> None:
    options = arguments(__doc__.partition("\n")[0]).parse_args()
    recognizer = Recognizer(Options())
    recognizer.load()
    alone = {kind: [whole(recognizer, sound(name, db)) for name in ENGLISH] for kind, db in NOISE_DB.items()}
    async with server(options.url) as subject:
        watch = Watch([os.getpid(), *subject.pids])
        live = await asyncio.gather(*(streaming(subject.url, options.key, db) for db in NOISE_DB.values()))
        load = watch.load()
    rates = {}
    for (kind, texts), heard in zip(alone.items(), live, strict=True):
        rates[kind] = Rates(rate(texts), rate(heard))
        for name, one, other in zip(ENGLISH, texts, heard, strict=True):
            if words(one) != words(other):
                print(f"{kind} {name}: whole {one!r}, streaming {other!r}", file=sys.stderr)
    count = sum(len(words(UTTERANCES[name][3]).split()) for name in ENGLISH)
    print_figures(Figures(len(ENGLISH), count, **rates, load=load), options.json)


if __name__ == "__main__":
    asyncio.run(main())
