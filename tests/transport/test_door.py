"""Tests that a door lets in its user alone, and that nothing of it is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from transport.door import SOCKET, Door, remove_leftovers
from transport.errors import ControlError


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory for temporary files, with a path short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="door") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


@pytest.fixture
def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_door_is_its_users_alone_and_goes_when_it_is_closed(place: Path) -> None:
    umask = os.umask(0)
    try:
        door = Door()
    finally:
        os.umask(umask)
    [folder] = place.iterdir()
    assert folder.stat().st_mode & 0o7777 == 0o700
    assert door.address == f"ipc://{folder}/{SOCKET}"
    (folder / SOCKET).touch()
    door.close()
    door.close()
    assert list(place.iterdir()) == []


def test_a_directory_that_others_may_enter_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a file system that knows no access rights."""

    def open_to_all(prefix: str) -> str:
        folder = place / f"{prefix}x"
        folder.mkdir()
        folder.chmod(0o755)
        return str(folder)

    monkeypatch.setattr(tempfile, "mkdtemp", open_to_all)
    with pytest.raises(ControlError, match=r"has the mode 0755 .*expected 0700 .*set TMPDIR"):
        Door()
    assert list(place.iterdir()) == []


def test_a_path_that_is_too_long_for_a_socket_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = place / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with pytest.raises(ControlError, match=r"too long for a socket, which takes \d+ bytes: set TMPDIR"):
        Door()
    assert list(long.iterdir()) == []


def test_no_directory_at_all_is_an_error(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(place / "nowhere"))
    with pytest.raises(ControlError, match="no directory for a socket can be made"):
        Door()


def test_what_a_killed_server_left_is_removed(place: Path, dead_pid: int) -> None:
    left = place / f"duplex-{dead_pid}-abc"
    left.mkdir()
    (left / SOCKET).touch()
    remove_leftovers()
    assert list(place.iterdir()) == []


def test_what_is_not_a_left_door_stays(place: Path, dead_pid: int) -> None:
    mine = place / f"duplex-{os.getpid()}-abc"
    of_init = place / "duplex-1-abc"
    other = place / f"duplex-{dead_pid}"
    huge = place / "duplex-99999999999999-abc"
    for folder in (mine, of_init, other, huge):
        folder.mkdir()
    filled = place / f"duplex-{dead_pid}-filled"
    filled.mkdir()
    (filled / "letter").touch()
    elsewhere = place / f"duplex-{dead_pid}-link"
    elsewhere.symlink_to(mine)
    (mine / SOCKET).touch()
    before = sorted(place.rglob("*"))
    remove_leftovers()
    assert sorted(place.rglob("*")) == before
