"""Records what a session was fed, without sound, so that the session can be run again exactly.

A journal is one JSON line with the session's configuration, then one line `[now, input, check]` for each input; `check`
is a checksum of the effects it had, so a replay shows the first input at which another version would act differently.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from duplex_server.realtime.config import SessionConfig
from duplex_server.realtime.effects import Effect
from duplex_server.realtime.inputs import Input
from duplex_server.realtime.session import Session
from pipeline.errors import ConfigError

VERSION = 1
BLOCK_BYTES = 32 * 1024
"""Lines are compressed in blocks of this size, which takes well under a millisecond."""
MAX_BYTES = 16 * 1024 * 1024
"""A session's journal takes no more than this, compressed; it then ends early and says so."""

_encode = msgspec.json.Encoder().encode


class Header(msgspec.Struct, frozen=True):
    journal: int
    config: SessionConfig
    dropped: int = 0  # inputs after the last one recorded


Line = tuple[float, Input, int]
_line = msgspec.json.Decoder(Line)
_header = msgspec.json.Decoder(Header)


class Journal:
    """The record of one running session, in memory."""

    def __init__(self, config: SessionConfig) -> None:
        self._config = config
        self._block = bytearray()
        self._blocks: list[bytes] = []
        self._bytes = 0
        self.dropped = 0

    def note(self, now: float, given: Input, effects: tuple[Effect, ...]) -> None:
        if self._bytes >= MAX_BYTES:
            self.dropped += 1
            return
        self._block += _encode((now, given, check(effects)))
        self._block += b"\n"
        if len(self._block) >= BLOCK_BYTES:
            packed = zlib.compress(self._block, 1)
            self._blocks.append(packed)
            self._bytes += len(packed)
            self._block.clear()

    def lines(self) -> Iterator[bytes]:
        header = _encode(Header(VERSION, self._config, self.dropped))
        yield msgspec.json.format(header, indent=-1) + b"\n"  # raw values of its settings may have line breaks
        for block in self._blocks:
            yield zlib.decompress(block)
        yield bytes(self._block)

    def dump(self, path: Path) -> None:
        """Write the journal; only its owner may read it, for it holds what was said."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        with path.open("wb") as file:
            file.writelines(self.lines())


@dataclass(frozen=True, slots=True)
class Replay:
    """What came of running a journal again."""

    inputs: int
    effects: tuple[tuple[float, Effect], ...]
    differs_at: int | None
    dropped: int

    def __str__(self) -> str:
        lines = [f"{now:12.3f}  {_encode(effect).decode()}" for now, effect in self.effects]
        if self.differs_at is None:
            lines.append(f"{self.inputs} inputs, {len(self.effects)} effects, all as recorded")
        else:
            lines.append(f"{self.inputs} inputs; the effects of input {self.differs_at} differ from those recorded")
        if self.dropped:
            lines.append(f"{self.dropped} later inputs were not recorded: the journal was full")
        return "\n".join(lines)


def check(effects: tuple[Effect, ...]) -> int:
    """A checksum of effects; 0 for none."""
    return zlib.crc32(_encode(effects)) if effects else 0


def load(path: Path) -> tuple[Header, list[Line]]:
    """Read a dumped journal. Raises `ConfigError` naming the line that is not one of a journal."""
    try:
        raw = path.read_bytes().splitlines()
    except OSError as error:
        raise ConfigError(f"the journal can't be read: {error.strerror}", str(path)) from error
    try:
        header = _header.decode(raw[0] if raw else b"")
    except msgspec.DecodeError as error:
        raise ConfigError(f"expected a journal's first line: {error}", f"{path}:1") from error
    if header.journal != VERSION:
        raise ConfigError(f"this is version {header.journal} of the journal; version {VERSION} is read", f"{path}:1")
    lines: list[Line] = []
    for number, line in enumerate(raw[1:], start=2):
        try:
            lines.append(_line.decode(line))
        except msgspec.DecodeError as error:
            raise ConfigError(f"expected [now, input, check]: {error}", f"{path}:{number}") from error
    return header, lines


def replay(path: Path) -> Replay:
    """Run a dumped journal through a fresh session."""
    header, lines = load(path)
    session = Session(header.config)
    done: list[tuple[float, Effect]] = []
    differs_at: int | None = None
    for index, (now, given, recorded) in enumerate(lines):
        effects = session.feed(given, now)
        if differs_at is None and check(effects) != recorded:
            differs_at = index
        done.extend((now, effect) for effect in effects)
    return Replay(len(lines), tuple(done), differs_at, header.dropped)
