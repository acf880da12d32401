"""Delta_gap on ordered pairs of a response set, and its exact decomposition.

The paper never fixes P, the distribution of pairs. `pairs` makes it from a reference, by default
uniform over the pairs that the reference (in the embedded world: true quality) orders; pairs it
ties are left out. Then, with no assumption at all (derived in this project, checked on every call)
and whatever P is,

    Delta_gap = c_K R_disc - 2 R_dir - R_cov,    c_K = 2K / (K - 1)

so R_disc is the useful gap plus twice the misdirected mass, up to the coverage residual.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dynamicrubric.pairdistribution import (
    CHOICES,
    DEFAULT_CHOICE,
    OrderedPairs,
    PairDistribution,
    Reference,
    as_distribution,
    pairs,
    pairs_text,
)
from dynamicrubric.rewards import checked_verdicts, normalised_weights, r_disc
from dynamicrubric.scoring import VerdictMatrix, scored_matrix, yes_matrix
from dynamicrubric.types import MISSING, Mean, Score, mean_of

__all__ = [
    "CHOICES",
    "DEFAULT_CHOICE",
    "Decomposition",
    "ItemParts",
    "OrderedPairs",
    "PairDistribution",
    "Reference",
    "c_k_of",
    "decompose",
    "delta_gap",
    "item_parts",
    "ordered_pairs",
    "pairs",
    "pairs_text",
    "rank_accuracy",
    "tie_rate",
    "wrong_way_share",
]
Pairs = PairDistribution | OrderedPairs
"""P over a set; bare pairs stand for the uniform one."""

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
    return pairs(Reference.of_quality(quality)).pairs


def delta_gap(scores: Sequence[Score | float | None], pairs: Pairs) -> Mean:
    """Mean of `E(x, y+ | C) - E(x, y- | C)` over the ordered pairs, in [-1, 1] (paper, gap).

    Args:
        scores: of the K responses; a pair with an unscored response is unscored.
        pairs: P, from `pairs`.

    Returns:
        The mean with its counts of pairs; its value is None when no pair is scored. Where some
        pairs are not, it is over the others, P made to add up to 1 over them.

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


def rank_accuracy(scores: Sequence[Score | float | None], pairs: Pairs) -> Mean:
    """Share of ordered pairs that the scores put in the reference's order; equal scores count 1/2.

    >>> rank_accuracy([0.5, 1.0, 1.0], ordered_pairs([0.2, 0.9, 0.2])).value
    0.75
    """
    return _mean_over_pairs(
        scores, pairs, lambda better, worse: 0.5 if better == worse else float(better > worse)
    )


def tie_rate(scores: Sequence[Score | float | None], pairs: Pairs) -> Mean:
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
        r_cov: coverage residual `c_K R_disc - sum_m u_m (A_m + B_m)`; 0 when P is uniform and every
            pair is ordered, else of either sign.
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


@dataclass(frozen=True, slots=True)
class ItemParts:
    """What one item adds to the parts of Delta_gap; the sums over a rubric's items are the parts.

    Attributes:
        delta_gap: `u_m (A_m - B_m)`.
        disc: `c_K u_m p_m (1 - p_m)`.
        wrong: `2 u_m B_m`.
        cov: `c_K u_m p_m (1 - p_m) - u_m (A_m + B_m)`.
    """

    delta_gap: float
    disc: float
    wrong: float
    cov: float


