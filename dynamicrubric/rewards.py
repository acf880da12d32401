"""Generator rewards R_disc and R_anchor, and how rewards of a group become advantages.

Pure functions: numbers in, a number out. TRL computes the advantages in training; the functions
here are the reference it is checked against, and what the lineage tables are written with.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dynamicrubric.scoring import (
    BoolMatrix,
    VerdictMatrix,
    scored_matrix,
    unscored_reasons,
    yes_matrix,
)
from dynamicrubric.types import Score

STD_EPSILON = 1e-4
"""Added to a group's standard deviation by TRL 1.16 (grpo_trainer.py, advantages)."""
ROUNDING = 1e-6
"""Rewards this close are equal: trainings compute with 32 bits."""

FloatArray = NDArray[np.float64]


def normalised_weights(weights: Sequence[float]) -> FloatArray:
    """Weights as shares `u_m = w_m / sum w`, shape (M,).

    Raises:
        ValueError: for no weights, or one that is not a positive number.
    """
    array = np.asarray(weights, dtype=np.float64)
    if array.ndim != 1 or not array.size or not np.all(np.isfinite(array) & (array > 0)):
        raise ValueError(f"weights must be positive numbers, got {weights!r}")
    shares: FloatArray = array / array.sum()
    return shares


def checked_verdicts(yes: ArrayLike, num_items: int) -> BoolMatrix:
    """The verdict matrix as booleans, shape (K, M).

    Raises:
        ValueError: for K < 1, an M other than `num_items`, or entries other than 0 and 1.
    """
    array = np.asarray(yes)
    if array.ndim != 2 or array.shape[0] < 1 or array.shape[1] != num_items:
        raise ValueError(f"verdict matrix of shape {array.shape} for {num_items} items")
    if array.dtype != np.bool_ and not np.isin(array, (0, 1)).all():
        raise ValueError("verdicts must be 0 or 1")
    return array.astype(np.bool_)


def r_disc(weights: Sequence[float], yes: ArrayLike) -> float:
    """Discriminability of a rubric on a response set, in [0, 1/4].

    `R_disc = sum_m w_m p_m (1 - p_m) / sum_m w_m`, `p_m` the share of the K responses with verdict
    yes (paper, discriminability equation).

    Args:
        weights: shape (M,), positive; only their ratios matter.
        yes: shape (K, M), True where the verdict is yes. Every verdict is scored; with unscored
            ones use `r_disc_of_verdicts`.

    Raises:
        ValueError: for shapes that do not fit or weights that are not positive.

    An item that splits four responses in halves, and one that all meet:

    >>> r_disc([3, 1], [[1, 1], [1, 1], [0, 1], [0, 1]])
    0.1875
    """
    shares = normalised_weights(weights)
    p = checked_verdicts(yes, shares.size).mean(axis=0)
    return float(shares @ (p * (1.0 - p)))


@dataclass(frozen=True, slots=True)
class Discriminability:
    """R_disc with what it rests on.

    Attributes:
        value: in [0, 1/4]; None when not one verdict is scored.
        n_scored: verdicts that are yes or no, of K x M.
        n_total: K x M.
        reasons: how many verdicts are unscored for each reason.
    """

    value: float | None
    n_scored: int
    n_total: int
    reasons: Mapping[str, int] = field(hash=False)


def r_disc_of_verdicts(weights: Sequence[float], matrix: VerdictMatrix) -> Discriminability:
    """R_disc where verdicts may be unscored: a failure of the verifier never adds to it.

    `p_m (1 - p_m)` becomes `(yes_m / K) (no_m / K)`, with K counting all responses: a pair is told
    apart only by two scored verdicts. Equal to `r_disc` when all are scored, and otherwise never
    above what it would be, however the unscored ones had come out. (Shares over the scored
    responses only would not do: two of eight scored, one yes and one no, would earn the full 1/4,
    and a generator could learn to write criteria that its verifier fails on.) An item with fewer
    than two scored verdicts adds 0 and keeps its weight in the denominator.

    Args:
        weights: shape (M,), positive.
        matrix: K rows of M verdicts.

    Raises:
        ValueError: for shapes that do not fit or weights that are not positive.

    >>> from dynamicrubric.types import Verdict
    >>> r_disc_of_verdicts([1], [[Verdict.yes()], [Verdict.no()], [Verdict.unscored("refusal")],
    ...                          [Verdict.unscored("refusal")]])
    Discriminability(value=0.0625, n_scored=2, n_total=4, reasons={'refusal': 2})
    """
    shares = normalised_weights(weights)
    yes = checked_verdicts(yes_matrix(matrix), shares.size)
    scored = scored_matrix(matrix)
    num_responses = yes.shape[0]
    p_yes = yes.sum(axis=0) / num_responses
    p_no = (scored & ~yes).sum(axis=0) / num_responses
    value = float(shares @ (p_yes * p_no)) if scored.any() else None
    return Discriminability(value, int(scored.sum()), scored.size, unscored_reasons(matrix))


