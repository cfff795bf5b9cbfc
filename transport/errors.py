"""Defines what can go wrong on the way between two stages."""

from __future__ import annotations


class PlaneError(Exception):
    """A data plane was used against its contract: a put without a credit, a payload larger than its slot."""


class StaleRef(PlaneError):
    """A reference (or a slot) names a generation that is over, or a payload that was opened before."""


class ControlError(Exception):
    """A control connection can't be had, or what comes over it can't be understood: another version, no message."""
