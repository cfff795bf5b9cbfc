"""Tests how a graph is completed from what its stages take and give, and which ones are refused."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec
import pytest

from pipeline.chunk import StageRole
from pipeline.errors import ConfigError
from pipeline.graph import complete, nearest
from pipeline.spec import ROLE_PORTS, EdgeSpec, Family, PipelineSpec, Placement, Ports, StageSpec
from tests.pipeline.scenes import SCRIPTED, load_family

THINKER = load_family(f"{SCRIPTED}.thinker")
CODER = Ports(("text",), ("codes",))


def edge(name: str, **settings: object) -> EdgeSpec:
    """An edge as it is written, without a look at whether there is such a stage."""
    left, target = name.split(" -> ")
    source, port = left.split(".")
    made = EdgeSpec(source="thinker", port=port, target="talker")
    return msgspec.structs.replace(made, source=source, target=target, **settings)


def families(ports: Mapping[str, Ports | None]) -> dict[StageRole, Family]:
    """A family for each role, the recognizer, the thinker and the talker included; None leaves one out."""
    whole: dict[str, Ports | None] = {"recognizer": None, "thinker": None, "talker": None}
    found: dict[str, Family] = {}
    for role, own in (whole | dict(ports)).items():
        found[role] = msgspec.structs.replace(THINKER, name=role, role=role, ports=own)
    return {role: found[role] for role in ROLE_PORTS if role in found}


def spec(
    roles: Mapping[StageRole, Family], *edges: EdgeSpec, placement: Placement = "inline", batch_replicas: int = 0
) -> PipelineSpec:
    stages = {role: StageSpec(f"a.{role}", placement, batch_replicas=batch_replicas) for role in roles}
    return PipelineSpec(StageSpec("a.detector", "inline"), stages, edges)


def names(roles: Mapping[StageRole, Family], *edges: EdgeSpec) -> list[str]:
    return [edge.name for edge in complete(spec(roles, *edges), roles).edges]


CASCADE = ["session.audio -> recognizer", "session.prompt -> thinker", "thinker.text -> talker"]


def test_the_plain_cascade_needs_no_words() -> None:
    roles = families({})
    assert names(roles) == CASCADE
    graph = complete(spec(roles), roles)
    assert graph.voice == "talker"
    assert graph.behind("thinker") == ("talker",)
    assert graph.behind("talker") == ()
    assert [one.name for one in graph.leaving("session", "audio")] == ["session.audio -> recognizer"]
    assert [one.name for one in graph.entering("talker")] == ["thinker.text -> talker"]


def test_a_talker_of_codes_is_followed_by_a_vocoder() -> None:
    roles = families({"talker": CODER, "vocoder": None})
    assert names(roles) == [*CASCADE, "talker.codes -> vocoder"]
    graph = complete(spec(roles), roles)
    assert graph.voice == "vocoder"
    assert graph.behind("thinker") == ("talker", "vocoder")


def test_a_written_edge_takes_the_place_of_the_implied_one() -> None:
    roles = families({"talker": CODER, "vocoder": None})
    own = edge("talker.codes -> vocoder", bound=3, policy="drop_oldest", transport="shm", slots=2)
    assert complete(spec(roles, own), roles).edges[-1] == own
    assert names(roles, own) == [*CASCADE, "talker.codes -> vocoder"]


def test_a_written_edge_decides_where_two_stages_give_the_same() -> None:
    roles = families({"recognizer": Ports(("audio",), ("transcript", "text"))})
    assert names(roles, edge("thinker.text -> talker")) == CASCADE
    with pytest.raises(ConfigError, match="from recognizer or thinker"):
        names(roles)


def test_sound_may_be_made_anew_by_a_second_stage() -> None:
    roles = families({"vocoder": Ports(("audio",), ("audio",))})
    graph = complete(spec(roles, edge("talker.audio -> vocoder")), roles)
    assert graph.voice == "vocoder"


def test_a_talker_may_take_more_than_text_of_its_thinker() -> None:
    roles = families(
        {"thinker": Ports(("prompt",), ("text", "hidden")), "talker": Ports(("text", "hidden"), ("audio",))}
    )
    assert names(roles) == [*CASCADE, "thinker.hidden -> talker"]


WHOLE = {"talker": CODER, "vocoder": None}
TWO_GIVERS = {"thinker": Ports(("prompt",), ("text", "codes")), **WHOLE}

WRONG_EDGES: list[tuple[Mapping[str, Ports | None], EdgeSpec, str]] = [
    (WHOLE, edge("taker.codes -> vocoder"), "there is no stage 'taker'; did you mean 'talker'?"),
    (WHOLE, edge("talker.codes -> vocodr"), "there is no stage 'vocodr'; did you mean 'vocoder'?"),
    (
        {},
        edge("talker.audio -> vocoder"),
        "there is no stage 'vocoder'; there are: session, recognizer, thinker, talker",
    ),
    (WHOLE, edge("talker.code -> vocoder"), "the talker gives no 'code'; did you mean 'codes'?"),
    (WHOLE, edge("talker.codes -> thinker"), "the thinker takes no 'codes'; there are: prompt"),
    ({}, edge("thinker.text -> talker", policy="drop_oldest"), "nothing of 'text' can be dropped, words are joined"),
    ({}, edge("session.audio -> recognizer", policy="drop_oldest"), "a job is taken or refused as a whole"),
    ({}, edge("thinker.text -> talker", transport="shm"), "'text' rides inside the messages"),
    ({}, edge("session.prompt -> thinker", slots=4), "'prompt' rides inside the messages"),
]


@pytest.mark.parametrize(("ports", "written", "message"), WRONG_EDGES, ids=[one[2] for one in WRONG_EDGES])
def test_an_edge_that_can_not_be_is_refused(ports: Mapping[str, Ports | None], written: EdgeSpec, message: str) -> None:
    roles = families(ports)
    with pytest.raises(ConfigError, match=re.escape(message)) as refused:
        complete(spec(roles, written), roles)
    assert refused.value.path == f"edges.{written.name}"


def test_a_port_is_fed_by_one_stage() -> None:
    roles = families(TWO_GIVERS)
    message = "from one stage, not from two: talker.codes -> vocoder and thinker.codes -> vocoder"
    with pytest.raises(ConfigError, match=message) as refused:
        complete(spec(roles, edge("talker.codes -> vocoder"), edge("thinker.codes -> vocoder")), roles)
    assert refused.value.path == "edges.thinker.codes -> vocoder"


WRONG_GRAPHS: list[tuple[Mapping[str, Ports | None], str, str]] = [
    ({"talker": CODER}, "talker", "nobody takes the 'codes' that the talker gives: add a stage that does"),
    ({"vocoder": None}, "vocoder", "the vocoder takes 'codes', which no other stage gives: choose another family"),
    (TWO_GIVERS, "edges", "from thinker or talker: write thinker.codes -> vocoder or talker.codes -> vocoder"),
    (
        {"talker": Ports(("text", "back"), ("codes",)), "vocoder": Ports(("codes",), ("audio", "back"))},
        "edges.vocoder.back -> talker",
        "the stages wait for each other in a circle: talker -> vocoder -> talker",
    ),
    ({"talker": Ports(("text",), ("text",))}, "talker", "nothing behind the thinker gives speech"),
    (
        {"recognizer": Ports(("codes",), ("transcript",)), "talker": Ports(("text",), ("audio", "codes"))},
        "recognizer",
        "the recognizer takes what the session gives, nothing of the talker",
    ),
    (
        {"thinker": Ports(("transcript",), ("text",))},
        "thinker",
        "the thinker takes what the session gives, nothing of the recognizer",
    ),
    ({"vocoder": Ports(("audio",), ("audio",))}, "vocoder", "nothing that the talker gives comes to the vocoder"),
    (
        {"thinker": Ports(("prompt",), ("text", "codes")), "vocoder": None},
        "vocoder",
        "nothing that the talker gives comes to the vocoder",
    ),
    (
        {"thinker": Ports(("prompt",), ("text", "codes")), "talker": Ports(("audio",), ("audio",)), "vocoder": None},
        "talker",
        "nothing that the thinker gives comes to the talker",
    ),
    (
        {
            "thinker": Ports(("prompt",), ("text", "hidden")),
            "talker": Ports(("text", "hidden"), ("codes",)),
            "vocoder": Ports(("codes", "hidden"), ("audio",)),
        },
        "edges.thinker.hidden -> talker",
        "'hidden' goes along thinker.hidden -> vocoder too, and a plane has one end",
    ),
]


@pytest.mark.parametrize(("ports", "place", "message"), WRONG_GRAPHS)
def test_a_graph_that_can_not_run_is_refused(ports: Mapping[str, Ports | None], place: str, message: str) -> None:
    roles = families(ports)
    with pytest.raises(ConfigError, match=re.escape(message)) as refused:
        complete(spec(roles), roles)
    assert refused.value.path == place


@pytest.mark.parametrize("role", ["recognizer", "thinker", "talker"])
def test_a_pipeline_needs_three_stages(role: StageRole) -> None:
    roles = {one: family for one, family in families({}).items() if one != role}
    with pytest.raises(ConfigError, match=f"a pipeline needs a {role}"):
        complete(spec(roles), roles)


def test_what_goes_to_two_stages_rides_inside_the_messages() -> None:
    roles = families(
        {
            "thinker": Ports(("prompt",), ("text", "hidden")),
            "talker": Ports(("text", "hidden"), ("codes",)),
            "vocoder": Ports(("codes", "hidden"), ("audio",)),
        }
    )
    inline = [edge(f"thinker.hidden -> {role}", transport="inline") for role in ("talker", "vocoder")]
    assert len(names(roles, *inline)) == 6


@pytest.mark.parametrize(
    ("placement", "batch_replicas", "message"),
    [
        ("process", 0, "'inproc' joins stages of one process, and the talker is in one of its own"),
        ("inline", 1, "'inproc' joins stages of one process, and the batch lane has one of its own for the talker"),
        ("inline", 0, ""),
    ],
)
def test_threads_are_joined_by_reference_only_where_there_are_threads(
    placement: Placement, batch_replicas: int, message: str
) -> None:
    roles = families(WHOLE)
    whole = spec(
        roles, edge("talker.codes -> vocoder", transport="inproc"), placement=placement, batch_replicas=batch_replicas
    )
    if not message:
        assert complete(whole, roles).edges[-1].transport == "inproc"
        return
    with pytest.raises(ConfigError, match=re.escape(message)) as refused:
        complete(whole, roles)
    assert refused.value.path == "edges.talker.codes -> vocoder"


def test_a_hint_is_the_nearest_name_or_all_of_them() -> None:
    assert nearest("vocodr", ("talker", "vocoder")) == "; did you mean 'vocoder'?"
    assert nearest("x", ("talker", "vocoder")) == "; there are: talker, vocoder"
