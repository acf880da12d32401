"""Paired differences between arms, prompt by prompt, on the held-out responses of one round.

The round is the last one that both arms reach with every seed that they share.

Arms answer the same held-out prompts, so they are compared prompt by prompt: first the mean within
each prompt (its sets and samples are not independent of each other), then the difference, then the
mean over prompts, then over seeds. `dynamicrubric.stats` says how sure that mean is; here is what
it is computed from. Nothing is called significant; intervals and counts are printed instead.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Final

from dynamicrubric.errors import UserError
from dynamicrubric.plan import Plan
from dynamicrubric.report.cellfiles import EVALUATION, METRICS_FILE, REMEDY, Measured, load_cell
from dynamicrubric.stats import (
    MIN_PROMPTS,
    MIN_SEEDS,
    Estimate,
    Paired,
    PromptValues,
    estimate,
    holm,
    prompt_means,
)
from dynamicrubric.types import Mean, mean_of

TABLES: Final[Mapping[str, str]] = {
    "true_quality": "responses.parquet",
    "delta_gap": "rubrics.parquet",
}
"""Metrics that are compared, and the evaluation table with their values by prompt."""
_TOLERANCE: Final = 1e-9


@dataclass(frozen=True)
class ArmValues:
    """What one arm measured with one seed.

    Attributes:
        by_prompt: mean by prompt id, None where nothing was scored.
        rows: the mean over rows of the table, with its counts.
    """

    by_prompt: PromptValues
    rows: Measured


@dataclass(frozen=True)
class SeedDifference:
    """One arm minus another with one seed, over the prompts that both have a value for.

    Attributes:
        seed: the seed.
        mean: mean over those prompts, None if there are none.
        standard_error: over those prompts; None with fewer than `MIN_PROMPTS` of them.
        n_prompts: how many prompts both arms scored.
        n_prompts_total: of how many.
        by_prompt: the difference of each prompt, None unless both arms scored it.
    """

    seed: int
    mean: float | None
    standard_error: float | None
    n_prompts: int
    n_prompts_total: int
    by_prompt: PromptValues = field(repr=False)


@dataclass(frozen=True)
class Family:
    """The comparisons of one table, whose p-values are corrected together.

    Attributes:
        name: what they compare, in words.
        size: how many of them have a p-value; what was not tested cannot be a false rejection.
    """

    name: str
    size: int


@dataclass(frozen=True)
class Difference:
    """One arm minus another.

    Attributes:
        metric: what is compared.
        arm: the arm whose advantage is positive.
        other: the arm it is compared to.
        by_seed: the paired difference of each seed that both arms were run with.
        mean: mean over seeds, None if a seed has none.
        standard_error: over seeds with three or more of them; with one seed over prompts; else
            None.
        note: what the standard error is over, or why there is none.
        estimate: interval, test and effect size of the mean.
        rows: (scored, all) rows of the arm's tables, summed over the seeds.
        other_rows: the same of the other arm.
        unpaired_seeds: seeds of one of the two arms alone, left out of the comparison, by arm.
        round: the round that is compared.
        p_corrected: p-value after Holm's correction over the family, see `corrected`.
        family: what it was corrected with; None before that.
        same_cell: the two are one and the same cell, so that nothing was compared.
        remark: what makes the two unlike beside what their arms say, "" if nothing.
    """

    metric: str
    arm: str
    other: str
    by_seed: tuple[SeedDifference, ...]
    mean: float | None
    standard_error: float | None
    note: str
    estimate: Estimate
    rows: tuple[int, int]
    other_rows: tuple[int, int]
    unpaired_seeds: Mapping[str, tuple[int, ...]]
    round: int
    p_corrected: float | None = None
    family: Family | None = None
    same_cell: bool = False
    remark: str = ""


def paired_differences(
    plan: Plan,
    root: Path,
    *,
    arm: str,
    metric: str = "true_quality",
    without: Collection[str] = frozenset(),
) -> tuple[Difference, ...]:
    """Compare one arm with each other arm.

    Args:
        plan: the lattice of cells.
        root: the project's folder.
        arm: the arm that the others are compared to.
        metric: a key of `TABLES`.
        without: keys of cells that are not there: a seed whose cell is one of them is left out of
            its comparison and named there.

    Raises:
        UserError: a cell is missing, two arms were measured on different prompts, or a cell's table
            does not give the cell's figure.
    """
    paths: dict[str, dict[int, tuple[str, ...]]] = {}
    for (name, seed), keys in plan.paths.items():
        paths.setdefault(name, {})[seed] = keys
    read = cache(lambda key: arm_values(plan, root, key, metric))
    found = []
    for other in paths:
        if other == arm:
            continue
        last = common_round(paths[arm], paths[other])
        values = [
            {
                seed: read(keys[last])
                for seed, keys in paths[name].items()
                if last < len(keys) and keys[last] not in without
            }
            for name in (arm, other)
        ]
        one = compare_values(metric, (arm, values[0]), (other, values[1]), last)
        same = [paths[arm][d.seed][last] == paths[other][d.seed][last] for d in one.by_seed]
        if same and all(same):
            one = _of_one_cell(one)
        ahead = [name for name in (arm, other) if _trained_ahead(plan, paths[name], last)]
        found.append(replace(one, remark=_AHEAD.format(" and ".join(ahead)) if ahead else ""))
    return tuple(found)


_AHEAD: Final = (
    "the generator of {} had the steps of later rounds too: it trains for all rounds before the "
    "first, and was planned for more than this comparison has"
)


def _of_one_cell(found: Difference) -> Difference:
    """Return a comparison of cells with themselves: its zero was not measured."""
    why = f"both arms are one and the same cell in round {found.round}"
    lacking = Estimate(mean=found.mean, lacking=why)
    return replace(
        found, estimate=lacking, standard_error=None, note="one and the same cell", same_cell=True
    )


def _trained_ahead(plan: Plan, paths: Mapping[int, tuple[str, ...]], last: int) -> bool:
    """Say whether an arm's generator was trained upfront for more rounds than are compared."""
    for keys in paths.values():
        training = plan.cell(keys[1]).recipe.generator_training if len(keys) > 1 else None
        if training is not None and training.responses == "anchors" and len(keys) > last + 1:
            return True
    return False


