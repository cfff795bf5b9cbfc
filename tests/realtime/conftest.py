"""Opens sessions for tests, and holds their ends against the grammar and their journals against a replay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from duplex_server.realtime.journal import replay
from tests.realtime.talk import DEFAULTS, Talk

OpenTalk = Callable[..., Talk]


@pytest.fixture
def open_talk(tmp_path: Path) -> Iterator[OpenTalk]:
    """Opens a session with changes to the default configuration. When the test is over, each is run again exactly."""
    talks: list[Talk] = []

    def open_one(**changes: object) -> Talk:
        talks.append(Talk(msgspec.structs.replace(DEFAULTS, **changes)).open())
        return talks[-1]

    yield open_one
    for number, talk in enumerate(talks):
        path = tmp_path / f"{number}.journal"
        talk.journal.dump(path)
        ran = replay(path)
        assert ran.differs_at is None
        assert [effect for _, effect in ran.effects] == talk.done


@pytest.fixture
def talk(open_talk: OpenTalk) -> Talk:
    return open_talk()
