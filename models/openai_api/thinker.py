"""Serves thinking jobs from an OpenAI-compatible service, one streamed request each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import httpx

from models.openai_api.family import Options
from models.openai_api.reply import ReplyReader
from models.openai_api.service import Service
from models.openai_api.sse import EventSplitter
from models.openai_api.window import Window
from models.openai_api.wire import read_event, request_body
from pipeline.chunk import Chunk, Failed, Fence, Job, Payload, Think
from pipeline.errors import StageError

DONE = b"[DONE]"
MAX_EVENTS = 200_000  # of one reply; a service that goes on after that has lost its token limit
CUTS = 4  # a prompt that was refused as too long is tried again with a third less each time
DRAIN_MS = 500  # to read what follows the reply's end
MAX_REFUSAL_BYTES = 64 * 1024  # of a refusal's body that is read


@dataclass(slots=True)
class _Running:
    """A job under way."""

    fence: Fence
    emit: Callable[[Chunk], None]
    refused: bool = False  # there was no slot for it
    task: asyncio.Task[None] | None = None
    seq: int = 0
    events: int = 0
    wait_ms: int = 0  # the wait that runs now
    fresh: bool = False  # its request went over a newly dialled connection
    over: bool = False  # its last chunk is out


class Thinker:
    """A served thinker. A job's every failure ends in one `Failed` chunk that says the cause."""

    def __init__(self, options: Options) -> None:
        """Take the options; `load` connects."""
        self._options = options
        self._window = Window(options.context_tokens)
        self._service: Service | None = None
        self._client: httpx.AsyncClient | None = None
        self._running: dict[Fence, _Running] = {}
        self._closing: set[asyncio.Task[None]] = set()  # over, still reading or closing their stream

    @property
    def slots(self) -> int:
        """How many jobs it takes at once."""
        return self._options.slots

    async def load(self) -> None:
        """Check the options and, if asked to, that the service answers and takes the key. Raises `StageError`."""
        service = Service(self._options)
        client = service.client()
        if self._options.probe:
            try:
                await service.probe(client)
            except StageError:
                await client.aclose()
                raise
        self._service, self._client = service, client

    def submit(self, job: Job, emit: Callable[[Chunk], None]) -> None:
        """Start a job. Chunks come from the event loop later, never from within this call."""
        # A cancelled job's slot is free at once, and a refused one takes none.
        full = sum(not other.refused for other in self._running.values()) >= self._options.slots
        running = _Running(job.fence, emit, refused=full)
        self._running[job.fence] = running
        running.task = asyncio.create_task(self._run(job, running))

    def cancel(self, fence: Fence) -> None:
        """Close a job's stream; no chunk of it is emitted afterwards."""
        running = self._running.get(fence)
        if running is not None and running.task is not None:
            self._release(running)
            running.task.cancel()

    def forget(self, stream: str) -> None:
        """Stop what still runs for a stream; nothing else is kept."""
        for fence in [fence for fence in self._running if fence.stream == stream]:
            self.cancel(fence)

    async def close(self) -> None:
        """Stop all jobs and close the connections."""
        for fence in list(self._running):
            self.cancel(fence)
        for task in self._closing:
            task.cancel()
        await asyncio.gather(*self._closing, return_exceptions=True)
        if self._client is not None:
            await self._client.aclose()

    # ---- one job --------------------------------------------------------------------------------------------------

    async def _run(self, job: Job, running: _Running) -> None:
        assert self._service is not None, "submit before load"
        try:
            if not isinstance(job, Think):
                raise StageError(f"got a {type(job).__name__} job and takes Think")
            if running.refused:
                raise StageError(f"has all its {self.slots} slots in use; raise `slots`, or try later", "capacity")
            await self._converse(job, running)
        except Exception as error:  # the task's root: whatever went wrong ends this job and nothing else
            failure = self._service.failure(error)
            self._finish(running, Failed(failure.kind, failure.message))

    async def _converse(self, job: Think, running: _Running) -> None:
        """One reply. A prompt that the service finds too long is cut further, a few times."""
        sent = self._window.cut(job)
        for _ in range(CUTS):
            try:
                await self._ask(sent, running)
                return
            except StageError as error:
                if error.kind != "context_full" or running.seq:
                    raise
                self._window.refused(sent)
                shorter = self._window.cut(job)
                if len(shorter.prompt.parts) >= len(sent.prompt.parts):
                    raise
                sent = shorter
        await self._ask(sent, running)

    async def _ask(self, job: Think, running: _Running) -> None:
        body = request_body(job, self._options)
        try:
            await self._stream(body, ReplyReader(job.fence, one_call=not job.parallel_calls), running)
        except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
            # The service may close a kept connection just when the next request goes out over it.
            if running.fresh or running.seq > 0:
                raise
            await self._stream(body, ReplyReader(job.fence, one_call=not job.parallel_calls), running)

    async def _stream(self, body: bytes, reader: ReplyReader, running: _Running) -> None:
        """One request. Raises `StageError` and what the HTTP client and the decoder raise."""
        assert self._client is not None, "submit before load"
        assert self._service is not None, "submit before load"

        async def trace(name: str, _: object) -> None:
            running.fresh = running.fresh or name.startswith("connection.connect_tcp")

        running.wait_ms = self._options.connect_timeout_ms + self._options.first_byte_timeout_ms
        try:
            async with (
                asyncio.timeout(running.wait_ms / 1000) as clock,
                self._client.stream(
                    "POST",
                    self._service.url("chat/completions"),
                    content=body,
                    headers={"Content-Type": "application/json", "Accept": "text/event-stream"},
                    extensions={"trace": trace},
                ) as response,
            ):
                await self._check(response)
                await self._read(response, reader, running, clock)
        except TimeoutError as error:
            if not running.over:
                what = "went silent in the middle of the reply" if running.events else "sent nothing"
                raise StageError(f"{what} for {running.wait_ms} ms", "stage_timeout") from error

    async def _check(self, response: httpx.Response) -> None:
        """Raises `StageError` unless a stream of events follows."""
        assert self._service is not None, "submit before load"
        if not response.is_success:
            body = b""
            async for received in response.aiter_bytes():
                body += received
                if len(body) > MAX_REFUSAL_BYTES:
                    break
            raise self._service.refusal(response.status_code, body)
        kind = response.headers.get("content-type", "")
        if "json" in kind:
            raise StageError(f"answered with {kind}, expected text/event-stream; it doesn't stream")

    async def _read(
        self, response: httpx.Response, reader: ReplyReader, running: _Running, clock: asyncio.Timeout
    ) -> None:
        """Emit what the stream holds. `clock` is set anew by every event, so that it measures silence."""
        loop = asyncio.get_running_loop()
        splitter = EventSplitter()
        async for received in response.aiter_bytes():
            if running.over:
                continue
            for data in splitter.feed(received):
                if data.strip() == DONE:
                    # Only a response read to its end leaves the connection to the next reply.
                    self._finish(running, reader.end())
                    clock.reschedule(loop.time() + DRAIN_MS / 1000)
                    break
                for payload in reader.read(read_event(data)):
                    self._emit(running, payload)
                running.events += 1
                running.wait_ms = self._options.between_timeout_ms
                clock.reschedule(loop.time() + running.wait_ms / 1000)
            if running.events > MAX_EVENTS:
                raise StageError(f"sent more than {MAX_EVENTS} events without an end")
        if not running.over:
            self._finish(running, reader.end())

    def _emit(self, running: _Running, payload: Payload, *, last: bool = False) -> None:
        if self._running.get(running.fence) is running:
            running.emit(Chunk(running.fence, "thinker", running.seq, payload, last=last))
            running.seq += 1

    def _finish(self, running: _Running, payload: Payload) -> None:
        """Emit the last chunk; the task may still have to read its response to the end."""
        self._emit(running, payload, last=True)
        running.over = True
        if self._running.get(running.fence) is running:
            self._release(running)

    def _release(self, running: _Running) -> None:
        del self._running[running.fence]
        assert running.task is not None
        self._closing.add(running.task)
        running.task.add_done_callback(self._closing.discard)
