"""Checks the rules that no linter knows: sizes, names and words of the code."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CODE = ("duplex_server", "models", "pipeline", "transport", "web_demo", "loadtest", "tools", "tests")
MODULE_LINES = 500
FUNCTION_LINES = 60

# Promises and stubs. Each begins with a class of one letter, so that this line is not found by itself.
WORDS = re.compile(r"\b(?:[T]ODO|[F]IXME|[X]XX|[N]otImplementedError)\b")
# A path of one machine.
PLACES = re.compile(r"(?<![\w.])/(?:home|root|tmp|work|Users)/\w")
PLACES_MAY_STAND = ("tests",)  # as an example of a path that a user writes
NAMES = re.compile(r"(Manager|Helper|Utils?|Mixin)$")

# What makes a test able to fail.
CHECKS = re.compile(r"\bassert(?:_\w+)?\b|\braises\(|\bcheck_|\bexpect_|\bverify_|\bvalidate_")


def problems(path: Path, text: str) -> Iterator[str]:
    """What breaks a rule in the module `path` (relative to the project), one line each."""
    count = text.count("\n")
    if count > MODULE_LINES:
        yield f"{path}: {count} lines; at most {MODULE_LINES}. Split it by duty"
    tree = ast.parse(text)
    if text.strip() and ast.get_docstring(tree) is None:
        yield f"{path}: no docstring that says what the module is for"
    for number, line in enumerate(text.splitlines(), 1):
        if found := WORDS.search(line):
            yield f"{path}:{number}: {found[0]}: finish it, or leave it out"
        if (found := PLACES.search(line)) and path.parts[0] not in PLACES_MAY_STAND:
            yield f"{path}:{number}: {found[0]}...: a path of one machine"
    for node in ast.walk(tree):
        yield from _node_problems(path, text, node)


def _node_problems(path: Path, text: str, node: ast.AST) -> Iterator[str]:
    match node:
        case ast.ClassDef(name=name):
            if NAMES.search(name):
                yield f"{path}:{node.lineno}: class {name}: name it after what it does"
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES:
                yield f"{path}:{node.lineno}: {name}: {lines} lines; at most {FUNCTION_LINES}. Split it by duty"
            source = ast.get_source_segment(text, node) or ""
            if path.parts[0] == "tests" and name.startswith("test_") and not CHECKS.search(source):
                yield f"{path}:{node.lineno}: {name}: nothing in it can fail"


def main() -> int:
    """Check every module of the project; 0 when all keep the rules."""
    found = [
        problem
        for folder in CODE
        for path in sorted((ROOT / folder).rglob("*.py"))
        for problem in problems(path.relative_to(ROOT), path.read_text(encoding="utf-8"))
    ]
    print("\n".join(found) or "house rules: kept")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
