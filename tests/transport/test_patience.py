"""Tests the wait for what only a look can tell."""

from __future__ import annotations

from transport.patience import until


def test_it_looks_once_even_without_time() -> None:
    looks = iter([7])
    assert until(lambda: next(looks), 0.0) == 7
    assert until(lambda: None, 0.0) is None


def test_it_looks_until_there_is_something() -> None:
    looks = iter([None] * 60 + [0])  # more than it spins for
    assert until(lambda: next(looks), 10.0) == 0


def test_it_ends_at_its_deadline() -> None:
    looks: list[None] = []
    assert until(lambda: looks.append(None), 0.01) is None
    assert 1 < len(looks) < 10_000