def rank_weights(num_anchors: int) -> FloatArray:
    """Weight of each pair of ranks, `1 / ((j - i) 2^(i-1))` for i < j counted from 1, else 0.

    Shape (n, n), row i (the better), column j. From the walk-throughs of the paper.

    >>> rank_weights(3)
    array([[0. , 1. , 0.5],
           [0. , 0. , 0.5],
           [0. , 0. , 0. ]])
    """
    rank = np.arange(1, num_anchors + 1, dtype=np.float64)
    distance = rank[None, :] - rank[:, None]
    below = distance > 0
    safe_distance = np.where(below, distance, 1.0)
    weights: FloatArray = np.where(below, np.exp2(1.0 - rank)[:, None] / safe_distance, 0.0)
    return weights


def r_anchor(scores: Sequence[Score | float | None]) -> float | None:
    """Agreement of a rubric's scores with a ranked anchor list; below 0, higher is better.

    `R_anchor = sum_{i<j} log sigmoid(S_i - S_j) / ((j - i) 2^(i-1))` (from the walk-throughs of the
    paper). The list is a strict ranking; ties in it are for the caller to break or leave out.

    Beware: with these weights the true order need not be the maximum from n = 5 anchors on. At
    n = 7 what a small rise of S_r is worth (its row sum less its column sum, halved) falls from
    rank 1 to rank 4 and rises again towards rank 7, so a rubric that lifts the worst anchor above
    the middle can earn more than one that ranks all seven rightly. Measure rank accuracy beside it.

    Args:
        scores: of the n >= 2 anchors, best first.

    Returns:
        The reward, or None when any anchor is unscored: every pair adds a negative number, so a sum
        over fewer pairs would be a better reward for a failed verdict. With the verdicts at hand
        use `r_anchor_of_verdicts`.

    Raises:
        ValueError: for fewer than two anchors, or a score that is not finite.

    log sigmoid(1) for the one pair:

    >>> round(r_anchor([1.0, 0.0]), 4)
    -0.3133
    """
    if len(scores) < 2:
        raise ValueError(f"an anchor list needs two entries, got {len(scores)}")
    values = [entry.value if isinstance(entry, Score) else entry for entry in scores]
    numbers = [value for value in values if value is not None]
    if not all(map(math.isfinite, numbers)):
        raise ValueError(f"scores must be finite, got {numbers}")
    if len(numbers) < len(values):
        return None
    s = np.asarray(numbers, dtype=np.float64)
    return _ranked(s[:, None] - s[None, :])


def r_anchor_of_verdicts(weights: Sequence[float], matrix: VerdictMatrix) -> float | None:
    """R_anchor where verdicts may be unscored: a failure of the verifier never adds to it.

    Each pair counts with the smallest gap that its unscored verdicts leave possible: no for the
    better anchor, yes for the worse. Equal to `r_anchor` when all are scored, and otherwise never
    above what it would be, however the unscored ones had come out. (Leaving a list out for one
    missing verdict would not do: at one in ten, a list of seven under three items has all 21 in
    one case of nine, and the generator would be paid for R_disc alone.)

    Args:
        weights: shape (M,), positive; only their ratios matter.
        matrix: n >= 2 rows of M verdicts, of the best anchor first.

    Returns:
        The reward; None when not one verdict is scored.

    Raises:
        ValueError: for fewer than two anchors, or weights that are not positive.

    >>> from dynamicrubric.types import Verdict
    >>> unscored = Verdict.unscored("refusal")
    >>> round(r_anchor_of_verdicts([1, 1], [[Verdict.yes(), unscored], [Verdict.no()] * 2]), 4)
    -0.4741
    """
    if len(matrix) < 2:
        raise ValueError(f"an anchor list needs two entries, got {len(matrix)}")
    yes = checked_verdicts(yes_matrix(matrix), normalised_weights(weights).size)
    scored = scored_matrix(matrix)
    if not scored.any():
        return None
    array = np.asarray(weights, dtype=np.float64)
    lowest, highest = ((met @ array) / array.sum() for met in (yes, yes | ~scored))
    return _ranked(lowest[:, None] - highest[None, :])


