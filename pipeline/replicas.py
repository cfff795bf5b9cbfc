"""Spreads the streams of one stage over its replicas; a stream stays with the one it first came to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Literal

from pipeline.chunk import Chunk, Fence, Job, Prepare, StageRole
from pipeline.errors import FailureKind
from pipeline.host import Host

Lane = Literal["live", "batch"]


class Replicas:
    """The hosts of one stage, behind the face of one.

    A stream whose replica is down moves with its next job, if another one is up: prompts are declarative, so the other
    one needs no more than a cold cache. The batch lane has replicas of its own once `grow` has brought them and `adopt`
    let them in; until then, and where there are none, it takes the live ones.
    """

    def __init__(self, role: StageRole, make: Callable[[int], Host], live: int, batch: int) -> None:
        self.role = role
        self._make, self._live_count, self._batch_count = make, live, batch
        self.live: list[Host] = [make(number) for number in range(live)]
        self.batch: list[Host] = []
        self._coming: list[Host] = []  # of the batch lane, not let in yet
        self._gated = False
        self._homes: dict[str, Host] = {}
        self._jobs: dict[Fence, Host] = {}

    @property
    def hosts(self) -> Sequence[Host]:
        """All of them that there are now, in the order of their numbers."""
        return (*self.live, *self.batch)

    @property
    def ready(self) -> bool:
        """Whether a live job submitted now would run."""
        return any(host.ready for host in self.live)

    @property
    def idle(self) -> bool:
        """Whether none of them owes anything."""
        return all(host.idle for host in self.hosts)

    async def grow(self) -> None:
        """Bring the replicas of the batch lane up, for `adopt`. Raises `StageError`; none of them is left then."""
        assert not self.batch, f"the {self.role} has its batch replicas already"
        self._coming = [self._make(self._live_count + number) for number in range(self._batch_count)]
        try:
            for host in self._coming:
                await host.start()
        except BaseException:
            await self.shrink()
            raise

    def adopt(self) -> None:
        """Let the batch lane use what `grow` has brought, from the next stream on."""
        self.batch, self._coming = self._coming, []
        for host in self.batch:
            host.gate(self._gated)

    async def shrink(self) -> None:
        """Bring down what `grow` has brought and nobody uses yet."""
        coming, self._coming = self._coming, []
        await asyncio.gather(*(host.stop() for host in coming), return_exceptions=True)

    # ---- streams ----

    def open(self, stream: str, lane: Lane) -> None:
        """Give a stream its replica: among those that are up, the one with the fewest streams."""
        hosts = self.batch if lane == "batch" and self.batch else self.live
        homes = list(self._homes.values())
        self._homes[stream] = min(hosts, key=lambda host: (not host.ready, homes.count(host)))

    def home(self, stream: str) -> int:
        """The number of the replica that the stream's next job goes to."""
        return self.hosts.index(self._home(stream))

    def forget(self, stream: str) -> None:
        """End all jobs of a stream and release what is kept for it."""
        self._homes.pop(stream, None)
        for host in self.hosts:  # it may have lived in several
            host.forget(stream)
        for fence in [fence for fence in self._jobs if fence.stream == stream]:
            del self._jobs[fence]

    # ---- jobs ----

    def submit(self, job: Job, due: float, routes: tuple[tuple[str, str], ...] = ()) -> None:
        """Start a job where its stream is at home."""
        host = self._jobs[job.fence] = self._home(job.fence.stream)
        host.submit(job, due, routes)

    def refuse(self, fence: Fence, kind: FailureKind, message: str) -> None:
        """Fail a job that can't even be submitted; the chunk follows later."""
        host = self._jobs[fence] = self._homes[fence.stream]
        host.refuse(fence, kind, message)

    def feed(self, chunk: Chunk) -> bool:
        """Hand an input to a job; false when nobody waits for that job."""
        host = self._jobs.get(chunk.fence)
        return host is not None and host.feed(chunk)

    def pace(self, fence: Fence, plays_until: float) -> None:
        """Say when what a job made will have been heard."""
        if (host := self._jobs.get(fence)) is not None:
            host.pace(fence, plays_until)

    def stall(self, fence: Fence, stalled: bool) -> None:
        """Let a job wait for those behind it, or go on."""
        if (host := self._jobs.get(fence)) is not None:
            host.stall(fence, stalled)

    def gate(self, closed: bool) -> None:
        """Hold batch work back, or let it go on."""
        self._gated = closed
        for host in self.hosts:
            host.gate(closed)

    def prepare(self, ahead: Prepare) -> None:
        """Note a prompt that is likely to come."""
        self._homes[ahead.stream].prepare(ahead)

    def cancel(self, fence: Fence) -> None:
        """End a job; no chunk of it is delivered from now on."""
        if (host := self._jobs.get(fence)) is not None:
            host.cancel(fence)

    def fail(self, fence: Fence, kind: FailureKind, message: str) -> None:
        """End a job with a `Failed` chunk, if somebody still waits for it."""
        if (host := self._jobs.get(fence)) is not None:
            host.fail(fence, kind, message)

    def over(self, fence: Fence) -> None:
        """A job is out of its stage."""
        self._jobs.pop(fence, None)

    def _home(self, stream: str) -> Host:
        host = self._homes[stream]
        others = self.batch if host in self.batch else self.live
        if not host.ready and any(other.ready for other in others):
            busy = list(self._homes.values())
            host = min((other for other in others if other.ready), key=busy.count)
            self._homes[stream] = host
        return host
