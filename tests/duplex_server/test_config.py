"""Tests where settings come from, what is refused and how that is told."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from duplex_server.config import SECTIONS, STAGE_KEYS, Config, ServerSettings, SessionDefaults, load_config
from pipeline.errors import ConfigError
from pipeline.spec import Carriage, EdgeSpec, StageSpec

FAMILY = """
import msgspec
from pipeline.spec import Capabilities, Family, Ports

class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    model: str = "small"
    threads: int = 2
    api_key: str = ""

    def __post_init__(self):
        if self.model == "large" and self.threads < 4:
            raise ValueError("the large model needs 4 threads")

FAMILY = Family(
    name="acme", role="thinker", parts=(), options=Options, placement="process",
    make=lambda options: None, describe=lambda options: Capabilities(model=options.model),
)
"""


OWN = ("thinker", "served", "coder", "vocoder")


@pytest.fixture(autouse=True)
def _family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A family of somebody else's, in a package that can be imported."""
    package = tmp_path / "acme" / "thinker"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "family.py").write_text(FAMILY)
    served = tmp_path / "acme" / "served"
    served.mkdir()
    (served / "__init__.py").touch()
    (served / "family.py").write_text(FAMILY.replace('placement="process"', "served=True"))
    for name, ports in (("coder", 'role="talker", ports=Ports(("text",), ("codes",))'), ("vocoder", 'role="vocoder"')):
        (tmp_path / "acme" / name).mkdir()
        (tmp_path / "acme" / name / "__init__.py").touch()
        written = FAMILY.replace('role="thinker"', ports).replace(', placement="process"', "")
        (tmp_path / "acme" / name / "family.py").write_text(written)
    for name in ("acme", *(f"acme.{one}{part}" for one in OWN for part in ("", ".family"))):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))


def _written(folder: Path, text: str) -> Path:
    file = folder / "duplex.yaml"
    file.write_text(text)
    return file


def _explained(config: Config, path: str) -> tuple[str, str]:
    return next((one.value, one.origin) for one in config.explained if one.path == path)


def test_the_defaults_are_a_whole_cascade_on_loopback() -> None:
    config = load_config()
    assert (config.server.host, config.server.port, config.server.api_keys) == ("127.0.0.1", 8000, ())
    assert config.server.log_content is False
    assert config.session.run_ahead_ms == 2000
    pipeline = config.pipeline
    assert [stage.family for stage in (pipeline.detector, *pipeline.stages.values())] == [
        "models.silero",
        "models.whisper",
        "models.llama_cpp",
        "models.piper",
    ]
    # Engines that can abort, or whose licence asks for it, have a process of their own from the start.
    assert pipeline.stages["thinker"].placement == "process"
    assert pipeline.stages["talker"].placement == "process"
    assert {one.origin for one in config.explained} == {"default"}


def test_a_flag_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = _written(tmp_path, "server:\n  port: 9000\n  api_keys: [from-file]\n  max_sessions: 2\n")
    environment = {"DUPLEX_API_KEYS": "one, two,,"}
    config = load_config(file, [], environment)
    assert (config.server.port, config.server.max_sessions) == (9000, 2)
    assert config.server.api_keys == ("one", "two")
    config = load_config(file, ["server.port=9001", "server.api_keys=[three]"], environment)
    assert (config.server.port, config.server.api_keys) == (9001, ("three",))
    assert _explained(config, "server.port") == ("9001", "--set")
    assert _explained(config, "server.max_sessions") == ("2", f"{file}:4")
    assert _explained(config, "server.host") == ('"127.0.0.1"', "default")


def test_a_stage_takes_its_familys_options() -> None:
    config = load_config(None, ["thinker.family=acme.thinker", "thinker.threads=4", "thinker.placement=inline"])
    assert config.pipeline.stages["thinker"] == StageSpec("acme.thinker", "inline", {"threads": 4})
    assert _explained(config, "thinker.model") == ('"small"', "default")
    assert load_config(None, ["thinker.family=acme.thinker"]).pipeline.stages["thinker"].placement == "process"


