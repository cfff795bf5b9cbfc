"""Holds the comparison of words against what the default recognizer heard of replies that came back, and of users.

`heard_back.tsv` was recorded with the default models: replies of the talker at -20 dB in a room with noise, 150 ms late
(`late`: 900 ms), and utterances in a shifted voice over them. Each line tells whose words they are, what was heard, and
what had been said by us within 2 s; behind the bar what of it was said just before.

    cut        an echo that has silenced its reply        over   a user over a reply by headphones
    whole      one that has not                           into   a user who speaks into an echo
    pass       a beginning of one, while in doubt         over pass, into pass   beginnings of these
"""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import pytest

from duplex_server.realtime.echo import Said, Whose, echoes, whose

RECORD = Path(__file__).parent / "heard_back.tsv"
MISSED = {"cut": 0.31, "cut late": 0.1, "whole": 0.01, "whole late": 0.05, "pass": 0.05}
"""The most of our own words that may pass for a user's."""
EATEN = {"over": 0.02, "over pass": 0.03, "into": 0.08, "into pass": 0.08}
"""The most of a user's words that may pass for ours."""
UNSURE = 0.15
"""The most of the beginnings of a user's words that may leave it open whose they are."""


def verdicts() -> dict[str, Counter[Whose]]:
    """How often the words of each kind are taken for whose."""
    found: dict[str, Counter[Whose]] = defaultdict(Counter)
    for line in RECORD.read_text(encoding="utf-8").splitlines():
        kind, heard, words = line.split("\t")
        said = Said(words.replace("|", ""), words.split("|")[1], over=True)
        found[kind][whose(heard, said) if "pass" in kind else "ours" if echoes(heard, said) else "theirs"] += 1
    return found


@pytest.mark.parametrize("kind", MISSED)
def test_our_own_words_are_known_however_they_are_misheard(kind: str) -> None:
    taken = verdicts()[kind]
    assert taken["theirs"] / taken.total() <= MISSED[kind]


@pytest.mark.parametrize("kind", EATEN)
def test_a_user_s_words_stay_theirs(kind: str) -> None:
    taken = verdicts()[kind]
    assert taken["ours"] / taken.total() <= EATEN[kind]


@pytest.mark.parametrize("kind", ["over pass", "into pass"])
def test_few_users_have_to_say_more_before_they_are_heard(kind: str) -> None:
    taken = verdicts()[kind]
    assert taken["unsure"] / taken.total() <= UNSURE


def test_the_record_has_enough_of_each() -> None:
    assert verdicts().keys() == MISSED.keys() | EATEN.keys()
