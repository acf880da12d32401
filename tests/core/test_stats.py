"""Known answers: simulated studies, SciPy, brute force, and properties that hold for any data."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as reference

from dynamicrubric.errors import UserError
from dynamicrubric.stats import (
    MIN_PROMPTS,
    Paired,
    Variances,
    crossed_variance,
    estimate,
    holm,
    prompt_intervals,
    prompt_means,
    resampled_prompts,
    resampled_variances,
    seed_interval,
    share_interval,
    superiority,
)

NOISE = 0.06  # of a resampled variance: 4 standard errors at 10,000 resamples
TRUTH = 0.05


def paired(values: np.ndarray) -> Paired:
    seeds, prompts = values.shape
    return Paired(tuple(range(seeds)), tuple(f"p{n:03d}" for n in range(prompts)), values)


def by_seed(values: np.ndarray) -> dict[int, dict[str, float | None]]:
    return {
        seed: {f"p{n:03d}": None if math.isnan(v) else float(v) for n, v in enumerate(row)}
        for seed, row in enumerate(values)
    }


def study(random: np.random.Generator, num_seeds: int, num_prompts: int, *shares: float):
    """A study with a true difference of TRUTH; shares: deviations of seeds, prompts, remainder."""
    of_seeds, of_prompts, rest = shares
    return (
        TRUTH
        + of_seeds * random.normal(size=(num_seeds, 1))
        + of_prompts * random.normal(size=(1, num_prompts))
        + rest * random.normal(size=(num_seeds, num_prompts))
    )


@st.composite
def studies(draw: st.DrawFn) -> np.ndarray:
    num_seeds = draw(st.integers(1, 5))
    num_prompts = draw(st.integers(MIN_PROMPTS, MIN_PROMPTS + 10))
    shares = [draw(st.sampled_from([0.0, 0.1, 1.0])) for _ in range(3)]
    return study(np.random.default_rng(draw(st.integers(0, 999))), num_seeds, num_prompts, *shares)


# --- simulated studies with a known difference ---------------------------------------------------


@pytest.mark.parametrize(
    ("num_seeds", "shares"),
    [
        (3, (0.3, 0.5, 1.0)),
        (5, (1.0, 0.3, 1.0)),  # seeds differ most
        (5, (0.1, 1.0, 1.0)),  # prompts differ most: a nested bootstrap covers 8 of 10
    ],
)
def test_interval_over_seeds_and_prompts_holds_the_truth_in_95_of_100_studies(num_seeds, shares):
    random = np.random.default_rng(20260720)
    held = 0
    for _ in range(300):
        low, high = estimate(paired(study(random, num_seeds, 30, *shares))).interval
        held += low <= TRUTH <= high
    assert 0.92 <= held / 300 <= 0.98


def test_interval_over_prompts_holds_the_truth_of_its_seeds_in_95_of_100_studies():
    random = np.random.default_rng(1)
    held = 0
    for _ in range(300):
        seeds = random.normal(size=(2, 1))  # other seeds would give something else: not promised
        low, high = estimate(paired(seeds + study(random, 2, 30, 0.0, 0.5, 1.0))).interval
        held += low <= TRUTH + seeds.mean() <= high
    assert 0.92 <= held / 300 <= 0.98


def test_interval_of_correlated_rows_holds_the_truth_as_rows_are_averaged_by_prompt():
    random = np.random.default_rng(2)
    prompts = [f"p{n:03d}" for n in range(30) for _ in range(12)]
    held = 0
    for _ in range(200):
        values = TRUTH + np.repeat(random.normal(size=30), 12) + random.normal(size=360)
        low, high = estimate(
            Paired.of({1: prompt_means(zip(prompts, values, strict=True))})
        ).interval
        held += low <= TRUTH <= high
    assert 0.91 <= held / 200 <= 0.985


# --- independent references ----------------------------------------------------------------------


@pytest.mark.parametrize("shares", [(1.0, 0.2, 1.0), (0.1, 1.0, 0.5), (0.0, 0.0, 1.0)])
def test_resampled_variances_equal_a_two_way_analysis_of_variance(shares):
    values = study(np.random.default_rng(3), 5, 40, *shares)
    mean = values.mean()
    seeds, prompts = values.mean(axis=1), values.mean(axis=0)
    rest = values - seeds[:, None] - prompts[None, :] + mean
    found = resampled_variances(paired(values))
    assert found.seeds == pytest.approx(seeds.var(ddof=1) / 5, rel=NOISE)
    assert found.prompts == pytest.approx(prompts.var(ddof=1) / 40, rel=NOISE)
    assert found.remainder == pytest.approx((rest**2).sum() / (4 * 39) / 200, rel=NOISE)


def test_resampled_variances_with_unscored_prompts_equal_drawing_one_resample_after_another():
    random = np.random.default_rng(4)
    values = study(random, 3, 30, 0.5, 1.0, 1.0)
    values[0, :6] = values[2, 25:] = np.nan
    means = []
    for _ in range(4000):
        seeds, prompts = random.integers(3, size=2), random.integers(30, size=29)
        means.append(np.mean([np.nanmean(values[seed, prompts]) for seed in seeds]))
    found = resampled_variances(paired(values))
    total = found.seeds + found.prompts + found.remainder
    assert total == pytest.approx(np.var(means), rel=0.12)


def test_crossed_variance_of_a_study_without_a_remainder_is_the_sum_of_both_parts():
    variance, degrees = crossed_variance(Variances(0.3, 0.2, 0.0), 4, 50)
    assert variance == pytest.approx(0.5)
    assert degrees == pytest.approx(0.5**2 / (0.3**2 / 3 + 0.2**2 / 49))


def test_crossed_variance_counts_a_remainder_once():
    # what the mean squares of a two-way random model give: (MS_seeds + MS_prompts - MS_rest) / SP
    variance, degrees = crossed_variance(Variances(0.3, 0.2, 0.1), 4, 50)
    assert variance == pytest.approx(0.3 + 0.2 - 0.1)
    assert degrees == pytest.approx(0.4**2 / (0.3**2 / 3 + 0.2**2 / 49 + 0.1**2 / 147))


def test_crossed_variance_of_noise_alone_is_the_remainder():
    assert crossed_variance(Variances(0.09, 0.08, 0.1), 4, 50) == (0.1, pytest.approx(3 * 49))


@pytest.mark.parametrize("number", range(5))
def test_estimate_with_one_seed_equals_scipys_paired_tests_over_prompts(number):
    gaps = 0.3 + np.random.default_rng(number).normal(size=40)
    found, student = estimate(paired(gaps[None, :])), reference.ttest_1samp(gaps, 0.0)
    ends = student.confidence_interval(0.95)
    assert found.mean == pytest.approx(gaps.mean())
    assert found.standard_error == pytest.approx(gaps.std(ddof=1) / math.sqrt(40), rel=0.03)
    assert found.interval == pytest.approx((ends.low, ends.high), abs=0.02)
    assert found.p_value == pytest.approx(student.pvalue, rel=0.25, abs=1e-3)
    flipped = reference.permutation_test(
        (gaps,), np.mean, permutation_type="samples", n_resamples=5000, rng=number
    )
    assert found.p_value == pytest.approx(flipped.pvalue, abs=0.02)


def test_estimate_with_seeds_that_differ_most_equals_scipys_test_over_seeds():
    values = study(np.random.default_rng(5), 5, 40, 1.0, 0.0, 0.01)
    found, student = estimate(paired(values)), reference.ttest_1samp(values.mean(axis=1), 0.0)
    ends = student.confidence_interval(0.95)
    assert found.over == "seeds and prompts"
    assert found.degrees == pytest.approx(4.0, rel=0.01)
    assert found.interval == pytest.approx((ends.low, ends.high), rel=0.03)
    assert found.p_value == pytest.approx(student.pvalue, rel=0.1)


def test_estimate_with_prompts_that_differ_most_takes_no_prompt_for_several():
    gaps = np.random.default_rng(6).normal(size=40)
    once, five = estimate(paired(gaps[None, :])), estimate(paired(np.tile(gaps, (5, 1))))
    assert five.standard_error == pytest.approx(once.standard_error, rel=0.03)


def test_superiority_equals_counting_prompts():
    random = np.random.default_rng(7)
    values = random.integers(-2, 3, size=(3, 25)).astype(float)
    values[1, 4] = np.nan
    shares = []
    for row in values:
        known = [value for value in row if not math.isnan(value)]
        wins = sum(1.0 if value > 0 else 0.5 if value == 0 else 0.0 for value in known)
        shares.append(wins / len(known))
    assert superiority(paired(values)) == pytest.approx(np.mean(shares))


def test_superiority_takes_a_difference_of_rounding_for_none():
    assert superiority(Paired.of({1: {"a": 0.1 + 0.2 - 0.3}})) == 0.5


# --- what holds for any study --------------------------------------------------------------------


@given(studies(), st.floats(-5, 5))
@settings(max_examples=40)
def test_estimate_of_a_shifted_study_is_shifted(values, shift):
    before, after = estimate(paired(values)), estimate(paired(values + shift))
    assert after.mean == pytest.approx(before.mean + shift, abs=1e-9)
    moved = tuple(end + shift for end in before.interval)
    assert after.interval == pytest.approx(moved, rel=1e-6, abs=1e-6)


@given(studies())
@settings(max_examples=40)
def test_estimate_of_exchanged_arms_is_mirrored(values):
    one, other = estimate(paired(values)), estimate(paired(-values))
    assert other.mean == pytest.approx(-one.mean)
    assert other.interval == pytest.approx((-one.interval[1], -one.interval[0]))
    assert other.p_value == pytest.approx(one.p_value)
    assert other.superiority == pytest.approx(1.0 - one.superiority)


@given(studies(), st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_estimate_does_not_depend_on_the_order_of_seeds_and_prompts(values, random):
    table = by_seed(values)
    shuffled = {}
    for seed in random.sample(list(table), len(table)):
        own = table[seed]
        shuffled[seed] = {prompt: own[prompt] for prompt in random.sample(list(own), len(own))}
    assert estimate(Paired.of(shuffled)) == estimate(Paired.of(table))


@given(studies(), st.integers(0, 99))
@settings(max_examples=25)
def test_estimate_with_other_names_for_seeds_and_prompts_is_the_same_to_resampling(values, number):
    random = np.random.default_rng(number)
    moved = values[random.permutation(values.shape[0])][:, random.permutation(values.shape[1])]
    one, other = estimate(paired(values)), estimate(paired(moved))
    assert other.mean == pytest.approx(one.mean)
    assert other.standard_error == pytest.approx(one.standard_error, rel=0.08, abs=1e-9)
    assert other.superiority == pytest.approx(one.superiority)


@given(studies())
@settings(max_examples=40)
def test_p_value_is_below_5_percent_exactly_if_the_interval_leaves_out_zero(values):
    found = estimate(paired(values))
    low, high = found.interval
    assert (found.p_value < 0.05) == (low > 0 or high < 0)


@given(st.integers(1, 4), st.integers(0, 99))
@settings(max_examples=20)
def test_estimate_with_every_row_copied_is_the_same(copies, number):
    random = np.random.default_rng(number)
    rows = [(f"p{n:03d}", float(random.normal())) for n in range(25) for _ in range(3)]
    many = [row for row in rows for _ in range(copies)]
    once, again = (estimate(Paired.of({1: prompt_means(own)})) for own in (rows, many))
    assert again.mean == pytest.approx(once.mean)
    assert again.interval == pytest.approx(once.interval)


@given(st.lists(st.floats(0, 1), max_size=6))
def test_holm_equals_the_closed_test_of_every_subset(p_values):
    # Marcus, Peritz and Gabriel: reject what every intersection that holds it rejects (Bonferroni).
    subsets = [
        own
        for size in range(1, len(p_values) + 1)
        for own in combinations(range(len(p_values)), size)
    ]
    expected = [
        max(min(1.0, len(own) * min(p_values[n] for n in own)) for own in subsets if place in own)
        for place in range(len(p_values))
    ]
    assert holm(p_values) == pytest.approx(expected)


# --- worked by hand, and what is refused or missing ----------------------------------------------


def test_holm_of_four_equals_the_values_worked_by_hand():
    # 4 x 0.005, 3 x 0.01, then 2 x 0.03 and 1 x 0.04, which may not fall below 0.06
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx((0.03, 0.06, 0.06, 0.02))


def test_holm_counts_a_comparison_without_a_p_value():
    assert holm([0.01, None]) == (pytest.approx(0.02), None)


def test_holm_of_something_that_is_no_p_value_is_refused():
    with pytest.raises(ValueError, match=r"1\.5"):
        holm([0.5, 1.5])
    with pytest.raises(ValueError, match="nan"):
        holm([0.5, math.nan])


@pytest.mark.parametrize("num_seeds", [1, 2])
def test_estimate_with_fewer_than_three_seeds_is_over_prompts_and_says_so(num_seeds):
    found = estimate(paired(study(np.random.default_rng(8), num_seeds, 30, 1.0, 1.0, 1.0)))
    assert found.over == "prompts"
    assert found.degrees == 29
    assert f"none over seeds: {num_seeds} of the 3" in found.lacking


def test_estimate_with_too_few_prompts_has_a_mean_and_no_interval():
    values = study(np.random.default_rng(9), 3, MIN_PROMPTS, 1.0, 1.0, 1.0)
    values[1, 0] = np.nan
    found = estimate(paired(values))
    assert found.mean == pytest.approx(np.mean([np.nanmean(row) for row in values]))
    assert (found.interval, found.p_value, found.standard_error, found.over) == (None,) * 4
    assert found.lacking == "prompts that both scored: seed 1 19; fewer than 20"


def test_estimate_where_a_seed_has_no_scored_prompt_is_nothing_and_names_it():
    values = study(np.random.default_rng(10), 3, 30, 1.0, 1.0, 1.0)
    values[2] = np.nan
    found = estimate(paired(values))
    assert (found.mean, found.interval, found.p_value, found.superiority) == (None,) * 4
    assert "seed 2" in found.lacking


def test_estimate_of_no_seeds_is_nothing():
    assert estimate(Paired.of({})).lacking == "no seed"


def test_estimate_leaves_unscored_prompts_out_of_the_mean():
    values = study(np.random.default_rng(11), 3, 30, 1.0, 1.0, 1.0)
    values[0, 3] = values[2, 7] = np.nan
    found = estimate(paired(values))
    assert found.mean == pytest.approx(np.mean([np.nanmean(row) for row in values]))
    assert found.interval is not None


@pytest.mark.parametrize(("gap", "p_value"), [(0.0, 1.0), (0.1, 0.0)])
def test_estimate_of_arms_that_differ_by_a_constant_has_a_point_for_an_interval(gap, p_value):
    found = estimate(paired(np.full((3, 30), gap)))
    assert found.interval == pytest.approx((gap, gap))
    assert (found.standard_error, found.p_value) == (0.0, p_value)


def test_paired_of_seeds_with_other_prompts_is_refused():
    with pytest.raises(UserError, match="the same prompts for every seed"):
        Paired.of({1: {"a": 0.1}, 2: {"b": 0.1}})


def test_prompt_means_leave_out_what_is_unscored():
    rows = [("a", 1.0), ("a", math.nan), ("a", 0.0), ("b", None)]
    assert prompt_means(rows) == {"a": 0.5, "b": None}


@pytest.mark.parametrize(("count", "total"), [(0, 10), (8, 10), (263, 300), (1, 1)])
def test_share_interval_is_wilsons(count: int, total: int) -> None:
    expected = reference.binomtest(count, total).proportion_ci(0.95, method="wilson")
    assert share_interval(count, total) == pytest.approx((expected.low, expected.high), abs=1e-9)


@pytest.mark.parametrize(("count", "total"), [(0, 0), (-1, 3), (4, 3)])
def test_share_of_nothing_has_no_interval(count: int, total: int) -> None:
    with pytest.raises(ValueError, match="1 row or more"):
        share_interval(count, total)


def test_prompt_intervals_are_what_one_seed_resampled_gives() -> None:
    draw = np.random.default_rng(5)
    values = draw.normal(0.3, 1.0, (3, 40))
    values[1, ::4] = np.nan
    means, halves = prompt_intervals(values)
    for row, mean, half in zip(values, means, halves, strict=True):
        own = {f"p{n:02d}": None if np.isnan(v) else float(v) for n, v in enumerate(row)}
        found = estimate(Paired.of({1: own}))
        assert mean == pytest.approx(found.mean)
        assert found.interval is not None
        assert half == pytest.approx((found.interval[1] - found.interval[0]) / 2, rel=0.05)


def test_prompt_intervals_of_few_prompts_have_a_mean_and_no_interval() -> None:
    values = np.full((2, 25), np.nan)
    values[0, :19], values[1, :20] = 1.0, np.arange(20.0)
    means, halves = prompt_intervals(values)
    assert means.tolist() == [1.0, 9.5]
    assert np.isnan(halves[0])
    # scipy: t(19, .975) = 2.093024; s = sqrt(35)
    assert halves[1] == pytest.approx(2.093024 * math.sqrt(35.0 / 20.0), rel=1e-6)


def test_seed_interval_by_hand_and_none_for_two() -> None:
    assert seed_interval([1.0, 2.0]) is None
    found = seed_interval([0.1, 0.2, 0.6])
    # t(2, .975) = 4.302653; s = sqrt(0.07)
    half = 4.302653 * math.sqrt(0.07 / 3.0)
    assert found == pytest.approx((0.3 - half, 0.3 + half), rel=1e-6)


def test_resampled_prompts_are_named_by_the_prompts() -> None:
    names = [f"p{n}" for n in range(30)]
    one, other = resampled_prompts(names, 50), resampled_prompts(names, 50)
    assert one.shape == (50, 30)
    assert (one == other).all()
    assert one.sum(axis=1) == pytest.approx(np.ones(50))
    assert not (one == resampled_prompts([*names[1:], "q"], 50)).all()
