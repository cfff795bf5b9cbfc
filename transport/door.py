"""Opens a door for one peer of the same user: an address in a directory that nobody else may enter."""

from __future__ import annotations

import logging
import os
import re
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

import zmq

from transport.errors import ControlError

log = logging.getLogger(__name__)

SOCKET = "control"
_NAME = re.compile(r"duplex-(\d{1,9})-\w+")


class Door:
    """A fresh `address`, to listen at. Once the peer is in, or has gone, `close` removes it from the file system.

    Raises `ControlError` where no such directory can be had.
    """

    def __init__(self) -> None:
        try:
            self._folder = Path(tempfile.mkdtemp(prefix=f"duplex-{os.getpid()}-"))
        except OSError as error:
            raise ControlError(f"no directory for a socket can be made: {error}; set TMPDIR to one for it") from error
        self._open = True
        self._socket = self._folder / SOCKET
        self.address = f"ipc://{self._socket}"
        try:
            check_private(self._folder)
            if len(os.fsencode(self._socket)) > zmq.IPC_PATH_MAX_LEN:
                raise ControlError(
                    f"{self._socket} is too long for a socket, which takes {zmq.IPC_PATH_MAX_LEN} bytes: "
                    "set TMPDIR to a shorter path"
                )
        except ControlError:
            self.close()
            raise

    def close(self) -> None:
        """Let nobody in from now on; who is in stays. Closing twice is harmless."""
        if self._open:
            self._open = False
            _remove(self._folder)


def check_private(folder: Path) -> None:
    """Raise `ControlError` when others than this user may enter `folder`, as where a file system knows no rights."""
    found = folder.stat()
    if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) != 0o700:
        raise ControlError(
            f"{folder} has the mode {stat.S_IMODE(found.st_mode):04o} and the owner {found.st_uid}; expected 0700 and "
            f"{os.getuid()}: set TMPDIR to a directory whose file system keeps access rights"
        )


def remove_leftovers() -> None:
    """Remove the doors of this user's servers that were killed before they could close them."""
    with os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            name = _NAME.fullmatch(entry.name)
            if name is None or not entry.is_dir(follow_symlinks=False) or _lives(int(name[1])):
                continue
            with suppress(FileNotFoundError):  # another server that starts now was quicker
                if entry.stat(follow_symlinks=False).st_uid == os.getuid():
                    log.info("%s, left by a server that was killed, is removed", entry.path)
                    _remove(Path(entry.path))


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        return True
    return True


def _remove(folder: Path) -> None:
    """The socket and its directory, and nothing else: what somebody put beside it stays."""
    try:
        (folder / SOCKET).unlink(missing_ok=True)
        folder.rmdir()
    except FileNotFoundError:
        pass
    except OSError as error:
        log.warning("%s could not be removed: %s", folder, error)
