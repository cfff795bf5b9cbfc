"""Starts the server on a terminal, and looks at what stands there."""

from __future__ import annotations

import os
import pty
import signal
import subprocess

from duplex_server.progress import ERASE
from tests.e2e.conftest import SCRIPTED
from tests.e2e.server import ROOT, STOP_S, command


def read_until(terminal: int, wanted: str) -> str:
    """What the server wrote, up to a part that must come before it ends."""
    told = b""
    while wanted.encode() not in told:
        told += os.read(terminal, 4096)  # raises OSError once the server is gone
    return told.decode()


def test_a_terminal_sees_one_line_that_gives_way_to_what_was_loaded() -> None:
    flags = [part for setting in SCRIPTED for part in ("--set", setting)]
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"}
    process = subprocess.Popen(
        command("serve", "--port", "0", *flags), stdout=theirs, stderr=subprocess.DEVNULL, env=environment
    )
    try:
        os.close(theirs)
        told = read_until(ours, "ready on http://")
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_S) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    *drawn, rest = told.split(ERASE)
    assert drawn[0] == "", "nothing stands before the line"
    assert len(drawn) > 1
    assert all(line.startswith("[") for line in drawn[1:])
    assert any("of 4 stages" in line for line in drawn)
    assert rest.split(":")[0].strip() == "detector", "the line is gone"
