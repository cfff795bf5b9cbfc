"""Is the load test as locust runs it: `locust -f loadtest/load/locustfile.py --host ws://127.0.0.1:8000/v1/realtime`.

A user is one caller, its task is one call. When a run ends, its figures are printed beside locust's own statistics.
"""

# Locust does not annotate its events: neither the decorator nor the firing of one is known to mypy.
# mypy: disable-error-code="no-untyped-call, untyped-decorator"

from __future__ import annotations

import itertools
import logging
import os
import time
from pathlib import Path
from typing import Any

import gevent
import msgspec
from locust import User, events, task
from locust.argument_parser import LocustArgumentParser
from locust.env import Environment
from locust.exception import StopUser
from locust.runners import WORKER_REPORT_INTERVAL, MasterRunner, WorkerRunner

from loadtest.load.figures import Figures, figures, table
from loadtest.load.records import ANSWER_S, Answered, Call, Failed, Heard, Opened, Record, Refused, Spoke, Stopped
from loadtest.load.switchboard import Switchboard
from loadtest.report import Watch

log = logging.getLogger(__name__)

USERS_PER_WORKER = 1_000_000
"""Users are numbered from a multiple of this, so that no two of a distributed run are the same."""
LAST_REPORT_S = WORKER_REPORT_INTERVAL + 1
"""Within so long a worker has handed over its last records."""


class CallFailed(Exception):
    """What locust counts as a failure: the message of a `Failed`."""


class Run:
    """The run under way, or the last one."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.later: gevent.Greenlet[[], None] | None = None
        """A report that waits for the workers' last records."""
        self._began, self._watch = time.time(), Watch([])

    def begin(self, pids: list[int]) -> None:
        """Forget what was; `pids` are processes whose load is not other programs'."""
        self.records.clear()
        self._began, self._watch = time.time(), Watch([os.getpid(), *pids])

    def end(self) -> Figures:
        """The figures up to now."""
        return figures(self.records, time.time() - self._began, self._watch.load())

    def draw(self, found: Figures, path: Path) -> None:
        """Write the picture of the run."""
        from loadtest.load.plot import plot  # matplotlib is slow to import, and only wanted here

        plot(self.records, found, self._began, path)


def note(record: Record) -> None:
    """Keep a record, and show it in locust's statistics."""
    run.records.append(record)
    match record:
        case Opened(dial_ms=ms):
            _count("call", "dial", ms)
        case Answered(voice_to_voice_ms=ms):
            _count("turn", "voice to voice", ms)
        case Stopped(stop_ms=ms):
            _count("turn", "stop", ms)
        case Heard(late_ms=late):
            for gap_ms in late:
                if gap_ms > 0:
                    _count("sound", "underrun", gap_ms)
        case Spoke(late_ms=late_ms):
            _count("client", "microphone late", late_ms)
        case Refused():
            _count("call", "refused (503)", None)
        case Failed(kind=kind, message=message):
            _count("call", kind, None, CallFailed(message))


def _count(sort: str, name: str, ms: float | None, error: CallFailed | None = None) -> None:
    events.request.fire(request_type=sort, name=name, response_time=ms, response_length=0, exception=error, context={})


run = Run()
switchboard = Switchboard(note)
_numbers = itertools.count()


class Speaker(User):
    """Someone who calls, talks, hangs up, and calls again."""

    host = "ws://127.0.0.1:8000/v1/realtime"

    def on_start(self) -> None:
        runner = self.environment.runner
        first = runner.worker_index * USERS_PER_WORKER if isinstance(runner, WorkerRunner) else 0
        self._number = first + next(_numbers)

    @task
    def call(self) -> None:
        """One call, and the time until the next."""
        options, runner = self.environment.parsed_options, self.environment.runner
        assert options is not None
        assert runner is not None
        try:
            gevent.sleep(switchboard.call(Call(self._number, str(self.host), options.key or None, options.answer_s)))
        except ChildProcessError as error:
            log.error("%s; what it said is above", error)
            self.environment.process_exit_code = 2
            gevent.spawn(runner.quit)
            raise StopUser from error


@events.init_command_line_parser.add_listener
def options_of_ours(parser: LocustArgumentParser) -> None:
    """Beside locust's own; `python -m loadtest.load` fills in the last two."""
    add = parser.add_argument
    add("--key", default="", is_secret=True, env_var="LOADTEST_KEY", help="The server's API key")
    add(
        "--answer-s",
        type=float,
        default=ANSWER_S,
        help="An answer that takes longer, in seconds, counts as none; at most 30",
    )
    add("--plot", default="", include_in_web_ui=False, help="Draw the run into this file when it ends")
    add("--figures", default="", include_in_web_ui=False, help="Write the figures into this file, as JSON")
    add("--server-pid", type=int, default=0, include_in_web_ui=False, help="A process whose load is not others'")


@events.test_start.add_listener
def begin(environment: Environment, **_: object) -> None:
    options = environment.parsed_options
    assert options is not None
    run.begin([options.server_pid] if options.server_pid else [])
    if not isinstance(environment.runner, MasterRunner):
        switchboard.open()


@events.report_to_master.add_listener
def hand_over(client_id: str, data: dict[str, Any]) -> None:  # locust's own mapping
    """A worker's records go to the master with its statistics."""
    data["records"] = msgspec.json.encode(run.records)
    run.records.clear()


@events.worker_report.add_listener
def take_over(client_id: str, data: dict[str, Any]) -> None:  # locust's own mapping
    run.records += msgspec.json.decode(data["records"], type=list[Record])


@events.test_stop.add_listener
def end(environment: Environment, **_: object) -> None:
    if isinstance(environment.runner, MasterRunner):
        run.later = gevent.spawn_later(LAST_REPORT_S, report, environment)
        return
    if not switchboard.settle():
        log.warning("some calls did not end in time: what they had not told is missing")
    if not isinstance(environment.runner, WorkerRunner):
        report(environment)


def report(environment: Environment) -> None:
    """Print the figures of the run, and write what was asked for."""
    options, found = environment.parsed_options, run.end()
    assert options is not None
    print(table(found), flush=True)
    if options.figures:
        Path(options.figures).write_bytes(msgspec.json.encode(found))
    if options.plot:
        run.draw(found, Path(options.plot))


@events.quitting.add_listener
def close(environment: Environment, **_: object) -> None:
    switchboard.close()
    if run.later is not None and not run.later.dead:
        run.later.kill()
        report(environment)