def test_a_value_in_quotes_is_read_by_the_type_of_its_field() -> None:
    assert load_config(None, ['server.port="9000"', "session.temperature=1"]).server.port == 9000


def test_a_section_with_all_lines_commented_out_is_no_error(tmp_path: Path) -> None:
    assert load_config(_written(tmp_path, "server:\n  # port: 1\nsession:\n")).server.port == 8000
    assert load_config(_written(tmp_path, "# nothing\n")).server.port == 8000


REFUSED_FILES = [
    ("server:\n  prot: 1\n", "server.prot", r"no such setting; did you mean 'port'\? \(.*duplex.yaml:2\)"),
    ("sevrer:\n  port: 1\n", "sevrer.port", r"no section 'sevrer'; did you mean 'server'\? \(.*duplex.yaml:2\)"),
    ("sevrer:\n", "sevrer", r"no section 'sevrer'; did you mean"),
    ("port: 1\n", "port", r"there is no section 'port'.*duplex.yaml:1"),
    ("server: 1\n", "server", r"expected `key: value` lines under it, got 1 \(.*:1\)"),
    ("- server\n", "", "got a list"),
    ("server:\n  port: 1\n  host: x\n  port: 2\n", "server.port", "written twice, in lines 2 and 4"),
    ("server:\n  port: 70000\n", "server.port", r"<= 65535.*duplex.yaml:2"),
    ("server:\n  port: high\n", "server.port", r"Expected `int`, got `str`.*duplex.yaml:2"),
    ("server:\n  log_level: loud\n", "server.log_level", r"there are: debug, info, warning, error \(.*:2\)"),
    ("session:\n  max_reply_s: 0\n", "session.max_reply_s", "> 0"),
    ("server:\n  port: [\n", "", r"duplex.yaml:3 is not valid YAML"),
    ("thinker:\n  family: acme.thinker\n  thread: 1\n", "thinker.thread", r"did you mean 'threads'\? \(.*:3\)"),
    ("thinker:\n  family: acme.thinker\n  threads: many\n", "thinker.threads", r"Expected `int`.*:3"),
    ("thinker:\n  family: acme.thinker\n  model: large\n", "thinker", "the large model needs 4 threads"),
    ("thinker:\n  placement: cloud\n", "thinker.placement", "there are: inline, process"),
    ("thinker:\n  family: lama_cpp\n", "thinker.family", r"did you mean 'llama_cpp'.*duplex.yaml:2"),
    ("thinker:\n  family: acme.served\n  placement: process\n", "thinker.placement", r"schedules itself.*:3"),
    ("thinker:\n  family: silero\n", "thinker.family", "is a detector, not a thinker"),
]


