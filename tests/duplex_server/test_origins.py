"""Tests which pages are let in, by what a browser says of them."""

from __future__ import annotations

import pytest

from duplex_server.origins import Origins, check_origins

KEYLESS = Origins.of((), keyless=True)


def admits(origins: Origins, origin: str | None, host: str = "127.0.0.1:8000") -> bool:
    return origins.admits({"host": host} | ({"origin": origin} if origin is not None else {}))


@pytest.mark.parametrize(
    ("origin", "host", "may"),
    [
        (None, "127.0.0.1:8000", True),
        ("", "127.0.0.1:8000", True),
        ("http://localhost:3000", "127.0.0.1:8000", True),
        ("http://[::1]:3000", "127.0.0.1:8000", True),
        ("http://192.0.2.7:8000", "192.0.2.7:8000", True),
        ("http://[2001:db8::7]:8000", "[2001:db8::7]:8000", True),
        ("http://voicebox:8000", "voicebox:8000", True),
        ("http://voicebox.local:8000", "voicebox.local:8000", True),
        ("http://VoiceBox:8000", "voicebox:8000", True),
        ("http://192.0.2.7:9000", "192.0.2.7:8000", False),
        ("http://192.0.2.8:8000", "192.0.2.7:8000", False),
        # Whoever owns the name can make it lead here.
        ("http://evil.example:8000", "evil.example:8000", False),
        ("http://localhost.evil.example", "127.0.0.1:8000", False),
        ("http://127.0.0.1.evil.example", "127.0.0.1:8000", False),
        ("http://localhost@evil.example", "127.0.0.1:8000", False),
        ("null", "127.0.0.1:8000", False),
        ("file://", "127.0.0.1:8000", False),
        ("http://[::1", "127.0.0.1:8000", False),
    ],
)
def test_without_keys_only_pages_of_this_machine_come_in(origin: str | None, host: str, may: bool) -> None:
    assert admits(KEYLESS, origin, host) is may


def test_with_keys_and_no_list_any_page_comes_in() -> None:
    keyed = Origins.of((), keyless=False)
    assert all(admits(keyed, origin) for origin in (None, "https://app.example", "null", "http://localhost"))
    assert keyed.readers({"origin": "https://app.example"}) == "*"
    assert keyed.readers({}) == "*"


@pytest.mark.parametrize("keyless", [False, True])
def test_a_list_is_kept_to(keyless: bool) -> None:
    listed = Origins.of(["https://App.Example", "null"], keyless=keyless)
    assert admits(listed, "https://app.example")
    assert admits(listed, "null")
    assert admits(listed, None)
    assert admits(listed, "http://127.0.0.1:8000"), "its own page"
    assert not admits(listed, "https://other.example")
    assert not admits(listed, "http://app.example")
    assert admits(listed, "http://localhost:3000") is keyless
    assert listed.readers({"origin": "https://app.example"}) == "https://app.example"
    assert listed.readers({"origin": "https://other.example"}) is None
    assert listed.readers({}) is None
    assert admits(Origins.of(["*"], keyless=keyless), "https://other.example")


def test_a_list_of_readers_may_be_empty() -> None:
    nobody = Origins.only([])
    assert nobody.readers({"origin": "https://app.example", "host": "h"}) is None
    assert Origins.only(["*"]).readers({"origin": "https://app.example"}) == "*"


@pytest.mark.parametrize("origin", ["*", "null", "https://a.example", "http://localhost:3000", "app://obsidian.md"])
def test_what_browsers_send_may_be_listed(origin: str) -> None:
    check_origins("allowed_origins", [origin])


@pytest.mark.parametrize("origin", ["", "a.example", "https://", "https://a.example/", "https://a.example/x", "**"])
def test_what_no_browser_sends_is_refused(origin: str) -> None:
    with pytest.raises(ValueError, match=r"allowed_origins: expected '\*' or an origin such as"):
        check_origins("allowed_origins", ["null", origin])
