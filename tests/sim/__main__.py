"""Runs seeds from the command line: `python -m tests.sim --seeds 100`, `python -m tests.sim --seed 7 --trace`."""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback
from collections import Counter

import msgspec

from duplex_server.realtime.effects import Effect
from duplex_server.realtime.inputs import AudioIn, Input, Voice
from tests.sim.world import run

WIDTH = 400
"""A line of a trace is cut here."""
SILENCE = 0.1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, one after the other")
    parser.add_argument("--trace", action="store_true", help="print what each session was fed and did")
    parser.add_argument("--stream", help="trace this session only, such as s1")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first seed that fails")
    args = parser.parse_args()
    logging.disable(logging.CRITICAL)  # stages that die are part of the play

    def watch(now: float, stream: str, given: Input, effects: tuple[Effect, ...]) -> None:
        if args.stream in (None, stream):
            _print(now, stream, given, effects)

    began, lived_s, answers, failed = time.process_time(), 0.0, 0, 0
    met: Counter[str] = Counter()
    for seed in range(args.seed, args.seed + args.seeds):
        try:
            report = run(seed, watch if args.trace else None)
        except KeyboardInterrupt:
            break
        except Exception:  # the root of a run: what went wrong is told with its seed
            traceback.print_exc(limit=-4)
            print(f"seed {seed} FAILED; see it with: python -m tests.sim --seed {seed} --trace")
            failed += 1
            if not args.keep_going:
                break
            continue
        lived_s += report.lived_s
        answers += report.answers
        met += report.met
    spent_s = time.process_time() - began
    print(
        f"seeds {args.seed} to {seed}: {failed} failed; {lived_s:.0f} s of conversation, {answers} answers, "
        f"{spent_s:.1f} s of CPU time, {lived_s / max(spent_s, 1e-9):.0f} x real time"
    )
    print("met: " + ", ".join(f"{what} {count}" for what, count in sorted(met.items())))
    return 1 if failed else 0


def _print(now: float, stream: str, given: Input, effects: tuple[Effect, ...]) -> None:
    quiet = isinstance(given, AudioIn) or (isinstance(given, Voice) and given.probability < SILENCE)
    if quiet and not effects:
        return
    print(f"{now:9.4f} {stream:3} > {_text(given)}")
    for effect in effects:
        print(f"{'':13}   < {_text(effect)}")


def _text(value: Input | Effect) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= WIDTH else f"{text[:WIDTH]}…"


if __name__ == "__main__":
    sys.exit(main())
