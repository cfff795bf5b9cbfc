"""Tests a router under any order of requests, cancels, deaths and slowness, in virtual time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.chunk import Chunk, Failed, Fence, Reply, StageRole
from pipeline.spec import PipelineSpec
from tests.pipeline.scenes import coded
from tests.pipeline.virtual import STEP_S, Pipeline, ask, codes, recognize

EVENTS = st.tuples(
    st.floats(0.0, 0.3),
    st.sampled_from(("ask", "ask", "ask", "pass", "cancel", "cancel", "close", "pace", "die", "slow")),
    st.integers(0, 7),
)


class Life:
    """Carries out a script, and knows what each stream may still be told."""

    def __init__(self, spec: PipelineSpec) -> None:
        self.pipeline = Pipeline(spec)
        self.heard = {stream: self.pipeline.open(stream) for stream in "st"}
        self.open: list[Fence] = []
        self.over: dict[Fence, int] = {}  # cancelled, or of a stream that was closed: how much was told by then
        self.epoch = 0

    def told(self, fence: Fence) -> list[Chunk]:
        return [chunk for chunk in self.heard[fence.stream] if chunk.fence == fence]

    def drop(self, fence: Fence) -> None:
        self.open.remove(fence)
        self.over[fence] = len(self.told(fence))

    def act(self, what: str, number: int) -> None:
        pipeline, router, stream = self.pipeline, self.pipeline.router, "st"[number % 2]
        self.epoch += 1
        match what:
            case "ask":
                self.open.append(ask(pipeline, self.epoch, f"say {'word ' * (1 + 3 * number)}", stream))
            case "pass" if all(free > 1 for name, (free, _) in pipeline.credits().items() if "audio" in name):
                self.open.append(recognize(pipeline, self.epoch, stream, final=number % 3 > 0))
            case "cancel" if self.open:
                fence = self.open[number % len(self.open)]
                router.cancel(fence)
                self.drop(fence)
            case "close":
                router.close(stream)
                for fence in [fence for fence in self.open if fence.stream == stream]:
                    self.drop(fence)
                router.open(stream, self.heard[stream].append)
            case "pace":
                for fence in self.open:
                    if isinstance(fence, Reply):
                        router.pace(fence, pipeline.clock.now + number)
            case "die":
                roles: tuple[StageRole, ...] = ("recognizer", "thinker", "talker", "vocoder")
                role = roles[number % 4]
                links = pipeline.parts[role].links
                if pipeline._spec.stages[role].placement == "process":
                    links[number % len(links)].die(away_s=0.1 * (1 + number))
            case "slow":
                for link in pipeline.parts["vocoder"].links:
                    link.step_s = STEP_S * (1 + 10 * (number % 3))


SPECS = {
    "threads": coded(coder=codes(), bound=2, slots=3),
    "processes": coded("process", coder=codes(), bound=2, slots=3),
    "mixed": coded("process", coder_placement="inline", coder=codes(), bound=3, slots=2),
    "inline": coded("process", coder=codes(), bound=2, transport="inline"),
    "dropping": coded("process", coder=codes(), bound=2, policy="drop_oldest", slots=8),
    "replicas": coded("process", coder=codes(), bound=2, slots=3, replicas=2),
}


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@settings(max_examples=40, deadline=None)
@given(script=st.lists(EVENTS, max_size=25))
def test_whatever_comes_each_job_ends_once_and_every_credit_comes_back(
    spec: PipelineSpec, script: list[tuple[float, str, int]]
) -> None:
    life = Life(spec)
    for seconds, what, number in script:
        life.pipeline.run(seconds)
        life.act(what, number)
    for link in (link for part in life.pipeline.parts.values() for link in part.links):
        link.step_s = STEP_S
    for fence in life.open:
        life.pipeline.router.pace(fence, 0.0) if isinstance(fence, Reply) else None
    life.pipeline.run(300.0)
    for fence, count in life.over.items():
        assert len(life.told(fence)) == count, "something came after the cancel"
    for fence in life.open:
        roles = ("thinker", "talker") if isinstance(fence, Reply) else ("recognizer",)
        for role in roles:
            chunks = [chunk for chunk in life.told(fence) if chunk.role == role]
            assert [chunk.last for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
            assert [chunk.seq for chunk in chunks] == list(range(len(chunks)))
            if isinstance(chunks[-1].payload, Failed):
                assert chunks[-1].payload.kind == "stage_lost", chunks[-1].payload
    life.pipeline.shut()
