"""Takes markup and emoji out of text that arrives in pieces; what stays is what a reader of captions sees.

It consumes one unit at a time (a run of plain characters, a marker, a link) and only when it has seen enough to know
what the unit is. So the result never depends on how the text was cut into pieces. Plain text passes untouched.
"""

from __future__ import annotations

import html
import re

Unit = tuple[str, int]  # the text that stays, and how many characters of the source it covers

LINK_CHARS = 600  # a bracket that is longer without an end is a bracket
TAG_CHARS = 120
HEAD_CHARS = 200  # likewise for what may mark a whole line
ENTITY_CHARS = 10

_EMOJI = "\U0001f000-\U0001faff\u2600-\u27bf\u2b00-\u2bff\u2300-\u23ff\ufe0f\u200d\u20e3\U000e0000-\U000e007f"
_PLAIN = re.compile(rf"[^\n\\`*_~\[!<&| \t{_EMOJI}]+")
_EMOJI_CHAR = re.compile(f"[{_EMOJI}]+")
_LINK = re.compile(r"!?\[([^\]\n]*)\]\([^)\n]*\)")
_ADDRESS = re.compile(r"<(https?://[^<>\s]+|[\w.+-]+@[\w.-]+)>")
_TAG = re.compile(r"</?[a-zA-Z][^<>\n]*>")
_ENTITY = re.compile(r"&(?:#\d{1,6}|#x[0-9a-fA-F]{1,5}|[a-zA-Z]{2,8});")
_LINK_BEGUN = re.compile(r"!?\[[^\]\n]*(\](\([^)\n]*)?)?")
_TAG_BEGUN = re.compile(r"</?([a-zA-Z][^<>\n]*)?")
_ENTITY_BEGUN = re.compile(r"&#?[0-9a-zA-Z]*")
_ESCAPED = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")


