"""Measures how long an answer goes on when its listener begins to speak over it, at the listener's ear.

`stop_ms` runs from the first sample of the interruption leaving the microphone to the last audible sample of the answer
that was interrupted. The loudspeaker is cut when `speech_started` arrives, as stock clients do.
"""

from __future__ import annotations

import asyncio
import os

import msgspec

from loadtest.caller import Caller
from loadtest.report import Load, Spread, Watch, arguments, print_figures, server, spread
from loadtest.speech import speech

UTTERANCES = ("best_of_times", "quick_fox", "everything", "counting")
INSTRUCTIONS = "You are a helpful voice assistant. Explain what the user's sentence means in four short sentences."
INTERRUPTIONS_PER_CALL = 5
LISTEN_S = 1.0
"""How much of an answer is heard before it is interrupted."""
BEFORE_S = 0.3
"""The answer counts as playing if it was audible this long before the interruption."""


class Figures(msgspec.Struct, frozen=True):
    n: int
    stop_ms: Spread
    event_ms: Spread
    """The same, until `speech_started` arrived."""
    load: Load


async def measure(url: str, key: str | None, count: int) -> list[tuple[float, float]]:
    """The times of `count` interruptions, in ms: to silence, and to the event."""
    stops: list[tuple[float, float]] = []
    call = 0
    while len(stops) < count:
        async with await Caller.dial(url, key, INSTRUCTIONS, seed=call) as caller:
            said = await caller.say(speech(UTTERANCES[call % len(UTTERANCES)])[0])
            for turn in range(INTERRUPTIONS_PER_CALL):
                heard = await caller.first_voice(said.ended + 0.1)
                await caller.until(heard + LISTEN_S)
                said = await caller.say(speech(UTTERANCES[(call + turn + 1) % len(UTTERANCES)])[0])
                if caller.loudspeaker.last_voiced(said.began - BEFORE_S, said.began) is None:
                    continue  # the answer was over, or paused, before it could be interrupted
                last = caller.loudspeaker.last_voiced(said.began, said.ended)
                event = await caller.wait_for("input_audio_buffer.speech_started", said.began)
                stops.append((((last or said.began) - said.began) * 1000, (event.at - said.began) * 1000))
        call += 1
    return stops[:count]


async def main() -> None:
    options = arguments(__doc__.partition("\n")[0]).parse_args()
    async with server(options.url) as subject:
        watch = Watch([os.getpid(), *subject.pids])
        stops = await measure(subject.url, options.key, options.n)
        load = watch.load()
    figures = Figures(len(stops), spread([stop for stop, _ in stops]), spread([event for _, event in stops]), load)
    print_figures(figures, options.json)


if __name__ == "__main__":
    asyncio.run(main())
