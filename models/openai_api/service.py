"""Knows where an OpenAI-compatible service is, its key, and how to say what went wrong with it."""

from __future__ import annotations

import os
import re
from typing import Final

import httpx
import msgspec

from models.openai_api.family import Options
from models.openai_api.sse import EventTooLong
from models.openai_api.wire import error_message
from pipeline.errors import FailureKind, StageError

KEEPALIVE_S: Final = 30.0  # a connection is kept for the next turn; one the server closed is dialled again
UNSUPPORTED = (404, 405, 501)  # the probe's address is optional
TOO_LONG_STATUSES = (400, 413, 422)
TOO_LONG = re.compile(
    rb"context[ _](length|window|size)|maximum context|(prompt|input)[^\"]{0,40} too long", re.IGNORECASE
)
"""How services say that a prompt does not fit; each has words of its own."""


class Service:
    """One service: builds the client, and turns its refusals into `StageError`s that never hold the key."""

    def __init__(self, options: Options) -> None:
        """Check the options. Raises `StageError`."""
        if not options.base_url.startswith(("http://", "https://")):
            raise StageError(f"base_url is {options.base_url!r}, expected http://... or https://...")
        if not options.model:
            raise StageError("openai_api has no model; set the option `model` to one the service offers")
        self._options = options
        self._key = (options.api_key or os.environ.get(options.api_key_env, "")).strip()
        if not (self._key.isascii() and self._key.isprintable()):
            raise StageError("the API key holds characters that a header can't carry; copy it again")
        self._base = options.base_url.rstrip("/")
        self._shown = str(httpx.URL(self._base).copy_with(userinfo=b""))

    def client(self) -> httpx.AsyncClient:
        """A client with the key and the time limits that concern connecting."""
        connect_s = self._options.connect_timeout_ms / 1000
        return httpx.AsyncClient(
            headers={"Authorization": f"Bearer {self._key}"} if self._key else None,
            timeout=httpx.Timeout(None, connect=connect_s, write=connect_s, pool=connect_s),
            limits=httpx.Limits(
                max_connections=2 * self._options.slots,  # cancelled ones take a moment to close
                max_keepalive_connections=self._options.slots,
                keepalive_expiry=KEEPALIVE_S,
            ),
        )

    def url(self, path: str) -> str:
        """The full address of a path."""
        return f"{self._base}/{path}"

    async def probe(self, client: httpx.AsyncClient) -> None:
        """See that the service answers and takes the key. Raises `StageError`."""
        timeout_s = (self._options.connect_timeout_ms + self._options.first_byte_timeout_ms) / 1000
        try:
            response = await client.get(self.url("models"), timeout=timeout_s)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise self.failure(error) from error
        if response.is_error and response.status_code not in (*UNSUPPORTED, 429):
            raise self.refusal(response.status_code, response.content)

    def refusal(self, status: int, body: bytes) -> StageError:
        """What a status other than success means."""
        said = f"{status}: {error_message(body) or 'no message'}"
        if status in TOO_LONG_STATUSES and TOO_LONG.search(body):
            return self.error(f"finds the prompt too long ({said})", "context_full")
        match status:
            case 401 | 403:
                env = self._options.api_key_env
                return self.error(f"refused the key ({said}); set {env} or the option `api_key`")
            case 404:
                model = self._options.model
                return self.error(f"has no model {model!r} or no such address ({said}); check `model` and `base_url`")
            case 429 | 503:
                return self.error(f"has no capacity left ({said})", "capacity")
            case 408 | 504:
                return self.error(f"took too long ({said})", "stage_timeout")
        return self.error(f"failed ({said})" if status >= 500 else f"refused the request ({said})")

    def failure(self, error: Exception) -> StageError:
        """What an error of the connection, or in the stream, means."""
        reason = str(error) or type(error).__name__
        match error:
            case StageError():
                return self.error(error.message, error.kind)
            case httpx.ConnectTimeout() | httpx.PoolTimeout():
                limit = self._options.connect_timeout_ms
                return self.error(f"did not accept a connection within {limit} ms", "stage_timeout")
            case httpx.TimeoutException():
                return self.error(f"timed out ({type(error).__name__})", "stage_timeout")
            case httpx.ConnectError() | httpx.UnsupportedProtocol() | httpx.InvalidURL():
                return self.error(f"can't be reached ({reason}); check `base_url` and that it runs")
            case httpx.RemoteProtocolError() | httpx.ReadError() | httpx.WriteError():
                return self.error(f"cut the connection ({reason})")
            case msgspec.DecodeError() | UnicodeDecodeError():
                return self.error(f"sent an event that is no chat completion chunk ({reason})")
            case EventTooLong():
                return self.error(f"sent nonsense: {reason}")
        return self.error(f"failed ({type(error).__name__}: {reason})")

    def error(self, what: str, kind: FailureKind = "stage_failed") -> StageError:
        """An error about this service."""
        message = f"the thinker's service {self._shown} {what}"
        return StageError(message.replace(self._key, "[key]") if self._key else message, kind)
