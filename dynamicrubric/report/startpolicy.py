"""The arms' generators of round 1 on one policy's held-out responses: those of P_0.

What an arm's generator tells apart on its own policy's responses depends on that policy as well:
where a policy has learnt what its rubrics ask for, little is left. All arms start from one policy,
so the generators that round 1 trains beside it can be compared with each other alone.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from dynamicrubric.report.differences import SeedDifference, pair
from dynamicrubric.report.gather import UPDATES, Gathered
from dynamicrubric.stats import Estimate, Paired, PromptValues, estimate, holm

FIRST: Final = 1
"""The round whose generators are trained beside the start policy."""


@dataclass(frozen=True)
class OnStartPolicy:
    """An arm's generator of round 1 minus another arm's, on P_0's held-out responses.

    Attributes:
        metric: one of `UPDATES`.
        arm: the arm whose advantage is positive.
        other: the arm it is compared to.
        mine: the arm's mean over seeds of the mean over prompts; None if a seed has no score.
        theirs: the other arm's.
        by_seed: the paired difference of each seed that both arms have.
        estimate: interval, test and effect size of the mean.
        p_corrected: p-value after Holm's correction over the arms compared in this metric.
    """

    metric: str
    arm: str
    other: str
    mine: float | None
    theirs: float | None
    by_seed: tuple[SeedDifference, ...]
    estimate: Estimate
    p_corrected: float | None = None


def on_start_policy(gathered: Gathered, arm: str) -> tuple[OnStartPolicy, ...]:
    """Compare an arm's generator of round 1 with that of each other arm, by metric.

    Left out are arms that do not have the figure (without rubrics there is no R_disc), those that
    share the arm's first round, and seeds that one of the two does not have.

    Args:
        gathered: the cells.
        arm: the arm that the others are compared to.
    """
    paths: dict[str, dict[int, str]] = {}
    for (name, seed), keys in gathered.plan.paths.items():
        cell = gathered.cells.get(keys[FIRST]) if len(keys) > FIRST else None
        if cell is not None and cell.before:
            paths.setdefault(name, {})[seed] = keys[FIRST]
    mine = paths.pop(arm, {})
    others = {
        other: theirs
        for other, theirs in paths.items()
        if any(mine[seed] != theirs[seed] for seed in mine.keys() & theirs.keys())
    }
    found: list[OnStartPolicy] = []
    for metric in UPDATES:
        compared = (_compare(gathered, metric, (arm, mine), other) for other in others.items())
        found += _corrected([one for one in compared if _is_measured(one)])
    return tuple(found)


def _is_measured(one: OnStartPolicy) -> bool:
    """Say whether both arms have the figure at all: without rubrics there is no R_disc."""
    return any(pair.n_prompts for pair in one.by_seed)


def start_policy_rows(found: Sequence[OnStartPolicy]) -> list[dict[str, object]]:
    """Return a row a comparison, for the CSV."""
    rows: list[dict[str, object]] = []
    for one in found:
        low, high = one.estimate.interval or (None, None)
        rows.append(
            {"arm": one.arm, "other": one.other, "metric": one.metric, "mean_arm": one.mine,
             "mean_other": one.theirs, "difference": one.estimate.mean, "low": low, "high": high,
             "over": one.estimate.over, "p": one.estimate.p_value, "p_corrected": one.p_corrected,
             "higher_on": one.estimate.superiority,
             "seeds": " ".join(str(found.seed) for found in one.by_seed),
             "prompts": " ".join(str(found.n_prompts) for found in one.by_seed)}
        )  # fmt: skip
    return rows


def _compare(
    gathered: Gathered,
    metric: str,
    first: tuple[str, Mapping[int, str]],
    second: tuple[str, Mapping[int, str]],
) -> OnStartPolicy:
    (arm, mine), (other, theirs) = first, second
    seeds = [seed for seed in mine if seed in theirs]
    own = {seed: gathered.cells[mine[seed]].before[metric] for seed in seeds}
    others = {seed: gathered.cells[theirs[seed]].before[metric] for seed in seeds}
    by_seed = tuple(pair(seed, own[seed], others[seed]) for seed in seeds)
    return OnStartPolicy(
        metric, arm, other, _mean(own), _mean(others), by_seed,
        estimate(Paired.of({one.seed: one.by_prompt for one in by_seed})),
    )  # fmt: skip


def _corrected(found: Sequence[OnStartPolicy]) -> list[OnStartPolicy]:
    p_values = holm([one.estimate.p_value for one in found])
    return [replace(one, p_corrected=p) for one, p in zip(found, p_values, strict=True)]


def _mean(by_seed: Mapping[int, PromptValues]) -> float | None:
    means = []
    for values in by_seed.values():
        known = [value for value in values.values() if value is not None]
        if not known:
            return None
        means.append(statistics.fmean(known))
    return statistics.fmean(means) if means else None
