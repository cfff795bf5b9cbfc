"""Starts the servers that the end-to-end tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from models.whisper.family import Options
from models.whisper.recognizer import Recognizer
from tests.e2e.server import Server, running

SCRIPTED = (
    "thinker.family=tests.families.scripted.thinker",
    "talker.family=tests.families.scripted.talker",
)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """The server as it comes, with its real models; its answers are kept short, for they are heard in real time."""
    with running("session.max_reply_tokens=48") as one:
        yield one


@pytest.fixture(scope="session")
def eager() -> Iterator[Server]:
    """The real models again, sending far ahead of hearing, so that a test need not listen to whole answers."""
    with running("session.max_reply_tokens=48", "session.run_ahead_ms=60000") as one:
        yield one


@pytest.fixture(scope="session")
def scripted() -> Iterator[Server]:
    """Real ears, a thinker that does as it is told, a talker of tones: 300 ms a word."""
    with running(*SCRIPTED) as one:
        yield one


@pytest.fixture(scope="session")
def listener() -> Recognizer:
    """A recognizer of the test's own, to hear what the server says."""
    recognizer = Recognizer(Options())
    recognizer.load()
    return recognizer
