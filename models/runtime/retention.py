"""Chooses what of a prompt that is too long a thinker reads: the oldest parts go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipeline.chunk import CallPart, Part, ResultPart, Retention, TextPart


def head_of(parts: Sequence[Part]) -> int:
    """How many parts are instructions: the system's words at the start."""
    for index, part in enumerate(parts):
        if not isinstance(part, TextPart) or part.role != "system":
            return index
    return len(parts)


def fit(parts: Sequence[Part], sizes: Sequence[int], room: int, retention: Retention) -> list[int]:
    """The indices of the parts that are kept, for `sizes` and `room` in tokens.

    Instructions and the last part always stay, even where there is no room for them; a call goes with its result. What
    is kept follows from the conversation alone as it grew part by part: the cut stays where it is until the room is
    full again, and so a thinker's cache stays of use.
    """
    head, last = head_of(parts), len(parts) - 1
    most = room - sum(sizes[:head])
    if retention.most_tokens is not None:
        most = min(most, retention.most_tokens)
    groups = _groups(parts)
    dropped: set[int] = set()
    held = 0
    oldest = head
    for newest in range(head, len(parts)):
        if newest in dropped:
            continue
        held += sizes[newest]
        if held <= most:
            continue
        while held > most * retention.ratio and oldest < newest:
            group = groups[oldest]
            oldest += 1
            if newest in group or last in group or not dropped.isdisjoint(group):
                continue
            dropped.update(group)
            held -= sum(sizes[index] for index in group if index <= newest)
    return [index for index in range(len(parts)) if index not in dropped]


def _groups(parts: Sequence[Part]) -> list[frozenset[int]]:
    """For each part, those that go with it."""
    calls: dict[str, set[int]] = {}
    for index, call_id in _calls(parts):
        calls.setdefault(call_id, set()).add(index)
    groups = [frozenset((index,)) for index in range(len(parts))]
    for index, call_id in _calls(parts):
        groups[index] = frozenset(calls[call_id])
    return groups


def _calls(parts: Sequence[Part]) -> Iterator[tuple[int, str]]:
    for index, part in enumerate(parts):
        if isinstance(part, CallPart | ResultPart):
            yield index, part.call_id