@pytest.mark.parametrize(("text", "path", "message"), REFUSED_FILES, ids=[text for text, _, _ in REFUSED_FILES])
def test_what_a_file_may_not_say_is_refused_with_its_place(tmp_path: Path, text: str, path: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load_config(_written(tmp_path, text))
    assert caught.value.path == path


CODED = "talker:\n  family: acme.coder\nvocoder:\n  family: acme.vocoder\n"  # four lines
REFUSED_GRAPHS = [
    ("talker:\n  family: acme.coder\n", "talker", r"nobody takes the 'codes' that the talker gives.*duplex.yaml:2"),
    ("vocoder:\n  family: acme.vocoder\n", "vocoder", r"the vocoder takes 'codes', which no other.*duplex.yaml:2"),
    ("vocoder:\n  replicas: 2\n", "vocoder.family", r"the vocoder has no default family: choose one \(.*:2\)"),
    (
        f"{CODED}edges:\n  talker.code -> vocoder: {{bound: 1}}\n",
        "edges.talker.code -> vocoder",
        r"the talker gives no 'code'; did you mean 'codes'\? \(.*duplex.yaml:6\)",
    ),
    (
        f"{CODED}edges:\n  talkr.codes -> vocoder: {{}}\n",
        "edges.talkr.codes -> vocoder",
        r"there is no stage 'talkr'; did you mean 'talker'\? \(.*duplex.yaml:6\)",
    ),
    (
        f"{CODED}edges:\n  talker.codes -> vocodr: {{}}\n",
        "edges.talker.codes -> vocodr",
        r"there is no stage 'vocodr'; did you mean 'vocoder'\? \(.*duplex.yaml:6\)",
    ),
    (
        "edges:\n  talker.codes -> vocoder: {bound: 1}\n",
        "edges.talker.codes -> vocoder",
        r"there is no stage 'vocoder'; there are.*duplex.yaml:2",
    ),
    (
        f"{CODED}edges:\n  talker.codes -> vocoder: {{bond: 1}}\n",
        "edges.talker.codes -> vocoder.bond",
        r"no such setting; did you mean 'bound'\? \(.*duplex.yaml:6\)",
    ),
    (
        f"{CODED}edges:\n  talker.codes -> vocoder: {{bound: 1000}}\n",
        "edges.talker.codes -> vocoder.bound",
        r"<= 128.*duplex.yaml:6",
    ),
    (
        f"{CODED}edges:\n  talker.codes -> vocoder: {{transport: nccl}}\n",
        "edges.talker.codes -> vocoder.transport",
        r"there are: auto, inline, inproc, shm.*duplex.yaml:6",
    ),
    (
        f"{CODED}edges:\n  talker.codes -> vocoder: 16\n",
        "edges.talker.codes -> vocoder",
        r"expected settings such as \{bound: 64\}, got 16 \(.*duplex.yaml:6\)",
    ),
    (
        f"{CODED}edges:\n  talker to vocoder: {{}}\n",
        "edges.talker to vocoder",
        r"expected the name of an edge, such as `thinker.text -> talker` \(.*duplex.yaml:6\)",
    ),
    (
        f"{CODED}edges:\n  talker.codes -> vocoder: {{}}\n  talker.codes->vocoder: {{}}\n",
        "edges.talker.codes -> vocoder",
        "written twice, in lines 6 and 7",
    ),
    (
        f"{CODED}edges:\n  talker.codes -> vocoder: {{transport: inproc}}\n",
        "edges.talker.codes -> vocoder",
        r"'inproc' joins stages of one process, and the batch lane.*duplex.yaml:6",
    ),
    (
        "edges:\n  thinker.text -> talker: {policy: drop_oldest}\n",
        "edges.thinker.text -> talker",
        r"nothing of 'text' can be dropped.*duplex.yaml:2",
    ),
    ("edges:\n  - thinker.text -> talker\n", "edges", r"expected `key: value` lines under it.*duplex.yaml:1"),
    ("thinker:\n  replicas: 0\n", "thinker.replicas", r">= 1.*duplex.yaml:2"),
    ("thinker:\n  family: acme.served\n  replicas: 2\n", "thinker.replicas", r"it has one replica here \(.*:3\)"),
    ("thinker:\n  family: acme.served\n  max_batch: 2\n", "thinker.max_batch", r"it has no steps here \(.*:3\)"),
    ("detector:\n  replicas: 2\n", "detector.replicas", r"no such setting.*duplex.yaml:2"),
    ("thinker:\n  batch_replica: 2\n", "thinker.batch_replica", r"did you mean 'batch_replicas'\? \(.*:2\)"),
]


@pytest.mark.parametrize(("text", "path", "message"), REFUSED_GRAPHS, ids=[text for text, _, _ in REFUSED_GRAPHS])
def test_a_graph_that_can_not_run_is_refused_with_its_place(tmp_path: Path, text: str, path: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load_config(_written(tmp_path, text))
    assert caught.value.path == path


def test_an_edge_is_written_in_a_file_or_by_a_flag_which_wins(tmp_path: Path) -> None:
    file = _written(tmp_path, f"{CODED}edges:\n  talker.codes -> vocoder: {{bound: 16, slots: 2}}\n")
    config = load_config(file)
    edge = EdgeSpec(source="talker", port="codes", target="vocoder", bound=16, slots=2)
    assert config.pipeline.edges == (edge,)
    shown = '{"bound":16,"policy":"block","transport":"auto","slots":2,"slot_bytes":4194304}'
    assert _explained(config, "edges.talker.codes -> vocoder") == (shown, f"{file}:6")
    assert _explained(config, "edges.thinker.text -> talker")[1] == "default"
    for name in ("talker.codes -> vocoder", "talker.codes->vocoder"):  # one edge, however it is spelled
        config = load_config(file, [f"edges.{name}={{bound: 8}}"])
        assert config.pipeline.edges == (msgspec.structs.replace(edge, bound=8, slots=None),)
        assert _explained(config, "edges.talker.codes -> vocoder")[1] == "--set"


def test_edges_that_are_all_commented_out_are_no_error(tmp_path: Path) -> None:
    text = "edges:\n  # thinker.text -> talker: {bound: 8}\n"
    assert load_config(_written(tmp_path, text)).pipeline.edges == ()
    assert load_config(_written(tmp_path, "edges:\n  thinker.text -> talker:\n")).pipeline.edges == ()


def test_a_stage_says_how_many_it_is_and_how_it_serves(tmp_path: Path) -> None:
    file = _written(tmp_path, "thinker:\n  family: acme.thinker\n  replicas: 2\n  max_batch: 3\nvocoder:\n")
    config = load_config(file, ["thinker.batch_replicas=0"])
    assert config.pipeline.stages["thinker"] == StageSpec("acme.thinker", "process", {}, 2, 3, 0)
    assert set(config.pipeline.stages) == {"recognizer", "thinker", "talker"}
    assert _explained(config, "thinker.replicas") == ("2", f"{file}:3")
    assert _explained(config, "thinker.max_batch") == ("3", f"{file}:4")
    assert _explained(config, "thinker.batch_replicas") == ("0", "--set")
    assert _explained(config, "talker.replicas") == ("1", "default")
    with pytest.raises(StopIteration):
        _explained(config, "detector.replicas")


def test_a_vocoder_is_a_stage_like_the_others(tmp_path: Path) -> None:
    config = load_config(_written(tmp_path, CODED))
    assert list(config.pipeline.stages) == ["recognizer", "thinker", "talker", "vocoder"]
    assert _explained(config, "vocoder.placement") == ('"inline"', "default")
    assert _explained(config, "edges.talker.codes -> vocoder")[1] == "default"


def test_explain_prints_the_edges(tmp_path: Path) -> None:
    file = _written(tmp_path, f"{CODED}edges:\n  talker.codes -> vocoder: {{bound: 16}}\n")
    command = [sys.executable, "-m", "duplex_server", "config", "explain", "--config", str(file)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(tmp_path), str(Path(__file__).parents[2])))}
    ended = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    (line,) = [line for line in ended.stdout.splitlines() if line.startswith("edges.talker.codes -> vocoder")]
    assert '{"bound":16,' in line
    assert line.endswith(f"# {file}:6")


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("edges.thinker.text->talker={bound: 0}", r"edges.thinker.text -> talker.bound.*>= 1.*--set"),
        ("edges.thinker.text -> talker.bound=8", "expected the name of an edge"),
        ("edges={}", "expected section.key=value"),
        ("server.port", "expected section.key=value"),
        ("port=1", "expected section.key=value"),
        ("a.b.c=1", "expected section.key=value"),
        ("server.host=[", "put it in quotes"),
        ("server.prot=1", r"did you mean 'port'\? \(--set\)"),
    ],
)
def test_a_bad_flag_is_refused(flag: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(None, [flag])


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"can't read the configuration file .*nowhere.yaml: No such file"):
        load_config(tmp_path / "nowhere.yaml")


