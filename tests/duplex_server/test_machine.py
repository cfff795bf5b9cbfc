"""Tests what is found out about the machine."""

from __future__ import annotations

from pathlib import Path

from duplex_server.machine import free_memory_mb, look


def test_this_machine_is_described() -> None:
    machine = look()
    assert machine.cores >= 1
    assert machine.disk_free_mb > 0
    assert machine.python.startswith("3.")


def test_the_tighter_bound_of_machine_and_container_counts(tmp_path: Path) -> None:
    meminfo, cgroup = tmp_path / "meminfo", tmp_path / "cgroup"
    assert free_memory_mb(meminfo, cgroup) is None
    meminfo.write_text("MemTotal:       9000000 kB\nMemAvailable:   2048000 kB\n")
    assert free_memory_mb(meminfo, cgroup) == 2000
    cgroup.mkdir()
    (cgroup / "memory.max").write_text("max\n")
    (cgroup / "memory.current").write_text(f"{700 << 20}\n")
    (cgroup / "memory.stat").write_text(f"anon 1\ninactive_file {200 << 20}\n")
    assert free_memory_mb(meminfo, cgroup) == 2000
    (cgroup / "memory.max").write_text(f"{1000 << 20}\n")
    assert free_memory_mb(meminfo, cgroup) == 500
    meminfo.write_text("MemAvailable:   102400 kB\n")
    assert free_memory_mb(meminfo, cgroup) == 100
