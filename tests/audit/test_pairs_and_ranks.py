"""The falsifier and the rank correlation, against counting by hand and scipy's own."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from dynamicrubric.audit.falsifier import count_pairs, share_against, weights_of
from dynamicrubric.audit.ranks import pooled, rank_correlation, spearman

# (R_disc, J_anchor, eta_res)
MEANS = [(0.10, -3.0, 0.30), (0.12, -2.5, 0.20), (0.20, -2.6, 0.55), (0.11, -2.0, 0.10)]


def test_spearman_is_scipys_ties_included() -> None:
    draw = np.random.default_rng(1)
    one, other = draw.integers(0, 5, (6, 9)).astype(float), draw.normal(size=(6, 9))
    expected = [spearmanr(a, b).statistic for a, b in zip(one, other, strict=True)]
    assert spearman(one, other).tolist() == pytest.approx(expected)
    assert np.isnan(spearman(np.ones((1, 4)), other[:1, :4])).all()


@pytest.mark.parametrize("objective", ["as written", "as trained"])
def test_pairs_are_those_counted_by_hand(synthetic: Any, objective: Any) -> None:
    group = synthetic.group(MEANS)
    weights = weights_of(group, objective)
    assert weights is not None
    trained = [weights[0] * disc + weights[1] * anchor for disc, anchor, _ in MEANS]
    gap = [synthetic.C_K * disc - eta for disc, _, eta in MEANS]
    against = sum(
        (trained[i] - trained[j]) * (gap[i] - gap[j]) < 0 for i, j in combinations(range(4), 2)
    )
    found = count_pairs([group], objective)
    assert (found.pairs, found.against) == (6, against)
    assert found.share.value == pytest.approx(against / 6)
    assert 0 < against < 6
    assert (found.sure, found.sure_against) == (6, against)  # no prompt differs from another


def test_noise_makes_changes_unsure_and_widens_the_interval(synthetic: Any) -> None:
    quiet = count_pairs([synthetic.group(MEANS, noise=1e-4)], "as trained")
    loud = count_pairs([synthetic.group(MEANS, noise=1.0)], "as trained")
    assert quiet.sure == 6 and quiet.share.low == pytest.approx(quiet.share.high)
    assert loud.pairs == 6 and loud.sure < 6
    assert loud.share.over == "prompts"
    assert loud.share.low is not None and loud.share.high is not None
    assert loud.share.low < loud.share.high
    assert 0.0 <= loud.share.low <= loud.share.high <= 1.0


def test_pairs_never_cross_policies(synthetic: Any) -> None:
    one, other = synthetic.group(MEANS), synthetic.group(MEANS[:3], policy="p", number=2)
    assert count_pairs([one, other], "as written").pairs == 6 + 3


def test_spread_that_is_not_known_leaves_the_group_out_of_what_is_as_trained(
    synthetic: Any,
) -> None:
    group = synthetic.group(MEANS, spreads=(0.02, None))
    found = count_pairs([group], "as trained")
    assert (found.pairs, found.share.value, found.sure) == (0, None, 0)
    assert count_pairs([group], "as written").pairs == 6


def test_rank_correlation_is_of_j_anchor_with_less_residual(synthetic: Any) -> None:
    rising = [(0.1, -3.0 + 0.1 * n, 0.5 - 0.01 * n**2) for n in range(5)]
    assert rank_correlation(synthetic.group(rising), None).tolist() == [1.0]
    falling = [(disc, anchor, -eta) for disc, anchor, eta in rising]
    assert rank_correlation(synthetic.group(falling), None).tolist() == [-1.0]


def test_interval_is_over_seeds_from_three_on(synthetic: Any) -> None:
    groups = [synthetic.group(MEANS, seed=seed, noise=0.05) for seed in (1, 2, 3)]
    found = pooled(groups, rank_correlation, -1.0, 1.0)
    assert (found.over, found.num_groups) == ("seeds", 3)
    few = pooled(groups[:2], rank_correlation, -1.0, 1.0)
    assert few.over == "prompts"
    assert few.low is not None and few.high is not None and -1.0 <= few.low <= few.high <= 1.0
    assert pooled([], rank_correlation, -1.0, 1.0).value is None


def test_resampled_shares_agree_with_the_means_when_no_prompt_counts_more(synthetic: Any) -> None:
    group = synthetic.group(MEANS, noise=0.3)
    even = np.full((1, synthetic.NUM_PROMPTS), 1 / synthetic.NUM_PROMPTS)
    for objective in ("as written", "as trained"):
        once = share_against(group, None, objective=objective)
        assert share_against(group, even, objective=objective).tolist() == once.tolist()
    group.values["eta_res"][0, :3] = np.nan
    assert group.resampled("eta_res", even)[0].tolist() == pytest.approx(
        group.means("eta_res").tolist()
    )


def test_pairs_compare_the_prompts_that_both_have(synthetic: Any) -> None:
    # The second is better on every prompt; it failed on the easy ones, so that its mean is lower.
    group = synthetic.group([(0.10, -3.0, 0.30), (0.12, -2.5, 0.20)])
    easy = slice(0, 12)
    for name in ("r_disc", "delta_gap"):
        group.values[name][:, easy] += 5.0
    for name in group.values:
        group.values[name][1, easy] = np.nan
    assert group.means("delta_gap")[0] > group.means("delta_gap")[1]
    for objective in ("as written", "as trained"):
        found = count_pairs([group], objective)
        assert (found.pairs, found.against, found.share.value) == (1, 0, 0.0)
    group.values["delta_gap"][1] -= 1.0  # now worse on every prompt, and the objective rises
    assert count_pairs([group], "as written").against == 1


def test_pair_without_a_common_prompt_is_none(synthetic: Any) -> None:
    group = synthetic.group([(0.10, -3.0, 0.30), (0.12, -2.5, 0.20)])
    for name in group.values:
        group.values[name][0, :12] = np.nan
        group.values[name][1, 12:] = np.nan
    found = count_pairs([group], "as written")
    assert (found.pairs, found.against, found.share.value, found.sure) == (0, 0, None, 0)


def test_two_generators_have_no_rank_correlation(synthetic: Any) -> None:
    group = synthetic.group(MEANS[:2])
    assert np.isnan(rank_correlation(group, None)).all()
    assert pooled([group], rank_correlation, -1.0, 1.0).value is None


def test_seeds_count_alike_however_many_policies_each_has(synthetic: Any) -> None:
    rising = [(0.1, -3.0 + 0.1 * n, 0.5 - 0.01 * n**2) for n in range(5)]
    falling = [(disc, anchor, -eta) for disc, anchor, eta in rising]
    groups = [synthetic.group(rising, seed=1, policy=f"p{n}") for n in range(4)]
    groups += [synthetic.group(falling, seed=seed) for seed in (2, 3)]
    found = pooled(groups, rank_correlation, -1.0, 1.0)
    assert found.value == pytest.approx(-1 / 3)
    three = [synthetic.group(rising), *groups[4:]]
    assert pooled(three, rank_correlation, -1.0, 1.0).high == found.high
