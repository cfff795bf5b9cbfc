"""Tests what is counted and timed, how it is served, to whom, and that it tells no secret."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import httpx
import msgspec
import pytest
from prometheus_client import parser
from prometheus_client.core import Metric
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.samples import Exemplar
from starlette.applications import Starlette
from starlette.testclient import TestClient, WebSocketDenialResponse

from duplex_server.app import build
from duplex_server.config import ServerSettings, load_config
from duplex_server.http.realtime import Sessions
from duplex_server.metrics import Losses, Metrics, Snapshot
from duplex_server.realtime import wire
from duplex_server.realtime.milestones import FirstAudio, Replied, Silenced, Truncated
from duplex_server.realtime.session import Session
from models.registry import load_family
from pipeline.chunk import StageRole
from pipeline.engine import Engine
from pipeline.host import StageState
from pipeline.observer import Observer
from tests.duplex_server.test_driver import CONFIG, driven

ROOT = Path(__file__).resolve().parent.parent.parent
STAGES: tuple[StageRole, ...] = ("recognizer", "thinker", "talker")
OPEN = "application/openmetrics-text; version=1.0.0"
KEY = "sk-a-key-of-the-server"
LABELS = {"stage", "kind", "edge", "status", "cause", "reason", "state", "version", "le"}
"""Each of these has a handful of values. A name that could tell somebody apart does not belong here."""


def scrape(metrics: Metrics, shot: Snapshot | None = None, accept: str = OPEN) -> list[Metric]:
    text, content_type = asyncio.run(metrics.render(accept, shot or Snapshot()))
    parse = openmetrics.text_string_to_metric_families if "openmetrics" in content_type else None
    return list((parse or parser.text_string_to_metric_families)(text.decode()))


def value(families: Iterable[Metric], sample: str, **labels: str) -> float:
    """One sample's value; the sample must be there."""
    (found,) = [s.value for f in families for s in f.samples if s.name == sample and s.labels == labels]
    return found


def exemplars(families: Iterable[Metric], sample: str) -> list[Exemplar]:
    return [s.exemplar for f in families for s in f.samples if s.name == sample and s.exemplar is not None]


# ---- what is counted ----------------------------------------------------------------------------------------------


def test_what_a_pipeline_does_is_counted_by_stage_and_edge() -> None:
    metrics = Metrics(STAGES)
    observer: Observer = metrics.pipeline
    observer.waited("thinker", 0.002)
    observer.stepped("thinker", 0.25)
    observer.stepped("thinker", 0.5)
    observer.acknowledged("talker", 0.01)
    observer.lost("talker", "stage_timeout")
    observer.restarted("talker")
    observer.carried("talker", 0.001)
    observer.stale("talker")
    observer.sent("session.audio -> recognizer", 4800)
    observer.sent("session.audio -> recognizer", 0)
    observer.dropped("thinker.text -> talker", 3)
    found = scrape(metrics)
    assert value(found, "duplex_stage_wait_seconds_count", stage="thinker") == 1
    assert value(found, "duplex_stage_step_seconds_count", stage="thinker") == 2
    assert value(found, "duplex_stage_step_seconds_sum", stage="thinker") == 0.75
    assert value(found, "duplex_stage_step_seconds_bucket", stage="thinker", le="0.25") == 1
    assert value(found, "duplex_stage_step_seconds_count", stage="talker") == 0
    assert value(found, "duplex_stage_cancel_seconds_sum", stage="talker") == 0.01
    assert value(found, "duplex_stage_losses_total", stage="talker", kind="stage_timeout") == 1
    assert value(found, "duplex_stage_restarts_total", stage="talker") == 1
    assert value(found, "duplex_stage_transport_seconds_sum", stage="talker") == 0.001
    assert value(found, "duplex_stage_stale_chunks_total", stage="talker") == 1
    assert value(found, "duplex_edge_chunks_total", edge="session.audio -> recognizer") == 2
    assert value(found, "duplex_edge_bytes_total", edge="session.audio -> recognizer") == 4800
    assert value(found, "duplex_edge_dropped_chunks_total", edge="thinker.text -> talker") == 3


