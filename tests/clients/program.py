"""Runs a client's program in its own environment, once, and reads the outcome that it prints."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadtest.speech import silence, speech
from tests.clients.relay import Wire

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-clients" / "bin" / "python"
NODE_FOLDER = Path(__file__).parent / "node"
PATIENCE_S = 400.0  # for a whole conversation, which takes at most 40; a liveness bound
QUESTION, INTERRUPTION = "best_of_times", "hope"
Json = dict[str, Any]  # what a program prints


@dataclass(frozen=True, slots=True)
class Told:
    """What a program said of its conversation: the fields of `scripts/outcome.py`."""

    heard: list[str]
    said: list[str]
    called: list[Json]
    after_tool: str
    cut: bool
    troubles: list[str]
    notes: Json
    sound: list[int]


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a client tells of a conversation, and what went over the wire. Its sound is 16-bit mono PCM at 24 kHz."""

    told: Told
    wire: Wire
    folder: Path

    def sound(self, number: int) -> np.ndarray[tuple[int], np.dtype[np.int16]]:
        return np.frombuffer((self.folder / f"answer{number}.pcm").read_bytes(), np.int16)


def command(script: str) -> list[str]:
    """What runs a client's program; the test is skipped where its environment is missing, unless CI asks for it."""
    node = shutil.which("node")
    if (NODE_FOLDER / f"{script}.mjs").exists():
        if node is not None and (NODE_FOLDER / "node_modules").is_dir():
            return [node, str(NODE_FOLDER / f"{script}.mjs")]
    elif PYTHON.exists():
        return [str(PYTHON), "-m", f"tests.clients.scripts.{script}"]
    message = "needs the clients' environments, and node: make clients-env"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


def run(command: list[str], url: str, folder: Path, *more: str, **environment: str) -> Told:
    """Let a client's program talk with the server at `url`."""
    for name, utterance in (("question", QUESTION), ("interruption", INTERRUPTION)):
        pcm = np.concatenate([silence(0.2), speech(utterance)[0], silence(1.0)])
        (folder / f"{name}.pcm").write_bytes(pcm.tobytes())
    ran = subprocess.run(
        [*command, url, str(folder), *more],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"
    return Told(**json.loads(ran.stdout.splitlines()[-1]))
