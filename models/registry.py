"""Finds the model families: the folders here that hold a `family.py`, and packages named by others."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
from pathlib import Path
from types import ModuleType

from pipeline.errors import ConfigError, StageError
from pipeline.spec import Family

EXTRA = "cpu"  # the extra that brings the libraries of every family of the default pipeline


def known_families() -> tuple[str, ...]:
    """The short names of the families that lie in this package, sorted; none of them is imported."""
    here = Path(__file__).parent
    return tuple(sorted(family.parent.name for family in here.glob("*/family.py")))


def dotted_name(name: str) -> str:
    """The package of a family: `whisper` is `models.whisper`, a dotted name stays as it is."""
    return name if "." in name else f"{__package__}.{name}"


def load_family(name: str) -> Family:
    """The family of a short name (`whisper`) or of any importable package (`models.whisper`, `acme.voices`).

    Imports that family's `family.py` alone. Raises `ConfigError` when there is no such family or its module exports
    none, `StageError` when a library it imports is missing.
    """
    dotted = dotted_name(name)
    module = _family_module(name, dotted)
    family = getattr(module, "FAMILY", None)
    if not isinstance(family, Family):
        raise ConfigError(f"the family {name!r} is unusable: {dotted}.family exports no FAMILY; see pipeline/spec.py")
    return family


def _family_module(name: str, dotted: str) -> ModuleType:
    try:
        return importlib.import_module(f"{dotted}.family")
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if f"{dotted}.family" == missing or f"{dotted}.".startswith(f"{missing}."):
            raise ConfigError(_unknown(name)) from error
        raise StageError(_missing(missing, f"the family {name!r}", EXTRA)) from error


def _unknown(name: str) -> str:
    known = known_families()
    near = difflib.get_close_matches(name.rpartition(".")[2], known, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"there is no model family {name!r}; {hint}Known here: {', '.join(known)}; or name an importable package"


def library(module: str, family: str, extra: str = EXTRA) -> ModuleType:
    """Import a third-party library for `family`, or say which extra of the distribution brings it (`StageError`)."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise StageError(_missing(error.name or module, f"the family {family!r}", extra)) from error
    except ImportError as error:
        raise StageError(
            f"the family {family!r} can't load the library {module!r} on this machine: {error}; "
            f"reinstall it with: pip install --force-reinstall -e '.[{extra}]' in the project's folder"
        ) from error


def _missing(module: str, who: str, extra: str) -> str:
    return f"{who} needs the library {module!r}, not installed here: pip install -e '.[{extra}]' where the project is"