def common_round(
    first: Mapping[int, tuple[str, ...]], second: Mapping[int, tuple[str, ...]]
) -> int:
    """Return the last round that two arms' paths reach with every seed that they share.

    >>> common_round({1: ("a0", "a1", "a2"), 2: ("b0",)}, {1: ("a0", "c1")})
    1
    """
    shared = [seed for seed in first if seed in second]
    lengths = [len(own[seed]) for seed in shared for own in (first, second)]
    return min(lengths or [len(keys) for own in (first, second) for keys in own.values()]) - 1


def corrected(
    differences: Sequence[Difference], family_of: Callable[[Difference], str]
) -> tuple[Difference, ...]:
    """Return the comparisons, in their order, with Holm's correction over each family.

    A comparison without a p-value (of a cell with itself, or of too few prompts) is no test and
    counts in no family's size.

    Args:
        differences: comparisons of one table or of several.
        family_of: name of the family of a comparison.
    """
    p_values: dict[str, list[float]] = {}
    for found in differences:
        own = p_values.setdefault(family_of(found), [])
        if found.estimate.p_value is not None:
            own.append(found.estimate.p_value)
    holms = {name: iter(holm(own)) for name, own in p_values.items()}
    return tuple(
        replace(
            found,
            p_corrected=None if found.estimate.p_value is None else next(holms[family_of(found)]),
            family=Family(family_of(found), len(p_values[family_of(found)])),
        )
        for found in differences
    )


def pair(seed: int, first: PromptValues, second: PromptValues) -> SeedDifference:
    """Return first minus second over prompts, its standard error clustered by prompt.

    Args:
        seed: the seed both were run with.
        first: mean by prompt id, None where nothing was scored.
        second: the same of the other arm.

    Raises:
        UserError: the prompts are not the same.

    >>> pair(1, {"a": 0.5, "b": 0.7}, {"a": 0.4, "b": 0.6}).n_prompts
    2
    """
    if first.keys() != second.keys():
        only = sorted(first.keys() ^ second.keys())
        raise UserError(
            doing=f"comparing two arms with seed {seed}",
            got=f"{len(only)} held-out prompts of one arm alone, such as {only[0]!r}",
            expected="the same prompts for every arm",
            remedy="run `make reproduce` again: the two evaluations come from different data",
        )
    by_prompt = {
        prompt: None if one is None or (two := second[prompt]) is None else one - two
        for prompt, one in first.items()
    }
    gaps = [gap for gap in by_prompt.values() if gap is not None]
    mean = statistics.fmean(gaps) if gaps else None
    error = _standard_error(gaps) if len(gaps) >= MIN_PROMPTS else None
    return SeedDifference(seed, mean, error, len(gaps), len(first), by_prompt)


