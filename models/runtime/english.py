"""Rewrites a clause of English as an English synthesiser should read it: no digit, sign or abbreviation is left.

Each rule is a pattern and what it is read as. Their order matters: what spans more of the text comes first.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from re import Match

from models.runtime.lexicon import CURRENCY, FRACTIONS, MONTH, MONTHS, PARTS, SHORT, SIZES, UNIT, UNITS
from models.runtime.numbers import cardinal, decimal, digits, ordinal, year
from models.runtime.traced import Traced

Rule = tuple[re.Pattern[str], Callable[[Match[str]], str]]

NUMBER = r"\d+(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?"
# ---- addresses -----------------------------------------------------------------------------------------------------


def _spell_address(text: str) -> str:
    for sign, word in ((".", "dot"), ("/", "slash"), ("-", "dash"), ("_", "underscore"), ("@", "at")):
        text = text.replace(sign, f" {word} ")
    text = re.sub(r"[^A-Za-z0-9 ]+", " ", text)
    return re.sub(r"\d+", lambda found: f" {digits(found[0])} ", text)


def _url(found: Match[str]) -> str:
    """The host, and a short path; nobody listens to a long one."""
    address, ending = found[1].rstrip("/"), ""
    while address and address[-1] in ".,;:!?":
        address, ending = address[:-1], address[-1] + ending
    host, _, path = address.partition("/")
    short = f"{host}/{path}" if path and len(path) <= 24 and "?" not in path else host
    return _spell_address(short) + ending


def _email(found: Match[str]) -> str:
    return _spell_address(found[0])


# ---- numbers with something around them ----------------------------------------------------------------------------


def _money(found: Match[str]) -> str:
    one, many, coin, coins = CURRENCY[found["sign"]]
    amount, size = found["amount"], found["size"]
    if size:
        return f"{decimal(amount)} {SIZES.get(size.lower(), size.lower())} {many}"
    whole_text, _, part = amount.replace(",", "").partition(".")
    whole = int(whole_text)
    if len(part) not in (0, 2):
        return f"{decimal(amount)} {many}"
    cents = int(part or "0")
    if whole == 0 and cents:
        return f"{cardinal(cents)} {coin if cents == 1 else coins}"
    words = f"{cardinal(whole)} {one if whole == 1 else many}"
    if 0 < cents < 10:
        return f"{words} and {cardinal(cents)} {coin if cents == 1 else coins}"
    return f"{words} {cardinal(cents)}" if cents else words


def _minutes(minute: int) -> str:
    return f"oh {cardinal(minute)}" if minute < 10 else cardinal(minute)


def _time(found: Match[str]) -> str:
    hour, minute, half = int(found[1]), int(found[2]), (found[3] or "").upper()
    if half:
        words = cardinal(hour) if minute == 0 else f"{cardinal(hour)} {_minutes(minute)}"
        return f"{words} {half[0]} M"
    if minute == 0:
        return f"{cardinal(hour)} o'clock" if 1 <= hour <= 12 else f"{cardinal(hour)} hundred"
    return f"{cardinal(hour)} {_minutes(minute)}"


def _hour(found: Match[str]) -> str:
    return f"{cardinal(int(found[1]))} {found[2].upper()} M"


def _month(name: str) -> str:
    return next(month for month in MONTHS if month.startswith(name[:3].title()))


def _iso_date(found: Match[str]) -> str:
    return _date(found[1], int(found[2]), int(found[3]), found[0])


def _american_date(found: Match[str]) -> str:
    return _date(found[3], int(found[1]), int(found[2]), found[0])


def _date(year_text: str, month: int, day: int, written: str) -> str:
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return written
    return f"{MONTHS[month - 1]} {ordinal(day)}, {year(int(year_text))}"


def _month_day(found: Match[str]) -> str:
    return f"{_month(found[1])} {ordinal(int(found[2]))}" + (f", {year(int(found[3]))}" if found[3] else "")


def _day_month(found: Match[str]) -> str:
    return f"{ordinal(int(found[1]))} of {_month(found[2])}" + (f" {year(int(found[3]))}" if found[3] else "")


def _phone(found: Match[str]) -> str:
    plus = "plus " if found[0].startswith("+") else ""
    return plus + ", ".join(digits(group) for group in re.findall(r"\d+", found[0]))


def _range(found: Match[str]) -> str:
    first, second = found[1], found[2]
    both_years = all(_is_year(text) for text in (first, second))
    say = (lambda text: year(int(text))) if both_years else decimal
    unit = "" if not found[3] else " percent" if found[3] == "%" else f" {UNITS[found[3]][1]}"
    return f"{say(first)} to {say(second)}{unit}"


def _percent(found: Match[str]) -> str:
    return f"{decimal(found[1])} percent"


def _measure(found: Match[str]) -> str:
    one, many = UNITS[found[3]]
    return f"{'minus ' if found[1] else ''}{decimal(found[2])} {one if found[2] == '1' else many}"


def _fraction(found: Match[str]) -> str:
    above, below = int(found[1]), int(found[2])
    if below in PARTS and 0 < above < below:
        return f"{cardinal(above)} {PARTS[below][above > 1]}"
    return f"{cardinal(above)} {'over ' if (above, below) != (24, 7) else ''}{cardinal(below)}"


def _decade(found: Match[str]) -> str:
    words = year(int(found[1])) if len(found[1]) == 4 else cardinal(int(found[1]))
    return words.removesuffix("y") + "ies" if words.endswith("y") else words + "s"


def _is_year(text: str) -> bool:
    return len(text) == 4 and text.isdigit() and 1100 <= int(text) < 2100


def _plain_number(found: Match[str]) -> str:
    sign = "minus " if found[1] else ""
    return sign + (year(int(found[2])) if _is_year(found[2]) else decimal(found[2]))


# ---- words and signs -----------------------------------------------------------------------------------------------


def _short(found: Match[str]) -> str:
    return SHORT[found[1].lower()]


def _saint_or_street(found: Match[str]) -> str:
    return "Saint " if found[1] else "Street"


def _initials(found: Match[str]) -> str:
    return found[0].replace(".", " ").upper()


def _rule(pattern: str, read: Callable[[Match[str]], str] | str, flags: re.RegexFlag = re.NOFLAG) -> Rule:
    return re.compile(pattern, flags), (lambda _: read) if isinstance(read, str) else read


_RULES: tuple[Rule, ...] = (
    _rule(r"\b(?:https?://)(?:www\.)?(\S+)", _url),
    _rule(r"\bwww\.(\S+)", _url),
    _rule(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b", _email),
    _rule(r"\b((?:[a-z0-9-]+\.)+(?:com|org|net|io|dev|edu|gov|ai|co\.uk)(?:/\S*)?)(?=[\s,;:.!?)]|$)", _url),
    _rule(
        rf"(?P<sign>[$€£¥])\s?(?P<amount>{NUMBER})(?:\s?(?P<size>thousand|million|billion|trillion|[kKMB]|mn|bn|tn)\b)?",
        _money,
    ),
    _rule(r"\b(\d{4})-(\d{2})-(\d{2})\b", _iso_date),
    _rule(r"\b(\d{1,2})/(\d{1,2})/(\d{4})\b", _american_date),
    _rule(rf"\b({MONTH})\b\.? (\d{{1,2}})(?:st|nd|rd|th)?\b(?!:)(?:,? (\d{{4}})\b)?", _month_day),
    _rule(rf"\b(\d{{1,2}})(?:st|nd|rd|th)? (?:of )?({MONTH})\b\.?(?:,? (\d{{4}})\b)?", _day_month),
    _rule(r"\b(\d{1,2}):([0-5]\d)(?::[0-5]\d)?(?:\s?([ap])\.?m\b\.?)?", _time, re.IGNORECASE),
    _rule(r"\b(\d{1,2})\s?([ap])\.?m\b\.?", _hour, re.IGNORECASE),
    _rule(r"(?<![\w.])\+?\d{0,3}[ .-]?\(?\d{3}\)?[ .-]\d{3}[ .-]\d{4}\b", _phone),
    _rule(r"(?<![\w.-])\d{3}-\d{4}\b", _phone),
    _rule(rf"(?<![\w.-])({NUMBER})\s?[-\u2013—]\s?({NUMBER})(?:\s?(%|(?:{UNIT})(?![\w/])))?(?![\w-])", _range),
    _rule(rf"(?<![\w.])({NUMBER})\s?%", _percent),
    _rule(r"\b(\d+)(?:st|nd|rd|th)\b", lambda found: ordinal(int(found[1]))),
    _rule(r"\b([1-9]0|\d{3}0)s\b", _decade),
    _rule(rf"((?<![\w)])[-\u2212])?(?<![\w.])({NUMBER})\s?({UNIT})(?![\w/])", _measure),
    _rule(r"\b(\d{1,3})/(\d{1,3})\b(?!/)", _fraction),
    _rule(r"[½⅓⅔¼¾]", lambda found: f" {FRACTIONS[found[0]]} "),
    _rule(r"\b[Nn]os?\. ?(?=\d)", "number "),
    _rule(r"#(?=\d)", "number "),
    _rule(r"#(?=\w)", "hashtag "),
    _rule(r"\bSt\.(\s+(?=[A-Z]))?", _saint_or_street),
    _rule(rf"\b({'|'.join(map(re.escape, SHORT))})\.", _short, re.IGNORECASE),
    _rule(r"\b(?:[A-Za-z]\.){2,}", _initials),
    _rule(r"(?<=\d) ?[*\u00d7] ?(?=\d)", " times "),
    _rule(r"(?<=\d) ?÷ ?(?=\d)", " divided by "),
    _rule(r"(?<=\d) ?\^ ?(?=\d)", " to the power of "),
    _rule(r"(?<=[\w)]) - (?=\d)", " minus "),
    _rule(r"(?<![\d.])\d+(?:\.\d+){2,}(?!\d)", lambda found: f" {decimal(found[0])} "),
    _rule(rf"(?:(?<=\s)|^|(?<=\())([-\u2212]?)({NUMBER})", _plain_number),
    _rule(rf"()({NUMBER})", lambda found: f" {_plain_number(found)} "),
    _rule(r"(?<=\w)\+(?=\s|$)", " plus"),
    _rule(r"\s?\+\s?", " plus "),
    _rule(r"\s?(?<![<>=!])==?(?!=)\s?", " equals "),
    _rule(r"\s?<\s", " less than "),
    _rule(r"\s?>\s", " greater than "),
    _rule(r"~(?=\s?\w)", "about "),
    _rule(r"&", " and "),
    _rule(r"@", " at "),
    _rule(r"%", " percent "),
    _rule(r"°", " degrees "),
    _rule(r"(?<=\w)/(?=\w)", " "),
    _rule(r"[→⇒]", " to "),
    _rule(r"_", " "),
)
_HARD_BLANK = re.compile("\u00a0")
_PAUSES: tuple[Rule, ...] = (
    _rule(r"[\u2019\u2018\u02bc`]", "'"),
    _rule(r"(?:\.\s?){2,}|…", "... "),
    _rule(r"\s*(?:—|\u2013|\s-+\s|--+)\s*", ", "),
    _rule(r"[\"“”«»„*^|~\\]", " "),
    _rule(r"[()\[\]{}<>]", ", "),
)
_TIDY: tuple[Rule, ...] = (
    _rule(r"\s+", " "),
    _rule(r"\s+(?=[,;:.!?])", ""),
    _rule(r"(?:[,;:]\s*)+(?=[,;:.!?])", ""),
    _rule(r"\.{3}\s?$", "."),
    _rule(r"\.{3}", ","),
)


def english(clause: str) -> str:
    """What to read for a clause; empty when there is nothing to say in it. ASCII signs and letters of any script."""
    return read_english(Traced.of(clause)).text


def read_english(clause: Traced) -> Traced:
    """The same, and what of the clause each character of it comes from."""
    text = _apply(_PAUSES[:1], clause.rewrite(_HARD_BLANK, lambda _: " "))
    text = _apply(_TIDY, _apply(_PAUSES, _apply(_RULES, text)))
    text = text.keep(_speakable).strip().lstrip(",;:.!? ")
    return text if any(char.isalnum() for char in text.text) else text[:0]


def _apply(rules: tuple[Rule, ...], text: Traced) -> Traced:
    for pattern, read in rules:
        text = text.rewrite(pattern, read)
    return text


def _speakable(char: str) -> bool:
    return char in " ,;:.!?'-" or unicodedata.category(char)[0] in "LMN"
