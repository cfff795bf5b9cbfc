"""Looks at the machine: its processor, memory, disk, C library and how busy it is; standard library only."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from pathlib import Path

import msgspec

from models.llama_cpp.cpu import missing_instructions
from pipeline.lanes import machine_cores

CGROUP = Path("/sys/fs/cgroup")
MEMINFO = Path("/proc/meminfo")


class Machine(msgspec.Struct, frozen=True):
    """What was found. None where the system does not tell."""

    system: str
    python: str
    executable: str
    cores: int
    load_1m: float
    missing_instructions: tuple[str, ...] | None
    libc: str
    memory_free_mb: int | None
    disk_free_mb: int


def look() -> Machine:
    """The machine as it is now; the disk is the one this environment lies on."""
    return Machine(
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=platform.python_version(),
        executable=sys.executable,
        cores=machine_cores(),
        load_1m=round(os.getloadavg()[0], 2),
        missing_instructions=missing_instructions(),
        libc=" ".join(platform.libc_ver()).strip(),
        memory_free_mb=free_memory_mb(),
        disk_free_mb=shutil.disk_usage(sys.prefix).free // 2**20,
    )


def free_memory_mb(meminfo: Path = MEMINFO, cgroup: Path = CGROUP) -> int | None:
    """What programs may still take: the machine's, or less in a container with a limit of its own."""
    free = [one for one in (_available_mb(meminfo), _left_in_container_mb(cgroup)) if one is not None]
    return min(free) if free else None


def _available_mb(meminfo: Path) -> int | None:
    if not meminfo.is_file():
        return None
    lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
    available = lines.get("MemAvailable")
    return int(available.split()[0]) // 1024 if available else None


def _left_in_container_mb(cgroup: Path) -> int | None:
    """From version 2 of control groups; what the page cache holds counts as free."""
    try:
        limit = (cgroup / "memory.max").read_text().strip()
        used = int((cgroup / "memory.current").read_text())
        stat = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
    except OSError:
        return None
    if not limit.isdecimal():
        return None  # "max"
    return max(0, int(limit) - used + int(stat.get("inactive_file", "0"))) // 2**20
