"""Measures the silence between a speaker's last word and the first sound of the answer, at the speaker's ear.

`voice_to_voice_ms` runs from the last voiced sample leaving the microphone to the first audible sample of the answer.
Its stages: `wait` until speech_stopped, `answer` until the first sound arrives, `lead_in` of quiet in that sound. A
server that was started for the measurement tells more in its log: how much of `answer` passed until the transcript
stood (`recognizer`), then until the first word (`thinker`), then until the first clause was spoken (`talker`).
"""

from __future__ import annotations

import asyncio
import os
import re

import msgspec

from loadtest.caller import Caller
from loadtest.report import Load, Spread, Watch, arguments, print_figures, server, spread
from loadtest.speech import speech

UTTERANCES = ("best_of_times", "quick_fox", "everything", "counting")
TURNS_PER_CALL = 6
INSTRUCTIONS = "You are a friendly voice assistant. Answer in two or three short sentences."
QUIET_S = 1.2
"""A turn begins this long after the last answer was heard."""
STAGES = (("wait", "input_audio_buffer.speech_stopped"), ("answer", "response.output_audio.delta"))
LOGGED = re.compile(r"answers: recognizer (\d+) ms, thinker (\d+) ms, talker (\d+) ms")


class Figures(msgspec.Struct, frozen=True):
    n: int
    voice_to_voice_ms: Spread
    stages_ms: dict[str, Spread]
    load: Load


async def measure(url: str, key: str | None, count: int) -> list[dict[str, float]]:
    """The times of `count` turns, in ms; the first turn of each call is not counted."""
    turns: list[dict[str, float]] = []
    call = 0
    while len(turns) < count:
        async with await Caller.dial(url, key, INSTRUCTIONS, seed=call) as caller:
            for turn in range(min(TURNS_PER_CALL, count - len(turns)) + 1):
                times = await _turn(caller, UTTERANCES[(call + turn) % len(UTTERANCES)])
                if turn:
                    turns.append(times)
        call += 1
    return turns


async def _turn(caller: Caller, name: str) -> dict[str, float]:
    said = await caller.say(speech(name)[0])
    times: dict[str, float] = {}
    reached = said.ended
    for stage, kind in STAGES:
        # An event of an earlier stage may come later: it has then cost this turn nothing.
        at = max(reached, (await caller.wait_for(kind, said.ended)).at)
        times[stage], reached = (at - reached) * 1000, at
    heard = await caller.first_voice(said.ended)
    times["lead_in"] = (heard - reached) * 1000
    times["voice_to_voice"] = (heard - said.ended) * 1000
    await caller.wait_for("response.done", said.ended)
    await caller.until(caller.loudspeaker.free_at + QUIET_S)
    return times


async def main() -> None:
    options = arguments(__doc__.partition("\n")[0]).parse_args()
    async with server(options.url) as subject:
        watch = Watch([os.getpid(), *subject.pids])
        turns = await measure(subject.url, options.key, options.n)
        load = watch.load()
    stages = {name: spread([turn[name] for turn in turns]) for name in (*(name for name, _ in STAGES), "lead_in")}
    inside = [tuple(map(float, found.groups())) for line in subject.log if (found := LOGGED.search(line))]
    if inside:
        names = ("recognizer", "thinker", "talker")
        stages |= {name: spread(times) for name, times in zip(names, zip(*inside, strict=True), strict=True)}
    total = spread([turn["voice_to_voice"] for turn in turns])
    print_figures(Figures(len(turns), total, stages, load), options.json)


if __name__ == "__main__":
    asyncio.run(main())
