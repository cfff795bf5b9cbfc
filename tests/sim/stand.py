"""Is the host of a stage in virtual time, and watches what is asked of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pipeline.chunk import Chunk, Failed, Fence, Job, StageRole, Transcribe
from pipeline.errors import FailureKind
from pipeline.host import Host
from tests.sim.clock import Clock
from tests.sim.machines import Machine
from transport.base import Ref


@dataclass(slots=True)
class Lane:
    """The replicas that the streams of one lane may be at home in, and where each stream is."""

    stands: list[Stand] = field(default_factory=list)
    homes: dict[str, Stand] = field(default_factory=dict)


class Stand(Host):
    """A `Host` whose timers run in virtual time; one of a lane's."""

    def __init__(
        self,
        role: StageRole,
        machine: Machine,
        clock: Clock,
        lane: Lane,
        *,
        deliver: Callable[[Chunk], None],
        taken: Callable[[Fence, int], None],
        over: Callable[[Fence], None],
        stale: Callable[[Chunk], None],
    ) -> None:
        super().__init__(role, machine, deliver=self._hand_on, taken=taken, over=self._let_go, stale=stale)
        self._loop = clock  # type: ignore[assignment]  # of the loop a host uses `time`, `call_later` and `call_soon` alone
        self._clock, self._lane, self._hand_over, self._tell_over = clock, lane, deliver, over
        self.machine = machine
        self.jobs: dict[Fence, int] = {}
        """What the stage may still hold, each with how many chunks of it came."""
        self._gone: tuple[Fence, int] | None = None  # the job that was over last
        self._known: set[Fence] = set()
        self._refused: dict[Fence, float] = {}  # jobs that a broken stage was asked for
        lane.stands.append(self)

    async def start(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Bring the stage up, at once."""
        self.back(self.machine.begin(self))

    # ---- what is asked of it --------------------------------------------------------------------------------------

    def submit(self, job: Job, due: float, routes: tuple[tuple[str, str], ...] = ()) -> None:
        fence = job.fence
        self._at_home(fence.stream)
        planes = self.machine.planes
        for port, plane in routes:
            assert plane in planes.senders, f"what {fence} gives on {port} would go by {plane}, which begins elsewhere"
        if isinstance(job, Transcribe) and isinstance(job.audio, Ref):
            assert job.audio.plane in planes.receivers, f"the sound of {fence} lies in {job.audio.plane}"
        self._take_in(fence)
        super().submit(job, due, routes)
        if self.machine.given_up is not None:
            self._refused[fence] = self._clock.now

    def refuse(self, fence: Fence, kind: FailureKind, message: str) -> None:
        if fence not in self.jobs:  # a broken stage refuses what it was asked for
            self._at_home(fence.stream)
            self._take_in(fence)
        super().refuse(fence, kind, message)

    def _take_in(self, fence: Fence) -> None:
        assert fence not in self._known, f"{fence} came to the {self.role} before"
        self._known.add(fence)
        self.jobs[fence] = 0

    def _at_home(self, stream: str) -> None:
        """A stream stays with its replica while that one is up, and waits for none while another one is."""
        before = self._lane.homes.get(stream, self)
        assert before is self or not before.ready, f"{stream} left a {self.role} that is up"
        assert self.ready or not any(mate.ready for mate in self._lane.stands), (
            f"{stream} waits for a {self.role} that is down, another one is up"
        )
        self._lane.homes[stream] = self

    def feed(self, chunk: Chunk) -> bool:
        assert chunk.fence in self._known, f"what is meant for {chunk.fence} goes to another {self.role} than its job"
        return super().feed(chunk)

    def cancel(self, fence: Fence) -> None:
        self._refused.pop(fence, None)
        super().cancel(fence)

    def _let_go(self, fence: Fence) -> None:
        assert fence in self.jobs, f"the {self.role} lets go of {fence} twice"
        self._gone = fence, self.jobs.pop(fence)
        self._tell_over(fence)

    def _hand_on(self, chunk: Chunk) -> None:
        fence = chunk.fence
        before = self.jobs.get(fence)
        if before is not None:
            self.jobs[fence] = chunk.seq + 1
        elif self._gone is not None and self._gone[0] == fence:  # with its last chunk it is over
            before = self._gone[1]
        assert chunk.seq == before, f"chunk {chunk.seq} of {fence} comes from the {self.role} after {before} others"
        if self._refused.pop(fence, None) is not None:
            assert isinstance(chunk.payload, Failed), f"the {self.role} is broken, and gives {chunk}"
            assert str(self.machine.given_up) in chunk.payload.message, "a broken stage does not say why"
        self._hand_over(chunk)

    # ---- what can be seen of it -----------------------------------------------------------------------------------

    def live(self, stream: str) -> bool:
        """Whether anybody waits for a job of a stream."""
        return any(fence.stream == stream for fence in self._live)

    def check(self) -> None:
        """Who asks a broken stage waits for nothing."""
        late = [fence for fence, asked in self._refused.items() if asked < self._clock.now]
        assert not late, f"jobs wait for a {self.role} that is broken: {late}"
        self.machine.check()
