"""Gets shared memory without a name: descriptors and mappings alone hold it, so nothing of it is left behind."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import tempfile
from pathlib import Path

from transport.errors import PlaneError

PAGE_BYTES = mmap.PAGESIZE
_ZEROES = bytes(1 << 20)
_CGROUP = Path("/sys/fs/cgroup")


def create(label: str, nbytes: int) -> int:
    """A descriptor of `nbytes` bytes of zeroes, all of them there already. `label` shows in the system's listings.

    Raises `PlaneError` when the machine has not as much: it must be said here, since later a missing page ends the
    process that touches it with SIGBUS.
    """
    free = available_bytes()
    if free is not None and nbytes > free:
        raise _too_much(label, nbytes, f"{free >> 20} MiB are free")
    fd = _anonymous(label)
    try:
        _fill(fd, nbytes)
        _fix_size(fd)
    except (OSError, OverflowError) as error:
        os.close(fd)
        raise _too_much(label, nbytes, str(error)) from error
    return fd


def attach(fd: int, nbytes: int) -> mmap.mmap:
    """Map the memory, all pages at once, so that no later access waits for one. Raises `OSError`, `ValueError`."""
    os.set_inheritable(fd, False)
    return mmap.mmap(fd, nbytes, flags=mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0))


def available_bytes() -> int | None:
    """How much memory can be had without pushing others out; None where the system does not tell."""
    known = [free for free in (_machine_bytes(), _group_bytes()) if free is not None]
    return min(known, default=None)


def _machine_bytes() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")), None)


def _group_bytes() -> int | None:
    """What the control group leaves us, in a container."""
    try:
        most = (_CGROUP / "memory.max").read_text().strip()
        return None if most == "max" else max(0, int(most) - int((_CGROUP / "memory.current").read_text()))
    except (OSError, ValueError):
        return None


def _anonymous(label: str) -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create(label, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with tempfile.TemporaryFile() as file:  # it has no name any more
        return os.dup(file.fileno())


def _fill(fd: int, nbytes: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.ftruncate(fd, nbytes)
        os.posix_fallocate(fd, 0, nbytes)
        return
    left = nbytes
    while left > 0:
        left -= os.write(fd, _ZEROES[:left])


def _fix_size(fd: int) -> None:
    """Let nobody cut the memory away under a mapping, where the system can."""
    if not hasattr(fcntl, "F_ADD_SEALS"):
        return
    try:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file, not memory: it has no seals
            raise


def _too_much(label: str, nbytes: int, why: str) -> PlaneError:
    return PlaneError(
        f"{label}: {nbytes / 2**20:.1f} MiB of shared memory are not to be had ({why}): fewer slots, or smaller"
    )
