"""The G x P grid as figures: read, checked against their cells, one row a figure."""

from __future__ import annotations

import csv
import json
import math
import statistics
from collections.abc import Collection, Mapping
from dataclasses import astuple, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from dynamicrubric.errors import UserError
from dynamicrubric.grid import (
    COEVOLVED,
    GENERATORS,
    POLICIES,
    STALE,
    PlannedGrid,
    planned_grids,
)
from dynamicrubric.gridfiles import FIGURES_FILE, RUBRICS_FILE
from dynamicrubric.plan import Plan
from dynamicrubric.report.cellfiles import (
    EVALUATION,
    RUN_IT,
    SET_METRICS,
    Measured,
    check_rubric_figures,
    checked_file,
)
from dynamicrubric.report.differences import ArmValues, check_figure
from dynamicrubric.report.faults import NOT_WHAT_WAS_WRITTEN, Fault, reason_of
from dynamicrubric.stats import MIN_SEEDS, prompt_means
from dynamicrubric.types import mean_of

RECORD_FILE: Final = "record.json"
_RECORD_KEYS: Final = {"step_version", "inputs", "files", "content_hash"}
GAP: Final = "delta_gap"
"""The metric by which generators are compared."""
Place = tuple[int, str, str, str]


@dataclass(frozen=True)
class GridRow:
    """One figure: a row of results/grid.csv."""

    seed: int
    generator: str
    policy: str
    metric: str
    value: float | None
    n_scored: int
    n_total: int


@dataclass(frozen=True)
class GridTable:
    """The grids of a study; no rows if none is planned.

    Attributes:
        rows: by seed, generator, policy and metric.
        seeds: seeds that have a grid, rising.
    """

    rows: tuple[GridRow, ...] = ()
    seeds: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Assert that no figure is missing or doubled."""
        expected = {
            (seed, generator, policy, metric)
            for seed in self.seeds
            for generator in GENERATORS
            for policy in POLICIES
            for metric in SET_METRICS
        }
        assert len(self._by_place) == len(self.rows), "a figure of the grid is there twice"
        assert set(self._by_place) == expected, "figures of the grid too few or too many"

    @cached_property
    def _by_place(self) -> Mapping[Place, GridRow]:
        return {(row.seed, row.generator, row.policy, row.metric): row for row in self.rows}

    def at(self, seed: int, generator: str, policy: str, metric: str) -> GridRow:
        """Return one figure."""
        return self._by_place[seed, generator, policy, metric]

    def mean(self, generator: str, policy: str, metric: str) -> float | None:
        """Return the mean over seeds, None unless every seed has a value."""
        values = self._values(generator, policy, metric)
        return statistics.fmean(values) if values else None

    def standard_error(self, generator: str, policy: str, metric: str) -> float | None:
        """Return the standard error of the mean over seeds; None with fewer than `MIN_SEEDS`."""
        values = self._values(generator, policy, metric)
        if len(values) < MIN_SEEDS:
            return None
        return statistics.stdev(values) / math.sqrt(len(values))

    def _values(self, generator: str, policy: str, metric: str) -> list[float]:
        found = [self.at(seed, generator, policy, metric).value for seed in self.seeds]
        known = [value for value in found if value is not None]
        return known if len(known) == len(found) else []


def missing_grids(plan: Plan, root: Path) -> tuple[str, ...]:
    """Return the keys of planned grids that are not there, or not of this plan's artefacts."""
    grids = planned_grids(plan)
    return tuple(key for key, grid in grids.items() if _find_record(grid, root) is None)


def grid_faults(plan: Plan, root: Path, without: Collection[str] = ()) -> tuple[Fault, ...]:
    """Return the planned grids that cannot be reported on, each with its reason.

    Args:
        plan: the lattice of cells.
        root: the project's folder.
        without: keys of cells that are left out, and with them the grids that are made of them.
    """
    arms = (COEVOLVED, STALE)
    return tuple(
        Fault(f"grid@{key}", arms, not (root / grid.directory).exists(), reason, "grid")
        for key, grid in planned_grids(plan).items()
        if (reason := _fault_of(grid, root, without))
    )


def _fault_of(grid: PlannedGrid, root: Path, without: Collection[str]) -> str:
    """Return why a grid cannot be reported on; empty if it can."""
    gone = [cell.key for cell in (*grid.cells, grid.stale) if cell.key in without]
    if gone:
        return f"it is made of cells that are not there: {', '.join(gone)}"
    try:
        if _find_record(grid, root) is None:
            return "no grid, or one of other generators or responses"
        table = GridTable(_rows(grid, root), (grid.seed,))
        _values(grid, root, table, GAP)
    except NOT_WHAT_WAS_WRITTEN as error:  # a UserError too
        return reason_of(error)
    return ""


