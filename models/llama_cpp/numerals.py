"""Says which decimal numbers within bounds may still be written."""

from __future__ import annotations

from dataclasses import dataclass

from models.llama_cpp.grammar import Grammar, mask

WHOLE_DIGITS = 15
FRACTION_DIGITS = 6
_DIGITS = b"0123456789"


@dataclass(frozen=True, slots=True, eq=False)
class Numeral:
    """What is left of a JSON number; `least`, `most` and `step` count units of the last of its `decimals`.

    It is a multiple of `step`. `whole` and `fraction` count the digits that were read (`fraction` is -1 before the
    point), `digits` is what they make.
    """

    least: int
    most: int
    decimals: int = 0
    step: int = 1
    negative: bool = False
    digits: int = 0
    whole: int = 0
    fraction: int = -1

    @property
    def possible(self) -> bool:
        """Whether some number begins like this."""
        if not self.negative and self.whole == 0:
            return self._with(True, 0, 0, -1).possible or self._among(0, 10 ** (WHOLE_DIGITS + self.decimals) - 1)
        if self.whole == 0:
            return self._among(1, 10 ** (WHOLE_DIGITS + self.decimals) - 1)
        if self.fraction >= 0:
            unit = 10 ** (self.decimals - self.fraction)
            return self._among(self.digits * unit, (self.digits + 1) * unit - 1)
        unit = 10**self.decimals
        more = 0 if self.digits == 0 else WHOLE_DIGITS - self.whole
        return any(
            self._among(self.digits * 10**k * unit, (self.digits + 1) * 10**k * unit - 1) for k in range(more + 1)
        )

    def _among(self, low: int, high: int) -> bool:
        """Whether a number of this sign, and of a size from `low` to `high`, is within the bounds."""
        if self.negative:
            low, high = -high, min(-low, -1)
        low, high = max(low, self.least), min(high, self.most)
        return high // self.step * self.step >= low

    @property
    def nullable(self) -> bool:
        if self.whole == 0 or self.fraction == 0:
            return False
        size = self.digits * 10 ** (self.decimals - max(self.fraction, 0))
        return self._among(size, size)

    @property
    def first(self) -> int:
        return mask(byte for byte in b"-." + _DIGITS if self.read(byte) is not None)

    def read(self, byte: int) -> Grammar | None:
        after = self._after(byte)
        return after if after is not None and after.possible else None

    def _after(self, byte: int) -> Numeral | None:
        """What follows a byte by the form of numbers alone."""
        if byte in _DIGITS:
            full = self.whole == WHOLE_DIGITS or (self.whole > 0 and self.digits == 0)
            if self.fraction == self.decimals or (self.fraction < 0 and full):
                return None
            digits, more = self.digits * 10 + byte - ord("0"), int(self.fraction >= 0)
            return self._with(self.negative, digits, self.whole + 1 - more, self.fraction + more)
        if byte == ord("-") and not (self.negative or self.whole):
            return self._with(True, 0, 0, -1)
        if byte == ord(".") and self.decimals and self.whole and self.fraction < 0:
            return self._with(self.negative, self.digits, self.whole, 0)
        return None

    def _with(self, negative: bool, digits: int, whole: int, fraction: int) -> Numeral:
        return Numeral(self.least, self.most, self.decimals, self.step, negative, digits, whole, fraction)
