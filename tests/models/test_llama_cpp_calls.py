"""Function calls by the llama.cpp thinker with the real SmolLM2: those that must be made are valid."""

from __future__ import annotations

import json
from collections.abc import Iterator

import jsonschema
import pytest

from models.llama_cpp.engine import Engine
from models.llama_cpp.thinker import LlamaThinker, Options
from models.runtime.call_ids import MOST_CHARS
from pipeline.chunk import (
    CallDelta,
    CallPart,
    Chunk,
    End,
    Part,
    Prompt,
    Reply,
    ResultPart,
    Text,
    TextPart,
    Think,
    Tool,
    ToolChoice,
    ToolNamed,
)
from pipeline.errors import StageError
from pipeline.stage import Work
from tests.models.tool_schemas import SCHEMAS

SMALL = Options(context_tokens=2048, cache_tokens=4096, sequences=4, batch=2, micro_batch_tokens=64, threads=1)
SYSTEM = TextPart("instructions", "system", "You are a helpful voice assistant. Answer in one short sentence.")
ASKED = TextPart("u", "user", "Do it for the kitchen in Paris, please, two of them, tomorrow at noon.")


@pytest.fixture(scope="module")
def loaded() -> LlamaThinker:
    stage = LlamaThinker(SMALL)
    stage.load()
    return stage


@pytest.fixture
def thinker(loaded: LlamaThinker) -> Iterator[LlamaThinker]:
    yield loaded
    loaded.forget("a")
    loaded.forget("b")


def tool(name: str) -> Tool:
    return Tool(name, f"Does what is asked about {name}.", json.dumps(SCHEMAS[name]))


LIGHT, WEATHER = tool("light"), tool("weather")


def think(*parts: Part, tools: tuple[Tool, ...], choice: ToolChoice, epoch: int = 1, most: int = 300) -> Think:
    return Think(Reply("a", epoch), Prompt((SYSTEM, *(parts or (ASKED,))), tools), most, tool_choice=choice)


def run(stage: LlamaThinker, *jobs: Think, most_steps: int = 400) -> dict[Reply, list[Chunk]]:
    for job in jobs:
        stage.admit(job)
    chunks: dict[Reply, list[Chunk]] = {job.fence: [] for job in jobs}
    live = [job.fence for job in jobs]
    for _ in range(most_steps):
        if not live:
            return chunks
        for chunk in stage.step([Work(fence) for fence in live]).chunks:
            assert isinstance(chunk.fence, Reply)
            assert chunk.seq == len(chunks[chunk.fence])
            chunks[chunk.fence].append(chunk)
            if chunk.last:
                live.remove(chunk.fence)
    raise AssertionError(f"{live} are not over after {most_steps} steps")


def text_of(chunks: list[Chunk]) -> str:
    return "".join(chunk.payload.text for chunk in chunks if isinstance(chunk.payload, Text))


def calls_of(chunks: list[Chunk]) -> list[tuple[str, str]]:
    """The calls that were made, by name and arguments."""
    found: dict[str, tuple[str, str]] = {}
    for chunk in chunks:
        if isinstance(chunk.payload, CallDelta):
            name, arguments = found.get(chunk.payload.call_id, (chunk.payload.name, ""))
            assert len(chunk.payload.call_id) <= MOST_CHARS
            found[chunk.payload.call_id] = (name, arguments + chunk.payload.arguments)
    return list(found.values())


def end_of(chunks: list[Chunk]) -> End:
    end = chunks[-1].payload
    assert isinstance(end, End)
    return end


@pytest.mark.parametrize("name", SCHEMAS)
def test_check_126_a_call_that_must_be_made_is_valid(thinker: LlamaThinker, name: str) -> None:
    choices: list[ToolChoice] = ["required", ToolNamed(name)]
    for epoch, choice in enumerate(choices):
        job = think(tools=(tool(name),), choice=choice, epoch=epoch)
        chunks = run(thinker, job)[job.fence]
        ((called, arguments),) = calls_of(chunks)
        assert called == name
        jsonschema.validate(json.loads(arguments), SCHEMAS[name], jsonschema.Draft202012Validator)
        assert text_of(chunks) == ""
        assert end_of(chunks).finish == "stop"


def test_check_126_the_function_that_is_named_is_called_whatever_is_asked(thinker: LlamaThinker) -> None:
    for epoch, wanted in enumerate((LIGHT, WEATHER)):
        asked = TextPart("u", "user", "What is the weather in Paris?")
        job = think(asked, tools=(WEATHER, LIGHT), choice=ToolNamed(wanted.name), epoch=epoch)
        ((called, arguments),) = calls_of(run(thinker, job)[job.fence])
        assert called == wanted.name
        jsonschema.validate(json.loads(arguments), SCHEMAS[wanted.name])


@pytest.mark.parametrize("temperature", [0.8, 1.2])
def test_check_126_a_drawn_call_is_valid_too_and_another_each_time(thinker: LlamaThinker, temperature: float) -> None:
    made = set()
    for epoch in range(3):
        job = Think(Reply("a", epoch), Prompt((SYSTEM, ASKED), (tool("meeting"),)), 300, temperature, "required")
        ((_, arguments),) = calls_of(run(thinker, job)[job.fence])
        jsonschema.validate(json.loads(arguments), SCHEMAS["meeting"])
        made.add(arguments)
    assert len(made) > 1


def test_check_126_one_of_the_tools_is_called_as_it_is_asked_for(thinker: LlamaThinker) -> None:
    for words, name in (("What is the weather in Rome?", "weather"), ("Switch on the lamp in the kitchen.", "light")):
        job = think(TextPart("u", "user", words), tools=(WEATHER, LIGHT), choice="required")
        ((called, arguments),) = calls_of(run(thinker, job)[job.fence])
        assert called == name
        assert json.loads(arguments)[{"weather": "city", "light": "room"}[name]].lower() in ("rome", "kitchen")


