"""Delta_gap on ordered pairs of a response set, and its exact decomposition.

The paper never fixes the distribution of pairs. Ours is uniform over the pairs that an independent
reference (in the embedded world: true quality) orders; pairs it ties are left out. Then, with no
assumption at all (derived in this project, checked on every call),

    Delta_gap = c_K R_disc - 2 R_dir - R_cov,    c_K = 2K / (K - 1)

so R_disc is the useful gap plus twice the misdirected mass, up to the coverage residual.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dynamicrubric.rewards import checked_verdicts, normalised_weights, r_disc
from dynamicrubric.scoring import VerdictMatrix, scored_matrix, yes_matrix
from dynamicrubric.types import MISSING, Mean, Score, mean_of

OrderedPairs = tuple[tuple[int, int], ...]
"""(index of the better response, index of the worse one), each unordered pair at most once."""

_IDENTITY_TOLERANCE = 1e-9


def ordered_pairs(quality: Sequence[float]) -> OrderedPairs:
    """All pairs that the reference orders, the better first; ties are left out.

    Args:
        quality: reference value of each of the K responses, higher is better.

    Raises:
        ValueError: for a NaN, which no order holds.

    >>> ordered_pairs([0.2, 0.9, 0.2])
    ((1, 0), (1, 2))
    """
    q = np.asarray(quality, dtype=np.float64)
    if np.isnan(q).any():
        raise ValueError(f"quality must not hold NaN, got {quality!r}")
    return tuple((int(i), int(j)) for i, j in np.argwhere(q[:, None] > q[None, :]))


def delta_gap(scores: Sequence[Score | float | None], pairs: OrderedPairs) -> Mean:
    """Mean of `E(x, y+ | C) - E(x, y- | C)` over the ordered pairs, in [-1, 1] (paper, gap).

    Args:
        scores: of the K responses; a pair with an unscored response is unscored.
        pairs: from `ordered_pairs`.

    Returns:
        The mean with its counts of pairs; its value is None when no pair is scored.

    >>> delta_gap([0.5, 1.0, 0.75], ordered_pairs([0.2, 0.9, 0.2])).value
    0.375
    """
    return _mean_over_pairs(scores, pairs, lambda better, worse: better - worse)


def r_gap_of_verdicts(
    weights: Sequence[float], matrix: VerdictMatrix, pairs: OrderedPairs
) -> float | None:
    """R_gap, the gap as a reward of the generator: mean of E(y+) - E(y-) over pairs, in [-1, 1].

    `delta_gap` where every verdict is scored. A pair with unscored verdicts counts with the
    smallest gap that they leave possible, no for the better response and yes for the worse, as in
    `rewards.r_anchor_of_verdicts`: never above what it would be, however they had come out, so that
    no generator is paid for criteria that its verifier fails on. (An extension that a review of the
    paper suggests; the paper trains on R_disc and R_anchor.)

    Args:
        weights: shape (M,), positive; only their ratios matter.
        matrix: K rows of M verdicts.
        pairs: (better, worse) indices of rows.

    Returns:
        The reward; None without a pair, or when not one verdict is scored.

    Raises:
        ValueError: for shapes that do not fit, weights that are not positive, or a pair that is out
            of range or repeated.

    >>> from dynamicrubric.types import Verdict
    >>> yes, no, unscored = Verdict.yes(), Verdict.no(), Verdict.unscored("refusal")
    >>> r_gap_of_verdicts([3, 1], [[yes, no], [no, no]], ((0, 1),))
    0.75
    >>> r_gap_of_verdicts([3, 1], [[yes, no], [no, unscored]], ((0, 1),))
    0.5
    """
    shares = normalised_weights(weights)
    yes, scored = checked_verdicts(yes_matrix(matrix), shares.size), scored_matrix(matrix)
    _check_pairs(pairs, len(yes))
    if not pairs or not scored.any():
        return None
    better, worse = np.array(pairs, dtype=np.intp).T
    lowest, highest = yes @ shares, (yes | ~scored) @ shares
    return float((lowest[better] - highest[worse]).mean())


def rank_accuracy(scores: Sequence[Score | float | None], pairs: OrderedPairs) -> Mean:
    """Share of ordered pairs that the scores put in the reference's order; equal scores count 1/2.

    >>> rank_accuracy([0.5, 1.0, 1.0], ordered_pairs([0.2, 0.9, 0.2])).value
    0.75
    """
    return _mean_over_pairs(
        scores, pairs, lambda better, worse: 0.5 if better == worse else float(better > worse)
    )


def tie_rate(scores: Sequence[Score | float | None], pairs: OrderedPairs) -> Mean:
    """Share of ordered pairs to which the scores give no order at all.

    >>> tie_rate([0.5, 1.0, 1.0], ordered_pairs([0.2, 0.9, 0.2])).value
    0.5
    """
    return _mean_over_pairs(scores, pairs, lambda better, worse: float(better == worse))


@dataclass(frozen=True, slots=True)
class Decomposition:
    """Parts of Delta_gap on one response set: `delta_gap = c_k r_disc - 2 r_dir - r_cov`.

    Attributes:
        delta_gap: mean score gap over the ordered pairs, in [-1, 1].
        r_disc: discriminability, in [0, 1/4].
        r_dir: misdirected mass `sum_m u_m B_m`, in [0, 1].
        r_cov: coverage residual `c_K R_disc - sum_m u_m (A_m + B_m)`; 0 when every pair is ordered,
            else of either sign.
        c_k: `2K / (K - 1)`.
    """

    delta_gap: float
    r_disc: float
    r_dir: float
    r_cov: float
    c_k: float

    @property
    def eta_res(self) -> float:
        """The residual of the paper's bound, `2 R_dir + R_cov`, with its `gamma rho` = c_K."""
        return 2.0 * self.r_dir + self.r_cov


