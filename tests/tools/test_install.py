"""Tests when the environment counts as installed, and what is told where it can't be."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import re
import shutil
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from tools import install

PINNED = re.compile(r"^([\w-]+)==([\w.]+)", re.MULTILINE)


def test_requirements_decide_the_fingerprint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requirements = tmp_path / "requirements"
    shutil.copytree(install.REQUIREMENTS, requirements)
    monkeypatch.setattr(install, "REQUIREMENTS", requirements)
    before = install.fingerprint()
    assert install.fingerprint() == before
    (requirements / "models.txt").write_text("other==1.0\n")
    assert install.fingerprint() != before


def test_an_environment_is_current_for_its_set_and_for_what_that_covers(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    assert not install.is_current(tmp_path, "serve", "1")
    install.stamp(tmp_path, "dev").write_text("1")
    assert install.is_current(tmp_path, "dev", "1")
    assert install.is_current(tmp_path, "serve", "1")
    assert not install.is_current(tmp_path, "serve", "2")
    install.stamp(tmp_path, "dev").unlink()
    install.stamp(tmp_path, "serve").write_text("1")
    assert install.is_current(tmp_path, "serve", "1")
    assert not install.is_current(tmp_path, "dev", "1")


def test_an_environment_of_another_python_is_made_anew(tmp_path: Path) -> None:
    assert not install.is_of_another_python(tmp_path)
    made_by = tmp_path / "pyvenv.cfg"
    made_by.write_text(f"home = /usr/bin\nversion = {platform.python_version()}\n")
    assert not install.is_of_another_python(tmp_path)
    made_by.write_text("home = /usr/bin\nversion = 3.9.1\n")
    assert install.is_of_another_python(tmp_path)


def test_a_current_environment_costs_no_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    install.stamp(tmp_path, "serve").write_text(install.fingerprint())
    monkeypatch.setattr(install, "run", lambda title, command: pytest.fail(f"ran {command}"))
    assert install.main(["serve", str(tmp_path)]) == 0


Usage = namedtuple("Usage", "total used free")


@pytest.mark.parametrize(
    ("place", "attribute", "stand_in", "message"),
    [
        (importlib.util, "find_spec", lambda name: None, r"apt install python3\.\d+-venv"),
        (platform, "machine", lambda: "riscv64", r"riscv64 on linux; they have for x86_64 on linux, arm64 on darwin"),
        (platform, "libc_ver", lambda: ("", ""), "they need glibc"),
        (shutil, "disk_usage", lambda path: Usage(9, 9, 5 * 2**20), "5 MB are free"),
    ],
    ids=["no ensurepip", "processor", "C library", "disk"],
)
def test_what_is_missing_is_told_in_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    place: object,
    attribute: str,
    stand_in: object,
    message: str,
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.36"))
    monkeypatch.setattr(place, attribute, stand_in)
    assert install.main(["serve", str(tmp_path / "venv")]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert re.search(message, captured.err)


@pytest.mark.parametrize("file", ["models.txt", "speech.txt"])
def test_the_wheels_installed_here_are_those_that_are_pinned(file: str) -> None:
    pinned = PINNED.findall((install.REQUIREMENTS / file).read_text())
    assert pinned
    assert {name: importlib.metadata.version(name) for name, _ in pinned} == dict(pinned)
