"""Is there one beta? The paper's anchor calibration (Eq. 45) on measured generators.

    -eta_res >= beta J_anchor + eps_t

for every generator of round t. With an offset for each round any beta is feasible: eps_t is then
the least of `-eta_res - beta J_anchor`. What is left to ask is how much room that leaves between
the two sides, the *slack* of a generator: `-eta_res - beta J_anchor - eps_t`, at least 0 and 0 for
the one that binds. A bound whose slack with the best beta is hardly less than without anchors
(beta = 0) says hardly anything about them. Delta_gap is the bound's right side plus the slack, so
slack is in the unit of the gap.

A beta that is best in some sense solves a linear programme, which is exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Points:
    """Generators as the bound sees them.

    Attributes:
        anchor: J_anchor of each, shape (N,).
        residual: eta_res, shape (N,).
        offset: which offset each has, 0, 1, ..., shape (N,).
    """

    anchor: FloatArray
    residual: FloatArray
    offset: NDArray[np.intp]

    @property
    def num_offsets(self) -> int:
        """How many offsets there are."""
        return int(self.offset.max()) + 1 if self.offset.size else 0


@dataclass(frozen=True)
class Slack:
    """How far the two sides are apart at one beta, offsets as high as they may be.

    Attributes:
        beta: weight of J_anchor.
        largest: slack of the generator that has most.
        mean: mean slack.
    """

    beta: float
    largest: float
    mean: float


def points_of(groups: Sequence[tuple[FloatArray, FloatArray]]) -> Points:
    """Return the points of (J_anchor, eta_res) of groups that have an offset each."""
    return Points(
        np.concatenate([anchor for anchor, _ in groups]),
        np.concatenate([residual for _, residual in groups]),
        np.concatenate([np.full(len(one[0]), number) for number, one in enumerate(groups)]),
    )


def slacks(points: Points, beta: float) -> FloatArray:
    """Return the slack of each generator at a beta, shape (N,).

    >>> points = points_of([(np.array([-2.0, -1.0]), np.array([0.4, 0.1]))])
    >>> slacks(points, 0.0).round(3).tolist(), slacks(points, 0.3).round(3).tolist()
    ([0.0, 0.3], [0.0, 0.0])
    """
    left = -points.residual - beta * points.anchor
    lowest = np.full(points.num_offsets, np.inf)
    np.minimum.at(lowest, points.offset, left)
    found: FloatArray = left - lowest[points.offset]
    return found


def slack_at(points: Points, beta: float) -> Slack:
    """Return the largest and the mean slack at a beta."""
    own = slacks(points, beta)
    return Slack(beta, float(own.max()), float(own.mean()))


def least_largest(points: Points) -> Slack:
    """Return the beta >= 0 whose largest slack is least: min s, 0 <= slack <= s for all."""
    size, offsets = points.anchor.size, points.num_offsets
    above = np.zeros((size, 2 + offsets))  # beta, s, the offsets
    above[:, 0] = points.anchor
    above[np.arange(size), 2 + points.offset] = 1.0
    below = -above
    below[:, 1] = -1.0
    costs = np.zeros(2 + offsets)
    costs[1] = 1.0
    rows = np.vstack([above, below])
    limits = np.concatenate([-points.residual, points.residual])
    return slack_at(points, _solved(costs, rows, limits, free_from=2))


def least_mean(points: Points) -> Slack:
    """Return the beta >= 0 whose mean slack is least: the offsets as high as all generators allow.

    The mean of `-eta_res - beta J_anchor - eps` is least where `beta sum J + sum eps` is largest.
    """
    size, offsets = points.anchor.size, points.num_offsets
    rows = np.zeros((size, 1 + offsets))
    rows[:, 0] = points.anchor
    rows[np.arange(size), 1 + points.offset] = 1.0
    return slack_at(points, _solved(-rows.sum(axis=0), rows, -points.residual, free_from=1))


def within_slope(points: Points) -> float | None:
    """Return the least-squares slope of -eta_res on J_anchor within offsets; None without spread.

    What J_anchor is worth on average, where the bound asks what it is worth at least.
    """
    anchor, left = _centred(points.anchor, points), _centred(-points.residual, points)
    spread = float(anchor @ anchor)
    return float(anchor @ left) / spread if spread > 0.0 else None


@dataclass(frozen=True, eq=False)
class Fits:
    """The best betas of many versions of the same generators: resampled, or dealt anew.

    Attributes:
        largest_beta: beta of the least largest slack, shape (R,).
        mean_beta: of the least mean slack.
        largest_off: share of the largest slack at beta = 0 that it takes off; 0 without slack.
        mean_off: likewise of the mean slack.
    """

    largest_beta: FloatArray
    mean_beta: FloatArray
    largest_off: FloatArray
    mean_off: FloatArray


def fits(anchor: FloatArray, residual: FloatArray, offset: NDArray[np.intp]) -> Fits:
    """Return the best betas of many versions at once; the least beta where several are best.

    Slack is convex in beta, so bisection on its slope finds what `least_largest` and `least_mean`
    solve for.

    Args:
        anchor: J_anchor, shape (R, N).
        residual: eta_res, likewise.
        offset: shape (N,).
    """
    places = [np.flatnonzero(offset == number) for number in range(int(offset.max()) + 1)]
    found = []
    for slope, slack in ((_largest_slope, _largest), (_mean_slope, _mean)):
        low, high = np.zeros(len(anchor)), np.full(len(anchor), _MOST)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2.0
            rises = slope(anchor, -residual - middle[:, None] * anchor, places) >= 0.0
            low, high = np.where(rises, low, middle), np.where(rises, middle, high)
        high = np.where(high <= _MOST * 0.5**_HALVINGS, 0.0, high)
        none = slack(-residual, places)
        least = slack(-residual - high[:, None] * anchor, places)
        with np.errstate(invalid="ignore", divide="ignore"):
            off = np.where(none > 0.0, 1.0 - least / none, 0.0)
        found += [high, np.maximum(off, 0.0)]
    return Fits(found[0], found[2], found[1], found[3])


_MOST: Final = 1024.0
_HALVINGS: Final = 48
"""Betas are exact to 4e-12."""
_Places = Sequence[NDArray[np.intp]]


def _ends(
    anchor: FloatArray, left: FloatArray, places: _Places
) -> Iterator[tuple[FloatArray, ...]]:
    """Return for each offset the slack of its largest, and J_anchor of its least and largest."""
    rows = np.arange(len(anchor))
    for own in places:
        least, most = own[left[:, own].argmin(axis=1)], own[left[:, own].argmax(axis=1)]
        yield left[rows, most] - left[rows, least], anchor[rows, least], anchor[rows, most]


def _largest(left: FloatArray, places: _Places) -> FloatArray:
    found: FloatArray = np.max([np.ptp(left[:, own], axis=1) for own in places], axis=0)
    return found


def _largest_slope(anchor: FloatArray, left: FloatArray, places: _Places) -> FloatArray:
    widths, least, most = (np.array(one) for one in zip(*_ends(anchor, left, places), strict=True))
    widest = widths.argmax(axis=0)[None, :]
    found: FloatArray = np.take_along_axis(least - most, widest, axis=0)[0]
    return found


def _mean(left: FloatArray, places: _Places) -> FloatArray:
    lowest = sum(len(own) * left[:, own].min(axis=1) for own in places)
    found: FloatArray = left.mean(axis=1) - lowest / left.shape[1]
    return found


def _mean_slope(anchor: FloatArray, left: FloatArray, places: _Places) -> FloatArray:
    ends = zip(_ends(anchor, left, places), places, strict=True)
    lowest = sum(len(own) * least for (_, least, _), own in ends)
    found: FloatArray = lowest / anchor.shape[1] - anchor.mean(axis=1)
    return found


def _centred(values: FloatArray, points: Points) -> FloatArray:
    counts = np.bincount(points.offset, minlength=points.num_offsets)
    means = np.bincount(points.offset, weights=values, minlength=points.num_offsets) / counts
    found: FloatArray = values - means[points.offset]
    return found


def _solved(costs: FloatArray, rows: FloatArray, limits: FloatArray, *, free_from: int) -> float:
    """Return beta of the programme's solution; variables from `free_from` on may be negative."""
    # Imported here: half a second that no other command needs.
    from scipy.optimize import linprog

    bounds = [(0.0, None)] * free_from + [(None, None)] * (len(costs) - free_from)
    found = linprog(costs, A_ub=rows, b_ub=limits, bounds=bounds, method="highs")
    assert found.status == 0, f"a bounded programme was not solved: {found.message}"
    return float(found.x[0])
