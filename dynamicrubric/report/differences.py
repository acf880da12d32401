"""Paired differences between arms, prompt by prompt, on the last round's held-out responses.

Arms answer the same held-out prompts, so they are compared prompt by prompt: first the mean within
each prompt (its sets and samples are not independent of each other), then the difference, then the
mean over prompts. Seeds are an outer level: with three or more of them the standard error is that
of the seeds' differences. Nothing here is called significant; the counts are printed instead.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dynamicrubric.errors import UserError
from dynamicrubric.plan import Plan
from dynamicrubric.report.cellfiles import EVALUATION, load_cell

MIN_PROMPTS: Final = 20
MIN_SEEDS: Final = 3
TABLES: Final[Mapping[str, str]] = {
    "true_quality": "responses.parquet",
    "delta_gap": "rubrics.parquet",
}
"""Metrics that are compared, and the evaluation table with their values by prompt."""
PromptValues = Mapping[str, float | None]


@dataclass(frozen=True)
class SeedDifference:
    """One arm minus another with one seed, over the prompts that both have a value for."""

    seed: int
    mean: float | None
    standard_error: float | None
    n_prompts: int
    n_prompts_total: int


@dataclass(frozen=True)
class Difference:
    """One arm minus another.

    Attributes:
        metric: what is compared.
        arm: the arm whose advantage is positive.
        other: the arm it is compared to.
        by_seed: the paired difference of each seed.
        mean: mean over seeds, None if a seed has none.
        standard_error: over seeds with three or more of them; with one seed over prompts; else
            None.
        note: what the standard error is over, or why there is none.
    """

    metric: str
    arm: str
    other: str
    by_seed: tuple[SeedDifference, ...]
    mean: float | None
    standard_error: float | None
    note: str


def paired_differences(
    plan: Plan, root: Path, *, arm: str, metric: str = "true_quality"
) -> tuple[Difference, ...]:
    """Compare one arm with each other arm on the last round.

    Args:
        plan: the lattice of cells.
        root: the project's folder.
        arm: the arm that the others are compared to.
        metric: a key of `TABLES`.

    Raises:
        UserError: a cell is missing, or two arms were measured on different prompts.
    """
    seeds = tuple(dict.fromkeys(seed for _, seed in plan.paths))
    others = [name for name in dict.fromkeys(name for name, _ in plan.paths) if name != arm]
    values = {
        place: _prompt_values(plan, root, keys[-1], metric) for place, keys in plan.paths.items()
    }
    return tuple(
        _over_seeds(
            metric,
            arm,
            other,
            [pair(seed, values[(arm, seed)], values[(other, seed)]) for seed in seeds],
        )
        for other in others
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
            remedy="run `dvc repro`: the two evaluations come from different data",
        )
    gaps = [
        one - two
        for prompt, one in first.items()
        if one is not None and (two := second[prompt]) is not None
    ]
    mean = statistics.fmean(gaps) if gaps else None
    error = _standard_error(gaps) if len(gaps) >= MIN_PROMPTS else None
    return SeedDifference(seed, mean, error, len(gaps), len(first))


def _over_seeds(metric: str, arm: str, other: str, by_seed: Sequence[SeedDifference]) -> Difference:
    means = [found.mean for found in by_seed if found.mean is not None]
    mean = statistics.fmean(means) if len(means) == len(by_seed) else None
    error, note = None, ""
    if len(by_seed) == 1:
        only = by_seed[0]
        error = only.standard_error
        counts = f"{only.n_prompts}/{only.n_prompts_total} prompts"
        note = f"over {counts}" if error is not None else f"{counts}, fewer than {MIN_PROMPTS}"
    elif len(by_seed) < MIN_SEEDS:
        note = f"{len(by_seed)} seeds, fewer than {MIN_SEEDS}"
    elif mean is not None:
        error, note = _standard_error(means), f"over {len(by_seed)} seeds"
    return Difference(metric, arm, other, tuple(by_seed), mean, error, note)


def _standard_error(values: Sequence[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values))


def _prompt_values(plan: Plan, root: Path, key: str, metric: str) -> dict[str, float | None]:
    """Return the mean of a metric by prompt id, from the evaluation table of a cell."""
    # Imported here: `import dynamicrubric.cli` has to stay fast.
    import pyarrow.parquet as pq

    path = load_cell(root, plan.cell(key)).file(EVALUATION, TABLES[metric])
    table = pq.read_table(path, columns=["prompt_id", metric])
    values: dict[str, list[float]] = defaultdict(list)
    for prompt, value in zip(
        table.column("prompt_id").to_pylist(), table.column(metric).to_pylist(), strict=True
    ):
        scored = [] if value is None or math.isnan(value) else [float(value)]
        values[str(prompt)].extend(scored)
    return {prompt: statistics.fmean(own) if own else None for prompt, own in values.items()}
