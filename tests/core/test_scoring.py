from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamicrubric.scoring import (
    score_response,
    score_set,
    scored_matrix,
    unscored_reasons,
    yes_matrix,
)
from dynamicrubric.types import Item, Rubric, Score, Verdict

weights = st.lists(st.integers(1, 5), min_size=1, max_size=6)


def rubric_of(item_weights: list[int]) -> Rubric:
    return Rubric(tuple(Item(f"criterion {m}", w) for m, w in enumerate(item_weights)))


def verdict_of(yes: bool) -> Verdict:
    return Verdict.yes() if yes else Verdict.no()


@given(weights, st.data())
def test_score_response_equals_exact_fractions(
    item_weights: list[int], data: st.DataObject
) -> None:
    met = data.draw(st.lists(st.booleans(), min_size=len(item_weights), max_size=len(item_weights)))
    score = score_response(rubric_of(item_weights), [verdict_of(yes) for yes in met])
    exact = Fraction(0)
    for weight, yes in zip(item_weights, met, strict=True):
        exact += Fraction(weight, sum(item_weights)) * yes
    assert score.value == float(exact)


@given(weights, st.data())
def test_score_response_one_unscored_verdict_is_never_a_number(
    item_weights: list[int], data: st.DataObject
) -> None:
    verdicts = [verdict_of(data.draw(st.booleans())) for _ in item_weights]
    verdicts[data.draw(st.integers(0, len(verdicts) - 1))] = Verdict.unscored("too_long")
    assert score_response(rubric_of(item_weights), verdicts) == Score.unscored("too_long")


def test_score_set_keeps_the_order_of_responses() -> None:
    # Case 14: scored, unscored(too_long), scored, in order.
    rows = [[Verdict.yes()], [Verdict.unscored("too_long")], [Verdict.no()]]
    scores = score_set(rubric_of([4]), rows)
    assert scores == (Score.of(1.0), Score.unscored("too_long"), Score.of(0.0))


@pytest.mark.parametrize("count", [0, 1, 3])
def test_score_response_with_another_number_of_verdicts_raises(count: int) -> None:
    with pytest.raises(ValueError, match="for 2 items"):
        score_response(rubric_of([1, 1]), [Verdict.yes()] * count)


def test_matrices_tell_no_from_unscored() -> None:
    rows = [[Verdict.yes(), Verdict.no()], [Verdict.unscored("refusal"), Verdict.yes()]]
    assert np.array_equal(yes_matrix(rows), [[True, False], [False, True]])
    assert np.array_equal(scored_matrix(rows), [[True, True], [False, True]])
    assert unscored_reasons(rows) == {"refusal": 1}
    with pytest.raises(ValueError, match="different lengths"):
        yes_matrix([[Verdict.yes()], []])
