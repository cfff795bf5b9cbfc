"""Scrapes a running server, as a Prometheus does, after people have talked with it."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.error
import urllib.request

import numpy as np
from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from loadtest.speech import silence, speech
from tests.e2e.client import Client, session
from tests.e2e.conftest import SCRIPTED
from tests.e2e.server import Server, running

OPEN = "application/openmetrics-text; version=1.0.0"
KEY = "sk-a-key-of-the-server"
LISTEN_S = 1.0
PATIENCE_S = 30.0


def scrape(server: Server, key: str | None = None) -> list[Metric]:
    headers = {"Accept": OPEN} | ({"Authorization": f"Bearer {key}"} if key else {})
    with urllib.request.urlopen(urllib.request.Request(f"{server.url}/metrics", headers=headers), timeout=30) as answer:
        assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
        text = answer.read().decode()
    return list(text_string_to_metric_families(text))  # type: ignore[no-untyped-call]  # it has no types


def scrape_after(server: Server, key: str | None = None) -> list[Metric]:
    """Once its sessions are over; a server may learn of that later than the peer who left."""
    until = time.monotonic() + PATIENCE_S
    while value(found := scrape(server, key), "duplex_sessions_live"):
        assert time.monotonic() < until, "a session does not end"
    return found


def value(families: list[Metric], sample: str, **labels: str) -> float:
    (found,) = [s.value for f in families for s in f.samples if s.name == sample and s.labels == labels]
    return found


def turn_ids(families: list[Metric], name: str) -> set[str]:
    samples = [sample for family in families if family.name == name for sample in family.samples]
    return {sample.exemplar.labels["turn_id"] for sample in samples if sample.exemplar is not None}


def test_a_spoken_turn_and_an_interruption_are_found_in_the_metrics() -> None:
    async def talk(one: Server) -> tuple[Client, list[Metric]]:
        async with session(one.url, key=KEY) as client:
            await client.configure(instructions="please go on")
            await client.speak_live(np.concatenate([speech("hello_world")[0], silence(1.0)]))
            await client.wait("response.output_audio.delta")
            await client.speak_live(silence(LISTEN_S))
            await client.speak_live(np.concatenate([speech("best_of_times")[0], silence(1.0)]))
            await client.wait("response.done")
            during = await asyncio.to_thread(scrape, one, KEY)
            return client, during

    with running(*SCRIPTED, f"server.api_keys=[{KEY}]", "thinker.text=" + "word " * 40) as one:
        client, during = asyncio.run(talk(one))
        found = scrape_after(one, KEY)
        log = one.read_log()

    stopped, started = client.of("input_audio_buffer.speech_stopped"), client.of("input_audio_buffer.speech_started")
    answer = turn_ids(found, "duplex_speech_stop_to_first_audio_seconds")
    assert stopped[0]["item_id"] in answer
    assert value(found, "duplex_speech_stop_to_first_audio_seconds_count") >= 1
    assert all(turn_id in log for turn_id in answer), "so that a slow turn is found in the log"
    assert turn_ids(found, "duplex_speech_start_to_silence_seconds") == {started[1]["item_id"]}
    assert value(found, "duplex_speech_start_to_silence_seconds_sum") > 0.05, "it takes that long to know speech"

    for stage in ("recognizer", "thinker", "talker"):
        for kind in ("step", "wait", "transport"):
            assert value(found, f"duplex_stage_{kind}_seconds_count", stage=stage) >= 1, (stage, kind)
        assert value(found, "duplex_stage_replicas", stage=stage, state="ready") == 1
    assert value(found, "duplex_stage_cancel_seconds_count", stage="talker") >= 1
    assert value(found, "duplex_replies_total", status="cancelled") == 1
    assert value(during, "duplex_sessions_live") == 1
    assert value(found, "duplex_sessions_ended_total", cause="peer_left") == 1
    said = [event["transcript"] for event in client.of("conversation.item.input_audio_transcription.completed")]
    text = "\n".join(str(sample) for family in found for sample in family.samples)
    assert not [secret for secret in (KEY, client.events[0]["session"]["id"], *said) if secret in text]


def test_a_stage_that_dies_is_counted_and_the_server_gets_ready_again() -> None:
    async def talk(one: Server) -> None:
        async with session(one.url) as client:
            failed = await client.ask("please exit", output_modalities=["text"])
            assert failed["response"]["status"] == "failed"
            await client.ask("say all is well", output_modalities=["text"])

    with running(*SCRIPTED, "thinker.placement=process", clean=False) as one:
        asyncio.run(talk(one))
        found = scrape_after(one)
        with urllib.request.urlopen(f"{one.url}/readyz", timeout=30) as answer:
            ready = json.loads(answer.read())
    assert value(found, "duplex_stage_losses_total", stage="thinker", kind="stage_lost") == 1
    assert value(found, "duplex_stage_restarts_total", stage="thinker") == 1
    assert value(found, "duplex_stage_restarts_total", stage="talker") == 0
    assert value(found, "duplex_replies_total", status="failed") == 1
    assert ready["status"] == "ready"
    assert ready["stages"]["thinker"]["state"] == "ready"
    assert ready["stages"]["thinker"]["since_s"] < ready["stages"]["talker"]["since_s"]
    assert set(ready["models"]) == {"detector", "recognizer", "thinker", "talker"}


def test_the_metrics_of_a_server_with_keys_are_not_for_everybody() -> None:
    with running(*SCRIPTED, f"server.api_keys=[{KEY}]") as one:
        try:
            urllib.request.urlopen(f"{one.url}/metrics", timeout=30)
            status = 200
        except urllib.error.HTTPError as error:
            with error:
                status = error.code
        assert status == 401
        assert value(scrape(one, KEY), "duplex_sessions_live") == 0