def test_check_126_no_call_is_made_where_none_may_be(thinker: LlamaThinker) -> None:
    job = think(TextPart("u", "user", "What is the weather in Paris?"), tools=(WEATHER, LIGHT), choice="none")
    chunks = run(thinker, job)[job.fence]
    assert calls_of(chunks) == []
    assert text_of(chunks).strip()[0].isalnum()


def test_check_124_the_result_of_a_call_is_used(thinker: LlamaThinker) -> None:
    asked = TextPart("u", "user", "What is the weather in Paris?")
    call = CallPart("c", "c1", "weather", '{"city": "Paris"}')
    result = ResultPart("r", "c1", '{"temperature": 31, "sky": "sunny"}')
    job = think(asked, call, result, tools=(WEATHER, LIGHT), choice="none")
    said = text_of(run(thinker, job)[job.fence])
    assert "sunny" in said or "31" in said
    job = think(asked, call, result, tools=(WEATHER, LIGHT), choice="auto", epoch=2)
    chunks = run(thinker, job)[job.fence]
    assert "tool_" not in text_of(chunks)
    assert "{" not in text_of(chunks)[:1]


def test_tools_cost_the_cache_nothing_whatever_the_choice(thinker: LlamaThinker) -> None:
    choices: list[ToolChoice] = ["auto", "none", "required", ToolNamed("light")]
    for epoch, choice in enumerate(choices):
        job = think(tools=(WEATHER, LIGHT), choice=choice, epoch=epoch, most=60)
        usage = end_of(run(thinker, job)[job.fence]).usage
        assert usage is not None
        assert usage.cached_tokens == (0 if epoch == 0 else usage.input_tokens - 1)


def test_what_must_come_costs_no_step(thinker: LlamaThinker) -> None:
    job = think(tools=(LIGHT,), choice="required")
    thinker.admit(job)
    steps = 0
    while job.fence in thinker._replies:
        thinker.step([Work(job.fence)])
        steps += 1
    usage = end_of(run(thinker, think(tools=(LIGHT,), choice="required", epoch=2))[Reply("a", 2)]).usage
    assert usage is not None
    assert steps < usage.output_tokens


@pytest.mark.parametrize("most", [1, 5, 25])
def test_check_133_a_bound_in_a_call_is_told(thinker: LlamaThinker, most: int) -> None:
    job = think(tools=(tool("order"),), choice="required", most=most)
    chunks = run(thinker, job)[job.fence]
    assert end_of(chunks).finish == "length"
    for _, arguments in calls_of(chunks):
        with pytest.raises(json.JSONDecodeError):
            json.loads(arguments)


def test_a_call_that_leaves_no_choice_is_made_without_a_step_of_the_model(
    thinker: LlamaThinker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "decode", None)  # nothing is to be computed
    job = think(tools=(tool("nothing"),), choice="required")
    assert calls_of(run(thinker, job)[job.fence]) == [("nothing", "{}")]


def test_one_calls_while_another_speaks(thinker: LlamaThinker) -> None:
    calls = think(tools=(tool("order"),), choice="required")
    speaks = Think(Reply("b", 1), Prompt((SYSTEM, TextPart("u", "user", "What is the capital of France?"))), 24)
    chunks = run(thinker, calls, speaks)
    assert "Paris" in text_of(chunks[speaks.fence])
    ((_, arguments),) = calls_of(chunks[calls.fence])
    jsonschema.validate(json.loads(arguments), SCHEMAS["order"])


def test_a_schema_that_can_not_be_kept_fails_only_where_it_would_have_to_be(thinker: LlamaThinker) -> None:
    plate = Tool("plate", "", '{"type":"object","properties":{"number":{"type":"string","pattern":"^[A-Z]+$"}}}')
    for choice in ("required", ToolNamed("plate")):
        with pytest.raises(StageError, match=r"the tool 'plate'.*`pattern` at number.pattern"):
            thinker.admit(think(tools=(plate,), choice=choice))
    job = think(TextPart("u", "user", "What is the capital of France?"), tools=(plate,), choice="auto")
    assert "Paris" in text_of(run(thinker, job)[job.fence])


def test_a_call_that_the_model_begins_by_itself_becomes_one(
    thinker: LlamaThinker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The small model hardly ever does, so it is made to: its likeliest tokens are given."""
    for written, before in (
        (["Let me look. <tool_call>"], "Let me look. "),
        (["<t", "o", "ol", "_c", "al", "l>"], ""),  # in other tokens than those that stay
        (['{"name"'], ""),
    ):
        given = [token for text in written for token in thinker._loaded().tokenize(text, special=False)]
        monkeypatch.setattr("models.llama_cpp.reply.Writing.open", lambda *_, given=given: given.pop(0))
        monkeypatch.setattr("models.llama_cpp.engine.Sampler.sample", lambda *_, given=given: given.pop(0))
        job = think(TextPart("u", "user", "What is the weather in Rome?"), tools=(WEATHER,), choice="auto")
        chunks = run(thinker, job)[job.fence]
        monkeypatch.undo()
        assert text_of(chunks) == before
        ((called, arguments),) = calls_of(chunks)
        assert called == "weather"
        jsonschema.validate(json.loads(arguments), SCHEMAS["weather"])
        slot = next(slot for slot in thinker._pool._slots if slot.stream == "a")
        assert thinker._loaded().length(slot.seq) == len(slot.tokens)
        assert '<tool_call>\n{"name": "weather", "arguments": {' in thinker._loaded().text(slot.tokens)
