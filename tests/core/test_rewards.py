from __future__ import annotations

import math
import statistics
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynamicrubric.rewards import (
    combine_advantages,
    group_advantages,
    r_anchor,
    r_anchor_of_verdicts,
    r_disc,
    r_disc_of_verdicts,
    rank_weights,
    zero_std_rate,
)
from dynamicrubric.types import Score, Verdict

Rows = list[list[bool]]


@st.composite
def sets_of_verdicts(draw: st.DrawFn, max_responses: int = 8) -> tuple[list[int], Rows]:
    num_items = draw(st.integers(1, 5))
    row = st.lists(st.booleans(), min_size=num_items, max_size=num_items)
    rows = draw(st.lists(row, min_size=1, max_size=max_responses))
    return draw(st.lists(st.integers(1, 5), min_size=num_items, max_size=num_items)), rows


def r_disc_over_pairs(weights: list[int], rows: Rows) -> float:
    """p(1 - p) is the share of ordered pairs (i, j), i = j included, with yes at i and no at j."""
    total = 0.0
    for m, weight in enumerate(weights):
        split = sum(a[m] and not b[m] for a, b in product(rows, repeat=2))
        total += weight * split / len(rows) ** 2
    return total / sum(weights)


def as_verdicts(rows: Rows) -> list[list[Verdict]]:
    return [[Verdict.yes() if yes else Verdict.no() for yes in row] for row in rows]


@given(sets_of_verdicts())
def test_r_disc_equals_brute_force_over_pairs(case: tuple[list[int], Rows]) -> None:
    weights, rows = case
    assert r_disc(weights, rows) == pytest.approx(r_disc_over_pairs(weights, rows), abs=1e-12)
    assert 0.0 <= r_disc(weights, rows) <= 0.25


@given(sets_of_verdicts(), st.floats(0.01, 1000.0), st.randoms(use_true_random=False))
def test_r_disc_scaled_weights_or_permuted_responses_change_nothing(
    case: tuple[list[int], Rows], factor: float, rng: object
) -> None:
    weights, rows = case
    expected = pytest.approx(r_disc(weights, rows), abs=1e-12)
    assert r_disc([factor * w for w in weights], rows) == expected
    shuffled = list(rows)
    rng.shuffle(shuffled)  # type: ignore[attr-defined] # hypothesis gives a random.Random
    assert r_disc(weights, shuffled) == expected
    assert r_disc(weights, ~np.array(rows)) == expected  # yes and no trade places


def test_r_disc_of_bad_input_raises() -> None:
    with pytest.raises(ValueError, match="positive"):
        r_disc([1, 0], [[1, 0]])
    with pytest.raises(ValueError, match="positive"):
        r_disc([], [[]])
    with pytest.raises(ValueError, match="shape"):
        r_disc([1], [[1, 0]])
    with pytest.raises(ValueError, match="shape"):
        r_disc([1], np.zeros((0, 1), dtype=bool))
    with pytest.raises(ValueError, match="0 or 1"):
        r_disc([1], [[0.5]])


@given(sets_of_verdicts())
def test_r_disc_of_verdicts_all_scored_equals_r_disc(case: tuple[list[int], Rows]) -> None:
    weights, rows = case
    result = r_disc_of_verdicts(weights, as_verdicts(rows))
    assert result.value == pytest.approx(r_disc(weights, rows), abs=1e-12)
    assert (result.n_scored, result.n_total) == (len(rows) * len(weights),) * 2


