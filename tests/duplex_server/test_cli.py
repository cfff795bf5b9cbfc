"""Tests the command line: what it prints, and that a user's mistake costs one line and exit code 2."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from duplex_server import __version__
from duplex_server.cli import main


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"duplex-server {__version__}\n"


def test_python_m_is_the_command() -> None:
    ended = subprocess.run([sys.executable, "-m", "duplex_server", "--version"], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, f"duplex-server {__version__}\n")


def test_config_explain_says_where_each_value_comes_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUPLEX_API_KEYS", "hush")
    file = tmp_path / "duplex.yaml"
    file.write_text("server:\n  port: 9000\n")
    assert main(["config", "explain", "--config", str(file), "--set", "session.max_reply_s=30"]) == 0
    out = capsys.readouterr().out
    lines = {line.split()[0]: line.split(maxsplit=1)[1] for line in out.splitlines()}
    assert lines["server.port"] == f"9000  # {file}:2"
    assert lines["session.max_reply_s"] == "30.0  # --set"
    assert lines["server.api_keys"] == "(1 set)  # environment DUPLEX_API_KEYS"
    assert lines["thinker.family"] == '"llama_cpp"  # default'
    assert "hush" not in out


def test_a_reader_that_leaves_early_is_no_error() -> None:
    command = [sys.executable, "-m", "duplex_server", "config", "explain"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1


def _fails(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    return captured.err


def test_a_bad_setting_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert "did you mean 'port'?" in _fails(["serve", "--set", "server.prot=1"], capsys)


def test_a_taken_port_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"port {port} on 127.0.0.1 is taken" in _fails(["serve", "--port", str(port)], capsys)


def test_a_foreign_host_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no address of this machine" in _fails(["serve", "--host", "192.0.2.1", "--open-to-all"], capsys)


def test_a_server_for_everybody_without_a_key_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    told = _fails(["serve", "--host", "0.0.0.0", "--port", "0"], capsys)
    assert "asks for no key" in told
    assert "--open-to-all" in told
    served = ["serve", "--set", "server.tls_host=0.0.0.0"]
    assert "0.0.0.0" in _fails([*served, "--tls-self-signed"], capsys)


def test_a_server_for_everybody_may_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("0.0.0.0", 0)) as taken:
        everybody = ["serve", "--host", "0.0.0.0", "--port", str(taken.getsockname()[1])]
        assert "is taken" in _fails([*everybody, "--open-to-all"], capsys), "it goes on to the next question"
        assert "is taken" in _fails([*everybody, "--set", "server.api_keys=[k]"], capsys)


def test_a_taken_port_for_tls_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        told = _fails(["serve", "--port", "0", "--tls-self-signed", "--set", f"server.tls_port={port}"], capsys)
        assert "--set server.tls_port=NUMBER" in told


def test_config_explain_shows_keys_nowhere(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("server.api_keys=[sk-hush,sk-hush2]", "server.tls_cert_file=c.pem", "server.tls_key_file=k.pem")
    assert main(["config", "explain", *(part for flag in flags for part in ("--set", flag))]) == 0
    out = capsys.readouterr().out
    assert "hush" not in out
    lines = {line.split()[0]: line.split(maxsplit=1)[1] for line in out.splitlines()}
    assert lines["server.api_keys"] == "(2 set)  # --set"
    assert lines["server.tls_key_file"] == '"k.pem"  # --set'
    assert lines["server.open_to_all"] == "false  # default"
    for name in (
        "tls_self_signed",
        "tls_host",
        "tls_port",
        "tls_names",
        "state_dir",
        "allowed_origins",
        "cors_origins",
    ):
        assert f"server.{name}" in lines


def test_a_call_without_a_server_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "there is no such file" in _fails(["call", str(tmp_path / "q.wav"), "--out", str(tmp_path / "a")], capsys)


@pytest.mark.parametrize("arguments", [[], ["sing"], ["call", "q.wav"], ["config"]])
def test_an_incomplete_command_shows_its_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: duplex-server" in capsys.readouterr().err
