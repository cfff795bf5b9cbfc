"""Registers the checks by their numbers, and says how one ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duplex_server.conformance.run import Run

Json = Any
"""What came over the wire: nothing is known of it before it was looked at."""

SHOWN_CHARS = 600


class Deviation(Exception):
    """The server did something else than the protocol says."""

    def __init__(self, expected: str, came: object) -> None:
        self.expected, self.came = expected, shorten(came)
        super().__init__(f"expected {self.expected}; came {self.came}")


class NotApplicable(Exception):
    """The check says nothing about this server; the message gives the reason."""


Body = Callable[["Run"], Awaitable[str | None]]
"""What a check does. It returns a remark for the report, or None; it raises `Deviation` or `NotApplicable`."""


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the checklist.

    One that comes `last` looks at all that the others have brought to light. One that goes `aside` only waits, and does
    so while the others run.
    """

    number: int
    name: str
    body: Body
    last: bool = False
    aside: bool = False


_REGISTERED: dict[int, Check] = {}


def check(number: int, name: str, *, last: bool = False, aside: bool = False) -> Callable[[Body], Body]:
    """Register a function as the check of that number."""

    def register(body: Body) -> Body:
        if number in _REGISTERED:
            raise ValueError(f"check {number} stands twice")
        _REGISTERED[number] = Check(number, name, body, last, aside)
        return body

    return register


def registered() -> Iterator[Check]:
    """All checks, in the order in which they are run."""
    yield from sorted(_REGISTERED.values(), key=lambda one: (one.last, one.number))


def expect(holds: bool, expected: str, came: object) -> None:
    """Raise `Deviation` unless it holds."""
    if not holds:
        raise Deviation(expected, came)


def equal(what: str, came: object, wanted: object) -> None:
    """Raise `Deviation` unless what came is what was wanted, of the same type: 1, 1.0 and true are three things."""
    expect(came == wanted and type(came) is type(wanted), f"{what} {wanted!r}", repr(came))


def at(event: Json, path: str) -> Json:
    """What stands in an event at a dotted path. Raises `Deviation` when nothing does."""
    found = event
    for name in path.split("."):
        if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        elif isinstance(found, dict) and name in found:
            found = found[name]
        else:
            kind = event.get("type", "an object") if isinstance(event, dict) else "an object"
            raise Deviation(f"{path} in {kind}", event)
    return found


def shorten(thing: object) -> str:
    """A thing as one short line."""
    text = " ".join((thing if isinstance(thing, str) else repr(thing)).split())
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}..."
