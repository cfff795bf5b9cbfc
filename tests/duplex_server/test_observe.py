"""Tests what log lines show and what they hide."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest

from duplex_server.observe import CHATTY, Spoken, configure

LOG = logging.getLogger("duplex_server.test")


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def _logged(
    message: str, *arguments: object, keys: tuple[str, ...] = (), log_content: bool = False, level: str = "info"
) -> str:
    stream = io.StringIO()
    configure(level, keys, log_content, stream)
    LOG.info(message, *arguments)
    return stream.getvalue()


def test_a_record_is_one_line_with_level_and_logger() -> None:
    line = _logged("session %s opened", "sess_1")
    assert line.endswith("INFO    duplex_server.test: session sess_1 opened\n")
    assert line.count("\n") == 1


def test_a_peer_cannot_forge_a_record() -> None:
    line = _logged("got %s", "x\n2026-01-01 ERROR forged\r\x1b[31m\u2028")
    assert line.count("\n") == 1
    assert "\\n2026-01-01" in line
    assert not {"\r", "\x1b", "\u2028"} & set(line)


@pytest.mark.parametrize("spoken", [Spoken("my secret diary"), (Spoken("my secret diary"),)])
def test_spoken_words_are_hidden(spoken: object) -> None:
    line = _logged("heard %s", spoken)
    assert "diary" not in line
    assert "15 characters" in line


def test_spoken_words_are_hidden_in_an_eager_string_too() -> None:
    assert "diary" not in _logged(f"heard {Spoken('my secret diary')}", log_content=True)


def test_spoken_words_show_when_asked_for() -> None:
    assert "heard my secret diary" in _logged("heard %s", Spoken("my secret diary"), log_content=True)


@pytest.mark.parametrize(
    "text",
    [
        "key-of-the-house",
        "authorization: Bearer abcdef0123",
        "api-key: abcdef0123",
        "realtime, openai-insecure-api-key.abcdef0123, x",
        "secret ek_abcdef0123",
    ],
)
def test_keys_are_hidden(text: str) -> None:
    line = _logged("header %s", text, keys=("key-of-the-house",))
    assert "[key]" in line
    assert "abcdef0123" not in line
    assert "key-of-the-house" not in line


def test_keys_are_hidden_in_a_traceback() -> None:
    stream = io.StringIO()
    configure("info", ("key-of-the-house",), stream=stream)
    try:
        raise ValueError("bad key-of-the-house")
    except ValueError:
        LOG.exception("failed")
    text = stream.getvalue()
    assert "    ValueError: bad [key]" in text
    assert "key-of-the-house" not in text


def test_the_level_holds() -> None:
    assert _logged("quiet", level="warning") == ""


def test_chatty_libraries_are_heard_from_warning_on_only() -> None:
    stream = io.StringIO()
    configure("info", stream=stream)
    logging.getLogger("httpx").info("HTTP Request: POST http://host/?key=1")
    logging.getLogger("websockets.server").info("connection open")
    logging.getLogger("httpx").warning("slow")
    assert [line.split(": ", 1)[1] for line in stream.getvalue().splitlines()] == ["slow"]


def test_libraries_that_print_what_passes_stay_quiet_even_when_debugging() -> None:
    out = io.StringIO()
    configure("debug", stream=out)
    for name in CHATTY:
        logging.getLogger(name).debug("the words of a caller")
    logging.getLogger("uvicorn.error").error("ASGI callable returned without completing handshake.")
    logging.getLogger("uvicorn.error").error("something is wrong")
    assert "the words" not in out.getvalue()
    assert "handshake" not in out.getvalue()
    assert "something is wrong" in out.getvalue()
