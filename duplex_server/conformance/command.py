"""Is the command `duplex-server conformance`: it runs the checks against a server, one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path

from websockets.exceptions import WebSocketException

from duplex_server.conformance import (  # noqa: F401  # each registers its checks
    audio,
    beta,
    calls,
    interruption,
    items,
    responses,
    rest,
    sessions,
    transport,
    truncation,
    turns,
    whole,
)
from duplex_server.conformance.checks import Check, Deviation, NotApplicable, registered, shorten
from duplex_server.conformance.elsewhere import ELSEWHERE
from duplex_server.conformance.report import Report, Result, report
from duplex_server.conformance.run import NUMBER, Run
from duplex_server.conformance.shapes import GRAMMAR
from duplex_server.conformance.sound import SPEECH_FILE, UnusableSpeech, load_speech
from duplex_server.conformance.target import UnusableUrl, find

PATIENCE_S = 60.0
"""How long what a model has to do is waited for, unless the user says otherwise."""
CHECK_PATIENCES = 4
"""No check takes longer than so many times that: it waits a few times, and sends sound in real time between."""
SLOWEST_CHECK_S = 120.0
"""At least so long, for those that wait by the clock."""


class Unusable(Exception):
    """The command can't be run as it was given; the message says what to do."""


def numbers(text: str) -> frozenset[int]:
    """Read "42-50,73". Raises `Unusable`."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise Unusable(f"--only {text!r}: expected numbers and ranges such as 42-50,73")
        found |= set(range(int(first), int(last if dash else first) + 1))
    known = {*ELSEWHERE, *(check.number for check in registered())}
    if not found & known:
        raise Unusable(f"--only {text!r}: there are no such checks; they are numbered 1 to {max(known)}")
    return frozenset(found)


def conformance(
    url: str,
    key: str | None,
    *,
    only: str | None = None,
    speech: Path | None = None,
    timeout_s: float = PATIENCE_S,
    told: Callable[[Result], None] = lambda result: None,
) -> Report:
    """Run the checks against a server; `told` gets each result as it stands. Raises `Unusable`."""
    wanted = None if only is None else numbers(only)
    if timeout_s <= 0:
        raise Unusable(f"--timeout-s {timeout_s:g}: expected more than 0")
    try:
        run = Run(find(url, key), load_speech(speech or SPEECH_FILE), timeout_s)
    except (UnusableUrl, UnusableSpeech) as error:
        raise Unusable(str(error)) from error
    return asyncio.run(hold(run, wanted, told))


async def hold(run: Run, wanted: frozenset[int] | None, told: Callable[[Result], None] = lambda result: None) -> Report:
    """Run those of the checks that are wanted, or all, one after the other; what only waits, beside the others."""
    results: list[Result] = []

    def end(result: Result) -> None:
        results.append(result)
        told(result)

    for result in _elsewhere(wanted):
        end(result)
    chosen = list(_chosen(wanted))
    run.asides = tuple(asyncio.create_task(outcome(check, run)) for check in chosen if check.aside)
    for check in chosen:
        if check.last and run.asides:
            for task in run.asides:
                end(await task)
            run.asides = ()
        if not check.aside:
            end(await outcome(check, run))
    return report(results)


def _elsewhere(wanted: frozenset[int] | None) -> Iterable[Result]:
    for number, (name, reason) in sorted(ELSEWHERE.items()):
        if wanted is None or number in wanted:
            yield Result(number, name, "not_applicable", reason)


def _chosen(wanted: frozenset[int] | None) -> Iterable[Check]:
    """The grammar of what came is always judged."""
    return (check for check in registered() if wanted is None or check.number in {*wanted, GRAMMAR})


async def outcome(check: Check, run: Run) -> Result:
    """Make one check; whatever the server does, it ends in a result."""
    NUMBER.set(check.number)
    within_s = max(SLOWEST_CHECK_S, CHECK_PATIENCES * run.patience_s)
    try:
        async with asyncio.timeout(within_s):
            return Result(check.number, check.name, "passed", await check.body(run))
    except NotApplicable as reason:
        return Result(check.number, check.name, "not_applicable", str(reason))
    except Deviation as deviation:
        told = str(deviation)
    except TimeoutError:
        told = f"expected an end within {within_s:g} s; came none"
    except (WebSocketException, OSError) as error:
        told = f"expected an open connection; came {type(error).__name__}: {shorten(str(error))}"
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        # What came has another form than any that is looked for: the grammar names it, where it can.
        told = f"expected events in the form of the protocol; came {type(error).__name__}: {shorten(str(error))}"
    return Result(check.number, check.name, "failed", told)
