"""Starts Pipecat beside a llama.cpp server, both in an environment of their own, and calls it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence

from loadtest.caller import Arrived, Caller
from loadtest.peers.pipecat_wire import PipecatWire
from loadtest.process import ROOT, started

NAME = "pipecat 1.14.0"
PYTHON = ROOT / ".venv-pipecat" / "bin" / "python"
HERE = "loadtest/peers"


def check_environment() -> None:
    """Raise SystemExit, saying what to run, when the peer is not installed."""
    if not PYTHON.exists():
        raise SystemExit(f"{NAME} is not installed in {PYTHON.parent.parent}; run: make peer-env")


@contextlib.asynccontextmanager
async def peer(instructions: str, max_tokens: int) -> AsyncIterator[str]:
    """The address of a running bot. Raises SystemExit."""
    check_environment()
    python = [str(PYTHON), "-P"]  # the folder of a script is no place to import from
    async with started([*python, f"{HERE}/llama_server.py"], "listening on ") as model:
        llm = f"http://127.0.0.1:{model.told}/v1"
        options = ["--llm", llm, "--instructions", instructions, "--max-tokens", str(max_tokens)]
        async with started([*python, f"{HERE}/pipecat_bot.py", *options], "listening on ") as bot:
            yield f"ws://127.0.0.1:{bot.told}/"


async def dial(url: str, seed: int) -> Caller:
    """A call to the bot."""
    return await Caller.open(url, PipecatWire(), seed, {})


def answer(arrived: Sequence[Arrived]) -> str:
    """The words of an answer, from the messages that came with it."""
    texts = [str(one.event["data"]["text"]) for one in arrived if one.type == "bot-llm-text"]
    return "".join(texts).strip()