@given(sets_of_verdicts(max_responses=5), st.data())
def test_r_disc_of_verdicts_failure_never_adds(
    case: tuple[list[int], Rows], data: st.DataObject
) -> None:
    weights, rows = case
    cells = [(k, m) for k in range(len(rows)) for m in range(len(weights))]
    failed = data.draw(st.lists(st.sampled_from(cells), max_size=4, unique=True))
    verdicts = as_verdicts(rows)
    for k, m in failed:
        verdicts[k][m] = Verdict.unscored("refusal")
    result = r_disc_of_verdicts(weights, verdicts)
    assert result.n_total - result.n_scored == len(failed)
    if result.value is None:
        assert result.n_scored == 0
        return
    for outcome in product([False, True], repeat=len(failed)):
        filled = [list(row) for row in rows]
        for (k, m), yes in zip(failed, outcome, strict=True):
            filled[k][m] = yes
        assert result.value <= r_disc(weights, filled) + 1e-12


def test_r_disc_of_verdicts_verifier_down_has_no_value() -> None:
    result = r_disc_of_verdicts([1], [[Verdict.unscored("down")], [Verdict.unscored("down")]])
    assert (result.value, result.n_scored, result.reasons) == (None, 0, {"down": 2})


def test_r_disc_of_verdicts_item_with_one_scored_keeps_its_weight() -> None:
    rows = [[Verdict.yes(), Verdict.yes()], [Verdict.no(), Verdict.unscored("refusal")]]
    assert r_disc_of_verdicts([1, 3], rows).value == pytest.approx(0.25 / 4)


def r_anchor_by_loops(scores: list[float]) -> float:
    total = 0.0
    for i in range(1, len(scores) + 1):
        for j in range(i + 1, len(scores) + 1):
            gap = scores[i - 1] - scores[j - 1]
            total += math.log(1.0 / (1.0 + math.exp(-gap))) / ((j - i) * 2 ** (i - 1))
    return total


anchor_lists = st.lists(st.floats(0.0, 1.0), min_size=2, max_size=9)


@given(anchor_lists)
def test_r_anchor_equals_the_double_loop_and_its_bounds(scores: list[float]) -> None:
    value = r_anchor(scores)
    assert value is not None
    assert value == pytest.approx(r_anchor_by_loops(scores), abs=1e-12)
    total = rank_weights(len(scores)).sum()
    assert total * math.log(1 / (1 + math.e)) - 1e-9 <= value
    assert value <= total * math.log(1 / (1 + math.exp(-1))) + 1e-9


@given(anchor_lists, st.floats(0.0, 1.0))
def test_r_anchor_higher_score_of_the_best_anchor_never_costs(
    scores: list[float], raised: float
) -> None:
    before, after = r_anchor(scores), r_anchor([max(scores[0], raised), *scores[1:]])
    assert before is not None
    assert after is not None
    assert after >= before - 1e-12


def test_r_anchor_true_order_is_not_its_maximum() -> None:
    # A property of the published weights, written down because it surprises: `1 / (j - i)` makes
    # the last rank lose to few close neighbours, so a good score costs more at rank 4 than at 7.
    true_order = r_anchor([1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0])
    last_promoted = r_anchor([1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0])
    assert true_order == pytest.approx(-2.5231, abs=1e-4)
    assert last_promoted == pytest.approx(-2.4832, abs=1e-4)
    five, five_promoted = r_anchor([0.6] * 4 + [0.5]), r_anchor([0.6] * 3 + [0.5, 0.6])
    assert five is not None
    assert five_promoted is not None
    assert five_promoted > five
    pull = rank_weights(7).sum(axis=1) - rank_weights(7).sum(axis=0)
    assert pull.argmin() == 3


def test_r_anchor_huge_gaps_stay_finite() -> None:
    assert r_anchor([0.0, 1000.0]) == pytest.approx(-1000.0)
    assert r_anchor([1000.0, 0.0]) == 0.0


def test_r_anchor_with_one_unscored_anchor_is_none() -> None:
    assert r_anchor([1.0, None, 0.0]) is None
    assert r_anchor([Score.of(1.0), Score.unscored("refusal")]) is None
    assert r_anchor([Score.of(1.0), Score.of(0.0)]) == r_anchor([1.0, 0.0])


