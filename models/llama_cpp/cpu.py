"""Says whether this machine's processor has the instructions that the prebuilt llama.cpp was compiled for."""

from __future__ import annotations

import platform
from pathlib import Path

from pipeline.errors import StageError

# What the x86-64 code of the wheel (cyllama 0.2.18) uses without asking the processor first, read off its disassembly:
# 256-bit integer and float operations, fused multiply-add, half-float conversion, and the three-operand shifts and bit
# deposits of BMI2. It holds no AVX-512. The names are those of Linux; `_DARWIN` gives those of macOS.
REQUIRED = frozenset({"avx", "avx2", "fma", "f16c", "bmi2"})
_DARWIN = {"avx1.0": "avx", "avx2": "avx2", "fma": "fma", "f16c": "f16c", "bmi2": "bmi2"}


def check_cpu(machine: str | None = None, system: str | None = None, cpuinfo: Path = Path("/proc/cpuinfo")) -> None:
    """Raise `StageError` when the native library would die of an illegal instruction on being imported.

    Where the flags can't be read it passes: the check exists to explain a crash, not to forbid an unknown machine.
    """
    missing = missing_instructions(machine, system, cpuinfo)
    if missing:
        raise StageError(
            f"this processor lacks {', '.join(missing)}, which the prebuilt llama.cpp needs "
            f"({', '.join(sorted(REQUIRED))}): build cyllama from source on this machine "
            f"(pip install --no-binary cyllama), or use a thinker that runs elsewhere"
        )


def missing_instructions(
    machine: str | None = None, system: str | None = None, cpuinfo: Path = Path("/proc/cpuinfo")
) -> tuple[str, ...] | None:
    """The needed instructions that this processor lacks, sorted; None when its flags can't be read.

    arm64 builds use NEON alone, which every such processor has.
    """
    machine = platform.machine() if machine is None else machine
    system = platform.system() if system is None else system
    if machine.lower() not in {"x86_64", "amd64"}:
        return ()
    flags = _flags(system, cpuinfo)
    return tuple(sorted(REQUIRED - flags)) if flags is not None else None


def _flags(system: str, cpuinfo: Path) -> frozenset[str] | None:
    if system == "Linux" and cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="ascii", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "flags":
                return frozenset(value.split())
    if system == "Darwin":
        return _darwin_flags()
    return None


def _darwin_flags() -> frozenset[str] | None:
    import subprocess  # only macOS keeps its flags behind a command

    try:
        told = subprocess.run(
            ["/usr/sbin/sysctl", "-n", "machdep.cpu.features", "machdep.cpu.leaf7_features"],
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    words = told.lower().split()
    return frozenset(_DARWIN.get(word, word) for word in words)
