from __future__ import annotations

import math
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynamicrubric.theory import (
    Decomposition,
    OrderedPairs,
    decompose,
    delta_gap,
    ordered_pairs,
    rank_accuracy,
    tie_rate,
)
from dynamicrubric.types import Score

Case = tuple[list[int], list[list[bool]], list[float]]


@st.composite
def cases(draw: st.DrawFn, ties: bool = True) -> Case:
    num_items, num_responses = draw(st.integers(1, 5)), draw(st.integers(2, 8))
    row = st.lists(st.booleans(), min_size=num_items, max_size=num_items)
    rows = draw(st.lists(row, min_size=num_responses, max_size=num_responses))
    grade = st.integers(0, 3 if ties else 1000).map(float)
    quality = draw(st.lists(grade, min_size=num_responses, max_size=num_responses, unique=not ties))
    return draw(st.lists(st.integers(1, 5), min_size=num_items, max_size=num_items)), rows, quality


def brute_force(weights: list[int], rows: list[list[bool]], pairs: OrderedPairs) -> Decomposition:
    """The definitions, pair by pair and item by item, in plain Python."""
    k, total = len(rows), sum(weights)
    gap = disc = r_dir = told_apart = 0.0
    for better, worse in pairs:
        for m, w in enumerate(weights):
            gap += w / total * (rows[better][m] - rows[worse][m]) / len(pairs)
            r_dir += w / total * (rows[worse][m] and not rows[better][m]) / len(pairs)
            told_apart += w / total * (rows[worse][m] != rows[better][m]) / len(pairs)
    for m, w in enumerate(weights):
        p = sum(row[m] for row in rows) / k
        disc += w / total * p * (1 - p)
    c_k = 2 * k / (k - 1)
    return Decomposition(gap, disc, r_dir, c_k * disc - told_apart, c_k)


def fields(parts: Decomposition) -> list[float]:
    return [parts.delta_gap, parts.r_disc, parts.r_dir, parts.r_cov, parts.c_k]


@given(cases())
@settings(max_examples=150)
def test_decompose_equals_brute_force_and_the_identity(case: Case) -> None:
    weights, rows, quality = case
    pairs = ordered_pairs(quality)
    parts = decompose(weights, rows, pairs)
    if parts is None:
        assert len(set(quality)) == 1
        return
    assert fields(parts) == pytest.approx(fields(brute_force(weights, rows, pairs)), abs=1e-12)
    identity = parts.c_k * parts.r_disc - 2 * parts.r_dir - parts.r_cov
    assert parts.delta_gap == pytest.approx(identity, abs=1e-12)
    assert parts.delta_gap == pytest.approx(parts.c_k * parts.r_disc - parts.eta_res, abs=1e-12)
    assert -1.0 <= parts.delta_gap <= 1.0
    assert 0.0 <= parts.r_disc <= 0.25
    assert 0.0 <= parts.r_dir <= 1.0


@given(cases(ties=False))
def test_decompose_every_pair_ordered_has_no_coverage_residual(case: Case) -> None:
    weights, rows, quality = case
    parts = decompose(weights, rows, ordered_pairs(quality))
    assert parts is not None
    assert parts.r_cov == pytest.approx(0.0, abs=1e-12)


def test_decompose_coverage_residual_takes_either_sign() -> None:
    rows = [[True], [False], [True], [False]]
    covered = decompose([1], rows, ((0, 1),))
    uncovered = decompose([1], rows, ((0, 2),))
    assert covered is not None
    assert uncovered is not None
    assert covered.r_cov < 0 < uncovered.r_cov


@given(cases(), st.integers(2, 9), st.randoms(use_true_random=False))
def test_decompose_scaled_weights_or_permuted_responses_change_nothing(
    case: Case, factor: int, rng: object
) -> None:
    weights, rows, quality = case
    parts = decompose(weights, rows, ordered_pairs(quality))
    order = list(range(len(rows)))
    rng.shuffle(order)  # type: ignore[attr-defined] # hypothesis gives a random.Random
    other = decompose(
        [factor * w for w in weights],
        [rows[k] for k in order],
        ordered_pairs([quality[k] for k in order]),
    )
    if parts is None or other is None:
        assert parts is other
        return
    assert fields(other) == pytest.approx(fields(parts), abs=1e-12)


