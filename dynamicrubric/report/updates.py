"""Each generator on the policy's held-out responses before and after the update under it.

In round t the generator G_t supervises the update P_{t-1} -> P_t. Before it, G_t is measured on the
sets that the round before sampled from P_{t-1}; after it, on those of P_t. Where the gap falls from
the one to the other, the policy has learnt what the generator's rubrics can tell apart; where it is
higher again before the next update, training the generator has brought it back.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dynamicrubric.report.differences import pair
from dynamicrubric.report.gather import UPDATES, Gathered
from dynamicrubric.stats import Estimate, Paired, PromptValues, estimate


@dataclass(frozen=True)
class Update:
    """One figure of an arm's generator before and after the policy's update in a round.

    Attributes:
        arm: the arm.
        round: t.
        metric: one of `UPDATES`.
        before: mean over prompts of G_t on P_(t-1), by seed; None where nothing was scored.
        after: likewise on P_t.
        change: after minus before, paired by prompt.
    """

    arm: str
    round: int
    metric: str
    before: Mapping[int, float | None]
    after: Mapping[int, float | None]
    change: Estimate

    @property
    def means(self) -> tuple[float | None, float | None]:
        """Means over the seeds before and after; None if a seed has no score."""
        return _mean(self.before), _mean(self.after)


def updates_of(gathered: Gathered) -> tuple[Update, ...]:
    """Return every update that was measured on both sides, by metric, arm and round."""
    rounds = max((len(keys) for keys in gathered.plan.paths.values()), default=0)
    arms = dict.fromkeys(arm for arm, _ in gathered.plan.paths)
    return tuple(
        found
        for metric in UPDATES
        for arm in arms
        for number in range(1, rounds)
        if (found := _update(gathered, arm, number, metric)) is not None
    )


def update_rows(updates: Sequence[Update]) -> list[dict[str, object]]:
    """Return a row an update and figure, for the CSV."""
    rows: list[dict[str, object]] = []
    for one in updates:
        before, after = one.means
        low, high = one.change.interval or (None, None)
        rows.append(
            {"arm": one.arm, "round": one.round, "metric": one.metric, "before": before,
             "after": after, "change": one.change.mean, "low": low, "high": high,
             "over": one.change.over, "seeds": " ".join(map(str, one.before))}
        )  # fmt: skip
    return rows


def _update(gathered: Gathered, arm: str, number: int, metric: str) -> Update | None:
    cells = {
        seed: gathered.cells[keys[number]]
        for (name, seed), keys in gathered.plan.paths.items()
        if name == arm and number < len(keys) and keys[number] in gathered.cells
    }
    before = {seed: one.before[metric] for seed, one in cells.items() if one.before}
    if not before:
        return None
    after = {seed: cells[seed].by_prompt[metric] for seed in before}
    change = {seed: pair(seed, after[seed], before[seed]).by_prompt for seed in before}
    return Update(
        arm, number, metric,
        {seed: _over_prompts(own) for seed, own in before.items()},
        {seed: _over_prompts(own) for seed, own in after.items()},
        estimate(Paired.of(change)),
    )  # fmt: skip


def _over_prompts(values: PromptValues) -> float | None:
    known = [value for value in values.values() if value is not None]
    return statistics.fmean(known) if known else None


def _mean(by_seed: Mapping[int, float | None]) -> float | None:
    known = [value for value in by_seed.values() if value is not None]
    return statistics.fmean(known) if len(known) == len(by_seed) else None