def test_what_sessions_reach_is_counted_with_the_turns_as_exemplars() -> None:
    metrics = Metrics(STAGES)
    watcher = metrics.sessions
    for milestone in (
        FirstAudio("item_1", "speech", 0.7),
        FirstAudio("resp_1", "request", 0.3),
        Silenced("item_2", 0.13),
        Replied("completed"),
        Replied("cancelled"),
        Truncated(),
    ):
        watcher.reached(milestone)
    watcher.begun()
    watcher.ended("expired")
    watcher.refused("sessions_full")
    found = scrape(metrics)
    for name, seconds, turn_id in (
        ("duplex_speech_stop_to_first_audio_seconds", 0.7, "item_1"),
        ("duplex_request_to_first_audio_seconds", 0.3, "resp_1"),
        ("duplex_speech_start_to_silence_seconds", 0.13, "item_2"),
    ):
        assert value(found, f"{name}_count") == 1
        (exemplar,) = exemplars(found, f"{name}_bucket")
        assert (exemplar.labels, exemplar.value) == ({"turn_id": turn_id}, seconds)
    assert value(found, "duplex_replies_total", status="completed") == 1
    assert value(found, "duplex_replies_total", status="cancelled") == 1
    assert value(found, "duplex_replies_total", status="failed") == 0, "there before the first one is"
    assert value(found, "duplex_truncations_total") == 1
    assert value(found, "duplex_sessions_begun_total") == 1
    assert value(found, "duplex_sessions_ended_total", cause="expired") == 1
    assert value(found, "duplex_sessions_ended_total", cause="bug") == 0
    assert value(found, "duplex_sessions_refused_total", reason="sessions_full") == 1


def test_a_snapshot_is_what_is_shown() -> None:
    losses = Losses(1, 2, 3, {"late": 400}) + Losses(10, 20, 30, {"late": 600, "failed": 7})
    up, down = StageState("ready", 0.0), StageState("restarting", 0.0)
    found = scrape(Metrics(STAGES), Snapshot(2, losses, {"thinker": (up, down, up)}))
    assert value(found, "duplex_sessions_live") == 2
    assert value(found, "duplex_session_stale_chunks_total") == 11
    assert value(found, "duplex_playout_underruns_total") == 22
    assert value(found, "duplex_turns_given_up_total") == 33
    assert value(found, "duplex_input_dropped_samples_total", reason="late") == 1000
    assert value(found, "duplex_input_dropped_samples_total", reason="failed") == 7
    assert value(found, "duplex_input_dropped_samples_total", reason="overflow") == 0
    assert value(found, "duplex_stage_replicas", stage="thinker", state="ready") == 2
    assert value(found, "duplex_stage_replicas", stage="thinker", state="restarting") == 1
    assert value(found, "duplex_stage_replicas", stage="thinker", state="broken") == 0


def test_servers_in_one_process_do_not_count_for_each_other() -> None:
    one, other = Metrics(STAGES), Metrics(STAGES)
    one.sessions.begun()
    assert value(scrape(one), "duplex_sessions_begun_total") == 1
    assert value(scrape(other), "duplex_sessions_begun_total") == 0


# ---- how it is told -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("accept", ["", "text/plain", "*/*", "text/plain;version=0.0.4;q=0.5"])
def test_the_classic_text_is_told_to_whoever_does_not_ask_for_openmetrics(accept: str) -> None:
    metrics = Metrics(STAGES)
    metrics.sessions.reached(FirstAudio("item_1", "speech", 0.7))
    text, content_type = asyncio.run(metrics.render(accept, Snapshot()))
    assert content_type.startswith("text/plain; version=0.0.4")
    assert b"# EOF" not in text
    assert value(scrape(metrics, accept=accept), "duplex_speech_stop_to_first_audio_seconds_count") == 1


def test_a_prometheus_is_told_openmetrics() -> None:
    accept = f"{OPEN};q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.1"
    text, content_type = asyncio.run(Metrics(STAGES).render(accept, Snapshot()))
    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    assert text.endswith(b"# EOF\n")


def everything() -> list[Metric]:
    """A scrape in which every metric has a sample."""
    metrics = Metrics(STAGES)
    metrics.pipeline.sent("thinker.text -> talker", 1)
    metrics.pipeline.dropped("thinker.text -> talker", 1)
    return scrape(metrics, Snapshot(states={"thinker": (StageState("ready", 0.0),)}))


def test_names_keep_to_prometheus_s_rules_and_labels_to_a_handful_of_values() -> None:
    ours = [family for family in everything() if not family.name.startswith("process_")]
    assert len(ours) > 20
    for family in ours:
        assert re.fullmatch(r"duplex_[a-z_]+", family.name)
        assert family.documentation.endswith("."), family.name
        assert not re.search(r"_(ms|millis|minutes|kb|total|count)$", family.name), family.name
        assert family.type != "histogram" or family.name.endswith("_seconds")
        for sample in family.samples:
            assert set(sample.labels) <= LABELS, sample