@given(sets_of_verdicts(), st.data())
def test_r_anchor_of_verdicts_is_the_worst_that_the_unscored_ones_leave_a_pair(
    case: tuple[list[int], Rows], data: st.DataObject
) -> None:
    weights, rows = case
    rows = [*rows, rows[0]]  # two anchors at least
    verdicts = as_verdicts(rows)
    assert r_anchor_of_verdicts(weights, verdicts) == r_anchor(scores_of(weights, rows))
    places = list(product(range(len(rows)), range(len(weights))))
    missing = set(data.draw(st.lists(st.sampled_from(places), max_size=len(places) - 1)))
    for k, m in missing:
        verdicts[k][m] = Verdict.unscored("down")
    found = r_anchor_of_verdicts(weights, verdicts)
    assert found is not None
    total = 0.0
    for i in range(len(rows)):
        for j in range(i + 1, len(rows)):
            better = [row and (i, m) not in missing for m, row in enumerate(rows[i])]
            worse = [row or (j, m) in missing for m, row in enumerate(rows[j])]
            gap = np.subtract(*scores_of(weights, [better, worse]))
            total += math.log(1.0 / (1.0 + math.exp(-gap))) / ((j - i) * 2**i)
    assert found == pytest.approx(total, abs=1e-12)
    if missing:  # below it however they had come out
        filled = [list(row) for row in rows]
        for k, m in missing:
            filled[k][m] = data.draw(st.booleans())
        assert found <= r_anchor(scores_of(weights, filled)) + 1e-12


def scores_of(weights: list[int], rows: Rows) -> list[float]:
    return [sum(w for w, yes in zip(weights, row, strict=True) if yes) / sum(weights)
            for row in rows]  # fmt: skip


def test_r_anchor_of_verdicts_without_a_scored_one_is_none() -> None:
    assert r_anchor_of_verdicts([1], [[Verdict.unscored("down")]] * 2) is None


def test_r_anchor_of_verdicts_of_bad_input_raises() -> None:
    with pytest.raises(ValueError, match="two entries"):
        r_anchor_of_verdicts([1], [[Verdict.yes()]])
    with pytest.raises(ValueError, match="weights"):
        r_anchor_of_verdicts([0], [[Verdict.yes()]] * 2)


def test_r_anchor_of_bad_input_raises() -> None:
    with pytest.raises(ValueError, match="two entries"):
        r_anchor([1.0])
    with pytest.raises(ValueError, match="finite"):
        r_anchor([math.nan, None])


def test_rank_weights_of_seven_follow_the_formula() -> None:
    weights = rank_weights(7)
    assert weights[0, 6] == pytest.approx(1 / 6)
    assert weights[5, 6] == pytest.approx(1 / 32)
    assert not np.tril(weights).any()


def advantages_by_hand(rewards: list[float | None]) -> list[float]:
    scored = [reward for reward in rewards if reward is not None]
    if len(scored) < 2:
        return [0.0] * len(rewards)
    mean, spread = statistics.fmean(scored), statistics.stdev(scored)
    return [0.0 if r is None else (r - mean) / (spread + 1e-4) for r in rewards]


groups = st.lists(st.none() | st.floats(-10.0, 10.0).map(lambda x: round(x, 3)), max_size=8)


@given(groups)
def test_group_advantages_equal_the_statistics_module(rewards: list[float | None]) -> None:
    assert group_advantages(rewards) == pytest.approx(advantages_by_hand(rewards), abs=1e-6)


def test_group_advantages_leave_the_unscored_row_out() -> None:
    # Case 12: the mean and spread of [1, 3, 2] for the first three, 0 for the fourth.
    with_gap = group_advantages([1.0, 3.0, 2.0, None])
    assert with_gap == [*group_advantages([1.0, 3.0, 2.0]), 0.0]
    assert with_gap == pytest.approx([-1 / 1.0001, 1 / 1.0001, 0.0, 0.0])


