"""Holds the page about the structure to the code: what it names must be there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs/structure.md").read_text()
FOLDERS = ("transport", "pipeline", "models", "duplex_server")
NAME = re.compile(r"`([A-Z]\w+)\.(\w+)`")
FILE = re.compile(r"`((?:\w+/)*\w+\.py)`")


def methods() -> set[str]:
    found = set()
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    defs = [one.name for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
                    found |= {f"{node.name}.{name}" for name in defs}
    return found


def test_every_method_it_names_exists() -> None:
    named = {f"{kind}.{name}" for kind, name in NAME.findall(PAGE)}
    assert len(named) > 25
    assert named - methods() == set()


def test_every_file_it_names_exists() -> None:
    roots = (ROOT, ROOT / "pipeline", ROOT / "duplex_server", ROOT / "duplex_server/realtime")
    missing = {name for name in FILE.findall(PAGE) if not any((root / name).exists() for root in roots)}
    assert missing - {"family.py"} == set()


@pytest.mark.parametrize("folder", ["duplex_server/realtime", "pipeline"])
def test_every_file_of_the_session_and_the_pipeline_is_named(folder: str) -> None:
    files = {path.name for path in (ROOT / folder).glob("*.py")} - {"__init__.py"}
    assert files - set(re.findall(r"\w+\.py", PAGE)) == set()
