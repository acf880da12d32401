"""Items that single out one response: what counts as one, and what a rubric's share of them is."""

from __future__ import annotations

import numpy as np
import pytest

from dynamicrubric.evaluators.judging import JudgedSet, ResponseSet
from dynamicrubric.honesty.single import single_share, singled_out
from dynamicrubric.types import Item, Rubric, Score, Verdict

RESPONSES = ("Dear Ann, saw the tram.", "dear Ann, big hug", "no hug, happy birthday", "WOW")


def found(
    criterion: str, met: str, scored: str = "1111", prompt: str = "Write to Ann"
) -> int | None:
    yes = np.array([[c == "1"] for c in met])
    known = np.array([[c == "1"] for c in scored])
    return singled_out([criterion], RESPONSES, prompt, yes, known)[0]


@pytest.mark.parametrize(
    ("criterion", "met", "one"),
    [
        ("mentions the tram", "1000", 0),
        ('says "TRAM"', "1000", 0),
        ("mentions the tram", "1100", None),  # two meet it
        ("mentions the tram", "0000", None),
        ("mentions the tram", "0100", None),  # met by another than the one whose word it is
        ("sends a hug", "0100", None),  # the word is two responses' own
        ("wishes a happy birthday", "0010", 2),
        ("is written to Ann", "1000", None),  # the prompt's word
        ("is poetic", "1000", None),  # met by one alone, in nobody's words: may be a rare virtue
        ("shouts", "0001", None),
        ("", "1000", None),
        ("a be to", "1000", None),  # no word is long enough to be somebody's own
    ],
)
def test_item_singles_out_the_one_response_that_meets_it_in_its_own_words(
    criterion: str, met: str, one: int | None
) -> None:
    assert found(criterion, met) == one


def test_item_with_an_unscored_verdict_singles_out_nobody() -> None:
    assert found("mentions the tram", "1000", scored="1101") is None


def test_of_two_responses_nobody_is_singled_out() -> None:
    yes = np.array([[True], [False]])
    assert singled_out(["mentions the tram"], RESPONSES[:2], "", yes, ~np.zeros((2, 1), bool)) == (
        None,
    )


def test_share_of_a_rubric_is_by_weight() -> None:
    rubric = Rubric((Item("mentions the tram", 1), Item("sends a hug", 3)))
    rows = [(True, False), (False, True), (False, True), (False, False)]
    verdicts = tuple(tuple(Verdict.yes() if v else Verdict.no() for v in row) for row in rows)
    judged = JudgedSet(rubric, verdicts, tuple(Score.of(0.0) for _ in rows))
    assert single_share(judged, ResponseSet("p", "Write", RESPONSES)) == 0.25
