"""Starts the servers that the clients share, and lets each client hold its conversations once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import pytest

from models.whisper.family import Options
from models.whisper.recognizer import Recognizer
from tests.clients.program import Conversation, command, run
from tests.clients.relay import Wire, relaying
from tests.e2e.server import Server, running


class Converse(Protocol):
    """Gives the conversation of a client with one of the servers, which is held once."""

    def __call__(self, name: str, server: Literal["default", "calling"] = "default") -> Conversation: ...


@dataclass(frozen=True, slots=True)
class Secured:
    """A server, its address for TLS, and the certificate that it printed."""

    server: Server
    url: str
    certificate: Path


@pytest.fixture(scope="session")
def default(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """The server as it comes, over TLS too; its answers are kept short, for they are heard in real time."""
    with _securing(tmp_path_factory.mktemp("state"), "session.max_reply_tokens=64") as one:
        yield one


@pytest.fixture(scope="session")
def calling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Real ears and a real voice, with a thinker that calls the tool it is given without being made to."""
    with _securing(tmp_path_factory.mktemp("state"), "thinker.family=tests.families.scripted.caller") as one:
        yield one


@contextmanager
def _securing(state: Path, setting: str) -> Iterator[Secured]:
    tls = ("server.tls_self_signed=true", "server.tls_port=0", f"server.state_dir={state}")
    with running(setting, *tls) as server:
        assert server.process.stdout is not None
        lines = server.process.stdout.readline() + server.process.stdout.readline()
        address, certificate = re.search(r"https://\S+:\d+", lines), re.search(r"\S+\.pem", lines)
        assert address is not None, lines
        assert certificate is not None, lines
        yield Secured(server, address[0], Path(certificate[0]))


@pytest.fixture(scope="session")
def converse(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Converse:
    """Gives the conversation of a client, by the name of its program and an argument to it (`program:argument`)."""
    held: dict[tuple[str, str], Conversation] = {}

    def conversation(name: str, server: Literal["default", "calling"] = "default") -> Conversation:
        if (name, server) not in held:
            script, *more = name.split(":")
            runs = command(script)
            secured = request.getfixturevalue(server)
            choice = "required" if server == "default" else "auto"
            held[name, server] = _hold(runs, secured, tmp_path_factory.mktemp(script), *more, choice=choice)
        return held[name, server]

    return conversation


def _hold(runs: list[str], secured: Secured, folder: Path, *more: str, choice: str) -> Conversation:
    environment = {"TOOL_CHOICE": choice}
    if more == ("tls",):
        told = run(runs, secured.url, folder, NODE_EXTRA_CA_CERTS=str(secured.certificate), **environment)
        return Conversation(told, Wire(sent=told.notes["sent"], received=told.notes["received"]), folder)
    with relaying(secured.server.ws_url) as relay:
        told = run(runs, relay.url, folder, *more, **environment)
    (wire,) = relay.wires
    return Conversation(told, wire, folder)


@pytest.fixture(scope="session")
def listener() -> Recognizer:
    """A recognizer of the test's own, to hear what the server says."""
    recognizer = Recognizer(Options())
    recognizer.load()
    return recognizer
