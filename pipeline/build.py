"""Builds a stage from its family and its options."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from pipeline.errors import StageError
from pipeline.spec import Family, OptionValue
from pipeline.stage import Detector, Stage


def make_options(family: Family, options: Mapping[str, OptionValue]) -> msgspec.Struct:
    """The options as the family's own struct. Raises `StageError` for one that it does not take."""
    try:
        return msgspec.convert(dict(options), family.options)
    except msgspec.ValidationError as error:
        known = ", ".join(family.options.__struct_fields__) or "none"
        raise StageError(f"{family.name} can't take its options: {error}; it knows: {known}") from error


def make_stage(family: Family, options: Mapping[str, OptionValue]) -> Stage | Detector:
    """A family's stage, not yet loaded. Raises `StageError` for an option that the family does not take."""
    return family.make(make_options(family, options))