def decompose(
    weights: Sequence[float], yes: ArrayLike, pairs: OrderedPairs
) -> Decomposition | None:
    """Decompose Delta_gap of one response set, all of whose verdicts are scored.

    With `u_m = w_m / sum w`, `A_m` the share of pairs with v(y+) = 1 and v(y-) = 0, and `B_m` the
    share with v(y+) = 0 and v(y-) = 1: `Delta_gap = sum_m u_m (A_m - B_m)`, `R_dir = sum_m u_m B_m`
    and `R_cov = c_K R_disc - sum_m u_m (A_m + B_m)`. Delta_gap is computed from the scores instead,
    so that the identity, asserted to 1e-9, checks one computation against another.

    Args:
        weights: shape (M,), positive.
        yes: shape (K, M), True where the verdict is yes.
        pairs: from `ordered_pairs` over the K responses.

    Returns:
        The parts, or None when the reference orders no pair.

    Raises:
        ValueError: for shapes that do not fit, weights that are not positive, or a pair that is out
            of range or repeated.

    One item that is right about the best response and wrong about the others:

    >>> parts = decompose([2], [[1], [0], [1]], ordered_pairs([3.0, 2.0, 1.0]))
    >>> parts.delta_gap, round(parts.c_k * parts.r_disc, 9), round(2 * parts.r_dir, 9)
    (0.0, 0.666666667, 0.666666667)
    """
    shares = normalised_weights(weights)
    verdicts = checked_verdicts(yes, shares.size)
    num_responses = verdicts.shape[0]
    _check_pairs(pairs, num_responses)
    if not pairs:
        return None
    better, worse = np.array(pairs, dtype=np.intp).T
    right = (verdicts[better] & ~verdicts[worse]).mean(axis=0)  # A_m
    wrong = (~verdicts[better] & verdicts[worse]).mean(axis=0)  # B_m
    c_k = 2.0 * num_responses / (num_responses - 1)
    disc = r_disc(weights, verdicts)
    r_dir = float(shares @ wrong)
    r_cov = c_k * disc - float(shares @ (right + wrong))
    scores = verdicts @ shares
    gap = float((scores[better] - scores[worse]).mean())
    assert abs(gap - (c_k * disc - 2.0 * r_dir - r_cov)) < _IDENTITY_TOLERANCE, "identity broken"
    return Decomposition(gap, disc, r_dir, r_cov, c_k)


def _check_pairs(pairs: OrderedPairs, num_responses: int) -> None:
    unordered = {frozenset(pair) for pair in pairs}
    in_range = all(0 <= index < num_responses for pair in pairs for index in pair)
    if len(unordered) < len(pairs) or any(len(pair) < 2 for pair in unordered) or not in_range:
        raise ValueError(f"not ordered pairs of {num_responses} responses: {pairs!r}")


def _mean_over_pairs(
    scores: Sequence[Score | float | None],
    pairs: OrderedPairs,
    compare: Callable[[float, float], float],
) -> Mean:
    _check_pairs(pairs, len(scores))
    entries = [score if isinstance(score, Score) else _as_score(score) for score in scores]
    return mean_of(_compared(entries[i], entries[j], compare) for i, j in pairs)


def _as_score(number: float | None) -> Score:
    return Score.unscored(MISSING) if number is None else Score.of(number)


def _compared(
    better: Score, worse: Score, compare: Callable[[float, float], float]
) -> Score | float:
    if better.value is None:
        return better
    if worse.value is None:
        return worse
    return compare(better.value, worse.value)
