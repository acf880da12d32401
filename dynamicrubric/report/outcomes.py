"""The outcome table: one row a figure, for every arm, seed, round and metric of the plan.

A missing cell is an error that names it; a row is never dropped. A cell that arms share appears
under each of them, since it is a point on each arm's path.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import astuple, dataclass, fields
from functools import cached_property
from pathlib import Path

from dynamicrubric.errors import UserError
from dynamicrubric.metrics import ROUND_METRICS
from dynamicrubric.plan import Plan
from dynamicrubric.report.cellfiles import (
    RUN_IT,
    Measured,
    find_cell,
    has_other_results,
    load_cell,
)

Place = tuple[str, int, int, str]


@dataclass(frozen=True)
class Outcome:
    """One figure: a row of results/metrics.csv."""

    arm: str
    seed: int
    round: int
    metric: str
    value: float | None
    n_scored: int
    n_total: int


@dataclass(frozen=True)
class OutcomeTable:
    """All figures of a study, arms in the order of params.yaml, seeds and rounds rising.

    Attributes:
        rows: one a figure.
        arms: arm names.
        seeds: every seed that some arm was run with.
        last_round: the largest T of an arm; round 0 is the untrained policy.
    """

    rows: tuple[Outcome, ...]
    arms: tuple[str, ...]
    seeds: tuple[int, ...]
    last_round: int

    def __post_init__(self) -> None:
        """Assert that no figure is missing, doubled, or of an arm or seed that is not listed."""
        assert len(self._by_place) == len(self.rows), "a figure is there twice"
        paths = self._last_rounds
        expected = {
            (arm, seed, number, metric)
            for (arm, seed), last in paths.items()
            for number in range(last + 1)
            for metric in ROUND_METRICS
        }
        odd = sorted(expected ^ set(self._by_place))
        assert not odd, f"{len(odd)} figures too few or too many, such as {odd[0]}"
        assert {arm for arm, _ in paths} == set(self.arms), "arms without figures, or unlisted"
        assert {seed for _, seed in paths} == set(self.seeds), "seeds without figures, or unlisted"

    @cached_property
    def _by_place(self) -> Mapping[Place, Outcome]:
        return {(row.arm, row.seed, row.round, row.metric): row for row in self.rows}

    @cached_property
    def _last_rounds(self) -> Mapping[tuple[str, int], int]:
        found: dict[tuple[str, int], int] = {}
        for row in self.rows:
            found[(row.arm, row.seed)] = max(row.round, found.get((row.arm, row.seed), 0))
        return found

    def seeds_of(self, arm: str) -> tuple[int, ...]:
        """Return the seeds that an arm was run with."""
        return tuple(seed for seed in self.seeds if (arm, seed) in self._last_rounds)

    def last_round_of(self, arm: str) -> int:
        """Return T of an arm: the last round that all its seeds have."""
        return min(self._last_rounds[(arm, seed)] for seed in self.seeds_of(arm))

    def at(self, arm: str, seed: int, round_number: int, metric: str) -> Outcome:
        """Return one figure."""
        return self._by_place[(arm, seed, round_number, metric)]

    def mean(self, arm: str, round_number: int, metric: str) -> float | None:
        """Return an arm's mean over its own seeds, None unless each of them has a value.

        A mean over the seeds that happen to have one would compare rounds on different seeds. None
        as well for a round that the arm was not run for.
        """
        if round_number > self.last_round_of(arm):
            return None
        values = [self.at(arm, seed, round_number, metric).value for seed in self.seeds_of(arm)]
        known = [value for value in values if value is not None]
        return sum(known) / len(known) if len(known) == len(values) else None


def collect_outcomes(plan: Plan, root: Path) -> OutcomeTable:
    """Read the figures of every cell of a plan.

    Args:
        plan: the lattice of cells.
        root: the project's folder.

    Raises:
        UserError: cells are missing or of another plan (all are named), or a cell's figures are
            impossible.
    """
    measured = _measure_cells(plan, root)
    rows = tuple(
        Outcome(arm, seed, round_number, name, found.value, found.n_scored, found.n_total)
        for (arm, seed), keys in plan.paths.items()
        for round_number, key in enumerate(keys)
        for name, found in measured[key].items()
    )
    return OutcomeTable(
        rows=rows,
        arms=tuple(dict.fromkeys(arm for arm, _ in plan.paths)),
        seeds=tuple(dict.fromkeys(seed for _, seed in plan.paths)),
        last_round=max(len(keys) for keys in plan.paths.values()) - 1,
    )


def _measure_cells(plan: Plan, root: Path) -> dict[str, dict[str, Measured]]:
    keys = list(dict.fromkeys(key for path in plan.paths.values() for key in path))
    missing = [key for key in keys if find_cell(root, plan.cell(key)) is None]
    if missing:
        other = [key for key in missing if has_other_results(root, plan.cell(key))]
        raise UserError(
            doing="comparing the arms",
            got=f"no finished evaluation of {len(missing)} of {len(keys)} cells: "
            + ", ".join(missing)
            + (f"; results of another plan in the folders of {', '.join(other)}" if other else ""),
            expected="every cell of the plan",
            remedy=RUN_IT,
        )
    return {key: load_cell(root, plan.cell(key)).round_metrics() for key in keys}


def write_metrics_csv(table: OutcomeTable, path: Path) -> None:
    """Write one row a figure; an empty value means that nothing could be scored."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(field.name for field in fields(Outcome))
        writer.writerows(astuple(row) for row in table.rows)