def compare_values(
    metric: str,
    first: tuple[str, Mapping[int, ArmValues]],
    second: tuple[str, Mapping[int, ArmValues]],
    round_number: int,
) -> Difference:
    """Compare two arms over the seeds that both were run with.

    Args:
        metric: what is compared.
        first: name and values by seed of the arm whose advantage is positive.
        second: the same of the arm it is compared to.
        round_number: the round that is compared.

    Raises:
        UserError: they were measured on different prompts.
    """
    (arm, mine), (other, theirs) = first, second
    seeds = [seed for seed in mine if seed in theirs]
    by_seed = [pair(seed, mine[seed].by_prompt, theirs[seed].by_prompt) for seed in seeds]
    alone = {
        name: tuple(seed for seed in own if seed not in seeds)
        for name, own in (first, second)
        if set(own) - set(seeds)
    }
    found = estimate(Paired.of({one.seed: one.by_prompt for one in by_seed}))
    error, note = _error_over(by_seed)
    return Difference(
        metric=metric,
        arm=arm,
        other=other,
        by_seed=tuple(by_seed),
        mean=found.mean,
        standard_error=error,
        note=note,
        estimate=found,
        rows=_count_rows(mine, seeds),
        other_rows=_count_rows(theirs, seeds),
        unpaired_seeds=alone,
        round=round_number,
    )


def _error_over(by_seed: Sequence[SeedDifference]) -> tuple[float | None, str]:
    """Return the plain standard error over seeds or one seed's prompts, and what it is over."""
    means = [found.mean for found in by_seed if found.mean is not None]
    if len(by_seed) == 1:
        only = by_seed[0]
        counts = f"{only.n_prompts}/{only.n_prompts_total} prompts"
        few = only.standard_error is None
        return (
            only.standard_error,
            f"{counts}, fewer than {MIN_PROMPTS}" if few else f"over {counts}",
        )
    if len(by_seed) < MIN_SEEDS:
        return None, f"{len(by_seed)} seeds, fewer than {MIN_SEEDS}"
    if len(means) < len(by_seed):
        return None, f"{len(means)} of {len(by_seed)} seeds have a difference"
    return _standard_error(means), f"over {len(by_seed)} seeds"


def _standard_error(values: Sequence[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values))


def _count_rows(values: Mapping[int, ArmValues], seeds: Sequence[int]) -> tuple[int, int]:
    rows = [values[seed].rows for seed in seeds]
    return sum(row.n_scored for row in rows), sum(row.n_total for row in rows)


def arm_values(plan: Plan, root: Path, key: str, metric: str) -> ArmValues:
    """Read a metric by prompt from the evaluation table of a cell, and check it with its figure."""
    # Imported here: `import dynamicrubric.cli` has to stay fast.
    import pyarrow.parquet as pq

    cell = load_cell(root, plan.cell(key))
    path = cell.file(EVALUATION, TABLES[metric])
    table = pq.read_table(path, columns=["prompt_id", metric])
    prompts = [str(prompt) for prompt in table.column("prompt_id").to_pylist()]
    values = [
        None if value is None or math.isnan(value) else float(value)
        for value in table.column(metric).to_pylist()
    ]
    figure = cell.round_metrics()[metric]
    check_figure(path, metric, mean_of(values), figure)
    return ArmValues(prompt_means(zip(prompts, values, strict=True)), figure)


def check_figure(path: Path, metric: str, rows: Mean, figure: Measured) -> None:
    """Check that the rows compared here are those that the outcome table's figure is a mean of."""
    counts = (rows.n_scored, rows.n_total) == (figure.n_scored, figure.n_total)
    value = rows.value is figure.value is None or (
        rows.value is not None
        and figure.value is not None
        and abs(rows.value - figure.value) <= _TOLERANCE
    )
    if not (counts and value):
        raise UserError(
            doing=f"reading {path}",
            got=f"mean {metric} {rows.value} of {rows.n_scored}/{rows.n_total} rows",
            expected=f"{figure.value} of {figure.n_scored}/{figure.n_total}, as in {METRICS_FILE}",
            remedy=REMEDY,
        )
