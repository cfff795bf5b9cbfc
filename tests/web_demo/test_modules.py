"""Runs the tests of the page's pure modules, and has Node read all of them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PAGE = HERE.parent.parent / "web_demo"


def node(*arguments: str, program: str = "") -> subprocess.CompletedProcess[str]:
    found = shutil.which("node")
    if found is None:
        assert not os.environ.get("CI"), "CI has no node; without it nothing tests the page's modules"
        pytest.skip("needs node")
    return subprocess.run([found, *arguments], input=program, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("file", sorted(HERE.glob("*.mjs")), ids=lambda file: file.name)
def test_a_pure_module_does_what_it_says(file: Path) -> None:
    result = node("--test", str(file))
    assert result.returncode == 0, result.stdout + result.stderr
    assert "# pass 0" not in result.stdout


@pytest.mark.parametrize("file", sorted(PAGE.glob("*.js")), ids=lambda file: file.name)
def test_a_module_can_be_read(file: Path) -> None:
    # By its name alone, Node would take the file for a script.
    result = node("--input-type=module", "--check", program=file.read_text())
    assert result.returncode == 0, result.stderr