def read_grids(plan: Plan, root: Path, *, partial: bool = False) -> GridTable:
    """Read the grids of a plan.

    Args:
        plan: the lattice of cells.
        root: the project's folder.
        partial: leave out the seeds of `grid_faults`.

    Raises:
        UserError: grids are missing or were measured of other artefacts (all are named), or a
            figure is impossible.
    """
    grids = planned_grids(plan)
    if partial:
        left_out = {fault.key for fault in grid_faults(plan, root)}
        grids = {key: grid for key, grid in grids.items() if f"grid@{key}" not in left_out}
    elif missing := missing_grids(plan, root):
        raise UserError(
            doing="reading the G x P grid",
            got=f"no grid, or one of other generators or responses, for {', '.join(missing)}",
            expected=f"one of what the plan's cells hold now for each of {', '.join(grids)}",
            remedy=RUN_IT,
        )
    rows = tuple(row for grid in grids.values() for row in _rows(grid, root))
    return GridTable(rows, tuple(grid.seed for grid in grids.values()))


def _rows(grid: PlannedGrid, root: Path) -> tuple[GridRow, ...]:
    return tuple(
        GridRow(grid.seed, generator, policy, metric, found.value, found.n_scored, found.n_total)
        for (generator, policy), figures in _figures(grid, root).items()
        for metric, found in figures.items()
    )


def grids_of(plan: Plan, table: GridTable) -> list[PlannedGrid]:
    """Return the grids whose figures a table has: all that are planned, unless it is partial."""
    return [grid for grid in planned_grids(plan).values() if grid.seed in table.seeds]


def grid_values(
    plan: Plan, root: Path, table: GridTable, metric: str
) -> dict[tuple[str, str], dict[int, ArmValues]]:
    """Return a metric by prompt for each (generator, policy) and seed of the table.

    Args:
        plan: the lattice of cells.
        root: the project's folder.
        table: its grids, as `read_grids` returns them.
        metric: a column of the rubrics' table.

    Raises:
        UserError: the table of rubrics is altered, or does not give the grid's figures.
    """
    found: dict[tuple[str, str], dict[int, ArmValues]] = {}
    for grid in grids_of(plan, table):
        for place, values in _values(grid, root, table, metric).items():
            found.setdefault(place, {})[grid.seed] = values
    return found


def _values(
    grid: PlannedGrid, root: Path, table: GridTable, metric: str
) -> dict[tuple[str, str], ArmValues]:
    # Imported here: `import dynamicrubric.cli` has to stay fast.
    import pyarrow.parquet as pq

    folder = root / grid.directory
    path = checked_file(folder / RUBRICS_FILE, read_record(folder))
    columns = ["generator", "policy", "prompt_id", metric]
    rows = pq.read_table(path, columns=columns).to_pylist()
    found = {}
    for place in ((generator, policy) for generator in GENERATORS for policy in POLICIES):
        own = [
            (str(row["prompt_id"]), row[metric])
            for row in rows
            if (row["generator"], row["policy"]) == place
        ]
        said = table.at(grid.seed, *place, metric)
        figure = Measured(said.value, said.n_scored, said.n_total)
        check_figure(path, metric, mean_of([value for _, value in own]), figure)
        found[place] = ArmValues(prompt_means(own), figure)
    return found


def write_grid_csv(table: GridTable, path: Path) -> None:
    """Write one row a figure, none if there is no grid; an empty value: nothing was scored."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(field.name for field in fields(GridRow))
        writer.writerows(astuple(row) for row in table.rows)


def _find_record(grid: PlannedGrid, root: Path) -> Mapping[str, Any] | None:
    """Return the grid's record if it was measured of what its folders hold now."""
    folders = dict(grid.generators)
    folders |= {name: f"{cell.directory}/{EVALUATION}" for name, cell in grid.policies.items()}
    inputs = {name: read_record(root / folder) for name, folder in folders.items()}
    hashes = {name: found["content_hash"] if found else "" for name, found in inputs.items()}
    record = read_record(root / grid.directory)
    if record is None or record["step_version"] != grid.entry["version"]:
        return None
    return record if record["inputs"] == hashes else None


def read_record(folder: Path) -> Mapping[str, Any] | None:
    """Return an artefact's record; None if there is none, or one that cannot be read."""
    try:
        found = json.loads((folder / RECORD_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and found.keys() >= _RECORD_KEYS else None


def _figures(grid: PlannedGrid, root: Path) -> dict[tuple[str, str], dict[str, Measured]]:
    folder = root / grid.directory
    path = checked_file(folder / FIGURES_FILE, read_record(folder))
    stored = json.loads(path.read_text(encoding="utf-8"))["metrics"]
    found = {
        (generator, policy): {
            name: Measured(**stored[generator][policy][name])
            for name in SET_METRICS
            if name in stored[generator][policy]
        }
        for generator in GENERATORS
        for policy in POLICIES
    }
    for (_, policy), figures in found.items():
        check_rubric_figures(path, figures, grid.policies[policy].recipe.responses_per_set)
    return found
