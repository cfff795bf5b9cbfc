"""Starts the server as a user does, as a process of its own, and sees that it leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent.parent
START_S = 180.0
STOP_S = 30.0
_READY = re.compile(r"ready on (http://\S+)")
_UNCLEAN = ("Traceback", "never retrieved", "was never awaited", "Task was destroyed", "Warning:")


@dataclass(frozen=True, slots=True)
class Server:
    """A running server."""

    url: str
    process: subprocess.Popen[str]
    log: Path

    @property
    def ws_url(self) -> str:
        return self.url.replace("http", "ws", 1)

    def family(self) -> list[psutil.Process]:
        """Its process with all that came from it."""
        root = psutil.Process(self.process.pid)
        return [root, *root.children(recursive=True)]

    def read_log(self) -> str:
        return self.log.read_text()


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-W", "error", "-P", "-m", "duplex_server", *arguments]


@contextlib.contextmanager
def running(*settings: str, clean: bool = True) -> Iterator[Server]:
    """A server with `section.key=value` settings on a free port; `clean` asserts that its log shows no trouble."""
    flags = [part for setting in settings for part in ("--set", setting)]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("w") as err:
            process = subprocess.Popen(
                command("serve", "--port", "0", *flags),
                stdout=subprocess.PIPE,
                stderr=err,
                text=True,
                # The scripted families are found like a third party's: by import.
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
        try:
            server = Server(_address(process, log), process, log)
            family = server.family()
            yield server
            if process.poll() is None:
                stop(server)
            assert process.returncode == 0, f"the server ended badly:\n{server.read_log()}"
            left = [one for one in family if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]
            assert not left, left
            if clean:
                lines = server.read_log().splitlines()
                found = [line for line in lines if any(sign in line for sign in _UNCLEAN)]
                assert not found, (found, server.read_log())
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def stop(server: Server, number: signal.Signals = signal.SIGTERM) -> None:
    """Ask the server to end, and wait until it has."""
    server.process.send_signal(number)
    assert server.process.wait(STOP_S) == 0, server.read_log()


def _address(process: subprocess.Popen[str], log: Path) -> str:
    assert process.stdout is not None
    told = ""
    for line in process.stdout:
        told += line
        ready = _READY.search(line)
        if ready:
            return ready[1]
    raise AssertionError(f"the server ended before it was ready:\n{told}\n{log.read_text()}")