def test_the_page_has_every_metric_with_its_labels_and_no_other() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|([^|]*)\|", (ROOT / "docs/metrics.md").read_text(), re.MULTILINE)
    told = {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    assert told.keys(), "the page's table is not found"
    expected = {}
    for family in everything():
        if not family.name.startswith("process_"):
            labels = {label for sample in family.samples for label in sample.labels} - {"le"}
            name = family.name + {"counter": "_total", "info": "_info"}.get(family.type, "")
            expected[name] = (family.type.replace("info", "gauge"), labels)
    assert told == expected


# ---- who is told --------------------------------------------------------------------------------------------------


def application(*settings: str) -> tuple[Starlette, Metrics, Sessions]:
    """A server that was not started."""
    config = load_config(flags=settings)
    metrics = Metrics(config.pipeline.stages)
    engine = Engine(config.pipeline, load_family, observer=metrics.pipeline)
    sessions = Sessions(config, engine, metrics.sessions)
    return build(engine, sessions, metrics, config), metrics, sessions


def get(app: Starlette, headers: Mapping[str, str] | None = None) -> httpx.Response:
    async def fetch() -> httpx.Response:
        transport = httpx.ASGITransport(app, client=("127.0.0.1", 50_000))
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
            return await client.get("/metrics", headers=headers)

    return asyncio.run(fetch())


def test_a_server_without_keys_tells_everybody() -> None:
    app, _, _ = application()
    answer = get(app)
    assert answer.status_code == 200
    assert "duplex_sessions_live 0.0" in answer.text
    assert "process_cpu_seconds_total" in answer.text


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic x"}])
def test_a_server_with_keys_asks_for_one_even_from_its_own_machine(headers: dict[str, str]) -> None:
    # Behind a proxy on the same machine, everybody comes from there.
    app, _, _ = application(f"server.api_keys=[{KEY}]")
    answer = get(app, headers)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert answer.json()["error"]["code"] == "invalid_api_key"
    assert "duplex_" not in answer.text


def test_a_key_opens_them_and_is_not_told() -> None:
    app, _, _ = application(f"server.api_keys=[other,{KEY}]")
    answer = get(app, {"Authorization": f"Bearer {KEY}", "Accept": OPEN})
    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
    assert KEY not in answer.text


def test_an_operator_may_open_them() -> None:
    app, _, _ = application(f"server.api_keys=[{KEY}]", "server.metrics_open=true")
    assert get(app).status_code == 200
    assert ServerSettings().metrics_open is False


# ---- sessions -----------------------------------------------------------------------------------------------------


def test_a_refused_peer_is_counted_by_its_reason() -> None:
    app, metrics, sessions = application()
    client = TestClient(app)
    for query, code in (("", "not_ready"), ("?intent=translation", "unsupported_operation")):
        with pytest.raises(WebSocketDenialResponse), client.websocket_connect(f"/v1/realtime{query}"):
            pass
        assert value(scrape(metrics), "duplex_sessions_refused_total", reason=code) == 1
    asyncio.run(sessions.stop(0))
    with pytest.raises(WebSocketDenialResponse), client.websocket_connect("/v1/realtime"):
        pass
    found = scrape(metrics)
    assert value(found, "duplex_sessions_refused_total", reason="stopping") == 1
    assert value(found, "duplex_sessions_begun_total") == 0


def test_a_session_says_why_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    async def left() -> str:
        async with driven() as (peer, driver):
            await peer.wait_for(wire.SessionCreated)
        return driver.ending

    async def stopped() -> str:
        async with driven() as (peer, driver):
            await peer.wait_for(wire.SessionCreated)
            await driver.leave(0)
        return driver.ending

    async def expired() -> str:
        async with driven(msgspec.structs.replace(CONFIG, lifetime_s=0.01)) as (peer, driver):
            await peer.wait_closed()
        return driver.ending

    async def slow_or_bug() -> str:
        async with driven() as (peer, driver):
            await peer.wait_for(wire.SessionCreated)
            peer.slow = True
            peer.say(type="input_audio_buffer.clear")
            await peer.wait_closed()
        return driver.ending

    assert asyncio.run(left()) == "peer_left"
    assert asyncio.run(stopped()) == "server_stopped"
    assert asyncio.run(expired()) == "expired"
    assert asyncio.run(slow_or_bug()) == "slow_peer"
    monkeypatch.setattr(Session, "overtakes", lambda self, event: 1 // 0)
    assert asyncio.run(slow_or_bug()) == "bug"
