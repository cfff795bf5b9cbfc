"""Says how the formats that JSON schemas name are written: dates, times and UUIDs."""

from __future__ import annotations

from models.llama_cpp.grammar import Choice, Grammar, Run, mask, then

_DIGIT = "0123456789"


def _run(*places: str) -> Run:
    return Run(tuple(mask(place.encode()) for place in places))


def _two(*ranges: tuple[str, str]) -> Grammar:
    return Choice(tuple(_run(*one) for one in ranges))


_YEAR = _run("12", _DIGIT, _DIGIT, _DIGIT, "-")
_UPTO_28 = (("0", "123456789"), ("1", _DIGIT), ("2", "012345678"))
_DAY = Choice(
    (
        then(_two(("0", "13578"), ("1", "02")), _run("-"), _two(*_UPTO_28, ("2", "9"), ("3", "01"))),
        then(_two(("0", "469"), ("1", "1")), _run("-"), _two(*_UPTO_28, ("2", "9"), ("3", "0"))),
        then(_run("0", "2", "-"), _two(*_UPTO_28)),
    )
)
_DATE = then(_YEAR, _DAY)
_TIME = then(_two(("01", _DIGIT), ("2", "0123")), _run(":", "012345", _DIGIT, ":", "012345", _DIGIT, "Z"))
_HEX = _DIGIT + "abcdef"
_UUID = _run(*"-".join("x" * count for count in (8, 4, 4, 4, 12)).replace("x", "\0"))

FORMATS: dict[str, Grammar] = {
    "date": _DATE,
    "time": _TIME,
    "date-time": then(_DATE, _run("T"), _TIME),
    "uuid": Run(tuple(mask(b"-") if place == mask(b"-") else mask(_HEX.encode()) for place in _UUID.places)),
}
"""What stands between the quotes. Times are in UTC, years from 1000 to 2999."""
