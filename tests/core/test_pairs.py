"""P: which pairs there are, how much each counts, and what it is called."""

from __future__ import annotations

import math
from itertools import combinations, permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynamicrubric.theory import (
    CHOICES,
    Reference,
    decompose,
    delta_gap,
    item_parts,
    ordered_pairs,
    pairs,
    pairs_text,
    rank_accuracy,
    wrong_way_share,
)
from dynamicrubric.types import Score

QUALITY = [0.1, 0.9, 0.4, 0.4, 0.6]


def by_definition(quality: list[float], choice: str) -> dict[tuple[int, int], float]:
    """Probability of each ordered pair, in plain Python."""
    weights = {}
    for i, j in permutations(range(len(quality)), 2):
        if quality[i] <= quality[j]:
            continue
        between = any(quality[j] < other < quality[i] for other in quality)
        if choice == "adjacent" and between:
            continue
        weights[i, j] = quality[i] - quality[j] if choice == "margin" else 1.0
    return {pair: weight / sum(weights.values()) for pair, weight in weights.items()}


@pytest.mark.parametrize("choice", CHOICES)
@given(quality=st.lists(st.integers(0, 4).map(float), min_size=2, max_size=8))
def test_pairs_of_a_quality_are_those_of_the_definition(quality: list[float], choice: Any) -> None:
    found = pairs(Reference.of_quality(quality), choice)
    expected = by_definition(quality, choice)
    assert dict(zip(found.pairs, map(float, found.probabilities), strict=True)) == pytest.approx(
        expected
    )
    assert not len(found) or math.isclose(found.probabilities.sum(), 1.0)


def test_anchor_ranks_order_as_qualities_the_other_way_round() -> None:
    ranks = [3, 1, 2]
    assert pairs(Reference.of_ranks(ranks)).pairs == ordered_pairs([-3.0, -1.0, -2.0])
    assert pairs(Reference.of_ranks(ranks), "adjacent").pairs == ((1, 2), (2, 0))
    assert pairs(Reference.of_ranks([1, 1])).pairs == ()


def test_judge_orders_what_it_prefers_and_margin_is_how_often() -> None:
    nan = math.nan
    preferred = [[0.5, 1.0, nan, 0.5], [0.0, 0.5, 0.75, 0.5], [nan, 0.25, 0.5, nan],
                 [0.5, 0.5, nan, 0.5]]  # fmt: skip
    reference = Reference.of_judge(preferred)
    assert pairs(reference).pairs == ((0, 1), (1, 2))
    assert pairs(reference, "margin").probabilities == pytest.approx([1.0 / 1.5, 0.5 / 1.5])
    # 0 over 1 over 2, and nothing said of 0 and 2: no pair that it did not order itself
    assert pairs(reference, "adjacent").pairs == ((0, 1), (1, 2))


def test_judge_that_goes_round_in_a_circle_keeps_its_three_pairs() -> None:
    circle = [[0.5, 1.0, 0.0], [0.0, 0.5, 1.0], [1.0, 0.0, 0.5]]
    assert pairs(Reference.of_judge(circle)).pairs == ((0, 1), (1, 2), (2, 0))
    parts = decompose([1], [[True], [False], [False]], pairs(Reference.of_judge(circle)))
    assert parts is not None
    assert parts.delta_gap == pytest.approx(0.0)  # one right, one wrong, one tied


