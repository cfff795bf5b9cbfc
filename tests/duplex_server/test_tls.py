"""Tests the certificates that a server makes for itself, and how it speaks TLS with them beside plain HTTP."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from websockets.asyncio.client import connect

from duplex_server import tls
from duplex_server.tls import RENEWED_DAYS, VALID_DAYS, Certificate
from pipeline.errors import ConfigError
from tests.duplex_server.serving import first, served

HOST = "127.0.0.1"


def names(certificate: Certificate) -> set[str]:
    cert = x509.load_pem_x509_certificate(certificate.cert.read_bytes())
    san = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {str(name.value) for name in san}


def test_only_its_user_may_read_the_key(tmp_path: Path) -> None:
    made = tls.self_signed(tmp_path / "state" / "tls", HOST)
    assert made.key.stat().st_mode & 0o777 == 0o600
    assert made.key.parent.stat().st_mode & 0o777 == 0o700
    assert b"PRIVATE" not in made.cert.read_bytes()
    assert {path.name for path in made.key.parent.iterdir()} == {"127.0.0.1.cert.pem", "127.0.0.1.key.pem"}


def test_it_is_for_this_machine_and_what_was_named(tmp_path: Path) -> None:
    made = tls.self_signed(tmp_path, "192.0.2.7", ["voice.example"])
    assert {"localhost", "127.0.0.1", "::1", "192.0.2.7", "voice.example"} <= names(made)
    everywhere = tls.self_signed(tmp_path, "0.0.0.0")
    assert "0.0.0.0" not in names(everywhere)
    assert "localhost" in names(everywhere)
    assert names(made) > names(everywhere), "one beside the other"
    assert "::1" in names(tls.self_signed(tmp_path, "::"))


def test_whoever_trusts_it_trusts_no_other_certificate(tmp_path: Path) -> None:
    cert = x509.load_pem_x509_certificate(tls.self_signed(tmp_path, HOST).cert.read_bytes())
    assert not cert.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_it_is_kept_until_it_nears_its_end_or_must_be_for_more(tmp_path: Path) -> None:
    now = datetime.now(UTC)

    def made(*more: str, after_days: float = 0) -> bytes:
        return tls.self_signed(tmp_path, HOST, more, now + timedelta(days=after_days)).cert.read_bytes()

    key = tls.self_signed(tmp_path, HOST, now=now).key.read_bytes()
    one = made()
    assert made(after_days=VALID_DAYS - RENEWED_DAYS - 1) == one
    named = made("voice.example")
    assert named != one
    assert made() == named, "it is for less, too"
    renewed = made(after_days=VALID_DAYS - RENEWED_DAYS + 1)
    assert renewed != named
    assert tls.self_signed(tmp_path, HOST).key.read_bytes() == key
    (tmp_path / "127.0.0.1.cert.pem").write_text("not a certificate")
    assert b"BEGIN CERTIFICATE" in made()


def test_servers_that_start_at_once_come_to_one_key(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from duplex_server import tls\n"
        "made = tls.self_signed(Path(sys.argv[1]), '127.0.0.1'); tls.context(made)"
    )
    racing = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) for _ in range(4)]
    assert [one.wait(60) for one in racing] == [0] * 4
    tls.context(tls.self_signed(tmp_path, HOST))
    assert len(list(tmp_path.iterdir())) == 2


def test_a_missing_library_is_told_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(ConfigError, match=r"pip install -e '\.\[tls\]'") as refused:
        tls.self_signed(tmp_path, HOST)
    assert refused.value.path == "server.tls_self_signed"


def test_files_that_are_no_pair_are_named(tmp_path: Path) -> None:
    one, other = tls.self_signed(tmp_path, HOST), tls.self_signed(tmp_path, "::1")
    for wrong in (Certificate(one.cert, other.key), Certificate(one.key, one.key)):
        with pytest.raises(ConfigError, match="no certificate and its unencrypted private key"):
            tls.context(wrong)
    with pytest.raises(ConfigError, match="No such file") as refused:
        tls.context(Certificate(one.cert, tmp_path / "none.pem"))
    assert refused.value.path == "server.tls_key_file"


def test_a_folder_that_can_hold_nothing_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="can't keep a certificate") as refused:
        tls.self_signed(tmp_path / "file" / "tls", HOST)
    assert refused.value.path == "server.state_dir"


def test_state_lies_where_the_system_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert tls.state_dir() == tmp_path / "duplex-server"
    for unset in ("", "relative"):
        monkeypatch.setenv("XDG_STATE_HOME", unset)
        assert tls.state_dir() == Path.home() / ".local" / "state" / "duplex-server"


def test_check_021_a_client_that_trusts_it_talks_tls_and_no_other_does(tmp_path: Path) -> None:
    made = tls.self_signed(tmp_path, HOST)
    trusting = ssl.create_default_context(cafile=str(made.cert))
    trusting.verify_flags |= ssl.VERIFY_X509_STRICT

    async def talk() -> None:
        async with served(tls=tls.context(made)) as server:
            for host in (HOST, "localhost"):
                url = server.ws_url.replace(HOST, host)
                assert url.startswith("wss://")
                async with connect(url, ssl=trusting) as peer:
                    await first(peer)
                    await peer.send('{"type": "input_audio_buffer.clear"}')
                    assert '"input_audio_buffer.cleared"' in str(await peer.recv())
            with pytest.raises(ssl.SSLCertVerificationError):
                await connect(server.ws_url, ssl=ssl.create_default_context())

    asyncio.run(talk())
