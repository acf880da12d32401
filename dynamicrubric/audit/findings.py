"""The audit's figures: slack, beta and lambda, ranks and the falsifier, by round and in all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from dynamicrubric.audit.bound import (
    Points,
    Slack,
    least_largest,
    least_mean,
    points_of,
    slack_at,
    within_slope,
)
from dynamicrubric.audit.falsifier import OBJECTIVES, Counted, Objective, count_pairs
from dynamicrubric.audit.ranks import Pooled, pooled, rank_correlation
from dynamicrubric.audit.read import Group, Measured

SURE: Final = "as trained"
"""The objective that the answer speaks of."""


@dataclass(frozen=True)
class BoundFigures:
    """What the bound leaves, with one kind of offsets.

    Attributes:
        offsets: what has an offset of its own, in words.
        without: at beta = 0: offsets alone.
        largest: at the beta with the least largest slack.
        mean: at the beta with the least mean slack.
        matched: at beta = c_K, which lambda = 1 asks for.
        trained: at beta = c_K times the ratio of the rewards' spreads, which lambda = 1 on
            advantages asks for; None where no spread is known.
        slope: least-squares slope of -eta_res on J_anchor within offsets; None without spread.
        num_offsets: how many offsets there are.
    """

    offsets: str
    without: Slack
    largest: Slack
    mean: Slack
    matched: Slack
    trained: Slack | None
    slope: float | None
    num_offsets: int


@dataclass(frozen=True)
class RoundFigures:
    """One round.

    Attributes:
        round: t.
        policies: policies P_{t-1}.
        generators: generators on them.
        ranks: rank correlation of J_anchor with -eta_res.
        pairs: the falsifier, by objective.
        mean: at the overall beta of least mean slack: this round's largest and mean slack.
        without: at beta = 0.
        raw_lambda: ratio of the spreads of the rewards, which lambda = 1 on advantages stands for.
    """

    round: int
    policies: int
    generators: int
    ranks: Pooled
    pairs: Mapping[Objective, Counted]
    mean: Slack
    without: Slack
    raw_lambda: float | None


@dataclass(frozen=True)
class Audit:
    """Everything that is said.

    Attributes:
        measured: what it rests on.
        c_k: 2K / (K - 1), the coefficient of R_disc.
        by_policy: with an offset for each policy P_{t-1} (and seed).
        by_round: with an offset for each round number, which all seeds and arms share.
        rounds: by round.
        pairs: the falsifier over all rounds, by objective.
        gap_range: how far Delta_gap itself spreads over a policy's generators, highest less lowest,
            the mean over policies: what a slack is to be compared with.
    """

    measured: Measured
    c_k: float
    by_policy: BoundFigures
    by_round: BoundFigures
    rounds: tuple[RoundFigures, ...]
    pairs: Mapping[Objective, Counted]
    gap_range: float

    @property
    def num_generators(self) -> int:
        """Generators that were measured, one on each policy's sets counted each time."""
        return sum(len(group.checkpoints) for group in self.measured.groups)


def audit_of(measured: Measured) -> Audit:
    """Return the figures of what was measured; it has at least one group, all of one K.

    Raises:
        ValueError: no policy has two generators with figures, or sets differ in size.
    """
    groups = measured.groups
    if not groups:
        raise ValueError("no policy with two generators that have figures")
    sizes = {group.c_k for group in groups}
    if len(sizes) != 1:
        raise ValueError(f"response sets of different sizes: c_K {sorted(sizes)}")
    (c_k,) = sizes
    raw = raw_lambda(groups)
    by_policy = _bound(_points(groups, None), c_k, raw, "each policy P_(t-1) of each seed")
    by_round = _bound(
        _points(groups, measured.rounds), c_k, raw, "each round, all seeds and arms alike"
    )
    rounds = tuple(
        _round(number, measured.of_round(number), by_policy.mean.beta) for number in measured.rounds
    )
    pairs = {name: count_pairs(groups, name) for name in OBJECTIVES}
    gap_range = float(np.mean([np.ptp(group.means("delta_gap")) for group in groups]))
    return Audit(measured, c_k, by_policy, by_round, rounds, pairs, gap_range)


def _points(groups: Sequence[Group], rounds: Sequence[int] | None) -> Points:
    """Return the generators with an offset for each group, or each of the rounds."""
    points = points_of([(group.means("j_anchor"), group.means("eta_res")) for group in groups])
    if rounds is None:
        return points
    places = np.array([rounds.index(group.round) for group in groups])
    return Points(points.anchor, points.residual, places[points.offset])


def raw_lambda(groups: Sequence[Group]) -> float | None:
    """Return what lambda = 1 on advantages is on the rewards: the median ratio of their spreads.

    `R_disc / s_disc + R_anchor / s_anchor` rises as `R_disc + (s_disc / s_anchor) R_anchor` does.
    """
    ratios = [
        disc / anchor for disc, anchor in (group.spreads for group in groups) if disc and anchor
    ]
    return float(np.median(ratios)) if ratios else None


def _bound(points: Points, c_k: float, raw: float | None, offsets: str) -> BoundFigures:
    return BoundFigures(
        offsets,
        slack_at(points, 0.0),
        least_largest(points),
        least_mean(points),
        slack_at(points, c_k),
        None if raw is None else slack_at(points, c_k * raw),
        within_slope(points),
        points.num_offsets,
    )


def _round(number: int, groups: Sequence[Group], beta: float) -> RoundFigures:
    points = _points(groups, None)
    return RoundFigures(
        number,
        len(groups),
        sum(len(group.checkpoints) for group in groups),
        pooled(groups, rank_correlation, -1.0, 1.0),
        {name: count_pairs(groups, name) for name in OBJECTIVES},
        slack_at(points, beta),
        slack_at(points, 0.0),
        raw_lambda(groups),
    )
