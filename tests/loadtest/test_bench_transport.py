"""Tests the measurement of the shared-memory plane, with little effort and without a look at the times."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import numpy as np
import pytest

from loadtest.bench.payload import arrived, blank
from loadtest.bench.shared_memory import bench
from loadtest.bench.transport import Effort, Figures, Result, measure, table
from loadtest.report import Load

QUICK = Effort(rounds=1, most_bytes=1 << 20, most_count=20, least_count=10, singles=3)


def test_a_run_gives_each_figure_of_each_size(capsys: pytest.CaptureFixture[str]) -> None:
    names = os.listdir("/dev/shm")
    result = measure((4096, 65536), QUICK, Path("/nowhere/bin/python"))
    plain = msgspec.json.decode(msgspec.json.encode(result))
    assert set(plain) == {"sizes", "load"}
    assert list(plain["sizes"]) == ["4096", "65536"]
    for figures in plain["sizes"].values():
        assert set(figures) == {"gb_s", "memcpy_gb_s", "peer_gb_s", "p50_us"}
        assert figures["peer_gb_s"] is None
        assert min(figures["gb_s"], figures["memcpy_gb_s"], figures["p50_us"]) > 0
    assert "make transport-peer-env" in capsys.readouterr().err
    assert os.listdir("/dev/shm") == names


def test_several_threads_send_each_payload_once() -> None:
    with bench((4096,)) as ours:
        ours.stream(4096, 200, 3)
        assert len(ours.singly(4096, 5)) == 5


def test_a_payload_that_is_not_the_one_that_was_sent_is_seen() -> None:
    payload = blank(8192)
    assert len(payload) == 1024
    payload[0] = 7
    assert arrived(7, payload)
    assert not arrived(8, payload)
    payload[511] = 0
    assert not arrived(7, payload)
    assert arrived(7, np.array([7]))


def test_a_busy_run_says_so() -> None:
    busy = Result({"4096": Figures(1.0, 2.0, 0.1, 50.0)}, Load(2, 1.0, True))
    text = table(busy)
    assert "not to be quoted" in text
    assert "0.50" in text
    assert "10" in text.splitlines()[1].split()
    assert "not to be quoted" not in table(Result({}, Load(2, 0.0, False)))
