"""Runs a load test without a web page, against a server of its own if none is given, and prints its figures."""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from loadtest.load.figures import Figures, table
from loadtest.report import Subject, server

LOCUSTFILE = Path(__file__).with_name("locustfile.py")


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.load", description=__doc__, epilog="Any other option is passed on to locust."
    )
    parser.add_argument("--url", help="a running server; without it one is started with its defaults")
    parser.add_argument("--key", default="", help="its API key")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of a started server")
    parser.add_argument("--users", type=int, default=4, help="how many callers (default 4)")
    parser.add_argument("--spawn-rate", type=float, default=1.0, help="how many of them begin per second (default 1)")
    parser.add_argument("--minutes", type=float, default=2.0, help="how long the run takes (default 2)")
    parser.add_argument("--json", action="store_true", help="print one JSON object only")
    parser.add_argument("--plot", type=Path, help="draw the run into this file")
    return parser


def missing(options: argparse.Namespace) -> list[str]:
    """Which packages this run needs and has not."""
    wanted = ["locust", *(["matplotlib"] if options.plot else [])]
    return [name for name in wanted if importlib.util.find_spec(name) is None]


async def run(options: argparse.Namespace, subject: Subject, further: Sequence[str]) -> Figures:
    """Let locust run, and read what it found. Raises SystemExit when it found nothing."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "figures.json"
        command = [sys.executable, "-m", "locust", "--locustfile", str(LOCUSTFILE), "--headless", "--only-summary"]
        # Without its logging, only warnings are shown, and not its own tables: they are for its web page and files.
        command += ["--skip-log-setup", "--host", subject.url, "--figures", str(path)]
        command += ["--users", str(options.users), "--spawn-rate", str(options.spawn_rate)]
        command += ["--run-time", f"{round(options.minutes * 60)}s"]
        command += ["--plot", str(options.plot)] if options.plot else []
        command += ["--server-pid", str(subject.pids[0])] if subject.pids else []
        # A key in a command line can be read by every user of the machine.
        environment = {**os.environ, "LOADTEST_KEY": options.key}
        locust = await asyncio.create_subprocess_exec(
            *command, *further, stdout=asyncio.subprocess.DEVNULL, env=environment
        )
        try:
            code = await locust.wait()
        except asyncio.CancelledError:
            locust.terminate()
            await locust.wait()
            raise
        # 1 is locust's word for failed requests, which are figures too.
        if code not in (0, 1) or not path.exists():
            raise SystemExit(f"locust ended with {code}, and without figures of a whole run; what it said is above")
        return msgspec.json.decode(path.read_bytes(), type=Figures)


async def main() -> int:
    """0 when there were turns and no errors, else 1."""
    parser = arguments()
    options, further = parser.parse_known_args()
    if options.url and options.set:
        parser.error("--set is for a server that is started for the run: leave out --url")
    if lacking := missing(options):
        parser.error(f"{' and '.join(lacking)} must be installed: pip install -e '.[load]'")
    async with server(options.url, *options.set) as subject:
        found = await run(options, subject, further)
    print(msgspec.json.encode(found).decode() if options.json else table(found))
    return 0 if found.turns and not found.errors else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
