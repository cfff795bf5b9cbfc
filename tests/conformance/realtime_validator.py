"""Judges the events of a Realtime connection, independently of our own code, and prints every problem it finds.

It reads JSON lines, one server event a line: `python -m tests.conformance.realtime_validator --portable FILE`.
The exit status is 0 when all is well, 1 when there are problems. From a test: `Validator(portable=True).feed(event)`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from openai.types.beta.realtime.realtime_client_event import RealtimeClientEvent as BetaClientEvent
from openai.types.beta.realtime.realtime_server_event import RealtimeServerEvent as BetaServerEvent
from openai.types.realtime.realtime_client_event import RealtimeClientEvent
from openai.types.realtime.realtime_server_event import RealtimeServerEvent

from tests.conformance.clients import client_rules
from tests.conformance.schema import Finding, Json, fewest, index, json_type
from tests.conformance.sequence import Sequence

KNOWN_EXTRA = {
    "session.created": {"session.id", "session.object", "session.expires_at", "session.include"},
    "session.updated": {"session.id", "session.object", "session.expires_at", "session.include"},
    "response.function_call_arguments.done": {"name"},
    "transcription_session.updated": {
        "session.id",
        "session.object",
        "session.expires_at",
        "session.include",
        "session.input_audio_noise_reduction",
        "session.turn_detection.eagerness",
    },
}
KNOWN_EXTRA_ANYWHERE = {
    "obfuscation",
    "session.audio.input.turn_detection.idle_timeout_ms",
    "session.reasoning",
    "session.parallel_tool_calls",
}
"""Fields that the hosted API sends and the types of the package do not declare."""
KNOWN_MISSING = {("transcription_session.updated", "session.client_secret")}
"""Fields that the types declare for the answer of a request over HTTP too, and that no event has."""
JUDGED_AS = {"transcription_session.created": "transcription_session.updated"}
"""Events of the older dialect that its types do not declare, and the one of the same shape."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding, with the event and the line it is about."""

    line: int
    event: str
    kind: str
    path: str
    message: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.event}: {self.kind} at {self.path}: {self.message}"


class Validator:
    """Judges events one by one: against the types, and if asked against clients' rules and the sequence so far.

    `beta` takes the types of the older dialect, `client` those of a client's events.
    """

    def __init__(
        self, *, beta: bool = False, client: bool = False, portable: bool = False, sequence: bool = False
    ) -> None:
        if beta:
            self._table = index(BetaClientEvent if client else BetaServerEvent)
        else:
            self._table = index(RealtimeClientEvent if client else RealtimeServerEvent)
        self._client = client
        self._portable = portable and not client
        self._sequence = Sequence() if sequence and not client else None
        self._line = 0
        self.asked_for: set[str] = set()
        """Transcription keys that the client set itself, and so gets back."""

    def feed(self, event: Json) -> list[Problem]:
        """What is wrong with the next event."""
        self._line += 1
        name = event.get("type") if isinstance(event, dict) else None
        return [Problem(self._line, str(name), *finding) for finding in self._findings(event, name)]

    def finish(self) -> list[Problem]:
        """What is missing at the end."""
        return [Problem(self._line, "<end>", *found) for found in (self._sequence.finish() if self._sequence else [])]

    def not_json(self, error: ValueError) -> Problem:
        """The next line can't be read."""
        self._line += 1
        return Problem(self._line, "?", "bad_json", "$", str(error))

    def _findings(self, event: Json, name: Json) -> list[Finding]:
        if not isinstance(event, dict):
            return [Finding("wrong_type", "$", f"event must be an object, got {json_type(event)}")]
        if not isinstance(name, str):
            return [Finding("missing", "type", "event without a string type")]
        alike = JUDGED_AS.get(name, name)
        if alike not in self._table:
            found = [Finding("unknown_type", "type", f"{name!r} is not a known event")]
        else:
            schema = fewest({**event, "type": alike}, [self._table[alike]], "")
            found = [finding for finding in schema if not self._tolerated(alike, finding)]
        try:
            found += client_rules(event, self.asked_for) if self._portable else ()
            found += self._sequence.feed(event) if self._sequence else ()
        except (TypeError, AttributeError, KeyError, ValueError) as error:
            # The event is malformed. That is listed already, unless the types are laxer than the rules.
            return found or [Finding("portable", "$", f"could not apply rules: {error!r}")]
        return found

    def _tolerated(self, name: str, finding: Finding) -> bool:
        if finding.kind == "extra":
            return finding.path in KNOWN_EXTRA.get(name, ()) or finding.path in KNOWN_EXTRA_ANYWHERE
        if finding.kind == "missing" and (name, finding.path) in KNOWN_MISSING:
            return True
        # A reference is legal in the input of a response, and nowhere else.
        referred = finding.kind == "bad_value" and finding.message.startswith("'item_reference' not one of")
        return self._client and name == "response.create" and referred and finding.path.startswith("response.input[")


def judge(lines: Iterator[str], validator: Validator, counts: Counter[str]) -> Iterator[Problem]:
    """All problems of a recorded stream; `counts` collects how many events of each type there were."""
    for line in filter(str.strip, lines):
        try:
            event = json.loads(line)
        except ValueError as error:
            yield validator.not_json(error)
            continue
        if isinstance(event, dict):
            counts[str(event.get("type"))] += 1
        yield from validator.feed(event)
    yield from validator.finish()


def main(arguments: list[str] | None = None) -> int:
    """Judge a file or the standard input; 1 when there are problems."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag in ("beta", "client", "portable", "sequence", "json", "quiet"):
        parser.add_argument(f"--{flag}", action="store_true")
    parser.add_argument("file", nargs="?", type=Path)
    options = parser.parse_args(arguments)
    validator = Validator(
        beta=options.beta, client=options.client, portable=options.portable, sequence=options.sequence
    )
    text = options.file.read_text(encoding="utf-8") if options.file else sys.stdin.read()
    counts: Counter[str] = Counter()
    problems = list(judge(iter(text.splitlines()), validator, counts))
    if not options.quiet:
        for problem in problems:
            print(json.dumps(asdict(problem)) if options.json else problem)
    print(f"{sum(counts.values())} events, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
