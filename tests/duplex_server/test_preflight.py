"""Tests that what stands in the way at start is told."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from duplex_server import preflight
from duplex_server.preflight import PreflightError

PROJECT = Path(preflight.__file__).resolve().parent.parent


def test_all_is_well_here() -> None:
    preflight.check_python()
    preflight.check_packages()
    preflight.check_port("127.0.0.1", 0)
    assert set(preflight.PACKAGES) <= {path.name for path in PROJECT.iterdir()}


def test_an_old_python_is_named() -> None:
    with pytest.raises(PreflightError, match=r"this is Python 3\.10 .*Python 3\.11 or newer is needed"):
        preflight.check_python((3, 10))


def test_a_taken_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PreflightError, match=f"port {port} on 127.0.0.1 is taken .*--port"):
            preflight.check_port("127.0.0.1", port)
    preflight.check_port("127.0.0.1", port)


def test_a_foreign_address_is_named() -> None:
    with pytest.raises(PreflightError, match=r"'192\.0\.2\.1' is no address of this machine"):
        preflight.check_port("192.0.2.1", 8000)


def test_a_port_is_named_with_the_setting_that_chooses_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(PreflightError, match=r"tls_port=NUMBER$"):
        preflight.check_port("127.0.0.1", taken.getsockname()[1], "server.tls_port")


@pytest.mark.parametrize("hosts", [("0.0.0.0",), ("::",), ("192.0.2.1",), ("127.0.0.1", "0.0.0.0")])
def test_a_server_for_everybody_must_be_asked_for(hosts: tuple[str, ...]) -> None:
    with pytest.raises(PreflightError, match=rf"machines reach {hosts[-1]}, .*DUPLEX_API_KEYS=.*--open-to-all"):
        preflight.check_open(hosts, keys=False, open_to_all=False)
    preflight.check_open(hosts, keys=True, open_to_all=False)
    preflight.check_open(hosts, keys=False, open_to_all=True)


def test_a_server_for_this_machine_alone_needs_no_key() -> None:
    try:
        preflight.check_open(("127.0.0.1", "::1", "localhost"), keys=False, open_to_all=False)
    except PreflightError as error:
        pytest.fail(str(error))


def test_loopback_addresses_are_known() -> None:
    assert all(map(preflight.is_loopback, ["127.0.0.1", "127.8.0.1", "::1", "localhost"]))
    assert not any(map(preflight.is_loopback, ["0.0.0.0", "::", "192.0.2.1", "example.org"]))


@pytest.mark.parametrize("as_package", [True, False], ids=["package", "folder"])
def test_a_shadowing_folder_is_named(tmp_path: Path, as_package: bool) -> None:
    """A user's own `models` folder on PYTHONPATH, with and without `__init__.py`, before our location."""
    (tmp_path / "models").mkdir()
    if as_package:
        (tmp_path / "models" / "__init__.py").touch()
    code = (
        "import sys; from importlib.machinery import PathFinder; from duplex_server import preflight\n"
        # An editable install finds our packages by a finder that comes after the path.
        "sys.path[:] = [p for p in sys.path if p != sys.argv[1]]\n"
        "class Ours:\n"
        "    def find_spec(name, path=None, target=None):\n"
        "        return PathFinder.find_spec(name, [sys.argv[1]]) if path is None else None\n"
        "sys.meta_path.append(Ours)\n"
        "preflight.check_packages()\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(PROJECT)))}
    ended = subprocess.run(
        [sys.executable, "-P", "-c", code, str(PROJECT)], env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert f"the name 'models' belongs to {tmp_path / 'models'} here" in ended.stderr


def test_a_missing_package_is_named() -> None:
    with pytest.raises(PreflightError, match="'no_such_package' is missing from"):
        preflight.check_packages(["no_such_package"])