class PlainText:
    """Feed it deltas; it returns the plain text that is certain so far. What it holds back is bounded."""

    def __init__(self, line_start: bool = True) -> None:
        self._raw = ""
        self._before = "\n"  # the source's last character that was consumed
        self._last = "\n"  # the last character that stayed
        self._blanks = ""  # blanks that stay if what follows them wants them
        self._gap = False  # an emoji went since the last character that stayed
        self._line_start = line_start
        self._in_table = False
        self._skip_line = False

    def push(self, delta: str) -> str:
        """Take in a delta; returns what stays of all that is certain."""
        self._raw += delta
        return self._run(final=False)

    def finish(self) -> str:
        """The rest: the text is over."""
        return self._run(final=True)

    def _run(self, final: bool) -> str:
        kept: list[str] = []
        at = 0
        while at < len(self._raw):
            rest = self._raw[at:] if at else self._raw
            unit = self._line(rest, final) if self._line_start or self._skip_line else self._inline(rest, final)
            if unit is None:
                break
            text, length = unit
            kept.append(self._keep(text))
            if length:
                self._before = self._raw[at + length - 1]
            at += length
        self._raw = self._raw[at:]
        if final:
            kept.append(self._blanks)
            self._blanks = ""
        return "".join(kept)

    def _keep(self, text: str) -> str:
        """Where an emoji went, blanks on both sides of it become those of one side, and none before a mark."""
        if not text:
            return ""
        if not text.strip(" \t"):
            if not self._gap:
                self._blanks += text
            elif not self._blanks and self._last != "\n":
                self._blanks = text
            if len(self._blanks) < HEAD_CHARS:
                return ""
            text = ""
        elif self._gap and text[0] in ".,;:!?\n":
            self._blanks = ""
        kept, self._blanks, self._gap = self._blanks + text, "", False
        self._last = kept[-1:]
        return kept

    # ---- what marks a whole line ----

    def _line(self, rest: str, final: bool) -> Unit | None:
        if self._skip_line:
            end = rest.find("\n")
            self._skip_line = end < 0
            self._line_start = end >= 0
            return "", end + 1 or len(rest)
        head = rest.lstrip(" \t")
        blanks = len(rest) - len(head)
        if not head and not final and blanks < HEAD_CHARS:
            return None
        marker = self._marker(head, final) if blanks < HEAD_CHARS else 0
        if marker is None:
            return None
        if marker == 0:
            self._line_start = False
            return rest[:blanks], blanks
        return "", blanks + marker

    def _marker(self, head: str, final: bool) -> int | None:
        """How long the marker is at the start of a line; 0 without one, None when that is not certain yet."""
        first = head[:1]
        if not first or first not in "#>-*+_=|`~":
            return 0
        run = len(head) - len(head.lstrip(first))
        after = head[run : run + 1]
        if run >= HEAD_CHARS:
            return 0
        if not after and not final:
            return None
        if first == "|":
            return self._row(head, final)
        if run >= 3 and first in "`~":
            self._skip_line = True
            return run
        if run >= 3 and first in "-*_=" and after in ("", "\n"):
            return run
        if (first == "#" and run <= 6 and after in (" ", "\t")) or (first in "-*+" and run == 1 and after == " "):
            self._line_start = False
            return run + 1
        if first == ">":
            return run + (after == " ")
        return 0

    def _row(self, head: str, final: bool) -> int | None:
        ruled = re.match(r"[|:\- \t]*", head)
        length = ruled.end() if ruled else 0
        if length == len(head) and not final and length < HEAD_CHARS:
            return None
        if length == len(head) or head[length] == "\n":
            return length  # the line between a table's head and its body
        self._in_table = True
        self._line_start = False
        return len(head) - len(head[1:].lstrip(" \t"))

    # ---- what stands in a line ----

    def _inline(self, rest: str, final: bool) -> Unit | None:
        plain = _PLAIN.match(rest)
        if plain:
            return plain[0], plain.end()
        match rest[0]:
            case "\n":
                self._line_start, self._in_table = True, False
                return "\n", 1
            case " " | "\t" | "|":
                return self._blank_or_bar(rest, final)
            case "\\":
                return self._escape(rest, final)
            case "`":
                return "", len(rest) - len(rest.lstrip("`"))
            case "*" | "_" | "~":
                return self._emphasis(rest, final)
            case "[" | "!":
                return self._link(rest, final)
            case "<":
                return self._tag(rest, final)
            case "&":
                return self._entity(rest, final)
        emoji = _EMOJI_CHAR.match(rest)
        self._gap = True
        return "", emoji.end() if emoji else 1

    def _blank_or_bar(self, rest: str, final: bool) -> Unit | None:
        if not self._in_table:
            return rest[0], 1
        after = rest.lstrip(" \t|")
        if not after and not final and len(rest) < HEAD_CHARS:
            return None
        run = rest[: len(rest) - len(after)]
        if "|" not in run:
            return run, len(run)
        return ("" if after[:1] in ("", "\n") else ", "), len(run)

    def _escape(self, rest: str, final: bool) -> Unit | None:
        if len(rest) == 1 and not final:
            return None
        return (rest[1], 2) if rest[1:2] in _ESCAPED and len(rest) > 1 else ("\\", 1)

    def _emphasis(self, rest: str, final: bool) -> Unit | None:
        mark = rest[0]
        run = len(rest) - len(rest.lstrip(mark))
        after = rest[run : run + 1]
        if run >= HEAD_CHARS:
            return "", HEAD_CHARS
        if not after and not final:
            return None
        before = self._before
        alone = not before.strip() and not after.strip()
        if mark == "~":
            stays = run == 1
        elif mark == "_":
            stays = alone or (before.isalnum() and after.isalnum())
        else:
            stays = alone or (before.isdigit() and after.isdigit())
        return (rest[:run] if stays else ""), run

    def _link(self, rest: str, final: bool) -> Unit | None:
        if rest[0] == "!" and rest[1:2] != "[":
            return None if len(rest) == 1 and not final else ("!", 1)
        found = _LINK.match(rest[:LINK_CHARS])
        if found:
            inner = PlainText(line_start=False)
            return inner.push(found[1]) + inner.finish(), found.end()
        if len(rest) < LINK_CHARS and not final and _LINK_BEGUN.fullmatch(rest):
            return None
        return rest[0], 1

    def _tag(self, rest: str, final: bool) -> Unit | None:
        found = _ADDRESS.match(rest[:TAG_CHARS])
        if found:
            return found[1], found.end()
        found = _TAG.match(rest[:TAG_CHARS])
        if found:
            return "", found.end()
        if len(rest) < TAG_CHARS and not final and _TAG_BEGUN.fullmatch(rest):
            return None
        return "<", 1

    def _entity(self, rest: str, final: bool) -> Unit | None:
        found = _ENTITY.match(rest[:ENTITY_CHARS])
        if found:
            return html.unescape(found[0]), found.end()
        if len(rest) < ENTITY_CHARS and not final and _ENTITY_BEGUN.fullmatch(rest):
            return None
        return "&", 1