def test_no_key_is_ever_shown() -> None:
    config = load_config(
        None, ["thinker.family=acme.thinker", "thinker.api_key=hush-1"], {"DUPLEX_API_KEYS": "hush-2,hush-3"}
    )
    assert config.server.api_keys == ("hush-2", "hush-3")
    assert config.pipeline.stages["thinker"].options["api_key"] == "hush-1"
    shown = repr(config) + repr(config.server) + "".join(one.value for one in config.explained)
    assert "hush" not in shown
    assert _explained(config, "server.api_keys") == ("(2 set)", "environment DUPLEX_API_KEYS")
    assert _explained(config, "thinker.api_key") == ("(set)", "--set")


def test_reading_the_configuration_loads_no_engine() -> None:
    code = (
        "import sys; from duplex_server.config import load_config; load_config()\n"
        "print(*sorted({'av', 'ctranslate2', 'cyllama', 'faster_whisper', 'onnxruntime', 'piper', 'torch'}"
        " & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == ""


@pytest.mark.parametrize(("section", "kind"), [("server", ServerSettings), ("session", SessionDefaults)])
def test_every_setting_is_documented(section: str, kind: type[msgspec.Struct]) -> None:
    text = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")
    names = {f"{section}.{field.name}" for field in msgspec.structs.fields(kind)}
    assert set(re.findall(rf"^\| `({section}\.\w+)`", text, re.MULTILINE)) == names


def test_every_setting_of_a_stage_and_of_an_edge_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `<role>\.(\w+)`", text, re.MULTILINE) == list(STAGE_KEYS)
    _, table = text.split("| setting of an edge | default | |\n|---|---|---|\n")
    rows = dict(re.findall(r"^\| `(\w+)` \| `(\w+)` \|", table.partition("\n\n")[0], re.MULTILINE))
    defaults = Carriage()
    assert rows == {name: str(getattr(defaults, name)).replace("None", "null") for name in Carriage.__struct_fields__}


@pytest.mark.parametrize("page", ["README.md", "docs/configuration.md", "Makefile"])
def test_every_flag_in_the_documents_is_accepted(page: str) -> None:
    text = (Path(__file__).parents[2] / page).read_text(encoding="utf-8")
    wanted = rf"--set ((?:{'|'.join(SECTIONS)})\.\w+=[^\s\"')`]+)"
    lines = [re.findall(wanted, line) for line in text.splitlines()]
    flags = [line for line in lines if line]
    assert flags
    for line in flags:
        assert load_config(None, line).pipeline


# ---- the server ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["server.api_keys=['']"], "key 1 is empty"),
        (["server.api_keys=[fine, 'hush hush']"], "key 2 is empty, or has characters"),
        (["server.api_keys=[ek_hush]"], "begins with 'ek_'"),
        (["server.allowed_origins=[app.example]"], "allowed_origins: expected"),
        (["server.cors_origins=['https://app.example/']"], "cors_origins: expected"),
        (["server.tls_cert_file=c.pem"], "need each other"),
        (["server.tls_key_file=k.pem"], "need each other"),
        (["server.tls_cert_file=c", "server.tls_key_file=k", "server.tls_self_signed=true"], "choose one of the two"),
    ],
)
def test_settings_of_the_server_that_make_no_sense_are_refused(flags: list[str], told: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)) as refused:
        load_config(flags=flags)
    assert "hush" not in str(refused.value)


def test_tls_may_listen_elsewhere() -> None:
    plain = load_config().server
    assert (plain.tls, plain.hosts) == (False, ("127.0.0.1",))
    same = load_config(flags=["server.tls_self_signed=true"]).server
    assert (same.tls, same.hosts) == (True, ("127.0.0.1", "127.0.0.1"))
    other = load_config(flags=["server.tls_cert_file=c", "server.tls_key_file=k", "server.tls_host=0.0.0.0"]).server
    assert (other.tls, other.hosts) == (True, ("127.0.0.1", "0.0.0.0"))