@given(cases())
def test_decompose_reversed_reference_flips_the_gap_and_keeps_the_rest(case: Case) -> None:
    weights, rows, quality = case
    parts = decompose(weights, rows, ordered_pairs(quality))
    mirrored = decompose(weights, rows, ordered_pairs([-q for q in quality]))
    if parts is None or mirrored is None:
        assert parts is mirrored
        return
    assert mirrored.delta_gap == pytest.approx(-parts.delta_gap, abs=1e-12)
    assert mirrored.r_cov == pytest.approx(parts.r_cov, abs=1e-12)


def test_decompose_eight_responses_has_the_papers_constant() -> None:
    parts = decompose([1], [[k % 2 == 0] for k in range(8)], ordered_pairs(list(range(8))))
    assert parts is not None
    assert parts.c_k == pytest.approx(16 / 7)


def test_decompose_of_pairs_that_are_none_raises() -> None:
    for pairs in (((0, 2),), ((0, 0),), ((0, 1), (0, 1)), ((0, 1), (1, 0)), ((-1, 0),)):
        with pytest.raises(ValueError, match="not ordered pairs"):
            decompose([1], [[True], [False]], pairs)


@given(st.lists(st.integers(0, 3), max_size=7))
def test_ordered_pairs_hold_each_untied_pair_once(quality: list[int]) -> None:
    pairs = ordered_pairs(quality)
    assert all(quality[better] > quality[worse] for better, worse in pairs)
    untied = [(i, j) for i, j in combinations(range(len(quality)), 2) if quality[i] != quality[j]]
    assert sorted(tuple(sorted(pair)) for pair in pairs) == untied


def test_ordered_pairs_with_nan_raise() -> None:
    with pytest.raises(ValueError, match="NaN"):
        ordered_pairs([0.1, math.nan])


@given(cases())
def test_pair_measures_agree_with_counts_by_hand(case: Case) -> None:
    weights, rows, quality = case
    scores = [sum(w for w, yes in zip(weights, row, strict=True) if yes) for row in rows]
    unit = [score / sum(weights) for score in scores]
    pairs = ordered_pairs(quality)
    right = sum(scores[i] > scores[j] for i, j in pairs)
    tied = sum(scores[i] == scores[j] for i, j in pairs)
    accuracy, ties = rank_accuracy(unit, pairs), tie_rate(unit, pairs)
    assert accuracy.n_total == accuracy.n_scored == len(pairs)
    if not pairs:
        assert (accuracy.value, ties.value, delta_gap(unit, pairs).value) == (None, None, None)
        return
    assert accuracy.value == pytest.approx((right + tied / 2) / len(pairs))
    assert ties.value == pytest.approx(tied / len(pairs))
    parts = decompose(weights, rows, pairs)
    assert parts is not None
    assert delta_gap(unit, pairs).value == pytest.approx(parts.delta_gap, abs=1e-12)


def test_pair_measures_with_an_unscored_response_count_its_pairs() -> None:
    scores = [Score.of(0.75), Score.unscored("refusal"), Score.of(0.25)]
    pairs = ordered_pairs([3.0, 2.0, 1.0])
    gap = delta_gap(scores, pairs)
    assert (gap.value, gap.n_scored, gap.n_total) == (0.5, 1, 3)
    assert gap.reasons == {"refusal": 2}
    assert gap.bounds(-1.0, 1.0) == pytest.approx((-0.5, 2.5 / 3))
    assert rank_accuracy([0.5, None, None], pairs).value is None


def test_pair_measures_with_fewer_scores_than_responses_raise() -> None:
    with pytest.raises(ValueError, match="not ordered pairs"):
        delta_gap([0.5, 0.5], ordered_pairs([3.0, 2.0, 1.0]))
