"""Says numbers in English words.

Written here, not taken from a library: it is little, and the one that is kept (num2words, LGPL) would be a dependency
of the core for it.
"""

from __future__ import annotations


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_ONES = _words(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_TENS = _words("- - twenty thirty forty fifty sixty seventy eighty ninety")
_SCALES = ((10**12, "trillion"), (10**9, "billion"), (10**6, "million"), (1000, "thousand"), (100, "hundred"))
_ORDINALS = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}
MOST = 10**15  # beyond this a number is spelled digit by digit


def cardinal(number: int) -> str:
    """1234 is "one thousand two hundred thirty-four"; a negative number begins with "minus"."""
    if number < 0:
        return f"minus {cardinal(-number)}"
    if number >= MOST:
        return digits(str(number))
    if number < 20:
        return _ONES[number]
    if number < 100:
        tens, ones = divmod(number, 10)
        return _TENS[tens] + (f"-{_ONES[ones]}" if ones else "")
    size, name = next((size, name) for size, name in _SCALES if number >= size)
    many, rest = divmod(number, size)
    return f"{cardinal(many)} {name}" + (f" {cardinal(rest)}" if rest else "")


def ordinal(number: int) -> str:
    """21 is "twenty-first"."""
    words = cardinal(number)
    cut = max(words.rfind(" "), words.rfind("-")) + 1
    head, last = words[:cut], words[cut:]
    if last in _ORDINALS:
        return head + _ORDINALS[last]
    return head + (last.removesuffix("y") + "ieth" if last.endswith("y") else last + "th")


def year(number: int) -> str:
    """1995 is "nineteen ninety-five", 2005 "two thousand five", 1900 "nineteen hundred"."""
    century, rest = divmod(number, 100)
    if not 1000 < number < 10000 or number % 1000 < 10:
        return cardinal(number)
    if rest == 0:
        return f"{cardinal(century)} hundred"
    return f"{cardinal(century)} {'oh ' if rest < 10 else ''}{cardinal(rest)}"


def digits(text: str) -> str:
    """Every digit of `text` on its own; other characters are left out."""
    return " ".join(_ONES[int(char)] for char in text if char in "0123456789")


def decimal(text: str) -> str:
    """A written number such as "1,234", "3.14", "007" or "1.2.3", in words."""
    whole, *parts = text.replace(",", "").split(".")
    spelled = len(whole) > 1 and whole.startswith("0")
    words = digits(whole) if spelled else cardinal(int(whole or "0"))
    if len(parts) == 1:
        return f"{words} point {digits(parts[0])}"
    return " point ".join([words, *(cardinal(int(part)) for part in parts)])
