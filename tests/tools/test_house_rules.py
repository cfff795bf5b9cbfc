"""Tests that each house rule finds its fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.house_rules import FUNCTION_LINES, MODULE_LINES, problems

HEAD = '"""Does something."""\n'


@pytest.mark.parametrize(
    ("path", "text", "problem"),
    [
        ("models/a.py", "x = 1\n", "no docstring"),
        ("models/a.py", HEAD + "x = 1\n" * MODULE_LINES, f"{MODULE_LINES + 1} lines"),
        ("models/a.py", HEAD + "def f() -> None:\n" + "    x = 1\n" * FUNCTION_LINES, f"f: {FUNCTION_LINES + 1} lines"),
        ("models/a.py", HEAD + "x = 1  # TO" + "DO: later\n", "models/a.py:2: TO" + "DO"),
        ("models/a.py", HEAD + "raise NotImplemented" + "Error\n", "NotImplemented" + "Error"),
        ("models/a.py", HEAD + "x = '/tmp/x'\n", "a path of one machine"),
        ("models/a.py", HEAD + "class AudioHelper: ...\n", "class AudioHelper"),
        ("tests/test_a.py", HEAD + "def test_f() -> None:\n    print(1)\n", "nothing in it can fail"),
    ],
)
def test_a_fault_is_found(path: str, text: str, problem: str) -> None:
    found = list(problems(Path(path), text))
    assert len(found) == 1
    assert problem in found[0]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("models/a.py", HEAD + "x = 1\n" * (MODULE_LINES - 1)),
        ("models/a.py", HEAD + "def f() -> None:\n" + "    x = 1\n" * (FUNCTION_LINES - 1)),
        ("models/a.py", HEAD + "url = 'https://host/home/x'\n"),
        ("models/__init__.py", ""),
        ("tests/test_a.py", HEAD + "def test_f() -> None:\n    assert g()\n"),
    ],
)
def test_what_keeps_the_rules_passes(path: str, text: str) -> None:
    assert not list(problems(Path(path), text))
