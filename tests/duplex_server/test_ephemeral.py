"""Tests the store of ephemeral keys: their life, its bounds, and that it keeps no key."""

from __future__ import annotations

import pickle

import pytest

from duplex_server import ephemeral
from duplex_server.ephemeral import EphemeralKeys, Grant
from tests.duplex_server.serving import Clock

GRANT = Grant("realtime", "m")


def store(clock: Clock) -> EphemeralKeys:
    return EphemeralKeys(lambda: clock.now)


def test_a_key_lasts_until_the_second_it_was_told_to() -> None:
    clock = Clock()
    keys = store(clock)
    clock.now += 0.7
    key, expires_at = keys.issue(GRANT, 10, 0)
    assert expires_at == 1_000_010
    clock.now = expires_at - 0.01
    assert keys.find(key) is GRANT
    clock.now = expires_at
    assert keys.find(key) is None
    assert len(keys) == 0
    clock.now = 0
    assert keys.find(key) is None, "a clock that is set back brings no key back"


def test_keys_are_random_and_none_is_kept() -> None:
    keys = EphemeralKeys(lambda: 0.0)
    made = {keys.issue(GRANT, 10, 0)[0] for _ in range(100)}
    assert len(made) == len(keys) == 100
    assert all(len(key) >= len("ek_") + 43 for key in made), "32 bytes in base64"
    kept = repr(keys._kept).encode() + pickle.dumps(list(keys._kept))
    assert not [key for key in made if key.removeprefix("ek_").encode() in kept]
    for wrong in ("", "ek_", next(iter(made))[:-1], "é"):
        assert keys.find(wrong) is None


def test_when_it_is_full_the_expired_go_first_and_then_the_oldest(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ephemeral, "MOST_KEYS", 3)
    clock = Clock()
    keys = store(clock)
    oldest, short, young = (keys.issue(GRANT, lasts_s, 0)[0] for lasts_s in (100, 10, 100))
    clock.now += 10
    fourth = keys.issue(GRANT, 100, 0)[0]
    assert [keys.find(key) is not None for key in (oldest, short, young, fourth)] == [True, False, True, True]
    assert not caplog.records
    keys.issue(GRANT, 100, 0)
    assert [keys.find(key) is not None for key in (oldest, young, fourth)] == [False, True, True]
    assert "the oldest ended early (1)" in caplog.text


def test_settings_are_bounded_by_their_size_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ephemeral, "MOST_BYTES", 1000)
    keys = EphemeralKeys(lambda: 0.0)
    small, large = keys.issue(GRANT, 10, 400)[0], keys.issue(GRANT, 10, 600)[0]
    assert keys.find(small) is GRANT
    other = keys.issue(GRANT, 10, 1)[0]
    assert keys.find(small) is None
    assert keys.find(large) is keys.find(other) is GRANT
    keys.issue(GRANT, 10, 1000)
    assert len(keys) == 1
