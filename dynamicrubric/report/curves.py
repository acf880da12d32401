"""Figures by round with their intervals: what the curves and their table are made of.

With three seeds or more an interval is over seeds (mean +- t standard errors of the seeds' means),
with fewer over held-out prompts alone, and each point says which.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from dynamicrubric.report.outcomes import Outcome, OutcomeTable
from dynamicrubric.stats import LEVEL, MIN_SEEDS, Paired, PromptValues, estimate

CURVES: Final = (
    "true_quality", "delta_gap", "r_disc", "r_dir", "tie_rate", "response_length", "kl",
)  # fmt: skip
"""Round metrics that have a curve; each has values by prompt."""
Over = Literal["seeds", "prompts"]
ByPrompt = Mapping[tuple[str, int, int, str], PromptValues]
"""Values by prompt of each (arm, seed, round, metric)."""


@dataclass(frozen=True)
class CurvePoint:
    """One arm's figure in one round.

    Attributes:
        arm: the arm.
        round: the round.
        metric: the round metric.
        mean: mean over the seeds that have this round; None if one of them is unscored.
        low: lower end of the interval of the mean; None if there is none.
        high: upper end.
        over: what the interval is over.
        seeds: seeds that the mean rests on.
        n_scored: scored rows, summed over the seeds.
        n_total: rows, likewise.
    """

    arm: str
    round: int
    metric: str
    mean: float | None
    low: float | None
    high: float | None
    over: Over | None
    seeds: tuple[int, ...]
    n_scored: int
    n_total: int


def curve_points(table: OutcomeTable, by_prompt: ByPrompt) -> tuple[CurvePoint, ...]:
    """Return every point of every curve; a round without figures has no point."""
    return tuple(
        curve_point(table, by_prompt, arm, number, metric)
        for metric in CURVES
        for arm in table.arms
        for number in range(table.last_round + 1)
        if table.outcomes(arm, number, metric)
    )


def curve_of(points: Sequence[CurvePoint], arm: str, metric: str) -> list[CurvePoint]:
    """Return one arm's points of one metric, rounds rising."""
    return [point for point in points if point.arm == arm and point.metric == metric]


def curve_point(
    table: OutcomeTable, by_prompt: ByPrompt, arm: str, number: int, metric: str
) -> CurvePoint:
    """Return an arm's figure in a round; of a metric without values by prompt too.

    Args:
        table: every figure.
        by_prompt: values by prompt, for an interval with fewer than three seeds; it may lack them.
        arm: the arm.
        number: the round; at least one seed has it.
        metric: the round metric.
    """
    rows = table.outcomes(arm, number, metric)
    mean = table.mean(arm, number, metric)
    ends: tuple[float, float] | None = None
    over: Over | None = None
    if mean is not None and len(rows) >= MIN_SEEDS:
        ends, over = _over_seeds([row.value for row in rows if row.value is not None]), "seeds"
    elif mean is not None:
        ends = _over_prompts(rows, by_prompt)
        over = "prompts" if ends else None
    low, high = ends or (None, None)
    return CurvePoint(
        arm, number, metric, mean, low, high, over,
        seeds=tuple(row.seed for row in rows),
        n_scored=sum(row.n_scored for row in rows),
        n_total=sum(row.n_total for row in rows),
    )  # fmt: skip


def _over_seeds(values: Sequence[float]) -> tuple[float, float]:
    # Imported here: what imports this module has to stay fast.
    from scipy.special import stdtrit

    error = statistics.stdev(values) / len(values) ** 0.5
    half = float(stdtrit(len(values) - 1, (1.0 + LEVEL) / 2.0)) * error
    mean = statistics.fmean(values)
    return mean - half, mean + half


def _over_prompts(rows: Sequence[Outcome], by_prompt: ByPrompt) -> tuple[float, float] | None:
    found = {
        row.seed: by_prompt[(row.arm, row.seed, row.round, row.metric)]
        for row in rows
        if by_prompt.get((row.arm, row.seed, row.round, row.metric))
    }
    return estimate(Paired.of(found)).interval if len(found) == len(rows) else None
