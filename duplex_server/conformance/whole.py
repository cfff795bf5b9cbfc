"""Checks what only all events of the run together show: that each kept to the grammar."""

from __future__ import annotations

from duplex_server.conformance.checks import Deviation, NotApplicable, check
from duplex_server.conformance.run import Run

SHOWN = 12


@check(180, "every event of the run keeps to the grammar of events", last=True)
async def grammar(run: Run) -> str:
    count = sum(len(peer.events) for _, peer in run.peers)
    found = run.findings()
    if found:
        more = [f"and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
        raise Deviation("nothing to be found", "; ".join((*found[:SHOWN], *more)))
    if not count:
        raise NotApplicable("no event came in this run")
    return f"{count} events"