@pytest.mark.parametrize(
    ("preferred", "said"),
    [
        ([[0.5, 0.5]], "shape"),
        ([[0.5, 2.0], [-1.0, 0.5]], "shares"),
        ([[0.5, math.nan], [0.3, 0.5]], "NaN both ways"),
        ([[0.5, 0.7], [0.7, 0.5]], "add up to 1"),
    ],
)
def test_judge_with_impossible_preferences_is_refused(preferred: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Reference.of_judge(preferred)


def test_unknown_choice_and_nan_are_refused() -> None:
    unknown: Any = "hard"
    with pytest.raises(ValueError, match="there are"):
        pairs(Reference.of_quality([0.0, 1.0]), unknown)
    with pytest.raises(ValueError, match="NaN"):
        Reference.of_quality([0.0, math.nan])
    with pytest.raises(ValueError, match="NaN"):
        Reference.of_ranks([1, math.nan])


def test_every_p_has_its_words() -> None:
    kinds = ("true quality", "anchor ranks", "gold judge")
    said = {pairs_text(choice, kind) for choice in CHOICES for kind in kinds}
    assert len(said) == len(CHOICES) * len(kinds)
    assert pairs(Reference.of_ranks([1, 2]), "margin").text == pairs_text("margin", "anchor ranks")
    assert "ties left out" in pairs_text()


def test_default_is_uniform_and_its_figures_keep_their_bits() -> None:
    rows = [[True, False, True], [False, True, True], [True, True, False], [False, False, False],
            [True, False, False]]  # fmt: skip
    bare, named = ordered_pairs(QUALITY), pairs(Reference.of_quality(QUALITY))
    assert decompose([3, 1, 2], rows, bare) == decompose([3, 1, 2], rows, named)
    better, worse = np.array(bare).T
    scores = np.array(rows) @ (np.array([3, 1, 2]) / 6)
    parts = decompose([3, 1, 2], rows, named)
    assert parts is not None
    assert parts.delta_gap == float((scores[better] - scores[worse]).mean())


def test_gap_under_a_margin_weighs_each_pair_by_it() -> None:
    scores = [0.0, 1.0, 0.25]
    reference = Reference.of_quality([0.0, 1.0, 0.75])
    found = delta_gap(scores, pairs(reference, "margin"))
    # pairs (1, 0): 1.0 by 1.0; (1, 2): 0.75 by 0.25; (2, 0): 0.25 by 0.75
    assert found.value == pytest.approx((1.0 + 0.1875 + 0.1875) / 2.0)
    assert (found.n_scored, found.n_total) == (3, 3)
    missing = [Score.unscored("refusal"), 1.0, 0.25]
    left = delta_gap(missing, pairs(reference, "margin"))
    assert left.value == pytest.approx(0.75)
    assert (left.n_scored, left.n_total, left.reasons) == (1, 3, {"refusal": 2})
    assert rank_accuracy(scores, pairs(reference, "margin")).value == 1.0


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[int], list[list[bool]], list[float]]:
    num_items, num_responses = draw(st.integers(1, 5)), draw(st.integers(2, 8))
    row = st.lists(st.booleans(), min_size=num_items, max_size=num_items)
    rows = draw(st.lists(row, min_size=num_responses, max_size=num_responses))
    grade = st.integers(0, 4).map(float)
    quality = draw(st.lists(grade, min_size=num_responses, max_size=num_responses))
    return draw(st.lists(st.integers(1, 5), min_size=num_items, max_size=num_items)), rows, quality


@pytest.mark.parametrize("choice", CHOICES)
@given(case=cases())
@settings(max_examples=80)
def test_identity_and_items_hold_under_every_p(case: Any, choice: Any) -> None:
    weights, rows, quality = case
    ordered = pairs(Reference.of_quality(quality), choice)
    parts, items = decompose(weights, rows, ordered), item_parts(weights, rows, ordered)
    if parts is None or items is None:
        assert parts is items is None
        return
    assert parts.delta_gap == pytest.approx(
        parts.c_k * parts.r_disc - 2 * parts.r_dir - parts.r_cov, abs=1e-12
    )
    sums = [math.fsum(getattr(one, name) for one in items)
            for name in ("delta_gap", "disc", "wrong", "cov")]  # fmt: skip
    expected = [parts.delta_gap, parts.c_k * parts.r_disc, 2 * parts.r_dir, parts.r_cov]
    assert sums == pytest.approx(expected, abs=1e-12)
    gap = sum(
        p * sum(w * (rows[i][m] - rows[j][m]) for m, w in enumerate(weights)) / sum(weights)
        for (i, j), p in zip(ordered.pairs, ordered.probabilities, strict=True)
    )
    assert parts.delta_gap == pytest.approx(gap, abs=1e-12)


def test_wrong_way_share_is_of_what_tells_ordered_pairs_apart() -> None:
    quality = [3.0, 2.0, 1.0, 0.0]
    rows = [[True, False], [True, False], [False, True], [False, False]]
    items = item_parts([1, 1], rows, ordered_pairs(quality))
    parts = decompose([1, 1], rows, ordered_pairs(quality))
    assert items is not None and parts is not None
    # item 0 is right about 4 of 6 pairs; item 1 is right about 1 and wrong about 2
    shares = [wrong_way_share(one.disc, one.wrong, one.cov) for one in items]
    assert shares == pytest.approx([0.0, 2 / 3])
    together = wrong_way_share(parts.c_k * parts.r_disc, 2 * parts.r_dir, parts.r_cov)
    assert together == pytest.approx(2 / 7)
    assert wrong_way_share(0.0, 0.0, 0.0) is None


def test_pairs_never_hold_one_twice_or_the_wrong_way() -> None:
    for choice in CHOICES:
        found = pairs(Reference.of_quality(QUALITY), choice).pairs
        assert all(QUALITY[i] > QUALITY[j] for i, j in found)
        assert len({frozenset(pair) for pair in found}) == len(found)
    uniform = {frozenset(p) for p in pairs(Reference.of_quality(QUALITY)).pairs}
    assert uniform == {
        frozenset(p) for p in combinations(range(5), 2) if QUALITY[p[0]] != QUALITY[p[1]]
    }
