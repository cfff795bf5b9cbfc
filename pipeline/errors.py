"""Defines the errors of the runtime; each class says whose fault it is."""

from __future__ import annotations

from typing import Literal

FailureKind = Literal["stage_failed", "stage_timeout", "stage_lost", "capacity", "context_full", "overloaded"]
"""How a stage can fail a job; the session names it to its client."""


class StageError(Exception):
    """A stage can't do what it was asked; `kind` is the `Failed.kind` a session will see."""

    def __init__(
        self,
        message: str,
        kind: FailureKind = "stage_failed",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind


class ConfigError(Exception):
    """A setting can't be taken; `path` is its dotted place in the configuration."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.message = message
        self.path = path
