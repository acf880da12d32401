"""The audit's figures: slack, beta and lambda, ranks and the falsifier, by round and in all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Final

import numpy as np

from dynamicrubric.audit.bound import (
    Points,
    Slack,
    fits,
    least_largest,
    least_mean,
    points_of,
    slack_at,
    within_slope,
)
from dynamicrubric.audit.falsifier import OBJECTIVES, Counted, Objective, count_pairs
from dynamicrubric.audit.ranks import FloatArray, Pooled, figures_of, pooled, rank_correlation
from dynamicrubric.audit.read import FIGURES, Group, Measured
from dynamicrubric.seeds import generator_for
from dynamicrubric.stats import LEVEL, MIN_PROMPTS, resampled_prompts

SURE: Final = "as trained"
"""The objective that the answer speaks of."""


NUM_DRAWS: Final = 500


@dataclass(frozen=True)
class Chance:
    """What the best beta takes off where J_anchor says nothing.

    A beta that is fitted always takes something off. J_anchor is dealt anew among the generators of
    each policy; as those of one training are alike, this is the least that chance does.

    Attributes:
        largest_off: share of the largest slack that the best beta takes off, mean over deals.
        mean_off: likewise of the mean slack.
        largest_as_much: share of deals in which it takes off as much as it does in truth.
        mean_as_much: likewise.
    """

    largest_off: float
    mean_off: float
    largest_as_much: float
    mean_as_much: float


@dataclass(frozen=True)
class BetaIntervals:
    """Where the best betas of these generators lie over held-out prompts, at `LEVEL`.

    Attributes:
        largest: of the least largest slack.
        mean: of the least mean slack.
    """

    largest: tuple[float, float]
    mean: tuple[float, float]


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
        chance: what the best beta takes off by chance.
        intervals: of the best betas; None where groups have other prompts, or too few.
    """

    offsets: str
    without: Slack
    largest: Slack
    mean: Slack
    matched: Slack
    trained: Slack | None
    slope: float | None
    num_offsets: int
    chance: Chance
    intervals: BetaIntervals | None


@dataclass(frozen=True)
class EndFigures:
    """The generators that trainings for one objective end with, in one round.

    Attributes:
        objective: what they were trained for; "before training" are those that trainings start
            from.
        generators: how many.
        figures: each of `FIGURES`, with an interval.
    """

    objective: str
    generators: int
    figures: Mapping[str, Pooled]


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
        ends: what its trainings start from and end with.
    """

    round: int
    policies: int
    generators: int
    ranks: Pooled
    pairs: Mapping[Objective, Counted]
    mean: Slack
    without: Slack
    raw_lambda: float | None
    ends: tuple[EndFigures, ...]


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
    by_policy = _bound(groups, None, c_k, raw, "each policy P_(t-1) of each seed")
    by_round = _bound(groups, measured.rounds, c_k, raw, "each round, all seeds and arms alike")
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


def _bound(
    groups: Sequence[Group],
    rounds: Sequence[int] | None,
    c_k: float,
    raw: float | None,
    offsets: str,
) -> BoundFigures:
    points = _points(groups, rounds)
    return BoundFigures(
        offsets,
        slack_at(points, 0.0),
        least_largest(points),
        least_mean(points),
        slack_at(points, c_k),
        None if raw is None else slack_at(points, c_k * raw),
        within_slope(points),
        points.num_offsets,
        _chance(points, groups),
        _intervals(points, groups),
    )


def _chance(points: Points, groups: Sequence[Group]) -> Chance:
    """Deal J_anchor anew among the generators of each policy; the deals are named by them."""
    names = [one.name for group in groups for one in group.checkpoints]
    policy = np.repeat(np.arange(len(groups)), [len(group.checkpoints) for group in groups])
    keys = generator_for("audit", "dealt", *names).random((NUM_DRAWS, len(names)))
    dealt = points.anchor[np.argsort(policy + keys, axis=1)]  # generators of a policy are in a row
    residual = np.broadcast_to(points.residual, dealt.shape)
    found = fits(dealt, residual, points.offset)
    real = fits(points.anchor[None, :], points.residual[None, :], points.offset)
    return Chance(
        float(found.largest_off.mean()),
        float(found.mean_off.mean()),
        _as_much(found.largest_off, real.largest_off),
        _as_much(found.mean_off, real.mean_off),
    )


def _as_much(drawn: FloatArray, real: FloatArray) -> float:
    """Return the share of draws that reach the real value, which is itself one of them."""
    return float(1 + (drawn >= real - 1e-9).sum()) / (1 + len(drawn))


def _intervals(points: Points, groups: Sequence[Group]) -> BetaIntervals | None:
    prompts = {group.prompts for group in groups}
    if len(prompts) != 1 or len(groups[0].prompts) < MIN_PROMPTS:
        return None
    shares = resampled_prompts(groups[0].prompts, NUM_DRAWS)
    anchor, residual = (
        np.concatenate([group.resampled(name, shares) for group in groups], axis=1)
        for name in ("j_anchor", "eta_res")
    )
    whole = ~np.isnan(anchor + residual).any(axis=1)
    if 2 * whole.sum() < NUM_DRAWS:
        return None
    found = fits(anchor[whole], residual[whole], points.offset)
    return BetaIntervals(_middle(found.largest_beta), _middle(found.mean_beta))


def _middle(values: FloatArray) -> tuple[float, float]:
    low, high = np.quantile(values, [(1.0 - LEVEL) / 2.0, (1.0 + LEVEL) / 2.0])
    return float(low), float(high)


def _ends(groups: Sequence[Group]) -> tuple[EndFigures, ...]:
    objectives = dict.fromkeys(one.objective for group in groups for one in group.checkpoints)
    return tuple(
        EndFigures(
            objective,
            sum(len(_places(group, objective)) for group in groups),
            {
                name: pooled(groups, partial(_end, name=name, objective=objective), -inf, inf)
                for name in FIGURES
            },
        )
        for objective in objectives
    )


def _end(group: Group, shares: FloatArray | None, *, name: str, objective: str) -> FloatArray:
    """Return a figure's mean over the generators that trainings end with (`ranks.Statistic`)."""
    own = figures_of(group, name, shares)[:, _places(group, objective)]
    means: FloatArray = own.mean(axis=1) if own.shape[1] else np.full(len(own), np.nan)
    return means


def _places(group: Group, objective: str) -> list[int]:
    return [
        place
        for place, one in enumerate(group.checkpoints)
        if one.objective == objective and one.step in (0, one.steps)
    ]


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
        _ends(groups),
    )
