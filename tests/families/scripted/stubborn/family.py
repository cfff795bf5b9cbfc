"""The scripted thinker, which makes trouble while it is loaded: always, or for as long as a file exists.

"exhaust" runs out of memory, "exit" ends the process with status 3, "freeze" sits there with the interpreter's lock
held.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Literal

import msgspec

from pipeline.spec import Capabilities, Family
from tests.families.scripted.thinker import family as thinker

FREEZE_S = 600


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`flag` is the file; empty: always. `bound_ms` is the thinker's own."""

    trouble: Literal["exhaust", "exit", "freeze"]
    flag: str = ""
    bound_ms: int = 1000


class StubbornThinker(thinker.ScriptedThinker):
    """As its parent, once it is loaded."""

    def __init__(self, options: Options) -> None:
        super().__init__(thinker.Options(bound_ms=options.bound_ms))
        self._stubborn = options

    def load(self) -> None:
        if self._stubborn.flag and not Path(self._stubborn.flag).exists():
            return
        match self._stubborn.trouble:
            case "exhaust":
                raise MemoryError("a model of 100 GB")
            case "exit":
                os._exit(3)
            case "freeze":
                ctypes.PyDLL(None).sleep(FREEZE_S)


def _make(options: msgspec.Struct) -> StubbornThinker:
    assert isinstance(options, Options)
    return StubbornThinker(options)


def _describe(options: msgspec.Struct) -> Capabilities:
    return Capabilities(model="stubborn", context_tokens=4096)


FAMILY = Family("scripted.stubborn", "thinker", (), Options, _make, _describe)
