"""Do generators with a higher J_anchor have a lower eta_res? Rank correlation within a policy.

The bound wants more than an order, so an order is the least that it needs. Spearman's coefficient
of J_anchor with -eta_res over the generators of one policy; a round's figure is the mean over its
policies. Checkpoints of one training are no independent sample, so no p-value is given; the
interval is over seeds, or with fewer than three of them over prompts: how far the coefficient of
these same generators depends on which prompts were held out. Two generators are no order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dynamicrubric.audit.read import Group
from dynamicrubric.stats import LEVEL, MIN_PROMPTS, MIN_SEEDS, resampled_prompts, seed_interval

FloatArray = NDArray[np.float64]
NUM_RESAMPLES: Final = 1000
MIN_GENERATORS: Final = 3
"""Of two, a rank correlation is 1 or -1, whatever they are."""
Statistic = Callable[[Group, FloatArray | None], FloatArray]
"""A figure of a group: of its means (None; shape (1,)), or under each resample's shares of the
prompts (shape (resamples,)). NaN where it is not defined."""


@dataclass(frozen=True)
class Pooled:
    """A figure of several groups.

    Attributes:
        value: mean over seeds of the mean over the groups that have it; None if none has.
        low: lower end of the interval; None if there is none.
        high: upper end.
        over: what the interval is over: "seeds", "prompts", or "" if there is none.
        num_groups: groups that have the figure.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    over: str = ""
    num_groups: int = 0


def pooled(groups: Sequence[Group], statistic: Statistic, low: float, high: float) -> Pooled:
    """Return the mean of a figure over seeds with its interval, cut at what it can be.

    Args:
        groups: of one round, say.
        statistic: the figure.
        low: the least that it can be.
        high: the most.
    """
    found = [(group, float(statistic(group, None)[0])) for group in groups]
    known = [(group, value) for group, value in found if not np.isnan(value)]
    if not known:
        return Pooled(None)
    seeds: dict[int, list[float]] = {}
    for group, value in known:
        seeds.setdefault(group.seed, []).append(value)
    by_seed = [float(np.mean(own)) for own in seeds.values()]
    mean = float(np.mean(by_seed))
    if len(seeds) >= MIN_SEEDS:
        ends, over = seed_interval(by_seed), "seeds"
    else:
        ends, over = _over_prompts([group for group, _ in known], statistic, mean), "prompts"
    if ends is None:
        return Pooled(mean, num_groups=len(known))
    return Pooled(mean, max(low, ends[0]), min(high, ends[1]), over, len(known))


def rank_correlation(group: Group, shares: FloatArray | None) -> FloatArray:
    """Spearman's coefficient of J_anchor with -eta_res over a group's generators (`Statistic`)."""
    anchor, residual = figures_of(group, "j_anchor", shares), figures_of(group, "eta_res", shares)
    if anchor.shape[1] < MIN_GENERATORS:
        return np.full(len(anchor), np.nan)
    return spearman(anchor, -residual)


def figures_of(group: Group, figure: str, shares: FloatArray | None) -> FloatArray:
    """Return a figure of each generator, shape (1, C) or under each resample (resamples, C)."""
    return group.means(figure)[None, :] if shares is None else group.resampled(figure, shares)


def spearman(one: FloatArray, other: FloatArray) -> FloatArray:
    """Return the rank correlation of each row, NaN where a row does not vary.

    Args:
        one: shape (R, C).
        other: likewise.

    >>> spearman(np.array([[1.0, 2.0, 3.0]]), np.array([[0.1, 0.3, 0.2]])).round(9).tolist()
    [0.5]
    """
    # Imported here: scipy.stats takes most of a second.
    from scipy.stats import rankdata

    first, second = (rankdata(values, axis=1) for values in (one, other))
    first, second = (ranks - ranks.mean(axis=1, keepdims=True) for ranks in (first, second))
    with np.errstate(invalid="ignore", divide="ignore"):
        found: FloatArray = (first * second).sum(axis=1) / np.sqrt(
            (first**2).sum(axis=1) * (second**2).sum(axis=1)
        )
    return found


def _over_prompts(
    groups: Sequence[Group], statistic: Statistic, mean: float
) -> tuple[float, float] | None:
    """Return mean +- t bootstrap errors over prompts, which all groups share."""
    from scipy.special import stdtrit

    prompts = {group.prompts for group in groups}
    if len(prompts) != 1 or len(next(iter(prompts))) < MIN_PROMPTS:
        return None
    names = next(iter(prompts))
    shares = resampled_prompts(names, NUM_RESAMPLES)
    by_seed = [
        np.mean([statistic(group, shares) for group in groups if group.seed == seed], axis=0)
        for seed in dict.fromkeys(group.seed for group in groups)
    ]
    drawn = np.mean(by_seed, axis=0)
    error = float(np.nanstd(drawn))
    half = float(stdtrit(len(names) - 1, (1.0 + LEVEL) / 2.0)) * error
    return mean - half, mean + half
