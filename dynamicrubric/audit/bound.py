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

from collections.abc import Sequence
from dataclasses import dataclass

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