def decompose(weights: Sequence[float], yes: ArrayLike, pairs: Pairs) -> Decomposition | None:
    """Decompose Delta_gap of one response set, all of whose verdicts are scored.

    With `u_m = w_m / sum w`, `A_m` the probability under P of v(y+) = 1 and v(y-) = 0, and `B_m`
    that of v(y+) = 0 and v(y-) = 1: `Delta_gap = sum_m u_m (A_m - B_m)`, `R_dir = sum_m u_m B_m`
    and `R_cov = c_K R_disc - sum_m u_m (A_m + B_m)`. Delta_gap is computed from the scores instead,
    so that the identity, asserted to 1e-9, checks one computation against another.

    Args:
        weights: shape (M,), positive.
        yes: shape (K, M), True where the verdict is yes.
        pairs: P over the K responses, from `pairs`.

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
    found = _checked_pairs(pairs, verdicts.shape[0])
    if not len(found):
        return None
    right, wrong = _told_apart(verdicts, found)
    c_k = c_k_of(verdicts.shape[0])
    disc = r_disc(weights, verdicts)
    r_dir = float(shares @ wrong)
    r_cov = c_k * disc - float(shares @ (right + wrong))
    scores = verdicts @ shares
    better, worse = _places(found)
    gap = float(found.mean(scores[better] - scores[worse]))
    assert abs(gap - (c_k * disc - 2.0 * r_dir - r_cov)) < _IDENTITY_TOLERANCE, "identity broken"
    return Decomposition(gap, disc, r_dir, r_cov, c_k)


def item_parts(
    weights: Sequence[float], yes: ArrayLike, pairs: Pairs
) -> tuple[ItemParts, ...] | None:
    """Return what each item adds to the parts of Delta_gap; arguments and errors as `decompose`.

    Returns:
        M parts, whose sums are `delta_gap`, `c_k r_disc`, `2 r_dir` and `r_cov`; None when the
        reference orders no pair.

    The first item is right about every pair, the second wrong:

    >>> right, wrong = item_parts([3, 1], [[1, 0], [0, 1]], ordered_pairs([1.0, 0.0]))
    >>> (right.delta_gap, right.wrong), (wrong.delta_gap, wrong.wrong)
    ((0.75, 0.0), (-0.25, 0.5))
    """
    shares = normalised_weights(weights)
    verdicts = checked_verdicts(yes, shares.size)
    found = _checked_pairs(pairs, verdicts.shape[0])
    if not len(found):
        return None
    right, wrong = _told_apart(verdicts, found)
    p = verdicts.mean(axis=0)
    disc = c_k_of(verdicts.shape[0]) * shares * p * (1.0 - p)
    rows = zip(
        shares * (right - wrong), disc, 2.0 * shares * wrong, disc - shares * (right + wrong),
        strict=True,
    )  # fmt: skip
    return tuple(ItemParts(*map(float, row)) for row in rows)


def wrong_way_share(disc: float, wrong: float, cov: float) -> float | None:
    """Return the share of the discriminability between ordered responses that points the wrong way.

    `sum_m u_m B_m / sum_m u_m (A_m + B_m) = R_dir / (c_K R_disc - R_cov)`: 0 where every item that
    tells two ordered responses apart prefers the better one, 1/2 without any sense of direction.

    Args:
        disc: `c_K R_disc`, of a set or a mean over sets; so are the others.
        wrong: `2 R_dir`.
        cov: `R_cov`.

    Returns:
        The share, None where nothing is told apart.

    >>> wrong_way_share(0.5, 0.5, 0.0)
    0.5
    """
    told_apart = disc - cov
    if told_apart <= _IDENTITY_TOLERANCE:
        return None
    return min(1.0, max(0.0, wrong / 2.0 / told_apart))


def c_k_of(num_responses: int) -> float:
    """Return c_K = 2K / (K - 1), the bound's `gamma rho`."""
    return 2.0 * num_responses / (num_responses - 1)


def _places(found: PairDistribution) -> NDArray[np.intp]:
    """Places of the better and of the worse responses, shape (2, number of pairs)."""
    return np.array(found.pairs, dtype=np.intp).T


def _told_apart(
    verdicts: NDArray[np.bool_], found: PairDistribution
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A_m and B_m: the probability of a right and of a wrong difference, shape (M,)."""
    better, worse = _places(found)
    right = found.mean(verdicts[better] & ~verdicts[worse])
    return right, found.mean(~verdicts[better] & verdicts[worse])


def _checked_pairs(given: Pairs, num_responses: int) -> PairDistribution:
    found = as_distribution(given)
    _check_pairs(found.pairs, num_responses)
    return found


def _check_pairs(pairs: OrderedPairs, num_responses: int) -> None:
    unordered = {frozenset(pair) for pair in pairs}
    in_range = all(0 <= index < num_responses for pair in pairs for index in pair)
    if len(unordered) < len(pairs) or any(len(pair) < 2 for pair in unordered) or not in_range:
        raise ValueError(f"not ordered pairs of {num_responses} responses: {pairs!r}")


def _mean_over_pairs(
    scores: Sequence[Score | float | None],
    pairs: Pairs,
    compare: Callable[[float, float], float],
) -> Mean:
    found = _checked_pairs(pairs, len(scores))
    entries = [score if isinstance(score, Score) else _as_score(score) for score in scores]
    values = [_compared(entries[i], entries[j], compare) for i, j in found.pairs]
    mean = mean_of(values)
    if mean.value is None or found.choice != "margin":
        return mean
    known = [
        (p, value)
        for p, value in zip(found.probabilities, values, strict=True)
        if not isinstance(value, Score)
    ]
    weighted = sum(p * value for p, value in known) / sum(p for p, _ in known)
    return Mean(float(weighted), mean.n_scored, mean.n_total, mean.reasons)


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
