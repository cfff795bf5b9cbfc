"""Says what the checks have found, for people and for programs."""

from __future__ import annotations

from typing import Literal

import msgspec

Status = Literal["passed", "failed", "not_applicable"]
SIGNS: dict[Status, str] = {"passed": "ok  ", "failed": "FAIL", "not_applicable": "n/a "}


class Result(msgspec.Struct, frozen=True):
    """How one check ended. `detail` says what was expected and what came, why it does not apply, or what was seen."""

    number: int
    name: str
    status: Status
    detail: str | None = None


class Report(msgspec.Struct, frozen=True):
    """All of them, by number."""

    passed: int
    failed: int
    not_applicable: int
    checks: tuple[Result, ...]


def report(results: list[Result]) -> Report:
    """Count and sort."""
    counts: dict[Status, int] = {status: sum(one.status == status for one in results) for status in SIGNS}
    return Report(**counts, checks=tuple(sorted(results, key=lambda one: one.number)))


def line(result: Result) -> str:
    """One check as a person reads it."""
    told = f"{result.number:3} {SIGNS[result.status]} {result.name}"
    if result.detail is None:
        return told
    return f"{told}\n         {result.detail}" if result.status == "failed" else f"{told} ({result.detail})"


def summary(whole: Report) -> str:
    """The last line of the report."""
    return f"{whole.passed} passed, {whole.failed} failed, {whole.not_applicable} not applicable"
