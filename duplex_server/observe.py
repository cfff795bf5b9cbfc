"""Sets up logging: one line for each record, with no key and, unless asked for, no spoken word in it."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterable
from typing import TextIO

REDACTED = "[key]"
# Libraries that narrate each request at "info", addresses with their queries included.
CHATTY = ("asyncio", "httpcore", "httpx", "uvicorn", "uvicorn.access", "websockets")

# How a key travels: in a header, in a WebSocket subprotocol, as a short-lived secret.
_KEY_FORMS = re.compile(r"(?i)(bearer\s+|api-key[\"':=\s]+|openai-insecure-api-key\.)[^\s,;\"']+|\bek_[\w-]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class Spoken:
    """Words that somebody said or will hear, wrapped for a log call: `log.info("heard %s", Spoken(text))`."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return f"[{len(self.text)} characters]"

    __repr__ = __str__


class LineFormatter(logging.Formatter):
    """Time, level, logger and message on one line; a traceback follows, indented.

    `keys` and whatever looks like a key is replaced. `Spoken` arguments show their words only with `log_content`.
    """

    def __init__(self, keys: Iterable[str] = (), log_content: bool = False) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
        self.default_msec_format = "%s.%03d"
        self._keys = tuple(sorted((key for key in keys if key), key=len, reverse=True))
        self._log_content = log_content

    def format(self, record: logging.LogRecord) -> str:
        if self._log_content and isinstance(record.args, tuple):
            record = logging.makeLogRecord(record.__dict__)
            record.args = tuple(a.text if isinstance(a, Spoken) else a for a in record.args or ())
        return self._redact(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:
        # A peer's text must not be able to forge a second record.
        return _CONTROL.sub(lambda found: repr(found[0])[1:-1], super().formatMessage(record))

    def formatException(self, ei: logging._SysExcInfoType) -> str:
        return "\n".join(f"    {line}" for line in super().formatException(ei).splitlines())

    def _redact(self, line: str) -> str:
        for key in self._keys:
            line = line.replace(key, REDACTED)
        return _KEY_FORMS.sub(lambda found: (found[1] or "") + REDACTED, line)


def configure(level: str, keys: Iterable[str] = (), log_content: bool = False, stream: TextIO | None = None) -> None:
    """Send all records from `level` ("debug", "info", "warning", "error") on to `stream`, standard error by default."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(LineFormatter(keys, log_content))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in CHATTY:
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        # Never "debug": there they print what passes, spoken words included.
        logger.setLevel(max(logging.WARNING, root.level))
    logging.getLogger("uvicorn.error").addFilter(_is_trouble)


def _is_trouble(record: logging.LogRecord) -> bool:
    """Uvicorn takes a handshake that we refused, with a proper answer, for one that we forgot."""
    return not record.getMessage().startswith("ASGI callable returned without completing handshake")
