"""Gathers what a client's program saw of its conversation, and prints it; needs nothing but Python."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

PIECE = 4800  # bytes of 24 kHz PCM at a time: 100 ms
PATIENCE_S = 300.0  # for the whole conversation; a liveness bound, never a measure


class Outcome(logging.Handler):
    """What happened; every warning that any library logs is one of the troubles.

    `folder` holds `question.pcm` and `interruption.pcm`, the user's speech as 16-bit mono PCM at 24 kHz.
    """

    def __init__(self, url: str, folder: Path) -> None:
        super().__init__(logging.WARNING)
        self.url = url
        self.folder = folder
        self.heard: list[str] = []
        self.said: list[str] = []
        self.sound: list[bytearray] = []
        self.called: list[dict[str, object]] = []
        self.after_tool = ""
        self.tool_choice = os.environ.get("TOOL_CHOICE", "required")
        self.cut = False
        self.troubles: list[str] = []
        self.notes: dict[str, object] = {}

    @property
    def ws_url(self) -> str:
        return self.url.replace("http", "ws", 1)

    def emit(self, record: logging.LogRecord) -> None:
        self.troubles.append(f"{record.name}: {record.getMessage()}")

    def question(self) -> Iterator[bytes]:
        return self._speech("question")

    def interruption(self) -> Iterator[bytes]:
        return self._speech("interruption")

    def tell(self) -> None:
        """Print all of it as one line of JSON, and leave the sound of each answer in a file of its own."""
        for number, sound in enumerate(self.sound):
            (self.folder / f"answer{number}.pcm").write_bytes(sound)
        told = ("heard", "said", "called", "after_tool", "cut", "troubles", "notes")
        print(json.dumps({name: getattr(self, name) for name in told} | {"sound": [len(one) for one in self.sound]}))

    def _speech(self, name: str) -> Iterator[bytes]:
        pcm = (self.folder / f"{name}.pcm").read_bytes()
        return (pcm[start : start + PIECE] for start in range(0, len(pcm), PIECE))


def run(converse: Callable[[Outcome], Awaitable[None]]) -> None:
    """Let `converse` talk with the server that the first argument names, and print the outcome."""
    outcome = Outcome(sys.argv[1], Path(sys.argv[2]))
    logging.getLogger().addHandler(outcome)

    async def bounded() -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                await converse(outcome)
        except TimeoutError:
            outcome.troubles.append("the conversation did not come to its end")

    asyncio.run(bounded())
    outcome.tell()
