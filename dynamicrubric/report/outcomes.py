"""The outcome table: one row a figure, for every arm, seed, round and metric of the plan.

Arms may have other seeds and other numbers of rounds than each other. A missing cell is an error
that names it; a row is never dropped. A partial table is made on purpose only, and lists what it
lacks. A cell that arms share appears under each of them, since it is a point on each arm's path.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Mapping
from dataclasses import astuple, dataclass, fields
from functools import cached_property
from pathlib import Path

from dynamicrubric.errors import UserError
from dynamicrubric.metrics import ANCHOR_METRICS, ROUND_METRICS
from dynamicrubric.plan import Plan
from dynamicrubric.report.cellfiles import (
    RUN_IT,
    Measured,
    find_cell,
    has_other_results,
    load_cell,
)

Place = tuple[str, int, int, str]
Point = tuple[str, int, int]


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
        seeds: every seed of the study; `seeds_of` says which an arm has.
        last_round: T of the longest arm; round 0 is the untrained policy. `last_round_of` says an
            arm's own.
        missing: (arm, seed, round) without figures, empty unless the table is partial.
    """

    rows: tuple[Outcome, ...]
    arms: tuple[str, ...]
    seeds: tuple[int, ...]
    last_round: int
    missing: frozenset[Point] = frozenset()

    def __post_init__(self) -> None:
        """Assert that no figure is missing, doubled, or of an arm or seed that is not listed."""
        assert len(self._by_place) == len(self.rows), "a figure is there twice"
        expected = {
            (arm, seed, number, metric)
            for (arm, seed), last in self._last_rounds.items()
            for number in range(last + 1)
            if (arm, seed, number) not in self.missing
            for metric in self.metrics
        }
        odd = sorted(expected ^ set(self._by_place))
        assert not odd, f"{len(odd)} figures too few or too many, such as {odd[0]}"
        assert {arm for arm, _ in self._last_rounds} == set(self.arms), (
            "arms without figures, or unlisted"
        )
        assert {seed for _, seed in self._last_rounds} == set(self.seeds), (
            "seeds without figures, or unlisted"
        )

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        """Names of the round metrics: those of anchors are there where some cell has them."""
        found = {row.metric for row in self.rows}
        anchors = ANCHOR_METRICS if found & set(ANCHOR_METRICS) else ()
        return (*ROUND_METRICS, *anchors)

    @cached_property
    def _by_place(self) -> Mapping[Place, Outcome]:
        return {(row.arm, row.seed, row.round, row.metric): row for row in self.rows}

    @cached_property
    def _last_rounds(self) -> Mapping[tuple[str, int], int]:
        found: dict[tuple[str, int], int] = {}
        points = [(row.arm, row.seed, row.round) for row in self.rows]
        for arm, seed, number in [*points, *sorted(self.missing)]:
            found[(arm, seed)] = max(number, found.get((arm, seed), 0))
        return found

    def seeds_of(self, arm: str) -> tuple[int, ...]:
        """Return the seeds that an arm was planned with."""
        return tuple(seed for seed in self.seeds if (arm, seed) in self._last_rounds)

    def last_round_of(self, arm: str) -> int:
        """Return the last round that every seed of an arm is planned to reach."""
        return min(self._last_rounds[(arm, seed)] for seed in self.seeds_of(arm))

    def at(self, arm: str, seed: int, round_number: int, metric: str) -> Outcome:
        """Return one figure."""
        return self._by_place[(arm, seed, round_number, metric)]

    def path(self, arm: str, seed: int, metric: str) -> list[float | None]:
        """Return a figure of rounds 0 to T of one arm and seed; None where there is none."""
        places = [(arm, seed, number, metric) for number in range(self.last_round + 1)]
        found = [self._by_place.get(place) for place in places]
        return [None if row is None else row.value for row in found]

    def outcomes(self, arm: str, round_number: int, metric: str) -> tuple[Outcome, ...]:
        """Return a figure of each seed of an arm that has this round; missing cells left out."""
        places = [(arm, seed, round_number, metric) for seed in self.seeds_of(arm)]
        return tuple(self._by_place[place] for place in places if place in self._by_place)

    def mean(self, arm: str, round_number: int, metric: str) -> float | None:
        """Return an arm's mean over the seeds that have this round; None if one is unscored.

        A mean over the seeds that happen to have a score would compare arms on different seeds.
        In a partial table it is over the seeds that are there.
        """
        values = [row.value for row in self.outcomes(arm, round_number, metric)]
        known = [value for value in values if value is not None]
        return sum(known) / len(known) if 0 < len(known) == len(values) else None


def collect_outcomes(
    plan: Plan, root: Path, without: Collection[str] = frozenset()
) -> OutcomeTable:
    """Read the figures of every cell of a plan.

    Args:
        plan: the lattice of cells.
        root: the project's folder.
        without: keys of cells to leave out and to list as missing.

    Raises:
        UserError: cells are missing or of another plan (all are named), or a cell's figures are
            impossible.
    """
    measured = _measure_cells(plan, root, without)
    points = {
        (arm, seed, round_number): key
        for (arm, seed), keys in plan.paths.items()
        for round_number, key in enumerate(keys)
    }
    rows = tuple(
        Outcome(*point, name, found.value, found.n_scored, found.n_total)
        for point, key in points.items()
        if key not in without
        for name, found in measured[key].items()
    )
    return OutcomeTable(
        rows=rows,
        arms=tuple(dict.fromkeys(arm for arm, _ in plan.paths)),
        seeds=tuple(sorted({seed for _, seed in plan.paths})),
        last_round=max(len(keys) for keys in plan.paths.values()) - 1,
        missing=frozenset(point for point, key in points.items() if key in without),
    )


def _measure_cells(
    plan: Plan, root: Path, without: Collection[str]
) -> dict[str, dict[str, Measured]]:
    path_keys = dict.fromkeys(key for path in plan.paths.values() for key in path)
    keys = [key for key in path_keys if key not in without]
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