def _ranked(gaps: FloatArray) -> float:
    """Sum `log sigmoid` of the gaps S_i - S_j, shape (n, n), by the pairs' weights."""
    log_sigmoid = -np.logaddexp(0.0, -gaps)  # no overflow at either end
    return float((rank_weights(len(gaps)) * log_sigmoid).sum())


def group_advantages(rewards: Sequence[float | None]) -> list[float]:
    """Advantages in one group, the unscored left out of mean and spread and given 0.

    `(r - mean) / (std + 1e-4)` with Bessel's correction (ddof = 1), as TRL 1.16 does with
    `scale_rewards="group"`: `trl/trainer/grpo_trainer.py` with `nanstd` of `trl/trainer/utils.py`;
    rows that every reward function answers with None are NaN there and end as advantage 0. A single
    scored row has no spread (NaN there) and ends as 0 too.

    Raises:
        ValueError: for a reward that is not finite.

    >>> [round(advantage, 3) for advantage in group_advantages([1.0, 3.0, 2.0, None])]
    [-1.0, 1.0, 0.0, 0.0]
    """
    array = _with_nan(rewards)
    scored = ~np.isnan(array)
    advantages = np.zeros_like(array)
    kept = array[scored]
    # Equal rewards: their mean may differ from them by rounding, which 1e-4 would blow up.
    if kept.size > 1 and kept.min() < kept.max():
        advantages[scored] = (kept - kept.mean()) / (kept.std(ddof=1) + STD_EPSILON)
    return [float(advantage) for advantage in advantages]


def combine_advantages(
    rewards: Sequence[Sequence[float | None]], weights: Sequence[float]
) -> list[float]:
    """Several rewards of one group: each normalised on its own, then summed with weights.

    The paper's `J_disc + lambda J_anchor` at advantage level: `weights = (1, lambda)`. TRL 1.16's
    `multi_objective_aggregation="normalize_then_sum"` does this and then normalises once more over
    the whole batch of groups, which this function leaves out: that step is `group_advantages` of
    all groups' sums together. A row that one reward leaves unscored gets 0 from it (its group's
    average) and the rest from the others, as in TRL.

    Args:
        rewards: shape (number of rewards, group size).
        weights: shape (number of rewards,).

    Raises:
        ValueError: for shapes that do not fit, or a number that is not finite.

    >>> [round(a, 3) for a in combine_advantages([[0.0, 0.1, 0.2], [-3.0, -2.0, None]], [1, 2])]
    [-2.413, 1.414, 0.999]
    """
    if len(weights) != len(rewards) or len({len(row) for row in rewards}) != 1:
        raise ValueError(f"{len(weights)} weights for rewards of lengths {[*map(len, rewards)]}")
    if not all(map(math.isfinite, weights)):
        raise ValueError(f"weights must be finite, got {weights!r}")
    apart = np.array([group_advantages(row) for row in rewards], dtype=np.float64)
    return [float(total) for total in np.asarray(weights, dtype=np.float64) @ apart]


def zero_std_rate(rewards: Sequence[Sequence[float | None]], group_size: int) -> float:
    """Share of groups in which every reward is the same for all rows: they teach nothing.

    TRL's `frac_reward_zero_std` is another figure. With several rewards it looks at the sums of the
    whole batch, and with one it misses equal rewards whose mean is rounded. As there, unscored rows
    are left out, and a group with nothing to compare is not counted.

    Args:
        rewards: shape (number of rewards, number of groups x group_size), the weightless left out.
        group_size: rows of a group.

    The first group differs in one reward, the second in none:

    >>> zero_std_rate([[0.2, 0.1, 0.2, 0.2], [-1.0, -1.0, -2.0, -2.0]], 2)
    0.5
    """

    def is_flat(start: int) -> bool:
        group = [row[start : start + group_size] for row in rewards]
        scored = [[value for value in row if value is not None] for row in group]
        spreads = [max(row) - min(row) for row in scored if len(row) > 1]
        return bool(spreads) and max(spreads) < ROUNDING

    starts = range(0, len(rewards[0]), group_size)
    return sum(map(is_flat, starts)) / len(starts)


def _with_nan(rewards: Sequence[float | None]) -> FloatArray:
    if not all(reward is None or math.isfinite(reward) for reward in rewards):
        raise ValueError(f"rewards must be finite numbers or None, got {rewards!r}")
    return np.array([np.nan if r is None else r for r in rewards], dtype=np.float64)
