"""Checks, before anything heavy is imported, that this process can become the server."""

from __future__ import annotations

import errno
import importlib.util
import ipaddress
import os
import socket
import sys
from collections.abc import Iterable
from pathlib import Path

PACKAGES = ("duplex_server", "models", "pipeline", "transport")
OLDEST_PYTHON = (3, 11)


class PreflightError(Exception):
    """Something outside the program stands in its way; the message says what to do."""


def check_python(version: tuple[int, int] = sys.version_info[:2]) -> None:
    """Raise `PreflightError` on a Python that is too old."""
    if version < OLDEST_PYTHON:
        raise PreflightError(
            f"this is Python {version[0]}.{version[1]} ({sys.executable}); "
            f"Python {OLDEST_PYTHON[0]}.{OLDEST_PYTHON[1]} or newer is needed"
        )


def check_packages(names: Iterable[str] = PACKAGES) -> None:
    """Raise `PreflightError` when another package or folder would be imported under one of our names.

    All of ours lie in one folder, whether that is a checkout or site-packages.
    """
    home = Path(__file__).resolve().parent.parent
    for name in names:
        found = _location(name)
        if found == home / name:
            continue
        if found is None:
            raise PreflightError(f"the package {name!r} is missing from {home}; install the project again")
        raise PreflightError(
            f"the name {name!r} belongs to {found} here, not to {home / name}: another folder or package shadows ours. "
            f"Take {found.parent} out of PYTHONPATH, start from another folder, or use an environment of its own"
        )


def _location(name: str) -> Path | None:
    """The folder or file that `import name` would take."""
    spec = importlib.util.find_spec(name)
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations))).resolve()
    return Path(spec.origin).resolve() if spec.origin else None


def check_open(hosts: Iterable[str], *, keys: bool, open_to_all: bool) -> None:
    """Raise `PreflightError` when others than this machine would reach a server that asks for no key, unasked."""
    if keys or open_to_all:
        return
    for host in hosts:
        if not is_loopback(host):
            raise PreflightError(
                f"other machines reach {host}, and the server asks for no key: whoever finds it may use it. "
                "Set keys in the environment, DUPLEX_API_KEYS=one,two; or listen on 127.0.0.1; "
                "or, if that is what you want, say --open-to-all (server.open_to_all: true)"
            )


def check_port(host: str, port: int, setting: str = "server.port") -> None:
    """Raise `PreflightError` when nothing can listen at `host`:`port`, by `setting`; a port of 0 is any free one."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise PreflightError(f"server.host {host!r} is no address of this machine: {error.strerror}") from error
    with socket.socket(family, kind, protocol) as probe:
        # As the server itself does: a connection of the last run that lingers is no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
            probe.listen(1)
        except OSError as error:
            raise PreflightError(_why_not(host, port, error, setting)) from error


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens at `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _why_not(host: str, port: int, error: OSError, setting: str) -> str:
    choose = "--port" if setting == "server.port" else f"--set {setting}=NUMBER"
    match error.errno:
        case errno.EADDRINUSE:
            return f"port {port} on {host} is taken by another program: stop it, or choose another with {choose}"
        case errno.EACCES:
            return f"this user may not listen on port {port}: choose one from 1024 on with {choose}"
        case errno.EADDRNOTAVAIL:
            return f"server.host {host!r} is no address of this machine; 0.0.0.0 stands for all of them"
        case _:
            return f"can't listen on {host}:{port}: {os.strerror(error.errno or 0)}"
