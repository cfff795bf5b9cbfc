"""Tests how families are found, and what is said when one isn't."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from models.registry import known_families, library, load_family
from pipeline.errors import ConfigError, StageError

HEAVY = ("ctranslate2", "faster_whisper", "onnxruntime", "httpx", "soxr", "webrtcvad", "cyllama", "piper", "torch")


def test_a_short_name_and_its_dotted_name_are_the_same_family() -> None:
    assert load_family("silero") is load_family("models.silero")


def test_every_family_here_loads_and_its_options_have_defaults() -> None:
    assert {"silero", "webrtc_vad", "whisper", "openai_api"} <= set(known_families())
    for name in known_families():
        family = load_family(name)
        assert family.name == name
        options = msgspec.convert({}, family.options)
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert({"no_such_option": 1}, family.options)
        family.make(options)


def test_finding_and_describing_families_imports_no_heavy_library() -> None:
    code = (
        "import sys; from models.registry import known_families, load_family\n"
        "[load_family(name) for name in known_families()]\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    assert done.stdout.strip() == "[]"


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"no model family 'wisper'; did you mean 'whisper'\?.*silero"):
        load_family("wisper")


@pytest.mark.parametrize("name", ["acme.voices", "models.nothing", "json"])
def test_a_package_that_holds_no_family_is_a_config_error(name: str) -> None:
    with pytest.raises(ConfigError, match="no model family"):
        load_family(name)


def _package(folder: Path, name: str, family: str) -> str:
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text("")
    (folder / name / "family.py").write_text(family)
    return name


def test_a_family_of_others_loads_by_its_dotted_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    _package(tmp_path, "acme_families", "")
    _package(tmp_path / "acme_families", "voices", "from models.silero.family import FAMILY")
    assert load_family("acme_families.voices").role == "detector"


def test_a_family_module_without_a_family_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    _package(tmp_path, "acme_bare", "")
    _package(tmp_path / "acme_bare", "voices", "FAMILY = 'not one'")
    with pytest.raises(ConfigError, match="exports no FAMILY"):
        load_family("acme_bare.voices")


def test_a_library_that_a_family_imports_and_lacks_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    _package(tmp_path, "acme_needy", "")
    _package(tmp_path / "acme_needy", "voices", "import a_library_nobody_has")
    with pytest.raises(StageError, match=r"'a_library_nobody_has'.*pip install -e '.\[cpu\]'"):
        load_family("acme_needy.voices")


def test_a_missing_library_names_the_extra_that_brings_it() -> None:
    with pytest.raises(StageError, match=r"'piper_nobody_has'.*pip install -e '.\[piper\]'"):
        library("piper_nobody_has", "piper", "piper")