@pytest.mark.parametrize("rewards", [[], [None], [0.3], [0.3, None], [0.1, 0.1, 0.1]])
def test_group_advantages_without_spread_are_exactly_zero(rewards: list[float | None]) -> None:
    assert group_advantages(rewards) == [0.0] * len(rewards)


def test_group_advantages_of_non_finite_raise() -> None:
    with pytest.raises(ValueError, match="finite"):
        group_advantages([1.0, math.nan])


def trl_normalize_then_sum(table: list[list[float | None]], weights: list[float]) -> list[float]:
    """Per-group part of TRL 1.16's branch of that name, written with numpy's nan functions."""
    grouped = np.array([[np.nan if r is None else r for r in row] for row in table]).T
    mean = np.nanmean(grouped, axis=0)
    std = np.nanstd(grouped, axis=0, ddof=1)
    return list(np.nansum((grouped - mean) / (std + 1e-4) * np.array(weights), axis=1))


def test_combine_advantages_equal_trl_before_its_batch_step() -> None:
    disc: list[float | None] = [0.05, 0.20, 0.11, None, 0.0]
    anchor: list[float | None] = [-3.0, -2.5, None, None, -2.9]
    expected = trl_normalize_then_sum([disc, anchor], [1.0, 0.5])
    assert combine_advantages([disc, anchor], [1.0, 0.5]) == pytest.approx(expected)


@given(st.lists(st.floats(0, 0.25).map(lambda x: round(x, 3)), min_size=2, max_size=6))
@settings(max_examples=50)
def test_combine_advantages_weight_zero_switches_a_reward_off(rewards: list[float]) -> None:
    other = list(range(len(rewards)))
    assert combine_advantages([rewards, other], [1, 0]) == group_advantages(rewards)


def test_combine_advantages_of_shapes_that_do_not_fit_raise() -> None:
    for rewards, weights in ([[[1.0]], [1, 1]], [[[1.0], [1.0, 2.0]], [1, 1]], [[], []]):
        with pytest.raises(ValueError, match="lengths"):
            combine_advantages(rewards, weights)  # type: ignore[arg-type] # a mixed literal
    with pytest.raises(ValueError, match="finite"):
        combine_advantages([[1.0, 2.0]], [math.inf])


@given(st.integers(2, 6), st.data())
def test_zero_std_rate_of_one_reward_is_the_share_of_compared_groups_without_an_advantage(
    size: int, data: st.DataObject
) -> None:
    reward = st.sampled_from([None, 0.0, 1 / 3, 1.0])
    group = st.lists(reward, min_size=size, max_size=size)
    groups = data.draw(st.lists(group, min_size=1, max_size=5))
    compared = [sum(value is not None for value in rows) > 1 for rows in groups]
    flat = [not any(group_advantages(rows)) for rows in groups]
    found = zero_std_rate([[value for rows in groups for value in rows]], size)
    assert found == statistics.mean(a and b for a, b in zip(compared, flat, strict=True))


@pytest.mark.parametrize(
    ("first", "second", "rate"),
    [
        ([0.1, 0.1, 0.1], [2.0, 2.0, 2.0], 1.0),
        ([0.1, 0.1, 0.1], [2.0, 2.0, 3.0], 0.0),
        ([0.1, 0.2, 0.1], [2.0, 2.0, 2.0], 0.0),
        ([0.1 + 0.2, 0.3, 0.3], [2.0, 2.0, 2.0], 1.0),  # equal to rounding
        ([0.1, 0.1, 0.1], [None, None, 2.0], 1.0),
        ([None, None, 0.1], [None, 2.0, 3.0], 0.0),
        ([None, None, None], [None, None, 2.0], 0.0),  # nothing to compare
    ],
)
def test_zero_std_rate_of_two_rewards_counts_groups_that_neither_tells_apart(
    first: list[float | None], second: list[float | None], rate: float
) -> None:
    assert zero_std_rate([first, second], 3) == rate
