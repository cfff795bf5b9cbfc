"""A talker that speaks unasked: it squawks as soon as it is let in, then repeats what it is fed."""

from __future__ import annotations

import msgspec

from pipeline.spec import Capabilities, Family
from pipeline.stage import Stage
from tests.families.scripted.talker import family as tone

SQUAWK = "squawk squawk"


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`unasked` is what it says before it is given any text."""

    unasked: str = SQUAWK


def _make(options: msgspec.Struct) -> Stage:
    assert isinstance(options, Options)
    return tone.make(tone.Options(greeting=options.unasked))


def _describe(options: msgspec.Struct) -> Capabilities:
    return tone.describe(tone.Options())


FAMILY = Family("parrot", "talker", (), Options, _make, _describe)
