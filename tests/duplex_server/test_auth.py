"""Tests who is let in by which key."""

from __future__ import annotations

import hmac

import pytest

from duplex_server import auth
from duplex_server.auth import ANYTHING, Door
from duplex_server.ephemeral import EphemeralKeys, Grant


def test_any_of_several_keys_opens_and_nothing_else_does() -> None:
    keys = ("sk-one", "sk-two")
    assert all(auth.allowed(key, keys) for key in keys)
    for wrong in (None, "", "sk-", "sk-on", "sk-one ", "sk-onesk-two", "sk-öne"):
        assert not auth.allowed(wrong, keys)
    assert auth.allowed(None, ())


def test_every_key_is_compared_whatever_the_first_is(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[int, int]] = []

    def compare(left: bytes, right: bytes) -> bool:
        compared.append((len(left), len(right)))
        return left == right

    monkeypatch.setattr(hmac, "compare_digest", compare)
    for key in ("sk-one", "sk-three-which-is-long", "x", None):
        compared.clear()
        auth.allowed(key, ("sk-one", "sk-two-longer", "sk-three-which-is-long"))
        assert compared == [(32, 32)] * 3, "digests, which do not tell the length of a key"


@pytest.mark.parametrize(
    ("headers", "key"),
    [
        ({"authorization": "Bearer k"}, "k"),
        ({"authorization": "bearer  k "}, "k"),
        ({"api-key": "k"}, "k"),
        ({"authorization": "Basic x", "api-key": "k"}, "k"),
        ({"authorization": "Bearer k", "api-key": "other"}, "k"),
        ({"authorization": "Bearer "}, None),
        ({}, None),
    ],
)
def test_where_a_key_is_found_in_headers(headers: dict[str, str], key: str | None) -> None:
    assert auth.header_key(headers) == key


def test_a_key_with_the_prefix_of_ephemeral_ones_is_looked_for_among_those_alone() -> None:
    ephemeral = EphemeralKeys(lambda: 0.0)
    grant = Grant("transcription")
    key, _ = ephemeral.issue(grant, 10, 0)
    for keys in (("sk-one",), ()):
        door = Door(keys, ephemeral)
        assert door.admit(key) is grant
        assert door.admit("ek_unknown") is None
        assert door.admit("sk-one") is ANYTHING
        assert (door.admit("sk-two") is None) is bool(keys)
        assert (door.admit(None) is None) is bool(keys)
        assert door.may_issue(key) is not bool(keys)
        assert door.may_issue("sk-one")


@pytest.mark.parametrize("key", ["", " ", "a b", "a,b", "k\n", "schlüssel", "ek_mine"])
def test_what_can_be_no_key_is_refused_without_telling_it(key: str) -> None:
    with pytest.raises(ValueError, match=r"api_keys: key 2 ") as refused:
        auth.check_keys(["sk-one", key])
    assert len(key) < 3 or key not in str(refused.value)
