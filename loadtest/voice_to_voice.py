"""Measures the silence between a speaker's last word and the first sound of the answer, at the speaker's ear.

`voice_to_voice_ms` runs from the last voiced sample leaving the microphone to the first audible sample of the answer.
Its stages: `wait` until speech_stopped, `answer` until the first sound arrives, `lead_in` of quiet in that sound. A
server that was started for the measurement tells more in its log: how much of `answer` passed until the transcript
stood (`recognizer`), then until the first word (`thinker`), then until the first clause was spoken (`talker`).

`--against pipecat` calls a Pipecat bot on the same models too, its calls between ours, with the same utterances,
microphone and loudspeaker.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec import UNSET, UnsetType

from loadtest.caller import Caller
from loadtest.peers import pipecat_client as pipecat
from loadtest.report import Load, Spread, Subject, Watch, arguments, print_figures, server, spread
from loadtest.speech import speech

UTTERANCES = ("best_of_times", "quick_fox", "everything", "counting")
TURNS_PER_CALL = 6
SPARE_CALLS = 2
"""To make up for turns that were not answered."""
INSTRUCTIONS = "You are a friendly voice assistant. Answer in two or three short sentences."
MAX_TOKENS = 60
ALIKE = (f"session.max_reply_tokens={MAX_TOKENS}", "thinker.temperature=0", "thinker.repeat_penalty=1")
"""In a comparison both write the likeliest words, and not too many. A penalty on repetitions would part them:
llama.cpp's server applies it to the prompt too."""
QUIET_S = 1.2
"""A turn begins this long after the last answer was heard."""
STAGES = (("wait", "input_audio_buffer.speech_stopped"), ("answer", "response.output_audio.delta"))
LOGGED = re.compile(r"answers: recognizer (\d+) ms, thinker (\d+) ms, talker (\d+) ms")
SENTENCE = re.compile(r".*?[.!?]+(?=\s|$)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn: the words of the answer, its delay and the parts of it, in ms."""

    answer: str
    voice_to_voice: float
    stages: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Taken:
    """What was measured of one server."""

    turns: list[Turn] = field(default_factory=list)
    unanswered: int = 0


class Peer(msgspec.Struct, frozen=True):
    """The same of another server."""

    name: str
    n: int
    unanswered: int
    voice_to_voice_ms: Spread
    first_sentence_words: Spread


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    n: int
    unanswered: int
    voice_to_voice_ms: Spread
    stages_ms: dict[str, Spread]
    first_sentence_words: Spread
    load: Load
    peer: Peer | UnsetType = UNSET


Dial = Callable[[int], Awaitable[Caller]]
Take = Callable[[Caller, str], Awaitable[Turn]]


async def measure(servers: Sequence[tuple[Dial, Take]], count: int) -> list[Taken]:
    """`count` turns of each server, in calls that take turns; the first turn of each call is not counted.

    Fewer come when too many are not answered; those are told on standard error.
    """
    taken = [Taken() for _ in servers]
    for call in range(math.ceil(count / TURNS_PER_CALL) + SPARE_CALLS):
        for (dial, take), counted in zip(servers, taken, strict=True):
            wanted = min(TURNS_PER_CALL, count - len(counted.turns))
            if wanted > 0:
                async with await dial(call) as caller:
                    await _converse(
                        caller, take, counted, [UTTERANCES[(call + n) % len(UTTERANCES)] for n in range(wanted + 1)]
                    )
    return taken


async def _converse(caller: Caller, take: Take, counted: Taken, names: Sequence[str]) -> None:
    for number, name in enumerate(names):
        try:
            one = await take(caller, name)
        except TimeoutError as error:
            print(f"{name} was not answered: {error}", file=sys.stderr)
            counted.unanswered += 1
            return  # the call ends: what comes late must not pass for the answer of the next turn
        if number:
            counted.turns.append(one)


async def _turn(caller: Caller, name: str) -> Turn:
    said = await caller.say(speech(name, caller.rate_hz)[0])
    stages: dict[str, float] = {}
    reached = said.ended
    for stage, kind in STAGES:
        # An event of an earlier stage may come later: it has then cost this turn nothing.
        at = max(reached, (await caller.wait_for(kind, said.ended)).at)
        stages[stage], reached = (at - reached) * 1000, at
    heard = await caller.first_voice(said.ended)
    stages["lead_in"] = (heard - reached) * 1000
    done = await caller.wait_for("response.done", said.ended)
    await caller.quiet(QUIET_S)
    contents = [part for item in done.event["response"]["output"] for part in item.get("content", [])]
    answer = " ".join(part.get("transcript", "") for part in contents)
    return Turn(answer, (heard - said.ended) * 1000, stages)


async def _peer_turn(caller: Caller, name: str) -> Turn:
    said = await caller.say(speech(name, caller.rate_hz)[0])
    heard = await caller.first_voice(said.ended)
    await caller.wait_for("bot-stopped-speaking", said.ended)
    await caller.quiet(QUIET_S)
    return Turn(pipecat.answer(caller.since(said.ended)), (heard - said.ended) * 1000)


def first_sentence_words(answer: str) -> int:
    """How many words the first sentence has, which is spoken first; all of them when it never ends."""
    found = SENTENCE.match(answer)
    return len((found[0] if found else answer).split())


def figures(taken: Taken, log: Sequence[str], load: Load) -> Figures:
    """The spreads over all turns; `log` may tell of what happened inside the server. Raises SystemExit without any."""
    turns = taken.turns
    if not turns:
        raise SystemExit(f"no turn was answered, {taken.unanswered} were not: {log[-1:]}")
    stages = {name: spread([turn.stages[name] for turn in turns]) for name in turns[0].stages}
    inside = [tuple(map(float, found.groups())) for line in log if (found := LOGGED.search(line))]
    if inside:
        names = ("recognizer", "thinker", "talker")
        stages |= {name: spread(times) for name, times in zip(names, zip(*inside, strict=True), strict=True)}
    return Figures(
        n=len(turns),
        unanswered=taken.unanswered,
        voice_to_voice_ms=spread([turn.voice_to_voice for turn in turns]),
        stages_ms=stages,
        first_sentence_words=spread([first_sentence_words(turn.answer) for turn in turns]),
        load=load,
    )


def _ours(subject: Subject, key: str | None) -> tuple[Dial, Take]:
    async def dial(seed: int) -> Caller:
        return await Caller.dial(subject.url, key, INSTRUCTIONS, seed)

    return dial, _turn


async def alone(options: argparse.Namespace) -> Figures:
    """Our figures."""
    async with server(options.url) as subject:
        watch = Watch([os.getpid(), *subject.pids])
        (taken,) = await measure([_ours(subject, options.key)], options.n)
        load = watch.load()
    return figures(taken, subject.log, load)


async def compared(options: argparse.Namespace) -> Figures:
    """Our figures and Pipecat's, from one run."""

    async def dial_peer(seed: int) -> Caller:
        return await pipecat.dial(url, seed)

    pipecat.check_environment()
    async with (
        server(None, *ALIKE) as subject,
        pipecat.peer(INSTRUCTIONS, MAX_TOKENS) as url,
    ):
        watch = Watch([os.getpid()])
        taken, theirs = await measure([_ours(subject, None), (dial_peer, _peer_turn)], options.n)
        load = watch.load()
    ours, other = figures(taken, subject.log, load), figures(theirs, [], load)
    beside = Peer(pipecat.NAME, other.n, other.unanswered, other.voice_to_voice_ms, other.first_sentence_words)
    return msgspec.structs.replace(ours, peer=beside)


async def main() -> None:
    parser = arguments(__doc__.partition("\n")[0])
    parser.add_argument("--against", choices=["pipecat"], help="measure this one too, beside a server of its own")
    options = parser.parse_args()
    if options.against and options.url:
        parser.error("--against starts both servers, with the same settings: leave out --url")
    print_figures(await (compared(options) if options.against else alone(options)), options.json)


if __name__ == "__main__":
    asyncio.run(main())
