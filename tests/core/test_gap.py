"""R_gap against a reference that tries every way in which the unscored verdicts could come out."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynamicrubric.theory import delta_gap, ordered_pairs, r_gap_of_verdicts
from dynamicrubric.types import Verdict

Rows = list[list[bool | None]]


def verdict(said: bool | None) -> Verdict:
    if said is None:
        return Verdict.unscored("refusal")
    return Verdict.yes() if said else Verdict.no()


def gap_of(weights: list[int], better: list[bool], worse: list[bool]) -> Fraction:
    met = sum(w * (int(b) - int(c)) for w, b, c in zip(weights, better, worse, strict=True))
    return Fraction(met, sum(weights))


def smallest(weights: list[int], better: list[bool | None], worse: list[bool | None]) -> Fraction:
    """The gap of one pair, over all that its unscored verdicts could have been."""
    options = [[True, False] if said is None else [said] for said in (*better, *worse)]
    return min(
        gap_of(weights, list(both[: len(better)]), list(both[len(better) :]))
        for both in product(*options)
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[int], Rows, list[float]]:
    num_items, num_responses = draw(st.integers(1, 3)), draw(st.integers(2, 5))
    said = st.sampled_from([True, False, True, False, None])
    row = st.lists(said, min_size=num_items, max_size=num_items)
    rows = draw(st.lists(row, min_size=num_responses, max_size=num_responses))
    quality = st.integers(0, 3).map(float)
    weights = st.lists(st.integers(1, 5), min_size=num_items, max_size=num_items)
    return (
        draw(weights),
        rows,
        draw(st.lists(quality, min_size=num_responses, max_size=num_responses)),
    )


@given(cases())
@settings(max_examples=120)
def test_r_gap_is_the_mean_of_the_smallest_gaps_that_unscored_verdicts_leave(
    case: tuple[list[int], Rows, list[float]],
) -> None:
    weights, rows, quality = case
    pairs = ordered_pairs(quality)
    found = r_gap_of_verdicts(weights, [[verdict(v) for v in row] for row in rows], pairs)
    if not pairs or all(v is None for row in rows for v in row):
        assert found is None
        return
    expected = sum((smallest(weights, rows[i], rows[j]) for i, j in pairs), Fraction(0))
    assert found == pytest.approx(float(expected / len(pairs)), abs=1e-12)


@given(cases())
@settings(max_examples=60)
def test_r_gap_of_scored_verdicts_is_delta_gap(case: tuple[list[int], Rows, list[float]]) -> None:
    weights, rows, quality = case
    whole = [[bool(v) for v in row] for row in rows]
    scores = [
        sum(w for w, v in zip(weights, row, strict=True) if v) / sum(weights) for row in whole
    ]
    pairs = ordered_pairs(quality)
    found = r_gap_of_verdicts(weights, [[verdict(v) for v in row] for row in whole], pairs)
    expected = delta_gap(scores, pairs).value
    assert found == (None if expected is None else pytest.approx(expected, abs=1e-12))


@pytest.mark.parametrize("pairs", [((0, 2),), ((0, 0),), ((0, 1), (1, 0)), ((-1, 0),)])
def test_r_gap_of_pairs_that_are_none_is_refused(pairs: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(ValueError, match="not ordered pairs of 2 responses"):
        r_gap_of_verdicts([1], [[Verdict.yes()], [Verdict.no()]], pairs)


def test_r_gap_with_weights_for_other_items_is_refused() -> None:
    with pytest.raises(ValueError, match="verdict matrix"):
        r_gap_of_verdicts([1, 2], [[Verdict.yes()], [Verdict.no()]], ((0, 1),))
