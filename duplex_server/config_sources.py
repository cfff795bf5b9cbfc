"""Reads settings from where people write them: a YAML file, the environment, flags; it checks no value."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pipeline.errors import ConfigError

EDGES = "edges"
"""The section whose keys are the names of edges, which have dots in them."""
KEYS_VARIABLE = "DUPLEX_API_KEYS"

_ARROW = re.compile(r"\s*->\s*")
_NULL = "tag:yaml.org,2002:null"


@dataclass(frozen=True, slots=True)
class Given:
    """What somebody wrote for a setting, and where."""

    value: Any  # whatever YAML makes of it; the type of its field is checked by `duplex_server.config`
    origin: str


def from_file(file: Path) -> dict[str, Given]:
    """The settings of a YAML file by dotted path, each with its line. Raises `ConfigError`.

    A section without settings under it stands there by its own name, with the value that was found.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"can't read the configuration file {file}: {reason}") from error
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        if root is None or root.tag == _NULL:
            return {}
        given: dict[str, Given] = {}
        for section, node, line in _entries(loader, root, "", file):
            if isinstance(node, yaml.MappingNode):
                for path, leaf, leaf_line in _entries(loader, node, section, file):
                    given[path] = Given(loader.construct_object(leaf, deep=True), f"{file}:{leaf_line}")
            else:
                given[section] = Given(loader.construct_object(node, deep=True), f"{file}:{line}")
        return given
    except yaml.MarkedYAMLError as error:
        place = f"{file}:{error.problem_mark.line + 1}" if error.problem_mark else str(file)
        raise ConfigError(f"{place} is not valid YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{file} is not valid YAML: {' '.join(str(error).split())}") from error


def _entries(loader: yaml.SafeLoader, node: yaml.Node, path: str, file: Path) -> Iterator[tuple[str, yaml.Node, int]]:
    """The dotted path, value and line of each entry. YAML itself would let a second entry replace the first."""
    if not isinstance(node, yaml.MappingNode):
        got = "a list" if isinstance(node, yaml.SequenceNode) else repr(loader.construct_object(node))
        raise ConfigError(f"expected `key: value` lines, got {got} ({file}:{node.start_mark.line + 1})", path)
    seen: dict[str, int] = {}
    for key_node, value in node.value:
        line = key_node.start_mark.line + 1
        key = str(loader.construct_object(key_node))
        dotted = _one_spelling(f"{path}.{key}") if path else key
        key = dotted.removeprefix(f"{path}.")
        if key in seen:
            raise ConfigError(f"written twice, in lines {seen[key]} and {line} of {file}; remove one", dotted)
        seen[key] = line
        yield dotted, value, line


def _one_spelling(path: str) -> str:
    """The name of an edge may be written with or without spaces around its arrow, and is one setting all the same."""
    return _ARROW.sub(" -> ", path.strip()) if path.startswith(f"{EDGES}.") else path


def from_environment(environment: Mapping[str, str]) -> dict[str, Given]:
    """The API keys of `DUPLEX_API_KEYS`, separated by commas; the one setting that belongs in no file and no flag."""
    written = environment.get(KEYS_VARIABLE, "")
    keys = [key.strip() for key in written.split(",") if key.strip()]
    if written and not keys:
        raise ConfigError(f"{KEYS_VARIABLE} is set and holds no key: unset it, or write keys separated by commas")
    return {"server.api_keys": Given(keys, f"environment {KEYS_VARIABLE}")} if keys else {}


def from_flags(flags: Sequence[str]) -> dict[str, Given]:
    """The settings of `section.key=value` flags; a value is read as YAML, a later flag wins. Raises `ConfigError`."""
    given: dict[str, Given] = {}
    for flag in flags:
        path, equals, text = flag.partition("=")
        section, dot, key = path.partition(".")
        if not equals or not dot or not key or ("." in key and section != EDGES):
            raise ConfigError(f"--set {path!r}: expected section.key=value, such as --set server.port=9000")
        path = _one_spelling(path)
        try:
            given[path] = Given(yaml.safe_load(text), "--set")
        except yaml.YAMLError as error:
            raise ConfigError("the value of --set is not valid YAML; put it in quotes", path) from error
    return given
